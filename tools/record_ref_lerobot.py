#!/usr/bin/env python3
"""record_ref_lerobot.py --checkpoint DIR --obs FILE.npz -o REF.npz: record what LeRobot computes, for `pi0 check`.

Runs LeRobot's own code, nothing else: config and processors from the checkpoint, PI0Policy or PI05Policy in float32, and once more in
bfloat16. Works with LeRobot 0.3 (statistics inside the weights, no processor files), 0.4, 0.5 and 0.6, in an environment in which that
version runs (0.3: transformers 4.53; 0.4: 4.53 with the patched Gemma and SigLIP files; from 0.5: its own pin).

    python record_ref_lerobot.py --checkpoint CKPT --image top=top.png --state 0,0,0,0,0,0,0 --prompt "pick up the cube" -o ref.npz
    pi0 check CKPT ref.npz

LeRobot 0.3 has no float32 mode: it casts to bfloat16 wherever it runs. Its float32 run is made by letting the name torch.bfloat16 mean
float32 inside its two model files.
"""
import contextlib
import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy as np

import ref_record as R

PREFIX = "observation.images."


def options(argv):
    p = R.parser(__doc__)
    p.add_argument("--lerobot", help="LeRobot's repository; default: the installed package")
    p.add_argument("--tokenizer", help="PaliGemma's tokenizer.json; default: transformers fetches or finds its own")
    return p.parse_args(argv)


# ------------------------------------------------------------------ building the policy
class Float32Torch:
    """torch, except that bfloat16 is float32"""

    def __init__(self, torch):
        self._torch = torch
        self.bfloat16 = torch.float32

    def __getattr__(self, name):
        return getattr(self._torch, name)


def local_tokenizer(path):
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=path, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>")

    class Auto:
        @staticmethod
        def from_pretrained(name, **kw):
            return tokenizer

    return Auto


def use_local_tokenizer(path, kind):
    """wherever this version looks for AutoTokenizer"""
    module, old = import_family(kind)
    if not old:
        import lerobot.processor.tokenizer_processor as module
    module.AutoTokenizer = local_tokenizer(path)


def import_family(kind):
    """-> the module with the policy, and whether it is LeRobot <= 0.3"""
    if kind == "pi05":
        import lerobot.policies.pi05.modeling_pi05 as module
    else:
        import lerobot.policies.pi0.modeling_pi0 as module
    return module, hasattr(module, "PI0FlowMatching")


def use_sizes(module, old, directory):
    sizes = R.checkpoint_sizes(directory)
    vision = dict(sizes["vision"], projection_dim=sizes["lang"]["width"])

    def gemma_fields(g):
        return dict(hidden_size=g["width"], intermediate_size=g["mlp_dim"], num_hidden_layers=g["depth"], num_attention_heads=g["num_heads"],
                    num_key_value_heads=1, head_dim=g["head_dim"])

    def put(config, fields):
        for key, value in fields.items():
            setattr(config, key, value)

    if old:
        real = module.PaliGemmaWithExpertConfig

        def config(**kw):
            c = real(**kw)
            put(c.paligemma_config, dict(hidden_size=sizes["lang"]["width"], projection_dim=sizes["lang"]["width"]))
            put(c.paligemma_config.text_config, gemma_fields(sizes["lang"]))
            put(c.paligemma_config.vision_config, vision)
            put(c.gemma_expert_config, gemma_fields(sizes["expert"]))
            return c

        module.PaliGemmaWithExpertConfig = config
        return
    named = {"gemma_2b": sizes["lang"], "gemma_300m": sizes["expert"]}

    def gemma_config(variant):
        g = named[variant]
        return module.GemmaConfig(g["width"], g["depth"], g["mlp_dim"], g["num_heads"], 1, g["head_dim"])

    module.get_gemma_config = gemma_config
    for name in ("PaliGemmaForConditionalGenerationWithPiGemma", "PaliGemmaForConditionalGeneration"):
        if hasattr(module, name):
            real_model = getattr(module, name)

            def model(config, real_model=real_model):
                put(config.vision_config, vision)
                return real_model(config=config)

            setattr(module, name, model)
            break


def check_loaded(policy, old, directory):
    """LeRobot prints and goes on when a tensor does not fit, so compare what is in the file with what is in the policy."""
    import torch
    from safetensors.torch import load_file

    stored = load_file(os.path.join(directory, "model.safetensors"))
    if old:
        stored = type(policy)._transform_state_dict_keys(stored)
    have, loaded, bad = policy.state_dict(), set(), []
    for name, value in stored.items():
        spellings = [name, "model." + name]
        spellings += [s.replace("vision_tower.vision_model.", "vision_tower.") for s in spellings]
        at = next((s for s in spellings if s in have), None)
        if at is None:
            bad.append("not in the policy: " + name)
        elif not torch.equal(have[at], value.to(have[at].dtype)) and not name.endswith("paligemma.lm_head.weight"):
            bad.append("differs: " + name)
        else:
            loaded.add(have[at].data_ptr())
    tied = next((value for name, value in stored.items() if name.endswith("paligemma.lm_head.weight")), None)
    for name, value in have.items():
        if value.data_ptr() in loaded or not value.numel():
            continue
        if name.endswith("language_model.embed_tokens.weight") and tied is not None and torch.equal(value, tied.to(value.dtype)):
            continue  # from 0.5 on a copy of lm_head, where the file has no table of its own
        bad.append("not in the file: " + name)
    if bad:
        raise SystemExit("the checkpoint was not loaded whole:\n  " + "\n  ".join(bad))


def build(o, dtype):
    from lerobot.configs.policies import PreTrainedConfig

    import lerobot.policies.pi0.configuration_pi0  # registers "pi0"

    with contextlib.suppress(ImportError):
        import lerobot.policies.pi05.configuration_pi05  # "pi05"
    config = PreTrainedConfig.from_pretrained(o.checkpoint)
    config.device = "cpu"
    module, old = import_family(config.type)
    if old:
        import torch

        import lerobot.policies.pi0.paligemma_with_expert as tower

        module.torch = tower.torch = Float32Torch(torch) if dtype == "float32" else torch
        if o.steps:
            config.num_steps = o.steps
    else:
        config.dtype = dtype
    if o.sizes_from_checkpoint and not getattr(module, "_sizes_are_set", False):
        use_sizes(module, old, o.checkpoint)
        module._sizes_are_set = True
    if o.tokenizer:
        use_local_tokenizer(o.tokenizer, config.type)
    policy_class = module.PI05Policy if config.type == "pi05" else module.PI0Policy
    with contextlib.redirect_stdout(sys.stderr), R.no_random_init():
        policy = policy_class.from_pretrained(o.checkpoint, config=config, strict=False)
    check_loaded(policy, old, o.checkpoint)
    policy.eval()
    return config, policy, old


def processors(o):
    """the pipelines of the checkpoint's own files, LeRobot >= 0.4"""
    from lerobot.processor import PolicyProcessorPipeline
    from lerobot.processor.converters import batch_to_transition, policy_action_to_transition, transition_to_batch, transition_to_policy_action

    for name in ("pi0.processor_pi0", "pi05.processor_pi05"):  # registers their steps
        with contextlib.suppress(ImportError):
            __import__("lerobot.policies." + name)
    pre = PolicyProcessorPipeline.from_pretrained(o.checkpoint, config_filename="policy_preprocessor.json", overrides={"device_processor": {"device": "cpu"}},
                                                  to_transition=batch_to_transition, to_output=transition_to_batch)
    post = PolicyProcessorPipeline.from_pretrained(o.checkpoint, config_filename="policy_postprocessor.json",
                                                   to_transition=policy_action_to_transition, to_output=transition_to_policy_action)
    relative = [s for s in pre.steps if type(s).__name__.startswith("RelativeAction")]
    for step in post.steps:  # the step back to absolute actions asks its partner for the state
        if type(step).__name__.startswith("AbsoluteAction") and relative and hasattr(step, "relative_step"):
            step.relative_step = relative[0]
    return pre, post


# ------------------------------------------------------------------ recording
class Recorder:
    """Wraps methods of the policy and keeps what passes through them."""

    def __init__(self, policy, old, force):
        self.old, self.force = old, force  # arguments of sample_actions that not every version lets through
        self.seen = {"vision": [], "x": [], "velocity": []}
        model, tower = policy.model, policy.model.paligemma_with_expert
        self.wrap(tower, "embed_image", self.embed_image)
        self.wrap(tower, "forward", self.forward)
        self.wrap(model, "denoise_step", self.denoise_step)
        self.wrap(model, "sample_actions", self.sample_actions)
        self.wrap(policy, "prepare_images" if old else "_preprocess_images", self.pictures)

    @staticmethod
    def wrap(owner, name, watcher):
        inner = getattr(owner, name)
        setattr(owner, name, lambda *a, **k: watcher(inner, *a, **k))

    def embed_image(self, inner, picture, **kw):
        out = inner(picture, **kw)
        # 0.3 calls transformers' get_image_features, which divides by sqrt(width), and multiplies afterwards
        self.seen["vision"].append(R.to_numpy(out)[0] * (np.float32(out.shape[-1] ** 0.5) if self.old else 1))
        return out

    def forward(self, inner, **kw):
        out = inner(**kw)
        if kw["inputs_embeds"][1] is None:  # the prefix, not a denoising step
            self.seen["cache"] = out[1]
        return out

    def denoise_step(self, inner, *a, **kw):
        names = ("state", "prefix_pad_masks", "past_key_values", "x_t", "timestep")
        named = dict(zip(names, a)) if len(a) == 5 else dict(zip(names[1:], a)) if a else kw
        before = R.to_numpy(named["x_t"])[0].copy()
        out = inner(*a, **kw)
        self.seen["x"].append(before)
        self.seen["velocity"].append(R.to_numpy(out)[0])
        self.seen["valid"] = named["prefix_pad_masks"][0].numpy().astype(bool)
        return out

    def pictures(self, inner, batch):
        pictures, masks = inner(batch)
        self.seen.update(pictures=[R.to_numpy(p)[0] for p in pictures], masks=[bool(m[0]) for m in masks])
        return pictures, masks

    def sample_actions(self, inner, images, masks, tokens, token_masks, *a, **kw):
        valid = token_masks[0].bool()
        out = inner(images, masks, tokens, token_masks, *a, **{**kw, **self.force})
        self.seen.update(raw=R.to_numpy(out)[0].copy(), tokens=tokens[0][valid].numpy().astype(np.int64))
        return out


def tensors(observation):
    """pictures as LeRobot's robots give them: f32 [3,h,w] in [0,1]; state f32"""
    import torch

    out = {}
    for name, picture in observation.images.items():
        p = torch.from_numpy(np.ascontiguousarray(picture))
        p = p.float() / 255 if p.dtype == torch.uint8 else p.float()
        if p.shape[-1] == 3:
            p = p.permute(2, 0, 1).contiguous()
        out[name if name.startswith("observation.") else PREFIX + name] = p
    out["observation.state"] = torch.from_numpy(np.asarray(observation.state, np.float32))
    return out


def padded(state, width):
    return np.concatenate([state, np.zeros(max(0, width - len(state)), np.float32)])


def run(o, observation, dtype):
    """-> config, what the recorder saw, actions in the robot's units"""
    import torch

    config, policy, old = build(o, dtype)
    horizon = config.n_action_steps if old else config.chunk_size
    force = {"noise": torch.from_numpy(observation.noise_for(horizon, config.max_action_dim, o.seed).copy())[None]}
    if o.steps and not old:
        force["num_steps"] = o.steps
    seen = Recorder(policy, old, force).seen
    batch = tensors(observation)
    with torch.no_grad():
        if old:
            batch = {k: v[None] for k, v in batch.items()}
            batch["task"] = [observation.prompt]
            policy.normalize_inputs.register_forward_hook(lambda m, i, out: seen.update(state=R.to_numpy(out["observation.state"])[0]))
            first = policy.select_action(batch)
            actions = np.stack([R.to_numpy(a)[0] for a in [first, *policy._action_queue]])
        else:
            pre, post = processors(o)
            batch["task"] = observation.prompt
            batch = pre(batch)
            seen["state"] = R.to_numpy(batch["observation.state"])[0]
            actions = R.to_numpy(post(policy.predict_action_chunk(batch)))[0]
    present = [k for k in config.image_features if k in batch]
    seen.update(state=padded(seen["state"], config.max_state_dim), slots=[k.removeprefix(PREFIX) for k in present])
    return seen, actions


def main(argv=None):
    o = options(argv)
    if o.lerobot:
        sys.path.insert(0, os.path.join(o.lerobot, "src"))
    import torch

    torch.set_num_threads(o.threads)
    observation = R.Observation(o)
    observation.state = np.asarray(observation.state, np.float32)
    if observation.prompt is None:
        raise SystemExit("LeRobot needs a prompt (--prompt, or `prompt` in --obs)")
    seen, actions = run(o, observation, "float32")
    z = observation.arrays()
    for i, slot in enumerate(seen["slots"]):
        assert seen["masks"][i]
        z["ref/image." + slot] = np.ascontiguousarray(seen["pictures"][i].transpose(1, 2, 0))
        z["ref/vision." + slot] = seen["vision"][i]
    z["ref/tokens"], z["ref/state"] = seen["tokens"], seen["state"]
    R.put_prefix(z, seen["cache"], seen["valid"])
    R.put_steps(z, seen["x"], seen["velocity"], seen["raw"])
    z["ref/actions_raw"], z["ref/actions"] = seen["raw"], actions
    if not o.no_bf16:
        z["ref/bf16_actions_raw"] = run(o, observation, "bfloat16")[0]["raw"]
    R.write(o.out, z)
    R.summary(o.out, z)


if __name__ == "__main__":
    main()
