#!/usr/bin/env python3
"""Every row A1 .. G6 of the users' problems (docs/user-problems.md) has a test named by its id, or a line there that says why not or when.

A C test proves a row when its function name starts with the id (several may be joined: C6_D9_...); a shell test when its printed name does.
The document must list every id once and must not claim a test that is not there.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = {"A": 14, "B": 18, "C": 10, "D": 11, "E": 10, "F": 9, "G": 6}
IDS = [f"{area}{n}" for area, count in ROWS.items() for n in range(1, count + 1)]


def tested_rows():
    found = {}
    for path in sorted((ROOT / "tests").glob("test_*")):
        text = path.read_text(encoding="utf-8", errors="replace")
        names = re.findall(r"^static void ([A-G]\d+_\w+)\(void \*\*", text, re.M) if path.suffix == ".c" else re.findall(r"\b((?:[A-G]\d+_)+\w*)", text)
        for name in names:
            for row in re.match(r"(?:[A-G]\d+_)+", name).group(0).strip("_").split("_"):
                found.setdefault(row, set()).add(path.name)
    return found


def documented_rows():
    document = ROOT / "docs" / "user-problems.md"
    rows = {}
    for line in document.read_text(encoding="utf-8").splitlines():
        match = re.match(r"\|\s*([A-G]\d+)\s*\|(.*)\|\s*$", line)
        if match:
            rows.setdefault(match.group(1), []).append(match.group(2))
    return rows


def main():
    tested, documented, faults = tested_rows(), documented_rows(), []
    for row in IDS:
        lines = documented.get(row, [])
        if len(lines) != 1:
            faults.append(f"{row}: docs/user-problems.md has {len(lines)} lines for it, not one")
            continue
        says_tested = lines[0].split("|")[0].strip() == "tested"
        if says_tested and row not in tested:
            faults.append(f"{row}: the document says it is tested, no test is named by it")
        if not says_tested and row in tested:
            faults.append(f"{row}: {', '.join(sorted(tested[row]))} tests it, the document says otherwise")
    for row in sorted(set(tested) - set(IDS)):
        faults.append(f"{row}: named by {', '.join(sorted(tested[row]))}, there is no such row")
    for fault in faults:
        print(fault)
    print(f"{len(IDS)} rows, {len([r for r in IDS if r in tested])} tested, {len(faults)} faults")
    if "--list" in sys.argv:
        for row in IDS:
            print(row, ", ".join(sorted(tested.get(row, []))))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
