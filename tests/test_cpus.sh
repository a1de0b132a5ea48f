#!/bin/bash
# The program on processors that this machine is not, through QEMU's user mode: it starts, takes the right instruction set, writes the same
# checkpoint, and its actions are those of the portable kernels here. PI0 may be a program for x86-64 or for aarch64; HERE one for this machine.
# ctest: label=cpus timeout=900
set -u

PI0=$(realpath "${PI0:?set PI0 to the program}")
HERE=$(realpath "${HERE:-$SRC/build/pi0}") || exit 77
case $(od -An -tu2 -j18 -N2 "$PI0" | tr -d ' ') in # the machine of an ELF file
62) qemu=qemu-x86_64 cpus='core2duo=ref qemu64=ref SandyBridge=ref Haswell=avx2' ;;
183) qemu=qemu-aarch64 cpus='cortex-a53=neon max=neon-bf16' ;;
*) echo "no processors are known for $PI0" && exit 77 ;;
esac
command -v "$qemu" >/dev/null || { echo "$qemu is not installed" && exit 77; }

WORK=$(mktemp -d "${TMPDIR:-/tmp}/pi0_cpus.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
cd "$WORK" || exit 1
failures=0

fail() # WHAT
{
    echo "not ok - $cpu: $1"
    failures=$((failures + 1))
}

synth() # DIR PROGRAM...
{
    local dir=$1
    shift
    "$@" synth "$dir" --model pi05 --layout lerobot --size tiny --dtype bf16 --cameras 1 --state-dim 6 --action-dim 6 --horizon 4 >log 2>&1
}

infer() # ISA PRECISION OUTPUT PROGRAM...
{
    local isa=$1 precision=$2 output=$3
    shift 3
    PI0_ISA=$isa "$@" infer here -o "$output" --precision "$precision" --steps 2 --image base_0_rgb="$SRC/examples/frames/top.png" \
        --state 0.1,-0.4,0.3,0.0,0.2,-0.1 --prompt 'put the cube in the bowl' >log 2>&1
}

# close FILE FILE BOUND: two tables of numbers, the first not empty
close()
{
    paste -d, "$1" "$2" | awk -F, -v bound="$3" '
        NR > 1 {
            if (NF < 4 || NF % 2) exit 1
            for (i = 1; i <= NF / 2; i++) {
                d = $i - $(i + NF / 2)
                if (d < 0) d = -d
                if (d > worst) worst = d
                if (!(d <= bound)) wrong = 1
            }
        }
        END { printf "worst difference %g, bound %g\n", worst, bound; exit wrong || NR < 2 }'
}

synth here "$HERE" || { cat log && exit 1; }
for precision in f32 bf16; do
    infer ref $precision here-$precision.csv "$HERE" || { cat log && exit 1; }
done

for pair in $cpus; do
    cpu=${pair%=*} expected=${pair#*=}
    rm -rf there ./*-there.csv
    on_cpu=("$qemu" -cpu "$cpu" "$PI0")
    "${on_cpu[@]}" doctor >machine 2>&1 || fail 'doctor fails'
    used=$(awk '/^instruction_sets/ { table = 1 } table && $4 == "yes" { print $1 }' machine)
    [ "$used" = "$expected" ] || fail "takes '$used', not $expected"
    synth there "${on_cpu[@]}" || fail "synth: $(tail -n 1 log)"
    cmp here/model.safetensors there/model.safetensors || fail 'another checkpoint'
    infer '' f32 f32-there.csv "${on_cpu[@]}" || fail "infer: $(tail -n 1 log)"
    close here-f32.csv f32-there.csv 1e-5 || fail 'other actions'
    infer '' bf16 bf16-there.csv "${on_cpu[@]}" || fail "infer in bf16: $(tail -n 1 log)"
    close here-bf16.csv bf16-there.csv 1e-2 || fail 'other actions in bf16'
    echo "processor $cpu: uses $used, the same checkpoint and actions as here"
done
[ $failures = 0 ]
