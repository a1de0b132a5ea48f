#!/usr/bin/env bash
# Memory that stays flat over many inferences of robots that come and go: the short form of `./dev soak`.
# ctest: label=long timeout=600
set -eu
[ -z "${SANITIZE:-}" ] || { echo "skipped: a sanitizer keeps what was freed"; exit 77; }
[ -r /proc/self/statm ] || { echo "skipped: this system does not tell how much memory a process has"; exit 77; }
"$BUILD/bench/soak" "${1:-1000}"
if "$BUILD/bench/soak" nine 2>/dev/null; then echo "not ok - a count that is no number is taken"; exit 1; fi
