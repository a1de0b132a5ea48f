"""Only the folders of instruction sets are compiled for one: everything else must run on any processor of the family.

Reads compile_commands.json of the build. Run by CTest; by hand: BUILD=build python3 tests/check_flags.py
"""

import json
import os
import re
import sys

ISA_FLAG = re.compile(r"(?<=\s)-m\S+")
ISA_FOLDER = re.compile(r"/src/kernels/(\w+)/\w+\.c$")


def problems_of(commands):
    for entry in commands:
        flags = ISA_FLAG.findall(entry["command"])
        folder = ISA_FOLDER.search(entry["file"])
        if flags and (folder is None or folder.group(1) == "ref"):
            yield "%s is compiled with %s" % (entry["file"], " ".join(flags))


def self_test():
    good = [{"file": "/p/src/kernels/avx2/avx2.c", "command": "cc -O3 -mavx2 -c"}, {"file": "/p/app/main.c", "command": "cc -O3 -c a-mavx.c"}]
    bad = [{"file": "/p/%s" % name, "command": "cc -mavx2 -c"} for name in ("src/kernels/dispatch.c", "src/kernels/ref/ref.c", "tests/test_a.c")]
    assert not list(problems_of(good))
    assert len(list(problems_of(bad))) == len(bad)


def main():
    self_test()
    with open(os.path.join(os.environ["BUILD"], "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    problems = list(problems_of(commands))
    for problem in problems:
        print(problem)
    print("%d commands, %d problems" % (len(commands), len(problems)))
    return 1 if problems or not commands else 0


if __name__ == "__main__":
    sys.exit(main())
