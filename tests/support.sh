# shellcheck shell=bash
# support - what the tests of the program from outside share: a script names itself and sources this,
#     name=pi0_cli; . "$(dirname "${BASH_SOURCE[0]}")/support.sh"
# and then stands in a new folder that is gone when it ends, with an environment in which nothing but PI0 (and SRC, BUILD) is set up.

set -u
PI0=$(realpath "${PI0:?set PI0 to the program}")
SRC=$(realpath "${SRC:-$(dirname "${BASH_SOURCE[0]}")/..}")
WORK=$(mktemp -d "${TMPDIR:-/tmp}/${name:?}.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
cd "$WORK" || exit 1
for variable in $(env | sed -n 's/^\(PI0_[A-Za-z0-9_]*\)=.*/\1/p'); do unset "$variable"; done
export HOME=$WORK HF_HOME=$WORK/hf OPENPI_DATA_HOME=$WORK/openpi LC_ALL=C

failures=0
count=0
code=0
: >out
: >err

report() # 0|1 NAME
{
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok - $2"
    else
        echo "not ok - $2"
        echo "    exit $code; stdout: $(head -c 300 out | head -n 3)"
        sed 's/^/    stderr: /' err | head -n 12
        failures=$((failures + 1))
    fi
}

# Runs the program; leaves out, err and code.
try()
{
    "$PI0" "$@" >out 2>err </dev/null
    code=$?
}

# expect NAME CODE PATTERN ARGUMENTS...: exit code, a pattern in stderr (- for none asked); when it fails an error, and stdout empty
expect()
{
    local name=$1 want=$2 pattern=$3 bad=0
    shift 3
    try "$@"
    [ "$code" = "$want" ] || bad=1
    [ "$pattern" = - ] || grep -q -e "$pattern" err || bad=1
    if [ "$want" != 0 ]; then
        [ "$want" = 4 ] || [ ! -s out ] || bad=1
        grep -q '^pi0: error: ' err || bad=1
    fi
    report $bad "$name"
}

# holds NAME: the status of the command before it
holds()
{
    local status=$?
    report $((status != 0)) "$1"
}

# npy FILE DESCR SHAPE BYTES-COMMAND: a version 1.0 file, its data from a command
npy()
{
    local header="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    { printf '\223NUMPY\001\000\166\000'; printf '%-117s\n' "$header"; eval "$4"; } >"$1"
}

# number KEY.KEY...: of the JSON in `out`
number()
{
    python3 -c 'import json, sys
value = json.load(open("out"))
for key in sys.argv[1].split("."):
    value = value[int(key)] if isinstance(value, list) else value[key]
print(value)' "$1"
}

# What most observations here look like: one grey picture, a robot of 14 joints.
npy picture.npy '|u1' '24, 32, 3' "head -c 2304 /dev/zero | tr '\000' 'Z'"
STATE=0,0.1,-0.2,0.3,0,0,0.5,0,0.1,-0.2,0.3,0,0,0.5
OBS="--image cam_high=picture.npy --state $STATE --prompt lift"

# The last line of a script.
finish()
{
    echo "$count checks, $failures failed"
    [ $failures = 0 ]
}
