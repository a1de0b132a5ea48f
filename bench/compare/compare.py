#!/usr/bin/env python3
"""compare.py --model DIR: a whole inference of pi0.c beside what people would use instead, on this machine, in one run.

    bench/compare/compare.py --model DIR --openpi OPENPI --vla-cpp VLA --rounds 5 --json result.json

In every round each contestant starts, opens the same checkpoint, infers once uncounted and --repeat times counted, and ends; then comes
the next one, so that all see the same weather and none needs memory beside another. A ratio is taken within a round; medians are printed.
A contestant that cannot be had is named, with the reason. docs/compare.md says what the rows mean and what they do not.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGES = ("torch", "transformers==4.53.2", "safetensors", "numpy", "pillow", "gguf")


class Skip(Exception):
    """Why a contestant does not take part."""


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", help="a pi0 checkpoint, LeRobot layout (pi0 synth makes one)")
    p.add_argument("--pi0", default=os.path.join(ROOT, "build", "pi0"), help="our program (default: build/pi0)")
    p.add_argument("--openpi", help="openpi's repository")
    p.add_argument("--vla-cpp", help="vla.cpp's repository, built")
    p.add_argument("--vla-bench", help="its program vla-bench (default: build/vla-bench there)")
    p.add_argument("--only", help="NAME[,NAME]: these contestants; a name that ends with * stands for all that begin so")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--repeat", type=int, default=1, help="counted inferences of each contestant in each round")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--cameras", type=int, default=2)
    p.add_argument("--prompt-tokens", type=int, default=20)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--torch-compile", metavar="MODE", help="let openpi compile its model (its default is max-autotune; here: not at all)")
    p.add_argument("--work", default=os.path.expanduser("~/.cache/pi0-compare"), help="for the virtual environment and converted checkpoints")
    p.add_argument("--python", help="a Python that has torch and the rest, instead of the virtual environment made in --work")
    p.add_argument("--timeout", type=int, default=1800, help="seconds for one start of one contestant")
    p.add_argument("--json", metavar="FILE", help="the numbers, and what ran")
    p.add_argument("--list", action="store_true", help="the contestants")
    return p.parse_args()


# ------------------------------------------------------------------ running programs


def environment(o, **more):
    """Threads for every runtime; without what this machine may tell OpenBLAS about another processor."""
    kept = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    return dict(kept, OMP_NUM_THREADS=str(o.threads), MKL_NUM_THREADS=str(o.threads), HF_HUB_OFFLINE="1", **more)


def last_words(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def run(o, argv, env):
    """-> stdout, most resident memory in GB"""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(argv, env=env, stdout=out, stderr=err)
        deadline = time.monotonic() + o.timeout
        done = 0
        while not done:  # wait4 tells this child's memory, which Popen.wait does not
            done, status, usage = os.wait4(child.pid, os.WNOHANG)
            if not done and time.monotonic() > deadline:
                child.kill()
                os.waitpid(child.pid, 0)
                raise Skip("took longer than %d s (--timeout)" % o.timeout)
            time.sleep(0 if done else 0.2)
        child.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, err):
            file.seek(0)
        text, errors = out.read(), err.read()
        if child.returncode:
            first = next((line for line in errors.splitlines() if "error:" in line), None)
            raise Skip("ended with %d: %s" % (child.returncode, first or last_words(errors or text)))
        return text, usage.ru_maxrss / 1e6


def say(text):
    print("compare: " + text, file=sys.stderr, flush=True)


def prepare(o, what, argv):
    say(what)
    try:
        done = subprocess.run(argv, env=dict(environment(o), HF_HUB_OFFLINE="0"), capture_output=True, text=True, check=False)
    except OSError as error:
        raise Skip("%s: %s" % (argv[0], error)) from None
    if done.returncode:
        raise Skip("%s: %s" % (what, last_words(done.stderr or done.stdout)))


def python(o):
    """A Python with torch in it. The environment is complete when its mark is there."""
    if o.python:
        return o.python
    venv = os.path.join(o.work, "venv")
    mark = os.path.join(venv, "complete")
    if not os.path.exists(mark):
        prepare(o, "making a virtual environment in " + venv, [sys.executable, "-m", "venv", "--clear", venv])
        prepare(o, "installing " + ", ".join(PACKAGES) + " (some GB)", [os.path.join(venv, "bin", "pip"), "install", "--quiet", *PACKAGES])
        with open(mark, "w", encoding="utf-8"):
            pass
    return os.path.join(venv, "bin", "python")


# ------------------------------------------------------------------ contestants


class Contestant:
    """name; ours: the row that it is compared with; what: what ran, in words, %-formatted with the options"""

    def __init__(self, name, ours, what):
        self.name, self.ours, self.what = name, ours, what
        self.reason, self.argv, self.env = None, None, None
        self.ms, self.stages, self.gb, self.versions = [], {}, 0.0, ""


class Pi0(Contestant):
    def __init__(self, precision):
        super().__init__("pi0-" + precision, "pi0-" + precision,
                         "`pi0 bench`: %(cameras)d pictures of 640x480 resized, %(prompt_tokens)d tokens, %(steps)d steps, state and actions "
                         "(un)normalised; precision " + precision)
        self.precision = precision

    def prepare(self, o):
        if not os.path.exists(o.pi0):
            raise Skip("%s is not there: ./dev build" % o.pi0)
        self.argv = [o.pi0, "bench", o.model, "--precision", self.precision, "--cameras", str(o.cameras), "--prompt-tokens", str(o.prompt_tokens),
                     "--steps", str(o.steps), "--threads", str(o.threads), "--repeat", str(o.repeat), "--json", "--quiet"]
        self.env = environment(o)

    def read(self, text):
        page = json.loads(text)
        latency = page["latency_ms"]
        self.versions = "instruction set %s, precision %s" % (page["instruction_set"], page["precision"])
        for stage in ("vision", "prefix", "denoise"):
            self.stages.setdefault(stage, []).append(latency[stage]["p50"])
        self.stages.setdefault("of_peak", []).append(page["fraction_of_peak"])
        return latency["total"]["p50"]


class Openpi(Contestant):
    WORDS = {
        "server": "what its server gives it: three slots, those without a camera masked, the prompt padded to 48",
        "same": "the work that pi0.c does: %(cameras)d slots, %(prompt_tokens)d tokens, nothing padded",
    }

    def __init__(self, dtype, work):
        short = {"bfloat16": "bf16", "float32": "f32"}[dtype]
        super().__init__("openpi-%s-%s" % (short, work), "pi0-" + short,
                         "openpi's PI0Pytorch.sample_actions in " + dtype + ", %(how)s; " + self.WORDS[work] +
                         "; %(steps)d steps; pictures and tokens ready made")
        self.dtype, self.work = dtype, work

    def prepare(self, o):
        if not o.openpi:
            raise Skip("no --openpi DIR")
        if not os.path.isdir(os.path.join(o.openpi, "src", "openpi", "models_pytorch")):
            raise Skip("%s holds no src/openpi/models_pytorch" % o.openpi)
        self.argv = [python(o), os.path.join(HERE, "openpi_torch.py"), "--openpi", o.openpi, "--checkpoint", o.model, "--dtype", self.dtype,
                     "--work", self.work, "--cameras", str(o.cameras), "--prompt-tokens", str(o.prompt_tokens), "--steps", str(o.steps),
                     "--threads", str(o.threads), "--repeat", str(o.repeat)]
        if o.torch_compile:
            self.argv += ["--torch-compile", o.torch_compile]
        self.env = environment(o, TOKENIZERS_PARALLELISM="false")

    def read(self, text):
        page = json.loads(text.splitlines()[-1])
        self.versions = "torch %s, transformers %s" % (page["torch"], page["transformers"])
        return statistics.median(page["ms"])


class Vla(Contestant):
    def __init__(self, weights, ours):
        super().__init__("vla-" + weights.lower(), ours,
                         "vla.cpp's vla-bench on ggml, %(cameras)d pictures of 224x224, %(prompt_tokens)d tokens, %(steps)d steps; " +
                         {"BF16": "the checkpoint's weights as they are",
                          "Q8_0": "matrices of prefix and expert packed by its quantize_gguf.py, vision and tables as they are"}[weights])
        self.weights = weights

    def convert(self, o):
        """With vla.cpp's own scripts. A file that is there is taken, when it is younger than the checkpoint."""
        name = os.path.basename(os.path.abspath(o.model))
        scripts = os.path.join(o.vla_cpp, "scripts")
        path = {w: os.path.join(o.work, "%s-%s.gguf" % (name, w)) for w in ("BF16", "Q8_0")}
        steps = {"BF16": [os.path.join(scripts, "convert_pi0_to_gguf.py"), "--ckpt", o.model, "--out"],
                 "Q8_0": [os.path.join(scripts, "quantize_gguf.py"), "--in", path["BF16"], "--type", "Q8_0", "--out"]}
        os.makedirs(o.work, exist_ok=True)
        for weights in ("BF16", "Q8_0")[:1 if self.weights == "BF16" else 2]:
            out, part = path[weights], path[weights] + ".part"
            if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(os.path.join(o.model, "model.safetensors")):
                prepare(o, "converting to " + out, [python(o), *steps[weights], part])
                os.replace(part, out)
        return path[self.weights]

    def prepare(self, o):
        if not o.vla_cpp:
            raise Skip("no --vla-cpp DIR")
        program = o.vla_bench or os.path.join(o.vla_cpp, "build", "vla-bench")
        if not os.path.exists(program):
            raise Skip("%s is not there: build vla.cpp as its README says" % program)
        with open(os.path.join(o.model, "config.json"), encoding="utf-8") as file:
            steps = json.load(file).get("num_inference_steps")
        if steps != o.steps:
            raise Skip("takes its steps from the checkpoint, and those are %s" % steps)
        self.argv = [program, "--ckpt", self.convert(o), "--images", str(o.cameras), "--tokens", str(o.prompt_tokens), "--warmup", "1",
                     "--reps", str(o.repeat)]
        self.env = environment(o, VLA_N_THREADS=str(o.threads))

    def read(self, text):
        found = re.search(r"p50 ([\d.]+) ms .*vision ([\d.]+) ms", text)
        if not found:
            raise Skip("printed no time: " + last_words(text))
        self.stages.setdefault("vision", []).append(float(found.group(2)))
        return float(found.group(1))


def contestants():
    return [Pi0("f32"), Pi0("bf16"), Pi0("int8"), Openpi("bfloat16", "server"), Openpi("bfloat16", "same"), Openpi("float32", "server"),
            Openpi("float32", "same"), Vla("BF16", "pi0-bf16"), Vla("Q8_0", "pi0-int8")]


# ------------------------------------------------------------------ rounds


def chosen(everybody, only):
    if not only:
        return everybody
    wanted = only.split(",")
    names = [c.name for c in everybody]
    for w in wanted:
        if not any(n == w or w.endswith("*") and n.startswith(w[:-1]) for n in names):
            raise SystemExit("compare: no contestant is called %s; there are %s" % (w, ", ".join(names)))
    return [c for c in everybody if any(c.name == w or w.endswith("*") and c.name.startswith(w[:-1]) for w in wanted)]


def compete(o, those):
    for c in those:
        try:
            c.prepare(o)
        except Skip as reason:
            c.reason = str(reason)
    for number in range(o.rounds):
        for c in those:
            if c.reason:
                continue
            try:
                text, gb = run(o, c.argv, c.env)
                c.ms.append(c.read(text))
                c.gb = max(c.gb, gb)
                say("round %d of %d: %-18s %10.1f ms" % (number + 1, o.rounds, c.name, c.ms[-1]))
            except (Skip, OSError, ValueError, KeyError) as reason:
                c.reason = str(reason)
                say("%s: %s" % (c.name, c.reason))


def ratio(c, everybody):
    """-> how many times as long as ours of its own precision, and what that row is called; int8 falls back to bf16"""
    for name in (c.ours, "pi0-bf16"):
        ours = next((other for other in everybody if other.name == name and other.ms and not other.reason), None)
        if ours is not None and ours is not c:
            return statistics.median(a / b for a, b in zip(c.ms, ours.ms)), name
    return None, None


def report(o, those):
    words = dict(vars(o), how="compiled by torch, " + o.torch_compile if o.torch_compile else "eager")
    print("%-20s %10s %21s %9s  %-22s" % ("", "median ms", "least .. most", "GB", "times as long as"))
    rows = []
    for c in those:
        row = {"name": c.name, "what": c.what % words, "versions": c.versions, "argv": c.argv}
        rows.append(row)
        if c.reason:
            row["skipped"] = c.reason
            continue
        times, name = (None, None) if isinstance(c, Pi0) else ratio(c, those)
        row.update(ms=c.ms, median_ms=statistics.median(c.ms), gb=c.gb, times_as_long=times, against=name,
                   stages={k: statistics.median(v) for k, v in c.stages.items()})
        print("%-20s %10.1f %10.1f .. %7.1f %9.1f  %s" % (c.name, row["median_ms"], min(c.ms), max(c.ms), c.gb,
                                                         "%.2f  %s" % (times, name) if name else ""))
    for row in rows:
        if "skipped" in row:
            print("%-20s skipped: %s" % (row["name"], row["skipped"]))
    print("\nWhat ran, %d rounds of %d counted after one uncounted inference, %d threads:" % (o.rounds, o.repeat, o.threads))
    for row in rows:
        if "skipped" not in row:
            print("  %s: %s (%s)" % (row["name"], row["what"], row["versions"] or "no version told"))
    if o.json:
        with open(o.json, "w", encoding="utf-8") as file:
            json.dump({"threads": o.threads, "rounds": o.rounds, "repeat": o.repeat, "model": o.model, "rows": rows}, file, indent=1)


def main():
    o = options()
    those = chosen(contestants(), o.only)
    if o.list:
        print("\n".join(c.name for c in those))
        return 0
    if not o.model:
        raise SystemExit("compare: --model DIR is needed; `pi0 synth DIR --model pi0 --layout lerobot --size base` makes a random one")
    compete(o, those)
    report(o, those)
    return 0 if any(c.ms for c in those) else 1


if __name__ == "__main__":
    sys.exit(main())
