#!/usr/bin/env python3
"""openpi_torch.py --openpi DIR --checkpoint DIR: how long openpi's own PyTorch model takes here; what compare.py runs, one line of JSON.

The model is openpi's code, imported from where DIR has it: nothing of it is copied. Needs torch, safetensors and transformers 4.53.2; not
JAX, of which the PyTorch model only wants the sizes of its networks. Weights are those of a LeRobot or openpi-PyTorch checkpoint.

--work server: what openpi's server hands to the model, three slots of which those without a camera are masked, the prompt padded to 48.
--work same: only what there is, as many slots as cameras and no padding: the work that pi0.c does.
"""
import argparse
import importlib
import json
import os
import resource
import sys
import time
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import ref_record as R

SLOTS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
PADDED_PROMPT = 48
UNUSED = "gemma_expert.lm_head"  # the expert speaks no words


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--openpi", required=True, help="openpi's repository")
    p.add_argument("--checkpoint", required=True, help="directory that holds model.safetensors")
    p.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    p.add_argument("--work", choices=("server", "same"), default="server")
    p.add_argument("--cameras", type=int, default=2)
    p.add_argument("--prompt-tokens", type=int, default=20)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--repeat", type=int, default=1, help="runs that count, after one that does not")
    p.add_argument("--torch-compile", metavar="MODE", help="openpi's pytorch_compile_mode; default: none, as compiling takes longer than running")
    return p.parse_args()


def lay_over_transformers(openpi):
    """openpi changes three models of transformers; its files go before the installed ones, which stay as they are."""
    for model in ("gemma", "paligemma", "siglip"):
        package = importlib.import_module("transformers.models." + model)
        package.__path__.insert(0, os.path.join(openpi, "src/openpi/models_pytorch/transformers_replace/models", model))


def leave_jax_out(sizes):
    """Stands in for the two modules of openpi that import JAX: the sizes by name, and a resizing that pictures of 224 never need."""
    for package, name in (("openpi.models", "gemma"), ("openpi.shared", "image_tools")):
        stand_in = types.ModuleType(package + "." + name)
        sys.modules[stand_in.__name__] = stand_in
        setattr(importlib.import_module(package), name, stand_in)
    networks = {"lang": types.SimpleNamespace(**sizes["lang"]), "expert": types.SimpleNamespace(**sizes["expert"])}
    sys.modules["openpi.models.gemma"].get_config = networks.__getitem__


def build(o):
    sizes = R.checkpoint_sizes(o.checkpoint)
    sys.path.insert(0, os.path.join(o.openpi, "src"))
    lay_over_transformers(o.openpi)
    leave_jax_out(sizes)
    import openpi.models_pytorch.gemma_pytorch as gemma_pytorch
    import openpi.models_pytorch.pi0_pytorch as pi0_pytorch

    real = gemma_pytorch.PaliGemmaForConditionalGeneration
    shapes = R.tensor_shapes(os.path.join(o.checkpoint, "model.safetensors"))
    words = next(shape[0] for name, shape in shapes.items() if name.endswith(("embed_tokens.weight", "paligemma.lm_head.weight")))

    def sized(config):
        config.text_config.vocab_size = words
        for key, value in dict(sizes["vision"], projection_dim=sizes["lang"]["width"]).items():
            setattr(config.vision_config, key, value)
        return real(config=config)

    gemma_pytorch.PaliGemmaForConditionalGeneration = sized
    config = types.SimpleNamespace(pi05=False, action_dim=32, action_horizon=50, dtype=o.dtype, paligemma_variant="lang",
                                   action_expert_variant="expert", pytorch_compile_mode=o.torch_compile)
    with R.no_random_init():
        return pi0_pytorch.PI0Pytorch(config).eval()


def load(model, directory):
    """One tensor after another: a second copy of all would not fit beside a model in float32."""
    import safetensors
    import torch

    own = model.state_dict()
    filled = set()
    with safetensors.safe_open(os.path.join(directory, "model.safetensors"), framework="pt") as file, torch.no_grad():
        for name in file.keys():
            if UNUSED in name:
                continue
            tensor = own.get(name.removeprefix("model.") if name.startswith("model.") else name)
            if tensor is None:
                raise SystemExit("openpi's model has no tensor " + name)
            tensor.copy_(file.get_tensor(name))
            filled.add(tensor.data_ptr())
    empty = [name for name, tensor in model.named_parameters() if tensor.data_ptr() not in filled and UNUSED not in name]
    if empty:
        raise SystemExit("the checkpoint has no tensor for " + ", ".join(empty))


def observation(o):
    import torch

    torch.manual_seed(0)
    present = SLOTS[:o.cameras]
    slots = SLOTS if o.work == "server" else present
    length = PADDED_PROMPT if o.work == "server" else o.prompt_tokens
    tokens = torch.zeros(1, length, dtype=torch.int64)
    tokens[0, :o.prompt_tokens] = torch.tensor([2 + i % 100 for i in range(o.prompt_tokens)])  # as pi0 bench has them
    return types.SimpleNamespace(
        images={s: torch.rand(1, 3, 224, 224) * 2 - 1 if s in present else -torch.ones(1, 3, 224, 224) for s in slots},
        image_masks={s: torch.tensor([s in present]) for s in slots},
        state=torch.randn(1, 32),
        tokenized_prompt=tokens,
        tokenized_prompt_mask=(torch.arange(length) < o.prompt_tokens)[None],
        token_ar_mask=None,
        token_loss_mask=None,
    )


def main():
    o = options()
    if not o.torch_compile:
        os.environ["TORCHDYNAMO_DISABLE"] = "1"
    import torch
    import transformers

    torch.set_num_threads(o.threads)
    model = build(o)
    load(model, o.checkpoint)
    if o.work == "same":
        import openpi.models_pytorch.preprocessing_pytorch as preprocessing

        preprocessing.preprocess_observation_pytorch.__kwdefaults__["image_keys"] = SLOTS[:o.cameras]
    seen, noise, ms = observation(o), torch.randn(1, 50, 32), []
    for _ in range(1 + o.repeat):
        start = time.perf_counter()
        actions = model.sample_actions("cpu", seen, noise=noise, num_steps=o.steps)
        ms.append((time.perf_counter() - start) * 1e3)
    if not bool(torch.isfinite(actions).all()):
        raise SystemExit("the actions are not finite")
    print(json.dumps({"ms": ms[1:], "first_ms": ms[0], "torch": torch.__version__, "transformers": transformers.__version__,
                      "rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}))


if __name__ == "__main__":
    main()
