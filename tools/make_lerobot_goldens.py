#!/usr/bin/env python3
"""make_lerobot_goldens.py --version 0.3|0.4 --lerobot SRC --tokenizer tokenizer.json --work DIR [--out tests/data/goldens] [--case NAME ...]

Records goldens of LeRobot's older recipes, which the reference set of openpi and LeRobot 0.6 does not hold. For each case it
  1. writes a tiny checkpoint below --work: weights from integers (below), config and processors saved by LeRobot's own classes;
  2. copies the small files of the checkpoint to OUT/<checkpoint>/ (all but model.safetensors, which tests make again);
  3. runs record_ref_lerobot.py on it and writes OUT/<case>.npz.

    LeRobot 0.3.3: Python 3.11, transformers 4.53.2.   LeRobot 0.4.4: the same with openpi's transformers_replace copied over it.

The weights follow the scheme that all tiny checkpoints of this project share, so that tests/golden_checkpoints.c can make them:
    seed = mix(MODEL_SEED ^ fnv1a(name)), value i = f32(scale / D * (sum of the four 16-bit quarters of SplitMix64 output i - 131070)),
    then + mean in f32; D = 37837.22723720648. `name` is openpi's tensor name, whatever the file calls the tensor.
"""
import argparse
import json
import os
import pathlib
import shutil
import struct
import sys

import numpy as np

M64 = (1 << 64) - 1
DEVIATION = 37837.22723720648
TOWERS = "paligemma_with_expert."
VOCABULARY = 257152
Q = dict(vision=dict(hidden=72, layers=1, inter=140), lang=dict(width=40, depth=3, mlp=100), expert=dict(width=24, depth=3, mlp=72), heads=4, head_dim=16)
SEEDS = {"pi0": 2718281, "pi05": 5772156}


# ------------------------------------------------------------------ numbers
def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def fnv1a(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & M64
    return h


def splitmix(seed, count, start=0):
    with np.errstate(over="ignore"):
        z = np.uint64(seed & M64) + np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def quarter_sums(seed, count, start=0):
    w = splitmix(seed, count, start)
    return sum((w >> np.uint64(s)) & np.uint64(0xFFFF) for s in (0, 16, 32, 48)).astype(np.float64) - 131070.0


def normal(seed, count):
    return quarter_sums(seed, count) / DEVIATION


def uniform(seed, count):
    return (splitmix(seed, count) >> np.uint64(11)).astype(np.float64) / 9007199254740992.0


def statistics(robot, key, width):
    seed = mix(86028121 ^ fnv1a(robot + "/" + key))
    mean, std = np.round(normal(seed, width) * 0.35, 6), np.round(0.08 + uniform(seed + 1, width) * 0.5, 6)
    q01, q99 = np.round(mean - (1.7 + uniform(seed + 2, width)) * std, 6), np.round(mean + (1.5 + uniform(seed + 3, width)) * std, 6)
    return {"mean": mean, "std": std, "q01": q01, "q99": q99, "min": q01 - 0.25 * std, "max": q99 + 0.25 * std}


# ------------------------------------------------------------------ weights
def tensor_list(model):
    """-> [(openpi's name, shape, scale, mean)] of architecture Q, tied"""
    out = []

    def add(name, shape, scale, mean=0.0):
        out.append((name, shape, float(scale), mean))

    def linear(name, rows, columns, gain, bias=True):
        add(name + ".weight", (rows, columns), gain / np.sqrt(columns))
        if bias:
            add(name + ".bias", (rows,), 0.1)

    def layer_norm(name, width):
        add(name + ".weight", (width,), 0.15, 1.0)
        add(name + ".bias", (width,), 0.1)

    v, hidden = Q["vision"], Q["vision"]["hidden"]
    tower = TOWERS + "paligemma.model.vision_tower.vision_model."
    add(tower + "embeddings.patch_embedding.weight", (hidden, 3, 14, 14), 2.0 / np.sqrt(588))
    add(tower + "embeddings.patch_embedding.bias", (hidden,), 0.1)
    add(tower + "embeddings.position_embedding.weight", (256, hidden), 0.4)
    for i in range(v["layers"]):
        layer = tower + "encoder.layers.%d." % i
        layer_norm(layer + "layer_norm1", hidden)
        layer_norm(layer + "layer_norm2", hidden)
        for name, gain in (("q", 1.3), ("k", 1.3), ("v", 1.2), ("out", 1.3)):
            linear(layer + "self_attn.%s_proj" % name, hidden, hidden, gain)
        linear(layer + "mlp.fc1", v["inter"], hidden, 1.3)
        linear(layer + "mlp.fc2", hidden, v["inter"], 1.5)
    layer_norm(tower + "post_layernorm", hidden)
    linear(TOWERS + "paligemma.model.multi_modal_projector.linear", Q["lang"]["width"], hidden, 1.2)
    add(TOWERS + "paligemma.lm_head.weight", (VOCABULARY, Q["lang"]["width"]), 1.0 / np.sqrt(Q["lang"]["width"]))

    def rms_norm(name, width, adaptive):
        if adaptive:
            add(name + ".dense.weight", (3 * width, width), 0.35 / np.sqrt(width))
            add(name + ".dense.bias", (3 * width,), 0.3, "gates")
        else:
            add(name + ".weight", (width,), 0.2)

    def gemma(prefix, g, adaptive):
        width, inner = g["width"], Q["heads"] * Q["head_dim"]
        for i in range(g["depth"]):
            layer = prefix + "layers.%d." % i
            for name, rows, columns, gain in (("self_attn.q", inner, width, 1.4), ("self_attn.k", Q["head_dim"], width, 1.4),
                                              ("self_attn.v", Q["head_dim"], width, 1.3), ("self_attn.o", width, inner, 2.0),
                                              ("mlp.gate", g["mlp"], width, 1.4), ("mlp.up", g["mlp"], width, 1.2), ("mlp.down", width, g["mlp"], 1.2)):
                linear(layer + name + "_proj", rows, columns, gain, bias=False)
            rms_norm(layer + "input_layernorm", width, adaptive)
            rms_norm(layer + "post_attention_layernorm", width, adaptive)
        rms_norm(prefix + "norm", width, adaptive)

    gemma(TOWERS + "paligemma.model.language_model.", Q["lang"], False)
    gemma(TOWERS + "gemma_expert.model.", Q["expert"], model == "pi05")
    width = Q["expert"]["width"]
    add(TOWERS + "gemma_expert.lm_head.weight", (VOCABULARY, width), 0.02)
    linear("action_in_proj", width, 32, 1.2)
    linear("action_out_proj", 32, width, 1.0)
    if model == "pi05":
        linear("time_mlp_in", width, width, 1.4)
        linear("time_mlp_out", width, width, 1.6)
    else:
        linear("state_proj", width, 32, 4.0)
        linear("action_time_mlp_in", width, 2 * width, 1.4)
        linear("action_time_mlp_out", width, width, 1.6)
    return out


def values(model, name, shape, scale, mean):
    count, seed, k = int(np.prod(shape)), mix(SEEDS[model] ^ fnv1a(name)), scale / DEVIATION
    out = np.empty(count, np.float32)
    for at in range(0, count, 1 << 20):
        n = min(1 << 20, count - at)
        out[at : at + n] = k * quarter_sums(seed, n, at)
    if mean == "gates":
        out[2 * count // 3 :] += np.float32(0.8)
    elif mean:
        out += np.float32(mean)
    return out.reshape(shape)


def old_name(name):
    """openpi's tensor name as LeRobot <= 0.3 wrote it"""
    for new, old in (("paligemma.lm_head", "paligemma.language_model.lm_head"), ("paligemma.model.language_model", "paligemma.language_model.model"),
                     ("paligemma.model.vision_tower", "paligemma.vision_tower"),
                     ("paligemma.model.multi_modal_projector", "paligemma.multi_modal_projector")):
        name = name.replace(TOWERS + new, TOWERS + old)
    return name


def write_model(path, model, old, extra):
    """extra: {name: f64 values}, stored as F32. Sorted by name; the two vocabulary tables BF16, the rest F32."""
    entries = []
    for name, shape, scale, mean in tensor_list(model):
        kind = "BF16" if name.endswith("lm_head.weight") else "F32"
        entries.append(("model." + (old_name(name) if old else name), kind, shape, lambda n=name, s=shape, c=scale, m=mean: values(model, n, s, c, m)))
    entries += [(name, "F32", v.shape, lambda v=v: v.astype(np.float32)) for name, v in extra.items()]
    entries.sort(key=lambda e: e[0])
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, kind, shape, _ in entries:
        size = int(np.prod(shape)) * (2 if kind == "BF16" else 4)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, kind, _, get in entries:
            x = np.ascontiguousarray(get())
            if kind == "BF16":
                bits = x.view(np.uint32)
                x = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
            f.write(x.tobytes())


# ------------------------------------------------------------------ cases
BASE = ["observation.images.base_0_rgb", "observation.images.left_wrist_0_rgb", "observation.images.right_wrist_0_rgb"]
CASES = {
    "lerobot03_pi0": dict(version="0.3", checkpoint="lerobot03_pi0_Q", model="pi0", robot="aloha", dims=(14, 14), horizon=20, norm="MEAN_STD",
                          cameras=["observation.images.top", "observation.images.wrist"], sizes=((320, 240), (100, 160)),
                          settings=dict(adapt_to_pi_aloha=True), prompt="transfer_the cube\nto the  left arm", seed=51),
    "lerobot03_pi0_minmax": dict(version="0.3", checkpoint="lerobot03_pi0_Q_minmax", model="pi0", robot="libero", dims=(8, 7), horizon=10, norm="MIN_MAX",
                                 cameras=["observation.images.image", "observation.images.image2"], sizes=((256, 256), None),
                                 settings=dict(empty_cameras=1, num_steps=5), prompt="open the drawer\n", seed=52),
    "lerobot04_pi0": dict(version="0.4", checkpoint="lerobot04_pi0_Q", model="pi0", robot="libero", dims=(8, 7), horizon=10, norm="MEAN_STD",
                          cameras=["observation.images.image", "observation.images.image2"], sizes=((400, 300), (224, 224)),
                          settings={}, prompt="put the_bowl on  the plate", seed=53),
    "lerobot04_pi05": dict(version="0.4", checkpoint="lerobot04_pi05_Q", model="pi05", robot="droid", dims=(8, 8), horizon=10, norm="QUANTILES",
                           cameras=BASE, sizes=((320, 180), None, (130, 200)), settings={}, prompt="pick up the_red block\n", seed=54),
}


def picture(width, height, seed):
    """u8 [height,width,3]: slopes, a disc and some grain; integers only"""
    y, x = np.mgrid[0:height, 0:width]
    out = np.zeros((height, width, 3), np.int64)
    disc = (x - width * (30 + seed % 5 * 9) // 100) ** 2 + (y - height // 2) ** 2 < (min(width, height) // 4) ** 2
    for c in range(3):
        v = 30 + x * (150 - 50 * c) // width + y * (30 + 35 * c) // height + 25 * ((x * 9 // width + y * 7 // height) % 2)
        out[..., c] = np.where(disc, 230 - 90 * c + (x - y) % 23, v) + (x * 7 + y * 13 + c * 5) % 4
    return np.clip(out, 0, 255).astype(np.uint8)


def observation(case):
    """-> arrays of --obs"""
    z = {}
    for i, (name, size) in enumerate(zip(case["cameras"], case["sizes"])):
        if size:
            z[name] = picture(*size, case["seed"] + i)
    st = statistics(case["robot"], "state", case["dims"][0])
    state = np.round(st["mean"] + st["std"] * normal(mix(49979687 + case["seed"]), case["dims"][0]), 6)
    if case["robot"] == "aloha":  # its grippers are 0 .. 1
        state[[6, 13]] = np.round(0.1 + 0.7 * uniform(mix(67867967 + case["seed"]), 2), 6)
    z["state"] = state.astype(np.float32)
    z["prompt"] = np.array(case["prompt"])
    z["noise"] = normal(mix(15485863 + case["seed"]), case["horizon"] * 32).astype(np.float32).reshape(case["horizon"], 32)
    return z


# ------------------------------------------------------------------ checkpoints
def save_config(config, folder, kind):
    config._save_pretrained(pathlib.Path(folder))
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        fields = json.load(f)
    with open(path, "w") as f:  # draccus 0.10, which these versions pin, writes the type first; 0.11 leaves it out
        f.write(json.dumps({"type": kind, **fields}, indent=4) + "\n")


def make_checkpoint(folder, case):
    import torch
    from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature

    os.makedirs(folder, exist_ok=True)
    old = case["version"] == "0.3"
    norm = NormalizationMode[case["norm"]]
    stats = {"observation.state": statistics(case["robot"], "state", case["dims"][0]), "action": statistics(case["robot"], "actions", case["dims"][1])}
    inputs = {k: PolicyFeature(FeatureType.VISUAL, (3, 224, 224)) for k in case["cameras"]}
    inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (case["dims"][0],))
    common = dict(input_features=inputs, output_features={"action": PolicyFeature(FeatureType.ACTION, (case["dims"][1],))}, device="cpu",
                  chunk_size=case["horizon"], n_action_steps=case["horizon"],
                  normalization_mapping={"VISUAL": NormalizationMode.IDENTITY, "STATE": norm, "ACTION": norm}, **case["settings"])
    if case["model"] == "pi05":
        from lerobot.policies.pi05.configuration_pi05 import PI05Config as Config
    else:
        from lerobot.policies.pi0.configuration_pi0 import PI0Config as Config
    if old:
        config = Config(proj_width=Q["expert"]["width"], **common)
        save_config(config, folder, case["model"])
        kinds = ("mean", "std") if case["norm"] == "MEAN_STD" else ("min", "max")
        extra = {}
        for module, key in (("normalize_inputs", "observation.state"), ("normalize_targets", "action"), ("unnormalize_outputs", "action")):
            for kind in kinds:
                extra["%s.buffer_%s.%s" % (module, key.replace(".", "_"), kind)] = stats[key][kind]
        write_model(os.path.join(folder, "model.safetensors"), case["model"], True, extra)
        return
    config = Config(**common)
    save_config(config, folder, case["model"])
    if case["model"] == "pi05":
        from lerobot.policies.pi05.processor_pi05 import make_pi05_pre_post_processors as make
    else:
        from lerobot.policies.pi0.processor_pi0 import make_pi0_pre_post_processors as make
    pre, post = make(config, dataset_stats={k: {n: torch.tensor(v) for n, v in s.items()} for k, s in stats.items()})
    pre.save_pretrained(folder)
    post.save_pretrained(folder)
    write_model(os.path.join(folder, "model.safetensors"), case["model"], False, {})


def main(argv=None):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--version", choices=("0.3", "0.4"), required=True)
    p.add_argument("--lerobot", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--out", default=os.path.join(root, "tests", "data", "goldens"))
    p.add_argument("--case", nargs="*")
    o = p.parse_args(argv)
    sys.path.insert(0, os.path.join(o.lerobot, "src"))
    import record_ref_lerobot

    os.makedirs(o.work, exist_ok=True)
    for name, case in CASES.items():
        if case["version"] != o.version or (o.case and name not in o.case):
            continue
        folder, small = os.path.join(o.work, case["checkpoint"]), os.path.join(o.out, case["checkpoint"])
        record_ref_lerobot.use_local_tokenizer(o.tokenizer, case["model"])
        make_checkpoint(folder, case)
        os.makedirs(small, exist_ok=True)
        for file in os.listdir(folder):
            if file != "model.safetensors":
                shutil.copyfile(os.path.join(folder, file), os.path.join(small, file))
        obs = os.path.join(o.work, name + ".obs.npz")
        np.savez_compressed(obs, **observation(case))
        record_ref_lerobot.main(["--checkpoint", folder, "--obs", obs, "--sizes-from-checkpoint", "--tokenizer", o.tokenizer,
                                 "-o", os.path.join(o.out, name + ".npz")])


if __name__ == "__main__":
    main()
