#!/bin/bash
# The program from outside: exit codes, streams, options, and one whole path from a synthetic checkpoint to `pi0 check`.
# Run: PI0=build/pi0 tests/test_cli.sh        (CTest does; works from any folder, leaves nothing behind)
# ctest: timeout=600
name=pi0_cli; . "$(dirname "${BASH_SOURCE[0]}")/support.sh"

npy noise.npy '<f4' '50, 32' "head -c 6400 /dev/zero"
npy noise3.npy '<f4' '1, 50, 32' "head -c 6400 /dev/zero"
npy short_noise.npy '<f4' '1, 32' "head -c 128 /dev/zero"
npy state.npy '<f8' '14,' "head -c 112 /dev/zero"
npy two_rows.npy '<f8' '2, 7' "head -c 112 /dev/zero"
printf 'this is no picture' >broken.png

# ---------------------------------------------------------------- help and usage
try; [ $code = 2 ] && [ ! -s out ] && grep -q 'usage: pi0 COMMAND' err; holds "bare pi0 prints its help on stderr, exit 2"
try --version; [ $code = 0 ] && grep -q '^pi0 [0-9]' out && [ ! -s err ]; holds "--version"
try help; [ $code = 0 ] && grep -q 'not in this version' out && [ ! -s err ]; holds "help on stdout"
for command in infer check inspect synth pack tokenize preprocess bench profile doctor calibrate; do
    try $command --help
    [ $code = 0 ] && grep -q '^Examples' out && [ ! -s err ]; holds "$command --help teaches with examples"
    try help $command; [ $code = 0 ] && grep -q "^pi0 $command:" out; holds "help $command"
done
for command in serve client run replay; do
    expect "$command says that it is not in this version" 1 'not in this version' $command MODEL
done
expect "unknown command names the nearest" 2 'pi0 infer' infr MODEL
expect "option before the command" 2 'command first' --json doctor
expect "J15 unknown option names the nearest" 2 'nearest is --prompt' infer MODEL --promt hello
expect "missing argument" 2 'MODEL' infer
expect "extra argument" 2 'two' inspect one two
expect "option given twice" 2 'twice' infer MODEL --steps 3 --steps 4
expect "option without its value at the end" 2 'without its value' infer MODEL --prompt
expect "option without its value before another" 2 'prompt=--steps' infer MODEL --prompt --steps 3
expect "number out of range" 2 'from 1 to' infer MODEL --steps 0
expect "number with a tail" 2 'got: *3x' infer MODEL --steps 3x
expect "choice" 2 'pil torch' preprocess picture.npy --resize bilinear -o o.npy
expect "size" 2 'bytes' inspect MODEL --memory-limit lots
expect "a limit of nothing" 2 'more than 0 bytes' inspect MODEL --memory-limit 0
expect "one field set twice" 2 'where: *--set prompt.clean' inspect MODEL --set prompt.clean=true --set image.size=224 --set prompt.clean=false
expect "no observation" 2 'observation' infer MODEL
expect "image without a name" 2 'NAME=FILE' infer MODEL --image picture.npy
expect "same camera twice" 2 'twice' infer MODEL --image a=picture.npy --image a=picture.npy
expect "two observations where one is wanted" 2 'one observation' infer MODEL --obs a.npz --obs b.npz
expect "synth with outliers of no number" 2 'NxFACTOR' synth DIR --model pi0 --layout lerobot --size tiny --outliers many
expect "synth with outliers of no factor" 2 'NxFACTOR' synth DIR --model pi0 --layout lerobot --size tiny --outliers 4x1
expect "calibrate needs -o" 2 '.-o FILE' calibrate MODEL --state 1
expect "calibrate over an observation" 2 'FILE.json' calibrate MODEL a.npz -o a.npz
expect "calibrate into an absent folder" 1 'nowhere' calibrate MODEL --state 1 -o nowhere/c.json
expect "calibrate needs an observation" 2 'observation' calibrate MODEL -o c.json
expect "calibrate with files and options" 2 'not from both' calibrate MODEL a.npz --state 1 -o c.json
expect "calibrate with a cosine of 1" 2 'between 0 and 1' calibrate MODEL a.npz --cosine 1 -o c.json
expect "state that is not numbers" 2 'item 2' infer MODEL --state 1,two,3
expect "state with nan" 2 'finite' infer MODEL --state 1,nan
expect "state that is a word says both forms" 2 'numbers separated by commas, or a FILE.npy' infer MODEL --state rest
expect "state file that is not there says both forms" 3 'numbers separated by commas, or a FILE.npy' infer MODEL --state rest.npy
cp two_rows.npy TWO_ROWS.NPY
expect "state file in upper case" 2 '\[1,n\]' infer MODEL --state TWO_ROWS.NPY
expect "state file of two rows" 2 '\[1,n\]' infer MODEL --state two_rows.npy
expect "G2 noise of rank 1" 2 '\[H,A\]' infer MODEL --state 1 --noise state.npy
npy whole_noise.npy '<i4' '50, 32' "head -c 6400 /dev/zero"
expect "G2 noise of whole numbers" 2 'f32 (or f64, f16)' infer MODEL --state 1 --noise whole_noise.npy
expect "output ending" 2 '.csv' infer MODEL --state 1 -o actions.txt
expect "output folder that is not there" 1 'folder' infer MODEL --state 1 -o nowhere/actions.npy
expect "preprocessed beside an image" 2 'whole observation' infer MODEL --preprocessed o.npz --image a=picture.npy
expect "bad --tol" 2 'STAGE=VALUE' check MODEL noise.npy --tol velocity
expect "unreadable picture" 3 'broken.png' infer MODEL --image a=broken.png
expect "absent picture" 3 'absent.png' infer MODEL --image a=absent.png
expect "absent model" 3 'absent_model' inspect ./absent_model
mkfifo pipe pipe.pi0
for command in inspect 'infer --state 1' 'pack --verify'; do
    for pipe in ./pipe ./pipe.pi0; do
        expect "$command of a pipe" 3 'got: *a pipe' $command $pipe; grep -q 'try: *write what comes out' err; holds "says what to do"
    done
done
expect "infer from an absent model" 3 'absent_model' infer ./absent_model --state 1 --prompt hello
expect "bench needs a model" 2 '.--size' bench
expect "bench of a model and of a random one" 2 'both' bench MODEL --size tiny
expect "bench MODEL --model" 2 'says itself' bench MODEL --model pi0
expect "bench in two forms" 2 'json and --markdown' bench MODEL --json --markdown
expect "bench of an absent model" 3 'absent_model' bench ./absent_model
expect "bench --compare=onednn" 1 'not in this version' bench --size tiny --compare=onednn
expect "a plan report of a ladder" 2 'plan-report' bench --size tiny --plan-report --ablate
expect "a plan report of a batch that is measured" 2 'plan-report' bench --size tiny --plan-report --batch auto
expect "synth needs its options" 2 '.--layout' synth DIR --model pi0 --size tiny

# ---------------------------------------------------------------- environment
PI0_STEPS=abc expect "bad value of a twin" 2 'PI0_STEPS' infer MODEL --state 1
PI0_STEPS=abc expect "bad value of a twin that the command line overrides" 2 'PI0_STEPS' infer MODEL --state 1 --steps 3
PI0_STEPS=abc expect "a bad twin of another command's option is a warning" 0 'PI0_STEPS=abc' doctor
PI0_STEPS=3 try doctor; [ $code = 0 ] && ! grep -q warning err; holds "a good twin of another command's option is left alone"
PI0_JSON=1 try doctor; head -c 1 out | grep -q '{'; holds "J15 PI0_JSON=1 is on"
PI0_JSON=0 try doctor; [ $code = 0 ] && ! head -c 1 out | grep -q '{'; holds "J15 PI0_JSON=0 is off"
PI0_JSON=off try doctor; [ $code = 0 ] && ! head -c 1 out | grep -q '{'; holds "J15 PI0_JSON=off is off"
PI0_JSON=false try doctor --json; [ $code = 0 ] && head -c 1 out | grep -q '{'; holds "the command line wins over the environment"
PI0_JSON=maybe expect "PI0_JSON=maybe is an error" 2 'PI0_JSON' doctor
PI0_STEPPS=3 PI0_SERVICE_HOST=10.0.0.1 PI0_PORT=tcp://10.0.0.1:80 PI0_PORT_80_TCP=x try doctor
[ $code = 0 ] && [ "$(grep -c warning err)" = 1 ] && grep -q PI0_STEPPS err; holds "unknown variables: one warning"
PI0_SHARED=/x try doctor; [ $code = 0 ] && ! grep -q warning err; holds "PI0_SHARED is no surprise"
PI0_STEPPS=3 try doctor --quiet; [ $code = 0 ] && [ ! -s err ]; holds "--quiet silences warnings"
expect "--quiet does not silence errors" 2 'error' infer --quiet MODEL

# ---------------------------------------------------------------- streams
"$PI0" help >/dev/full 2>err </dev/null; code=$?; : >out
[ $code = 1 ] && grep -q 'standard output' err; holds "full disk behind stdout, exit 1"
"$PI0" doctor --json >/dev/full 2>err </dev/null; code=$?
[ $code = 1 ] && grep -q 'standard output' err; holds "full disk behind --json, exit 1"
"$PI0" help >&- 2>err </dev/null; code=$?
[ $code = 1 ] && grep -q 'standard output' err; holds "closed stdout, exit 1"
{ sleep 0.2; "$PI0" help 2>err </dev/null; echo $? >code_file; } | true
sleep 0.4; code=$(cat code_file); [ "$code" = 1 ] && grep -q 'standard output' err; holds "closed pipe, exit 1"
try doctor --json; [ $code = 0 ] && tail -c 2 out | grep -q '}' && ! grep -q "$(printf '\033')" out; holds "doctor --json is JSON alone"

# ---------------------------------------------------------------- preprocess
expect "preprocess needs --resize" 2 '.--resize' preprocess picture.npy -o o.npy
expect "preprocess needs -o" 2 '.-o FILE' preprocess picture.npy --resize pil
expect "preprocess to npy" 0 - preprocess picture.npy --resize pil --size 32 -o seen.npy
[ "$(wc -c <seen.npy)" = $((128 + 32 * 32 * 3 * 4)) ]; holds "its size is that of f32 [32,32,3]"
expect "preprocess to png" 0 - preprocess picture.npy --resize torch -o seen.png
expect "preprocess reads its own png" 0 - preprocess seen.png --resize pil -o again.npy
cp seen.png SEEN.PNG
expect "endings in upper case" 0 - preprocess SEEN.PNG --resize pil -o AGAIN.NPY; cmp -s again.npy AGAIN.NPY; holds "are the same formats"
expect "preprocess of a broken picture" 3 'broken.png' preprocess broken.png --resize pil -o never.npy
[ ! -e never.npy ]; holds "it wrote nothing"
expect "preprocess into an absent folder" 1 'nowhere' preprocess picture.npy --resize pil -o nowhere/o.npy

# ---------------------------------------------------------------- a whole path
CONFIG="--config pi0_aloha_sim"
expect "synth tiny" 0 - synth tiny --model pi0 --layout openpi --size tiny $CONFIG --seed 7
expect "synth into a folder that is not empty" 2 'tiny' synth tiny --model pi0 --layout openpi --size tiny $CONFIG
mkdir -m 755 here; ln -s here link
for target in . here/. link link/; do
    expect "synth onto $target" 2 'new or an empty' synth $target --model pi0 --layout openpi --size tiny $CONFIG
done
[ -z "$(ls -A here)" ] && [ -z "$(ls -d ./*.tmp .*.tmp 2>/dev/null)" ]; holds "wrote nothing"
(umask 027; "$PI0" synth here --model pi0 --layout openpi --size tiny $CONFIG >out 2>err; "$PI0" synth fresh --model pi0 --layout openpi --size tiny $CONFIG >out 2>err)
[ "$(stat -c %a fresh fresh/model.safetensors here | tr '\n' ' ')" = "750 640 755 " ]
holds "what synth makes has the umask's permissions, what was there keeps its own"
expect "inspect" 0 - inspect tiny $CONFIG
grep -q '^recipe$' out && grep -q 'rule: ' out && grep -q '^memory$' out && ! grep -q '^tensors$' out; holds "inspect has its sections, and tensors only when asked"
expect "inspect --tensors" 0 - inspect tiny $CONFIG --tensors
grep -q '^tensors$' out && grep -q 'action_in_proj' out; holds "inspect --tensors lists tensors"
expect "inspect --json" 0 - inspect tiny $CONFIG --json
mkdir "$(printf 'odd\377')" && ln -s ../tiny "$(printf 'odd\377/tiny')"
expect "inspect --json of a path that is no UTF-8" 0 - inspect "$(printf 'odd\377/tiny')" $CONFIG --json; grep -q 'odd\(\\ufffd\|�\)/tiny' out; holds "shows U+FFFD"
head -c 1 out | grep -q '{' && grep -q '"recipe"' out; holds "inspect --json is an object"
expect "inspect --write-recipe" 0 - inspect tiny $CONFIG --write-recipe recipe.json
[ -s recipe.json ]; holds "the recipe is written"
expect "a config nearly right names the nearest" 2 'nearest: pi0_aloha_sim;' infer tiny $OBS --config pi0_alohasim
expect "a field nearly right names the nearest" 2 'nearest: prompt.clean' infer tiny $OBS $CONFIG --set prompt.claen=true
expect "B1 infer says its precision and device before it starts" 0 'f32 on cpu' infer tiny $CONFIG $OBS
grep -q 'vision' err; holds "and its timings"
[ $code = 0 ] && grep -q '^ *49 ' out; holds "its table has 50 rows"
expect "infer --quiet" 0 - infer tiny $CONFIG $OBS --quiet; [ ! -s err ]; holds "it says nothing on stderr"
expect "infer --json" 0 - infer tiny $CONFIG $OBS --json
cp out first.json
head -c 1 out | grep -q '{' && for key in actions shape tokens seed device precision timing_ms decode preprocess tokenize vision prefix denoise post total memory; do
    grep -q "\"$key\": " out || break
done; holds "--json has its keys"
expect "- and _ are the same" 0 - infer tiny $CONFIG $OBS --no_norm --memory_limit 8G --asset_id=lerobot/aloha_sim_transfer_cube_human --json
PI0_PROMPT=lift PI0_SEED=0 PI0_IMAGE=cam_high=picture.npy try infer tiny $CONFIG --state $STATE -o twin.csv
"$PI0" infer tiny $CONFIG $OBS -o plain.csv --quiet && cmp -s twin.csv plain.csv; holds "environment twins give the same actions"
[ "$(wc -l <plain.csv)" = 50 ]; holds "csv has 50 lines"
expect "infer --prompt= may be attached, -- ends options" 0 - infer $CONFIG --image=cam_high=picture.npy --state=$STATE --prompt=lift -o attached.csv -- tiny
cmp -s attached.csv plain.csv; holds "and gives the same actions"
expect "G4 steps" 0 - infer tiny $CONFIG $OBS --steps 3 -o steps.csv
! cmp -s steps.csv plain.csv; holds "another step count gives other actions"
expect "G1 another seed" 0 - infer tiny $CONFIG $OBS --seed 1 -o seed.csv
! cmp -s seed.csv plain.csv; holds "and other actions"
expect "G3 noise [H,A]" 0 - infer tiny $CONFIG $OBS --noise noise.npy -o n2.csv
expect "G3 noise [1,H,A]" 0 - infer tiny $CONFIG $OBS --noise noise3.npy -o n3.csv
npy wide_noise.npy '<f8' '50, 32' "head -c 12800 /dev/zero"
expect "G3 noise of f64" 0 - infer tiny $CONFIG $OBS --noise wide_noise.npy -o N64.CSV; cmp -s n2.csv N64.CSV; holds "is the same noise"
cmp -s n2.csv n3.csv; holds "G3 both give the same actions"
expect "G2 noise of one row" 2 'horizon 1' infer tiny $CONFIG $OBS --noise short_noise.npy
expect "what it tries to help with helps" 0 - infer tiny $CONFIG $OBS --noise short_noise.npy --horizon 1 --memory-limit 1g
expect "a limit in small letters" 1 'at most 65536 bytes' infer tiny $CONFIG $OBS --memory-limit 64k
expect "a prompt that is cut" 0 - infer tiny $CONFIG --image cam_high=picture.npy --state $STATE --repeat 3 --prompt="$(yes lift | head -n 100 | tr '\n' ' ')"
[ "$(grep -c 'is cut to' err)" = 1 ]; holds "is one warning, however often it runs"
expect "wrong width of the state" 2 '14' infer tiny $CONFIG --image cam_high=picture.npy --state 1,2,3 --prompt lift
expect "C7 unknown camera" 2 'cam_high' infer tiny $CONFIG --image front=picture.npy --state $STATE
expect "no such device" 1 - infer tiny $CONFIG $OBS --device cuda
expect "every output at once" 0 - infer tiny $CONFIG $OBS --raw -o raw.npy --dump dump.npz --record ref.npz --trace trace.json --plot plot.svg --repeat 2
[ "$(wc -c <raw.npy)" = $((128 + 50 * 32 * 4)) ]; holds "--raw writes f32 [50,32]"
grep -q '"traceEvents"' trace.json && grep -q '"vision"' trace.json; holds "--trace is a Chrome trace"
grep -q '<svg' plot.svg && grep -q '</svg>' plot.svg && grep -q 'prefers-color-scheme' plot.svg && ! grep -qi 'href\|<script' plot.svg
holds "--plot is self-contained SVG"
[ "$(grep -c 'pi0: run [01]:' err)" = 2 ]; holds "--repeat prints each timing"
[ ! -s out ]; holds "with -o stdout stays empty"
expect "--sketch draws" 0 - infer tiny $CONFIG $OBS --sketch; grep -q '└' out; holds "the sketch has an axis"
expect "B16 check of an own record" 0 - check tiny ref.npz $CONFIG
grep -q 'same actions without taps' out && grep -q 'actions_raw' out && grep -q '^passed' out; holds "check prints its table"
expect "check --json" 0 - check tiny ref.npz $CONFIG --json; grep -q '"passed": true' out; holds "it passed"
expect "infer from a record" 0 - infer tiny $CONFIG --obs ref.npz -o from_record.csv; cmp -s from_record.csv plain.csv; holds "gives the same actions"
expect "one array is no observation" 3 '.--obs FILE.npz' infer tiny $CONFIG --obs state.npy
expect "nor is it preprocessed" 3 '.--obs FILE.npz' infer tiny $CONFIG --preprocessed noise.npy
expect "synth another seed" 0 - synth other --model pi0 --layout openpi --size tiny $CONFIG --seed 8
expect "check against other weights fails" 4 'gate' check other ref.npz $CONFIG; grep -q FAIL out; holds "and says FAIL"
expect "check --tol" 0 - check other ref.npz $CONFIG --tol all=1e9
expect "check --tol of an unknown stage lists the known" 2 '^    velocity$' check tiny ref.npz $CONFIG --tol velocty=1
expect "check --tol twice" 2 'where: *--tol velocity' check tiny ref.npz $CONFIG --tol velocity=1 --tol velocity=2
sed 's#ref/x\.0\.npy#gate/x0.npy#g' ref.npz >gate.npz
expect "check with a gate for no stage" 3 '^    velocity$' check tiny gate.npz $CONFIG; grep -q 'gate/x0' err; holds "names it"
expect "check without stages" 3 'ref/' check tiny dump.npz $CONFIG
expect "check of a single array" 3 - check tiny noise.npy $CONFIG
# ---------------------------------------------------------------- int8 by product
expect "synth with outliers" 0 - synth rough --model pi0 --layout openpi --size tiny $CONFIG --outliers 4x50
expect "record in f32" 0 - infer rough $CONFIG $OBS --steps 3 --record rough.npz -o rough.csv
expect "plain int8 fails on outliers" 4 'gate' check rough rough.npz $CONFIG --precision int8
expect "int8:auto says what to run" 2 'pi0 calibrate rough' infer rough $CONFIG $OBS --precision int8:auto
expect "calibrate" 0 'wrote c.json' calibrate rough rough.npz $CONFIG -o c.json --steps 3
grep -q 'worst first' out && grep -q 'self_attn.q_proj+k_proj+v_proj .*bf16$' out && grep -q '^int8 .*cosine' out && grep -q '^int8:auto .*cosine' out && grep -q 'stay bf16' out
holds "its report has the worst products, both cosines and the count"
grep -q '"format": "pi0-calibration"' c.json && [ -z "$(ls | grep tmp)" ]; holds "the file is whole"
expect "calibrate --json, of options" 0 - calibrate rough $OBS $CONFIG -o d.json --steps 3 --json
cmp -s out d.json || diff <(cat d.json; echo) out >diff_out; holds "prints the file"
expect "check int8:auto" 0 - check rough rough.npz $CONFIG --precision int8:auto --calibration c.json --layers
grep -q 'int8:auto (w.a., [0-9]* of [0-9]* products bf16)' out && grep -q '^passed' out && grep -q '^product .*error' out; holds "passes and shows its products"
expect "check --layers --json" 4 - check rough rough.npz $CONFIG --precision int8 --layers --json; grep -q '"layers": \[{"name": ' out; holds "has them too"
expect "infer int8:auto --json" 0 'int8:auto' infer rough $CONFIG $OBS --precision int8:auto --calibration c.json --json
grep -q '"precision": "int8:auto (w' out; holds "says its precision"
PI0_CALIBRATION=c.json expect "inspect int8:auto" 0 - inspect rough $CONFIG --precision int8:auto
grep -q 'products bf16' out; holds "counts by block"
expect "a calibration of another model" 3 'another model' infer tiny $CONFIG $OBS --precision int8:auto --calibration c.json
expect "a calibration that nothing reads" 0 'is not used' infer tiny $CONFIG $OBS --calibration c.json
printf '{"format": 1' >bad.json
expect "a calibration that is no JSON" 3 'bad.json: line 1' infer rough $CONFIG $OBS --precision int8:auto --calibration bad.json
expect "calibrate --precision f32" 2 'about int8' calibrate rough $OBS $CONFIG -o e.json --precision f32
expect "a gate that bf16 does not meet" 4 'no choice of products' calibrate rough $OBS $CONFIG -o e.json --steps 3 --cosine 0.999999999999
[ ! -e e.json ] && grep -q 'worst first' out; holds "reports and writes nothing"

(ulimit -f 1; "$PI0" infer tiny $CONFIG $OBS --quiet -o full.npy >out 2>err </dev/null); code=$?
[ $code = 1 ] && grep -q 'error' err && [ -z "$(ls | grep full)" ]; holds "a full disk behind -o: exit 1, nothing left"
expect "tokenize MODEL" 0 - tokenize tiny "pick up" $CONFIG
[ "$(wc -l <out)" = 1 ] && ! grep -q '[^0-9 ]' out; holds "ids on one line"
ids=$(cat out)
expect "tokenize --no-bos" 0 - tokenize tiny "pick up" --no-bos $CONFIG; [ "${ids#* }" = "$(cat out)" ]; holds "is the same without BOS"
bare=$(cat out)
expect "tokenize --decode" 0 - tokenize tiny --decode "$bare" $CONFIG; grep -q 'pick up' out; holds "gives the text back"
printf '"pick up"\n"a\\nb"\n' | "$PI0" tokenize tiny --stdin $CONFIG >out 2>err; code=$?
[ $code = 0 ] && [ "$(wc -l <out)" = 2 ] && [ "$(head -n 1 out)" = "$ids" ]; holds "tokenize --stdin: a line for each"
printf '"good"\nnot json\n' | "$PI0" tokenize tiny --stdin $CONFIG >out 2>err; code=$?
[ $code = 3 ] && [ ! -s out ] && grep -q 'line 2' err; holds "tokenize --stdin names the bad line"
expect "tokenize --as-prompt" 0 - tokenize tiny "lift_it" --as-prompt $CONFIG
cp out prompt_ids
printf '"push"\n"lift_it"\n"lift_it"\n' | "$PI0" tokenize tiny --stdin --as-prompt $CONFIG >out 2>err; code=$?
[ $code = 0 ] && [ "$(tail -n 2 out | uniq)" = "$(cat prompt_ids)" ] && [ "$(head -n 1 out)" != "$(cat prompt_ids)" ]; holds "tokenize --stdin --as-prompt: a line for each"
expect "tokenize --json" 0 - tokenize tiny "pick up" --json $CONFIG; grep -q '"ids": \[' out; holds "is an object"
expect "tokenize TEXT and --stdin" 2 'stdin' tokenize tiny text --stdin
expect "a text may start with a dash" 0 - tokenize tiny "- pick up" $CONFIG
expect "tokenize invalid UTF-8" 2 - tokenize tiny "$(printf 'a\377b')" $CONFIG
expect "tokenize of a file that is none" 3 - tokenize broken.png text

# ---------------------------------------------------------------- bench and doctor
expect "doctor names the kernels and the cores" 0 - doctor
grep -q '^kernels$' out && grep -q 'product f32 .*[a-z]' out && grep -q 'sockets' out && ! grep -q '^measured$' out; holds "and does not measure unasked"
expect "doctor --measure" 0 - doctor --measure --json
grep -q '"all_threads": [0-9]' out && grep -q '"of": "memory"' out; holds "doctor --measure has arithmetic and memory"
mkdir room
TMPDIR=$PWD/room expect "bench of a random model" 0 - bench --size tiny --model pi05 --cameras 2 --prompt-tokens 20 --steps 3 --horizon 7 --batch 2 --repeat 2 --json
for key in needed_tflop peak_gflops fraction_of_peak latency_ms memory machine p50 p90 p99 max preprocess tokenize vision prefix denoise post total peak_resident; do
    grep -q "\"$key\": " out || break
done; holds "its --json has its keys"
grep -q '"prompt_tokens": 20' out && grep -q '"cameras": 2' out && grep -q '"batch": 2' out && grep -q '"runs": 2' out && grep -q '"horizon": 7' out; holds "and what was asked for"
[ -z "$(ls room)" ]; holds "and nothing is left of the checkpoint"
TMPDIR=$PWD/nowhere expect "bench without a place for a random model" 1 'TMPDIR' bench --size tiny
expect "bench --batch auto" 0 'batch 2: ' bench tiny $CONFIG --steps 1 --repeat 1 --batch auto --json
grep -q '"batch": [1-9]' out; holds "says which batch it took"
expect "bench with a batch of neither" 2 'or auto' bench tiny $CONFIG --batch many
expect "bench --batch auto of a ladder" 2 'ladder' bench tiny $CONFIG --batch auto --ablate
expect "bench MODEL" 0 - bench tiny $CONFIG --repeat 1
grep -q '^total ' out && grep -q 'of peak' out && grep -q 'TFLOP' out; holds "prints its table"
expect "bench --markdown" 0 - bench tiny $CONFIG --repeat 1 --markdown; grep -q '^|---|' out && grep -q '^| total |' out; holds "prints a Markdown table"
expect "threads that stay where they are put" 0 - bench tiny $CONFIG --repeat 1 --threads 1 --affinity cores
expect "an affinity that is no list" 2 '8-11' bench tiny $CONFIG --affinity 0,,1
expect "an affinity of too few" 2 'fewer CPUs' bench tiny $CONFIG --affinity 0 --threads 2
expect "bench with more cameras than there are" 2 '1 to' bench tiny $CONFIG --cameras 4
expect "bench with more tokens than the model takes" 2 'tokens' bench tiny $CONFIG --prompt-tokens 1000

# ---------------------------------------------------------------- the C example
EXAMPLE=${BUILD:-$(dirname "$PI0")}/examples/robot
if [ -x "$EXAMPLE" ]; then
    "$PI0" synth lerobot --model pi05 --layout lerobot --size tiny --cameras 2 --quiet >out 2>err
    "$EXAMPLE" lerobot picture.npy seen.png "pick up the cube" >out 2>err; code=$?
    [ $code = 0 ] && [ "$(wc -l <out)" = 50 ]; holds "examples/robot prints 50 rows"
    "$EXAMPLE" ./absent_model picture.npy seen.png "pick up the cube" >out 2>err; code=$?
    [ $code = 1 ] && [ ! -s out ] && grep -q 'absent_model' err; holds "examples/robot says what is wrong"
else
    echo "skipped - the C example is not built"
fi

# ---------------------------------------------------------------- stopped in the middle
"$PI0" synth stopped --model pi0 --layout openpi --size base $CONFIG >out 2>err </dev/null &
synth=$!
sleep 1
kill -TERM $synth
wait $synth
code=$?
left=$(find . -maxdepth 1 -name '*stopped*' | wc -l)
[ $code != 0 ] && [ "$left" = 0 ]; holds "a stopped synth leaves nothing"

finish
