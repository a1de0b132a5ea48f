#!/usr/bin/env python3
"""record_ref_openpi.py --checkpoint DIR --config NAME --obs FILE.npz -o REF.npz: record what openpi computes, for `pi0 check`.

Runs openpi's own code, nothing else: Policy.infer with the transforms of the named config, PI0Pytorch in float32, and once more in
bfloat16. Needs an environment in which openpi's PyTorch policies run (its pyproject: transformers 4.53.2 with transformers_replace copied
over it).

    python record_ref_openpi.py --checkpoint CKPT --config pi0_aloha_sim --image cam_high=top.png --state 0,0,0,0,0,0,0,0,0,0,0,0,0,0 -o ref.npz
    pi0 check CKPT ref.npz --config pi0_aloha_sim

Pictures carry the robot's own keys: cam_high, ... (ALOHA), observation/image, ... (LIBERO), observation/exterior_image_1_left, ... (DROID).
State: ALOHA 14 values; LIBERO 8; DROID 7 joints, then the gripper.
"""
import os
import pathlib
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # the model is compiled at construction otherwise
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

import ref_record as R

SLOTS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")


def options():
    p = R.parser(__doc__)
    p.add_argument("--openpi", help="openpi's repository; default: the installed package")
    p.add_argument("--config", required=True, help="name of an openpi training config")
    p.add_argument("--norm-stats", help="folder that holds norm_stats.json; default: CHECKPOINT/assets/<asset id>")
    p.add_argument("--tokenizer", help="paligemma_tokenizer.model; default: openpi downloads or finds its own")
    return p.parse_args()


def use_sizes(directory):
    """openpi names its networks (gemma_2b, gemma_300m, So400m); let those names mean the sizes of the tensors"""
    import openpi.models.gemma as gemma
    import openpi.models_pytorch.gemma_pytorch as gemma_pytorch

    sizes = R.checkpoint_sizes(directory)
    small = {"gemma_2b": gemma.Config(**sizes["lang"]), "gemma_300m": gemma.Config(**sizes["expert"])}
    real_config, real_model = gemma.get_config, gemma_pytorch.PaliGemmaForConditionalGeneration

    def model(config):
        for key, value in dict(sizes["vision"], projection_dim=sizes["lang"]["width"]).items():
            setattr(config.vision_config, key, value)
        return real_model(config=config)

    gemma.get_config = lambda variant: small.get(variant) or real_config(variant)
    gemma_pytorch.PaliGemmaForConditionalGeneration = model


class Recorder:
    """Wraps methods of the model and keeps what passes through them."""

    def __init__(self, model):
        self.seen = {"pictures": [], "vision": [], "x": [], "velocity": []}
        tower = model.paligemma_with_expert
        self.wrap(tower, "embed_image", self.embed_image)
        self.wrap(tower, "forward", self.forward)
        self.wrap(model, "denoise_step", self.denoise_step)
        self.wrap(model, "sample_actions", self.sample_actions)

    @staticmethod
    def wrap(owner, name, watcher):
        inner = getattr(owner, name)
        setattr(owner, name, lambda *a, **k: watcher(inner, *a, **k))

    def embed_image(self, inner, picture):
        out = inner(picture)
        self.seen["pictures"].append(picture)
        self.seen["vision"].append(out)
        return out

    def forward(self, inner, **kw):
        out = inner(**kw)
        if kw["inputs_embeds"][1] is None:  # the prefix, not a denoising step
            self.seen["cache"] = out[1]
        return out

    def denoise_step(self, inner, state, valid, cache, x, time):
        before = R.to_numpy(x)[0].copy()
        out = inner(state, valid, cache, x, time)
        self.seen["x"].append(before)
        self.seen["velocity"].append(R.to_numpy(out)[0])
        self.seen.update(valid=valid[0].numpy().astype(bool), state=R.to_numpy(state)[0])
        return out

    def sample_actions(self, inner, device, observation, **kw):
        out = inner(device, observation, **kw)
        mask = observation.tokenized_prompt_mask[0].bool()
        self.seen.update(raw=R.to_numpy(out)[0], tokens=observation.tokenized_prompt[0][mask].numpy().astype(np.int64),
                         present=[s for s in SLOTS if bool(observation.image_masks[s][0])])
        return out


def robot_message(data_config, observation):
    """the dictionary that this robot's client sends"""
    kind = type(data_config.data_transforms.inputs[0]).__name__
    state, images = np.asarray(observation.state), observation.images
    if kind == "AlohaInputs":
        message = {"images": {k: np.ascontiguousarray(v.transpose(2, 0, 1)) for k, v in images.items()}, "state": state.copy()}
    elif kind == "LiberoInputs":
        message = {**images, "observation/state": state.copy()}
    elif kind == "DroidInputs":
        message = {**images, "observation/joint_position": state[:7].copy(), "observation/gripper_position": state[7:8].copy()}
    else:
        raise SystemExit("no message is known for %s; there are AlohaInputs, LiberoInputs, DroidInputs" % kind)
    if observation.prompt is not None:
        message["prompt"] = observation.prompt
    return message


def run(o, observation, dtype):
    import dataclasses

    import safetensors.torch
    import torch

    import openpi.policies.policy as policies
    import openpi.shared.normalize as normalize
    import openpi.training.config as configs
    import openpi.transforms as transforms
    from openpi.models_pytorch import pi0_pytorch

    config = configs.get_config(o.config)
    model_config = dataclasses.replace(config.model, dtype=dtype, pytorch_compile_mode=None)
    with R.no_random_init():
        model = pi0_pytorch.PI0Pytorch(model_config)
    safetensors.torch.load_model(model, os.path.join(o.checkpoint, "model.safetensors"), strict=True)
    if dtype == "bfloat16":
        model.paligemma_with_expert.to_bfloat16_for_selected_params("bfloat16")
    torch.set_float32_matmul_precision("highest")  # the constructor asks for less

    data = config.data.create(config.assets_dirs, model_config)
    stats = normalize.load(o.norm_stats or os.path.join(o.checkpoint, "assets", data.asset_id))
    inputs = [transforms.InjectDefaultPrompt(None), *data.data_transforms.inputs,
              transforms.Normalize(stats, use_quantiles=data.use_quantile_norm), *data.model_transforms.inputs]
    outputs = [*data.model_transforms.outputs, transforms.Unnormalize(stats, use_quantiles=data.use_quantile_norm), *data.data_transforms.outputs]
    recorder = Recorder(model)
    policy = policies.Policy(model, transforms=inputs, output_transforms=outputs, sample_kwargs={"num_steps": o.steps or 10},
                             is_pytorch=True, pytorch_device="cpu")
    noise = observation.noise_for(model_config.action_horizon, model_config.action_dim, o.seed)
    result = policy.infer(robot_message(data, observation), noise=noise)
    return result, recorder.seen


def main():
    o = options()
    if o.openpi:
        sys.path[:0] = [os.path.join(o.openpi, "src"), os.path.join(o.openpi, "packages", "openpi-client", "src")]
    import torch

    torch.set_num_threads(o.threads)
    if o.tokenizer:
        import openpi.shared.download as download

        real = download.maybe_download
        download.maybe_download = lambda url, **kw: pathlib.Path(o.tokenizer) if url.endswith("tokenizer.model") else real(url, **kw)
    if o.sizes_from_checkpoint:
        use_sizes(o.checkpoint)

    observation = R.Observation(o)
    result, seen = run(o, observation, "float32")
    z = observation.arrays()
    for i, slot in enumerate(SLOTS):
        if slot in seen["present"]:
            z["ref/image." + slot] = np.ascontiguousarray(R.to_numpy(seen["pictures"][i])[0].transpose(1, 2, 0))
            z["ref/vision." + slot] = R.to_numpy(seen["vision"][i])[0]
    z["ref/tokens"], z["ref/state"] = seen["tokens"], seen["state"]
    R.put_prefix(z, seen["cache"], seen["valid"])
    R.put_steps(z, seen["x"], seen["velocity"], seen["raw"])
    z["ref/actions_raw"], z["ref/actions"] = seen["raw"], np.asarray(result["actions"]).astype(np.float32)
    if not o.no_bf16:
        z["ref/bf16_actions_raw"] = run(o, observation, "bfloat16")[1]["raw"]
    R.write(o.out, z)
    R.summary(o.out, z)


if __name__ == "__main__":
    main()
