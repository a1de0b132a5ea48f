#!/usr/bin/env bash
# A4: the program needs a handful of system libraries and nothing else: no Python, no framework, no network library.
set -u
failed=0
names=$(ldd "$PI0" | awk '{print $1}' | sed 's|.*/||; s/\.so.*//' | sort -u)
for name in $names; do
    case $name in
    linux-vdso | ld-linux-* | libc | libm | libpthread | libdl | libjansson | libpng16 | libturbojpeg | libz) ;;
    libasan | libubsan | libtsan | libgcc_s | librt | libresolv | libstdc++) [ -n "${SANITIZE:-}" ] || failed=1 ;;
    *) failed=1 ;;
    esac
    [ $failed = 0 ] || { echo "not ok - A4_no_python_no_framework: the program needs $name"; exit 1; }
done
echo "ok - A4_no_python_no_framework"
