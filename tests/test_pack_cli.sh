#!/bin/bash
# `pi0 pack` from outside: every command takes the packed file, alone; the file is plain safetensors; memory stays within its plan.
# Run: PI0=build/pi0 tests/test_pack_cli.sh        (CTest does; works from any folder, leaves nothing behind)
# ctest: timeout=600
name=pi0_pack; . "$(dirname "${BASH_SOURCE[0]}")/support.sh"

# ---------------------------------------------------------------- usage
expect "pack without -o" 2 'pi0 pack MODEL -o FILE.pi0' pack MODEL
expect "pack with -o and --verify" 2 'both' pack MODEL -o m.pi0 --verify
expect "pack to another ending" 2 'FILE.pi0' pack MODEL -o m.safetensors
expect "pack --help says what the file holds" 0 - pack --help
grep -q 'recipe, statistics and tokenizer' out && grep -q -e '--verify' out; holds "and how it is checked"

# ---------------------------------------------------------------- one file
"$PI0" synth tiny --model pi0 --layout openpi --size tiny --config pi0_aloha_sim --seed 7 --dtype bf16 --quiet >out 2>err
expect "openpi's checkpoint needs its config here too" 3 '--config' pack tiny -o m.pi0
[ ! -e m.pi0 ]; holds "and nothing is written"
expect "pack" 0 - pack tiny --config pi0_aloha_sim -o m.pi0
grep -q 'tensors as stored' out && grep -q 'bf16 kernels' out; holds "says what is in the file"
expect "pack --json" 0 - pack tiny --config pi0_aloha_sim -o m.pi0 --json
[ "$(number bytes)" = "$(stat -c %s m.pi0)" ] && [ "$(number packed_weights)" -gt 5 ]; holds "with its numbers"
expect "infer from the directory" 0 - infer tiny --config pi0_aloha_sim $OBS -o a.npy
mkdir alone && mv m.pi0 alone && HASH=$(sha256sum tiny/model.safetensors | cut -d' ' -f1) && mv tiny gone
M=alone/m.pi0
expect "infer from the packed file" 0 'bf16 on cpu' infer $M $OBS -o b.npy
cmp -s a.npy b.npy && ! grep -q warning err; holds "gives the same bytes, without a warning"
expect "infer --record" 0 - infer $M $OBS --record ref.npz
expect "check" 0 - check $M ref.npz
expect "inspect" 0 - inspect $M --json
[ "$(number packed.source.0.sha256)" = "$HASH" ]; holds "names the SHA-256 of the weights it came from"
[ "$(number packed.version)" = 1 ] && [ "$(number packed.precision)" = bf16 ] && [ "$(number packed.weights_packed_at_open)" = 0 ]
holds "and version, precision, what is ready"
expect "inspect as a page" 0 - inspect $M; grep -q '^packed$' out && grep -q 'cpu\.bf16\.' out; holds "shows the layouts"
expect "inspect --write-recipe" 0 - inspect $M --write-recipe recipe.json
expect "its recipe can be given back" 0 - infer $M $OBS --recipe recipe.json -o c.npy
cmp -s a.npy c.npy; holds "to the same end"
expect "tokenize" 0 - tokenize $M "pick up the cube"
expect "tokenize --as-prompt" 0 - tokenize $M "pick up the cube" --as-prompt
expect "doctor" 0 - doctor $M
expect "bench" 0 - bench $M --repeat 1 --steps 1
expect "another precision opens too" 0 'are packed now' infer $M $OBS --precision int8
expect "a state field of the recipe can be set" 0 - infer $M $OBS --set steps=3
expect "pack --verify" 0 - pack --verify $M; grep -q 'as it was written' out; holds "says so"
expect "pack --verify of a checkpoint" 3 'not a packed file' pack --verify gone/model.safetensors
expect "pack again from the file alone" 0 - pack $M --precision int8 -o int8.pi0
expect "int8 is what the file then means by auto" 0 'int8 (w' infer int8.pi0 $OBS

# ---------------------------------------------------------------- with a calibration
"$PI0" synth rough --model pi05 --layout lerobot --size tiny --cameras 1 --state-dim 6 --action-dim 6 --outliers 4 --quiet >out 2>err
ROUGH="--image base_0_rgb=picture.npy --state 0.1,0.2,0.3,0.4,0.5,0.6 --prompt lift"
expect "calibrate" 0 - calibrate rough $ROUGH -o c.json
expect "pack int8:auto needs a calibration" 2 'pi0 calibrate' pack rough --precision int8:auto -o rough.pi0
expect "pack for int8:auto" 0 - pack rough --precision int8:auto --calibration c.json -o rough.pi0
expect "infer int8:auto from the directory" 0 'products bf16' infer rough $ROUGH --precision int8:auto --calibration c.json -o a.npy
mv c.json rough gone
expect "infer from the packed file alone" 0 'int8:auto (w.* products bf16' infer rough.pi0 $ROUGH -o b.npy
cmp -s a.npy b.npy && ! grep -q warning err; holds "brings its calibration, gives the same bytes, without a warning"
expect "pack it again" 0 - pack rough.pi0 -o again.pi0; grep -q 'int8:auto kernels' out; holds "for the same precision"
expect "and once more infer" 0 - infer again.pi0 $ROUGH -o b.npy
cmp -s a.npy b.npy && ! grep -q warning err; holds "to the same end"
expect "inspect says that it is calibrated" 0 - inspect rough.pi0 --json; grep -q '"calibrated": true' out; holds "in its JSON"

if grep -qw avx2 /proc/cpuinfo 2>/dev/null; then # whose form of int8 is not that of ref: one of them is not the one calibrated for
    codes=
    for isa in ref avx2; do
        "$PI0" infer rough.pi0 $ROUGH --isa $isa >out 2>err </dev/null; code=$?
        codes=$codes$code
        [ $code = 0 ] || { grep -q 'another form' err && grep -q -e '--calibration' err; } || codes=wrong
        refused=$((code / 3))
        expect "inspect with the kernels of $isa" 0 - inspect rough.pi0 --isa $isa --json
        [ "$(grep -c 'another form' out)" = $refused ]; holds "lists what infer refuses, and nothing else"
    done
    [ $codes = 03 ] || [ $codes = 30 ]; holds "another form of int8 is not proven, and says what to do"
fi
expect "but another precision opens" 0 'f32 on cpu' infer rough.pi0 $ROUGH --isa ref --precision f32

# ---------------------------------------------------------------- under another name, beside other files
mkdir zz && cp $M zz/model.safetensors && echo '{"type": "act"}' >zz/config.json
expect "a folder with a packed file" 0 - infer zz $OBS -o b.npy
expect "what lies beside it does not matter" 0 - infer zz/model.safetensors $OBS -o b.npy
expect "and it can be packed again" 0 - pack zz -o zz.pi0
"$PI0" synth wide --model pi0 --layout lerobot --size tiny --cameras 1 --state-dim 6 --action-dim 6 --dtype f32 --quiet >out 2>err
cp wide/tokenizer.json "$(printf 'tok\377.json')"
expect "a tokenizer with a name that is no UTF-8" 0 - pack wide --tokenizer "$(printf 'tok\377.json')" -o wide.pi0
expect "the products of a file packed for f32 can be measured" 0 - infer wide.pi0 $ROUGH --record wide.npz
expect "by check" 0 - check wide.pi0 wide.npz --layers; grep -q 'mlp' out; holds "each by its name"
expect "and by calibrate" 0 - calibrate wide.pi0 wide.npz -o wide.json --actions-only
expect "packing for the same precision again" 0 'pack wide.pi0 --precision int8 -o' infer wide.pi0 $ROUGH --precision int8

# ---------------------------------------------------------------- plain safetensors, aligned, whole
python3 - $M <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
meta = header.pop("__metadata__")
size = {"F32": 4, "BF16": 2, "U8": 1, "U32": 4}
at = 0
assert (8 + n) % 4096 == 0 and all(isinstance(v, str) for v in meta.values()) and meta["pi0.byte_order"] == "little"
for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    begin, end = t["data_offsets"]
    count = 1
    for extent in t["shape"]:
        count *= extent
    assert begin == at and end - begin == count * size[t["dtype"]], name
    pad = name.startswith("pi0/pad/")
    assert pad or begin % (4096 if end - begin >= 4096 and not name.startswith("pi0/checksums") else 64) == 0, name
    at = end
assert at == len(data) - 8 - n
assert any(name.startswith("packed/cpu.") for name in header) and "action_in_proj.weight" in header
END
holds "a strict reader of safetensors finds no hole, and every tensor aligned"

# ---------------------------------------------------------------- damage
cp $M bad.pi0
printf 'X' | dd of=bad.pi0 bs=1 seek=$(($(stat -c %s bad.pi0) / 2)) conv=notrunc 2>err
expect "a flipped byte" 3 'damaged' pack --verify bad.pi0; grep -q 'where: *bad.pi0: tensor' err; holds "is found, and its tensor named"
expect "a damaged file is not packed again" 3 'damaged' pack bad.pi0 -o good.pi0; [ ! -e good.pi0 ]; holds "nor is anything written"
ln -s /dev/full full.pi0
expect "a full device behind a link: exit 1" 1 'full' pack $M -o full.pi0
rm full.pi0
mkdir dir.pi0
expect "a folder in the place of the file" 1 'directory of that name' pack $M -o dir.pi0
head -c 200000 $M >cut.pi0
expect "a truncated file is refused when it is opened" 3 'cut.pi0' infer cut.pi0 $OBS
sed 's/"pi0.pack":"1"/"pi0.pack":"9"/' $M >new.pi0
expect "a newer version" 3 'newer version' infer new.pi0 $OBS
sed 's/"pi0.byte_order":"little"/"pi0.byte_order":"bigbig"/' $M >big.pi0
expect "another byte order" 3 'byte order' inspect big.pi0
(ulimit -f 100; "$PI0" pack $M -o full.pi0 --quiet >out 2>err </dev/null); code=$?
[ $code = 1 ] && grep -q 'error' err && [ -z "$(ls -A | grep full)" ]; holds "a full disk: exit 1, nothing left"
expect "a folder that is not there: exit 1" 1 'nowhere' pack $M -o nowhere/m.pi0

# ---------------------------------------------------------------- memory: weights once, and what the plan says
if [ -z "${SANITIZE:-}" ] && grep -q VmHWM /proc/self/status 2>/dev/null; then
    "$PI0" synth small --model pi0 --layout lerobot --size small --dtype f32 --quiet >out 2>err
    LOOK=$(python3 - <<'END'
import json
print(" ".join("--image %s=picture.npy" % key for key in json.load(open("small/config.json"))["input_features"] if "image" in key))
END
)
    WIDTH=$(python3 -c 'import json; print(json.load(open("small/config.json"))["input_features"]["observation.state"]["shape"][0])')
    SMALL="$LOOK --state $(printf '0.1,%.0s' $(seq 2 "$WIDTH"))0.1 --prompt lift"
    expect "pack small for int8" 0 - pack small --precision int8 -o small.pi0
    # the program itself, its libraries, JSON and the pages at the borders of tensors
    margin=$((24 * 1024 * 1024))
    for model in small small.pi0; do
        expect "infer int8 from $model" 0 - infer $model --precision int8 $SMALL --steps 1 --json
        peak=$(number memory.peak_resident) plan=$(number memory.total)
        echo "# $model: peak $peak, plan $plan, file $(stat -c %s small/model.safetensors)"
        [ "$peak" -gt 0 ] && [ "$peak" -le $((plan + margin)) ]; holds "stays within its plan: sources leave memory as they are packed"
    done
    [ "$(stat -c %s small/model.safetensors)" -gt $((2 * margin)) ]; holds "which would not hold if they stayed"
fi

finish
