#!/usr/bin/env bash
# libpi0.so exports exactly what include/pi0.h declares: nothing of the inside leaks out, nothing declared is missing.
set -euo pipefail
[ -z "${SANITIZE:-}" ] || { echo "skipped: a sanitizer adds symbols of its own"; exit 77; }
command -v nm >/dev/null || { echo "skipped: nm (binutils) is not installed"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$BUILD/libpi0.so" | awk '{ print $3 }' | sed 's/@.*//' | LC_ALL=C sort -u >"$work/exported"
# The declarations: PI0_API, a type, a name before the bracket. Comments and line ends out first.
tr '\n' ' ' <"$SRC/include/pi0.h" | sed 's://*[*][^*]*[*]*\([^/*][^*]*[*]*\)*/: :g' | grep -o 'PI0_API[^;(]*(' |
    sed 's/ *($//; s/.*[ *]//' | grep '^pi0_' | LC_ALL=C sort -u >"$work/declared"
[ "$(wc -l <"$work/declared")" -gt 40 ] || { echo "the declarations of pi0.h were not understood"; exit 1; }
if ! diff "$work/declared" "$work/exported" >"$work/diff"; then
    sed -n 's/^< /declared, not exported: /p; s/^> /exported, not declared: /p' "$work/diff"
    exit 1
fi
echo "$(wc -l <"$work/exported") functions"
