#!/usr/bin/env bash
# An installed libpi0 is found by pkg-config and links, shared and static; pi0.h stands alone, also for a C++ compiler.
# ctest: timeout=180
set -euo pipefail
[ -z "${SANITIZE:-}" ] || { echo "skipped: only the release build is installed"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$BUILD" --prefix "$work/usr" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/usr" "$work/moved" # the folder may be carried elsewhere
pc=$(dirname "$(find "$work/moved" -name pi0.pc)")
export PKG_CONFIG_PATH=$pc
cat >"$work/main.c" <<'C'
#include <pi0.h>

#include <stdio.h>

int main(void)
{
    pi0_options options;
    pi0_options_init(&options);
    pi0_model *model = NULL;
    pi0_error err = {0};
    pi0_status status = pi0_open("/no/such/model", &options, &model, &err);
    printf("%s %s\n", pi0_version(), pi0_status_name(status));
    pi0_error_clear(&err);
    return status == PI0_OK;
}
C
cd "$work"
read -ra cflags < <(pkg-config --cflags pi0)
read -ra shared < <(pkg-config --libs pi0)
read -ra static < <(pkg-config --static --libs pi0)
cc -std=c11 -Wall -Wextra -Werror -pedantic "${cflags[@]}" main.c -o main_shared "${shared[@]}"
libdir=$(pkg-config --variable=libdir pi0)
LD_LIBRARY_PATH=$libdir ./main_shared | grep "^$(pkg-config --modversion pi0) "
uses_shared() { [[ $(ldd "$1") == *libpi0.so* ]]; } # no pipe: grep -q would end ldd by SIGPIPE now and then
uses_shared main_shared || { echo "the shared library was not used"; exit 1; }
mkdir only_static
cp "$libdir/libpi0.a" only_static
cc -std=c11 "${cflags[@]}" main.c -o main_static -Lonly_static "${static[@]/-L$libdir/}"
! uses_shared main_static || { echo "the static library was not used"; exit 1; }
./main_static
"$work/moved/bin/pi0" version
if command -v c++ >/dev/null; then
    c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only -x c++ "${cflags[@]}" - <<<'#include <pi0.h>'
fi
