"""What record_ref_openpi.py and record_ref_lerobot.py share: reading an observation, sizes of a small checkpoint, writing a REF file.

A REF file is an .npz that `pi0 check MODEL REF.npz` replays:
    the observation   one array a picture under the robot's own key, `state`, `prompt` (0-d text), `noise` f32 [H,A]
    ref/<stage>       what the reference computed: image.<slot> [224,224,3], tokens [n], state [A], vision.<slot> [256,W],
                      prefix_k.<layer> and prefix_v.<layer> [rows,head_dim], velocity.<i> and x.<i> [H,A], actions_raw [H,A], actions [H,D],
                      bf16_actions_raw [H,A] (the same run in bfloat16: how far the reference's own rounding goes)
"""
import argparse
import contextlib
import json
import os
import re
import struct

import numpy as np


# ------------------------------------------------------------------ the command line
def parser(doc):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--checkpoint", required=True, help="directory that holds model.safetensors")
    p.add_argument("--obs", help="observation as one .npz (or the arrays below, which go before it)")
    p.add_argument("--image", action="append", default=[], metavar="NAME=FILE", help="picture: png, jpeg or npy")
    p.add_argument("--state", help="raw state: V,V,... or FILE.npy")
    p.add_argument("--prompt")
    p.add_argument("--noise", help="FILE.npy f32 [H,A]; default: drawn from --seed")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--steps", type=int, help="flow-matching steps; default: the checkpoint's or config's")
    p.add_argument("--sizes-from-checkpoint", action="store_true", help="build the network in the sizes of the tensors, for small models")
    p.add_argument("--no-bf16", action="store_true", help="skip the second run in bfloat16")
    p.add_argument("--threads", type=int, default=1, help="1 keeps sums in one order, so a second recording gives the same bits")
    p.add_argument("-o", "--out", required=True, metavar="REF.npz")
    return p


class Observation:
    """images: {name: array}; state: 1-d array; prompt: str or None; noise: array or None"""

    def __init__(self, options):
        self.images, self.state, self.prompt, self.noise = {}, None, None, None
        if options.obs:
            with np.load(options.obs) as z:
                for name in z.files:
                    if name.startswith(("ref/", "gate/")):
                        continue
                    if name in ("state", "noise"):
                        setattr(self, name, z[name])
                    elif name == "prompt":
                        value = z[name].item()
                        self.prompt = value.decode() if isinstance(value, bytes) else value
                    else:
                        self.images[name] = z[name]
        for item in options.image:
            name, _, path = item.partition("=")
            self.images[name] = read_picture(path)
        if options.state:
            self.state = np.load(options.state) if options.state.endswith(".npy") else np.array([float(v) for v in options.state.split(",")])
        if options.prompt is not None:
            self.prompt = options.prompt
        if options.noise:
            self.noise = np.load(options.noise)
        if self.noise is not None:
            self.noise = np.asarray(self.noise, np.float32).reshape(self.noise.shape[-2:])
        if not self.images or self.state is None:
            raise SystemExit("an observation needs at least one picture and a state (--obs, or --image and --state)")

    def noise_for(self, horizon, width, seed):
        """the given noise, or N(0,1) from the seed; f32 [horizon,width]"""
        if self.noise is None:
            self.noise = np.random.default_rng(seed).standard_normal((horizon, width)).astype(np.float32)
        if self.noise.shape != (horizon, width):
            raise SystemExit("noise must be [%d,%d], got %s" % (horizon, width, list(self.noise.shape)))
        return self.noise

    def arrays(self):
        z = dict(self.images, state=self.state, noise=self.noise)
        if self.prompt is not None:
            z["prompt"] = np.array(self.prompt)
        return z


def read_picture(path):
    if path.endswith(".npy"):
        return np.load(path)
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"))


# ------------------------------------------------------------------ sizes
def tensor_shapes(path):
    """{name: shape} of a .safetensors file"""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
    return {name: tuple(t["shape"]) for name, t in header.items() if name != "__metadata__"}


def checkpoint_sizes(directory):
    """-> dict(lang, expert, vision) from tensor shapes: one K/V head, SigLIP heads of 72, whatever the tensors' prefix"""
    shapes = tensor_shapes(os.path.join(directory, "model.safetensors"))

    def layers(pattern):
        found = {}
        for name, shape in shapes.items():
            m = re.search(pattern + r"layers\.(\d+)\.(.+)$", name)
            if m:
                found.setdefault(int(m.group(1)), {})[m.group(2)] = shape
        if sorted(found) != list(range(len(found))) or not found:
            raise SystemExit("%s: no layers named ...%slayers.N" % (directory, pattern.replace("\\", "")))
        return found

    def gemma(pattern):
        found = layers(pattern)
        q, k = found[0]["self_attn.q_proj.weight"], found[0]["self_attn.k_proj.weight"]
        return dict(width=q[1], depth=len(found), mlp_dim=found[0]["mlp.gate_proj.weight"][0], num_heads=q[0] // k[0], num_kv_heads=1, head_dim=k[0])

    encoder = layers(r"vision_tower\.(?:vision_model\.)?encoder\.")
    inter, hidden = encoder[0]["mlp.fc1.weight"]
    vision = dict(hidden_size=hidden, num_hidden_layers=len(encoder), num_attention_heads=hidden // 72, intermediate_size=inter)
    return dict(lang=gemma(r"language_model\.(?:model\.)?"), expert=gemma(r"gemma_expert\.model\."), vision=vision)


# ------------------------------------------------------------------ torch
@contextlib.contextmanager
def no_random_init():
    """Every parameter is loaded afterwards, and checked to be: do not spend minutes on filling them first."""
    import torch

    names = [n for n in ("normal_", "kaiming_uniform_", "uniform_", "trunc_normal_", "xavier_uniform_", "_no_grad_trunc_normal_") if hasattr(torch.nn.init, n)]
    kept, kept_normal = {n: getattr(torch.nn.init, n) for n in names}, torch.Tensor.normal_
    for n in names:
        setattr(torch.nn.init, n, lambda tensor, *a, **k: tensor)
    torch.Tensor.normal_ = lambda tensor, *a, **k: tensor
    try:
        yield
    finally:
        for n in names:
            setattr(torch.nn.init, n, kept[n])
        torch.Tensor.normal_ = kept_normal


def to_numpy(tensor):
    """floats of any width -> f32"""
    return tensor.detach().float().cpu().numpy()


def cache_layers(cache):
    """a K/V cache of any transformers version -> list of (k, v), each [batch,heads,rows,head_dim]"""
    if hasattr(cache, "layers"):
        return [(layer.keys, layer.values) for layer in cache.layers]
    if isinstance(cache, dict):  # LeRobot <= 0.3 keeps its own, [batch,rows,heads,head_dim]
        return [(cache[i]["key_states"].transpose(1, 2), cache[i]["value_states"].transpose(1, 2)) for i in sorted(cache)]
    return [tuple(cache[i][:2]) for i in range(len(cache))]


def put_prefix(arrays, cache, valid):
    """K and V of every layer, valid rows only, in prefix order"""
    for i, (k, v) in enumerate(cache_layers(cache)):
        arrays["ref/prefix_k.%d" % i], arrays["ref/prefix_v.%d" % i] = to_numpy(k)[0, 0][valid], to_numpy(v)[0, 0][valid]


def put_steps(arrays, inputs, velocities, last):
    """inputs[i] is x before step i; `last` is x after the last step"""
    after = inputs[1:] + [last]
    for i, (v, x) in enumerate(zip(velocities, after)):
        arrays["ref/velocity.%d" % i], arrays["ref/x.%d" % i] = v, x


def write(path, arrays):
    temporary = path + ".tmp.npz"
    np.savez_compressed(temporary, **arrays)
    os.replace(temporary, path)


def summary(path, arrays):
    raw = arrays["ref/actions_raw"]
    drift = np.abs(arrays["ref/bf16_actions_raw"] - raw).max() if "ref/bf16_actions_raw" in arrays else float("nan")
    print("%s: %d tokens, actions %s, std %.3f, bf16 differs by %.4f" % (path, len(arrays["ref/tokens"]), arrays["ref/actions"].shape, raw.std(), drift))
