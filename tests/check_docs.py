"""Documents name only things that exist: every path, `pi0 COMMAND`, `./dev COMMAND`, `--option` and PI0_VARIABLE in README.md, CONTRIBUTING.md,
CHANGELOG.md and docs/*.md. Commands and options are read from the sources of the program and from ./dev.

Run by CTest; by hand: python3 tests/check_docs.py
"""

import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = "src include app tests docs tools examples bench cmake .ci".split()
BUILT = {"build", "build/", "build/pi0", "build/libpi0.a", "build/libpi0.so", "build/logs", "build/compile_commands.json"}
# Lines about other programs name those programs' options.
FOREIGN = re.compile(r"\b(cmake|ctest|git|pip|apt-get|docker|gcc|clang|ninja|pkg-config|python3?|huggingface-cli|hf|uv|ulimit)\b")
NOT_YET = re.compile(r"\b(not yet|later|planned|will be|does not|not in this version|next)\b", re.I)

CODE_SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"(?<![\w./-])((?:%s)/[\w./*<>{},+-]*)" % "|".join(re.escape(f) for f in FOLDERS))
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9_-]*)")
VARIABLE = re.compile(r"\bPI0_[A-Z0-9_]*[A-Z0-9]\b")
COMMAND = re.compile(r"(?:^|[\s(;|&]|build/)pi0 ([a-z][a-z-]*)")
DEV = re.compile(r"\./dev ([a-z][a-z-]*)")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def sources(*patterns):
    names = [n for p in patterns for n in glob.glob(os.path.join(ROOT, p), recursive=True) if os.path.isfile(n)]
    names = [n for n in names if os.path.basename(n) != "check_docs.py"]  # the wrong names of its own self-test
    return "\n".join(read(os.path.relpath(n, ROOT)) for n in sorted(names))


class Known:
    """What the sources offer."""

    def __init__(self):
        app = sources("app/*.c", "app/*.h")
        # A command that runs has a definition of its own; the list of those still to come has none.
        self.commands = set(re.findall(r"^const app_command app_\w+ = \{\s*\.name = \"([a-z]+)\"", app, re.M)) | {"help", "version"}
        self.app_options = set(re.findall(r'\.name = "([a-z0-9-]+)"', app)) | {"help", "version"}
        scripts = sources("dev", "tools/*.py", "tests/*.py", "cmake/*", "bench/*.c", "bench/compare/*.*")
        self.other_options = set(re.findall(r"--([a-z][a-z0-9-]*)", scripts))
        body = re.search(r"\ncase \$command in\n(.*?)\nesac", read("dev"), re.S).group(1)
        self.dev = set(re.findall(r"^([a-z-]+)(?: \||\))", body, re.M))
        self.text = sources("src/**/*.[ch]", "src/**/*.def", "include/*.h", "app/*.[ch]", "tests/*.[ch]", "tests/*.sh", "tests/*.py", "cmake/*",
                            "CMakeLists.txt", "dev")

    def variable(self, name):
        twin = name[len("PI0_"):].lower().replace("_", "-")
        return twin in self.app_options or name in self.text


def path_exists(path, document):
    path = path.rstrip(".,/:;")
    if path in BUILT or not path:
        return True
    for choice in braces(path):
        pattern = re.sub(r"<[^>]*>", "*", choice)
        found = any(glob.glob(os.path.join(base, pattern)) for base in (ROOT, os.path.join(ROOT, os.path.dirname(document))))
        if not found:
            return False
    return True


def braces(path):
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    return [p for part in match.group(1).split(",") for p in braces(path[: match.start()] + part + path[match.end():])]


def check_document(document, text, known):
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        where = "%s:%d: " % (document, number)
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        spans = [line] if fenced else CODE_SPAN.findall(line)
        for path in PATH.findall(line):
            if not path_exists(path, document):
                yield where + "no such path: " + path
        for path in LINK.findall(line):
            if "://" not in path and not path.startswith("mailto:") and not path_exists(path, document):
                yield where + "the link leads nowhere: " + path
        for name in re.findall(r"(?<![\w/.-])([A-Z][A-Z_]{3,}(?:\.md)?)(?![\w/.-])", " ".join(CODE_SPAN.findall(line))):
            if name.endswith(".md") and not path_exists(name, document):
                yield where + "no such file: " + name
        for span in spans:
            for command in COMMAND.findall(span):
                if command not in known.commands and not NOT_YET.search(line):
                    yield where + "no such command: pi0 " + command
            for command in DEV.findall(span):
                if command not in known.dev:
                    yield where + "no such command: ./dev " + command
        if not FOREIGN.search(line):
            for option in OPTION.findall(line):
                if option.replace("_", "-") not in known.app_options | known.other_options and not NOT_YET.search(line):
                    yield where + "no such option: --" + option
        for name in VARIABLE.findall(line):
            if not known.variable(name) and not name.endswith("_"):
                yield where + "no such variable or macro: " + name


def self_test(known):
    """Each kind of wrong name is found, right ones are not."""
    bad = [
        "see src/base/absent.c", "[x](docs/absent.md)", "`pi0 fly`", "`./dev fly`", "use `--fly-away`", "PI0_FLY_AWAY=1", "`ABSENT.md`",
        "src/base/{error,absent}.c", "```\nbuild/pi0 fly x\n```",
    ]
    good = [
        "see `src/base/error.c`, src/base/{error,text}.c and tests/test_*.c.", "[x](LICENSE)", "`./dev test --full`", "build/pi0",
        "prose about pi0 checkpoints", "`pi0 help`", "cmake --build build", "[w](https://example.org/x)",
    ]
    for text in bad:
        assert list(check_document("README.md", text, known)), "not found: " + text
    for text in good:
        assert not list(check_document("README.md", text, known)), (text, list(check_document("README.md", text, known)))


def main():
    known = Known()
    assert {"build", "test", "demo", "help"} <= known.dev, known.dev
    assert {"infer", "inspect"} <= known.commands, known.commands
    self_test(known)
    documents = [d for d in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md") if os.path.exists(os.path.join(ROOT, d))]
    documents += sorted(os.path.relpath(d, ROOT) for d in glob.glob(os.path.join(ROOT, "docs", "*.md")))
    problems = [p for d in documents for p in check_document(d, read(d), known)]
    for problem in problems:
        print(problem)
    print("%d documents, %d problems" % (len(documents), len(problems)))
    return 1 if problems or not documents else 0


if __name__ == "__main__":
    sys.exit(main())
