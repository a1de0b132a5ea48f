"""The layers of the source tree: reads every #include under include/, src/ and app/ and fails on an arrow that the drawing does not have.

Also what the library promises about itself: it never exits, never prints, never reads the environment.
Run by CTest; by hand: python3 tests/check_layers.py
"""

import os
import re
import sys
import tempfile

# layer -> what it may include besides itself
MAY_INCLUDE = {
    "public": set(),
    "base": {"public"},
    "io": {"base", "public"},
    "plan": {"base", "public"},
    "kernels": {"base", "public"},
    "kernels/*": {"kernels", "base", "public"},
    "device": {"plan", "base", "public"},
    "device/cpu": {"device", "kernels", "plan", "base", "public"},
    "device/*": {"device", "plan", "base", "public"},
    "model": {"device", "plan", "io", "base", "public"},
    "serve": {"io", "base", "public"},
    "engine": {"model", "device", "device/*", "kernels", "plan", "io", "base", "public"},
    "app": {"serve", "public"},
}
# Libraries by the layers that may know them; everything else between < > is libc or the compiler's.
LIBRARIES = {
    "png.h": {"io", "engine"},  # the engine's doctor prints versions
    "zlib.h": {"io", "engine"},
    "turbojpeg.h": {"io"},
    "jpeglib.h": {"io"},
    "jansson.h": {"io", "model", "engine", "app"},
}
FORBIDDEN_CALLS = re.compile(
    r"(?<![\w.>])((?:exit|_exit|abort|getenv|secure_getenv|setenv|putenv|printf|vprintf|puts|putchar|perror)\s*\(|fprintf\s*\(\s*std(?:err|out)\b)"
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def layer_of(path):
    """The layer of a file by its path from the root, or None outside the layers."""
    part = path.split("/")
    if part[0] == "include":
        return "public"
    if part[0] == "app":
        return "app"
    if part[0] != "src" or len(part) < 2:
        return None
    if len(part) == 2:
        return part[1].split(".")[0]
    if part[1] in ("kernels", "device") and len(part) > 3:
        return part[1] + "/" + part[2]
    return part[1]


def allowed(layer, target):
    # kernels/avx512_bf16 is a step on top of kernels/avx512
    if layer == target or layer.startswith("kernels/") and layer.startswith(target + "_"):
        return True
    rules = MAY_INCLUDE.get(layer)
    if rules is None:
        rules = MAY_INCLUDE.get(layer.split("/")[0] + "/*", set())
    return target in rules or target.split("/")[0] + "/*" in rules and "/" in target


def resolve(root, path, name):
    for base in (os.path.dirname(path), "src", "include", "app"):
        candidate = os.path.normpath(os.path.join(base, name))
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    layer = layer_of(path)
    if layer not in MAY_INCLUDE and layer.split("/")[0] + "/*" not in MAY_INCLUDE:
        yield "%s: no layer is called '%s' (DESIGN, tests/check_layers.py)" % (path, layer)
        return
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        quote, name = match.groups()
        target = resolve(root, path, name) if quote == '"' or name == "pi0.h" else None
        if quote == '"' and target is None:
            yield '%s:%d: "%s" is no file of this tree' % (path, line, name)
        elif target is None:
            users = LIBRARIES.get(name)
            if users is not None and layer not in users:
                yield "%s:%d: <%s> belongs to %s" % (path, line, name, ", ".join(sorted(users)))
        elif not allowed(layer, layer_of(target)):
            yield "%s:%d: %s may not include %s (%s)" % (path, line, layer, layer_of(target), target)
    if path.startswith("src/"):
        code = COMMENT_OR_TEXT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
        for match in FORBIDDEN_CALLS.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            yield "%s:%d: the library never calls %s" % (path, line, re.split(r"[\s(]", match.group(1))[0])


def check_tree(root):
    problems, count = [], 0
    for top in ("include", "src", "app"):
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".c", ".h", ".def", ".inc", ".cu")):
                    count += 1
                    problems += check_file(root, os.path.relpath(os.path.join(folder, name), root))
    return problems, count


def self_test():
    """Each planted violation is found, and the arrows of the drawing are not."""
    bad = {
        "src/base/a.c": ('#include "io/io.h"\n', "base may not include io"),
        "src/model/b.c": ('#include "kernels/kernels.h"\n', "model may not include kernels"),
        "src/model/c.c": ('#include "device/cpu/cpu.h"\n', "model may not include device/cpu"),
        "src/device/cuda/d.c": ('#include "kernels/kernels.h"\n', "device/cuda may not include kernels"),
        "src/device/cuda/e.c": ('#include "device/cpu/cpu.h"\n', "device/cuda may not include device/cpu"),
        "src/kernels/avx512/g.c": ('#include "kernels/avx512_bf16/h.h"\n', "kernels/avx512 may not include kernels/avx512_bf16"),
        "src/kernels/avx2/f.c": ('  #  include "kernels/ref/ref.h"\n', "kernels/avx2 may not include kernels/ref"),
        "src/device/g.h": ('#include "cpu/cpu.h"\n', "device may not include device/cpu"),
        "app/h.c": ('#include "base/base.h"\n', "app may not include base"),
        "app/i.c": ('#include "../src/io/io.h"\n', "app may not include io"),
        "src/plan/j.c": ("#include <jansson.h>\n", "<jansson.h> belongs to"),
        "src/io/k.c": ('#include "io/absent.h"\n', "is no file"),
        "src/io/l.c": ('int f(void) { return getenv("X") != 0; }\n', "never calls getenv"),
        "src/io/m.c": ('void f(void) { fprintf(stderr, "x"); }\n', "never calls fprintf"),
        "src/misc/n.c": ("", "no layer is called"),
        "src/io/o.c": ("void f(void) { exit(1); }\n", "never calls exit"),
    }
    good = {
        "include/pi0.h": "#include <stddef.h>\n",
        "src/base/base.h": '#include "pi0.h"\n#include "base/limits.h"\n',
        "src/base/limits.h": "",
        "src/io/io.h": '#include "base/base.h"\n/* never printf(, exit( */\nint my_exit(int);\n#define T "getenv("\n',
        "src/kernels/kernels.h": '#include "base/base.h"\n',
        "src/kernels/avx512_bf16/h.h": '#include "kernels/kernels.h"\n',
        "src/kernels/ref/ref.h": '#include "kernels/kernels.h"\n',
        "src/plan/plan.h": '#include "base/base.h"\n',
        "src/device/device.h": '#include "plan/plan.h"\n',
        "src/device/cpu/cpu.h": '#include "device/device.h"\n#include "kernels/kernels.h"\n',
        "src/model/model.h": '#include "device/device.h"\n#include "io/io.h"\n',
        "src/engine.c": '#include "model/model.h"\n#include "device/cpu/cpu.h"\n#include <jansson.h>\n',
        "app/main.c": '#include <pi0.h>\n#include "table.h"\n',
        "app/table.h": "",
    }
    with tempfile.TemporaryDirectory() as root:
        for path, text in list(good.items()) + [(path, text) for path, (text, _) in bad.items()]:
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        problems, _ = check_tree(root)
    for path, (_, expected) in bad.items():
        found = [p for p in problems if p.startswith(path + ":")]
        assert any(expected in p for p in found), (path, expected, found)
        problems = [p for p in problems if p not in found]
    assert not problems, problems


def main():
    self_test()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    problems, count = check_tree(root)
    for problem in problems:
        print(problem)
    print("%d files, %d problems" % (count, len(problems)))
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
