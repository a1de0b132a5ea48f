#!/bin/bash
# What a user watches: the progress of opening, --stats with and without GPUs, the pipeline's gain, the batch that keeps to limits, windows.
# Structure only, never a time. Run: PI0=build/pi0 SRC=. BUILD=build tests/test_live.sh  (CTest does)
# ctest: timeout=600
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
BUILD=$(realpath "${BUILD:?set BUILD to the build}")
name=pi0_live
. "$(dirname "${BASH_SOURCE[0]}")/support.sh"
mkdir room
export TMPDIR=$WORK/room LC_ALL=C.UTF-8

# json EXPRESSION: of the document `d` in out
json() { python3 -c 'import json, sys; d = json.load(open("out")); sys.exit(0 if eval(sys.argv[1]) else 1)' "$1" 2>>err; }

"$PI0" synth model --model pi0 --layout lerobot --size tiny --cameras 2 --state-dim 6 --action-dim 6 --horizon 16 --quiet >out 2>err
holds "a model"
frames=$SRC/examples/frames
seen="--image base_0_rgb=$frames/top.png --image left_wrist_0_rgb=$frames/wrist.jpg --state 0.1,0.2,0.3,0,0,0 --prompt pick"

# ---------------------------------------------------------------- progress, on a terminal only
python3 - "$PI0" $seen >out 2>err <<'P'
import os, pty, re, subprocess, sys
reader, writer = pty.openpty()
run = subprocess.Popen([sys.argv[1], "infer", "model", *sys.argv[2:]], stdout=subprocess.DEVNULL, stderr=writer)
os.close(writer)
text = b""
while True:
    try:
        piece = os.read(reader, 65536)
    except OSError:
        break
    if not piece:
        break
    text += piece
assert run.wait() == 0, text
text = text.decode()
assert re.search(r"\rpi0: tokenizer", text.replace("\x1b[K", "")), text
assert re.search(r"weights +\d+%, [\d.]+ \w+ of [\d.]+ MiB, \d+ s left", text), text
assert re.search(r"weights 100%", text), text
P
holds "the progress line has bytes and the time that is left"

# ---------------------------------------------------------------- --stats
line='^pi0: stats t=[0-9.]*s n=[0-9]* rate=[0-9.]*/s total=[0-9.]*ms prepare=[0-9.]*ms vision=[0-9.]*ms prefix=[0-9.]*ms denoise=[0-9.]*ms busy=[0-9]*% cpu=[0-9]*% rss=[1-9][0-9]*MiB weights=[0-9]*MiB kv=[0-9]*MiB activations=[0-9]*MiB workspace=[0-9]*MiB queue=[0-9]*/[0-9]* dropped=0 failed=0'

# long enough for a line: runs until there is one
watch_until_line()
{
    "$PI0" "$@" >out 2>err </dev/null &
    local run=$! tries=0
    while kill -0 $run 2>/dev/null && [ $tries -lt 600 ] && ! grep -q 'stats' err; do sleep 0.2; tries=$((tries + 1)); done
    kill $run 2>/dev/null
    wait $run 2>/dev/null
    grep 'stats' err | head -n 1 >stats
}

watch_until_line infer model $seen --steps 1 --repeat 1000000 --stats 1
grep -q "$line\$" stats; holds "infer --repeat --stats"
watch_until_line bench model --steps 1 --repeat 1000000 --stats 1
grep -q "$line\$" stats; holds "bench --stats"
watch_until_line bench model --steps 1 --repeat 100000 --stats 1 --pipeline "$frames/wrist.jpg"
grep -q "$line\$" stats; holds "bench --pipeline --stats"
expect "infer model --stats 0" 2 'from 1 to 86400' infer model $seen --stats 0
"$PI0" infer model $seen --steps 1 --repeat 3 --stats 3600 >out 2>err
[ $? = 0 ] && ! grep -q stats err; holds "no line before its time"

"$PI0" infer model $seen --record ref.npz >out 2>err
watch_until_line calibrate model $(yes ref.npz | head -n 200) --steps 10 --stats 1 -o c.json
grep -q '^pi0: stats t=.* n=[0-9]* .* rss=' stats; holds "calibrate --stats"

# ---------------------------------------------------------------- GPUs, out of a library that is not the driver's
if command -v cc >/dev/null && [ -z "${SANITIZE:-}" ]; then
    cat >nvml.c <<'C'
#include <stdio.h>
typedef struct { unsigned gpu, memory; } busy;
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return FAILS; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { static int devices[2]; *d = &devices[i]; devices[i] = (int)i; return 0; }
int nvmlDeviceGetName(void *d, char *name, unsigned size) { snprintf(name, size, "chip %d", *(int *)d); return 0; }
int nvmlDeviceGetUtilizationRates(void *d, busy *b) { b->gpu = 42 + (unsigned)*(int *)d; b->memory = 1; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { (void)d; m->total = 8ull << 30; m->used = 3ull << 30; m->free = 5ull << 30; return 0; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *t) { (void)sensor; *t = 61; return *(int *)d; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *p) { *p = 123400; return *(int *)d; }
C
    for fails in 0 9; do
        mkdir -p driver$fails
        cc -shared -fPIC -DFAILS=$fails nvml.c -o driver$fails/libnvidia-ml.so.1 2>>err || fails=none
    done
    LD_LIBRARY_PATH=$WORK/driver0 watch_until_line infer model $seen --steps 1 --repeat 1000000 --stats 1
    grep -q "$line gpu0=42%,3072MiB,61C,123W gpu1=43%,3072MiB\$" stats; holds "figures of two GPUs, one of which does not tell all"
    LD_LIBRARY_PATH=$WORK/driver9 watch_until_line infer model $seen --steps 1 --repeat 1000000 --stats 1
    grep -q "$line\$" stats; holds "a driver that does not answer is none"
fi

# ---------------------------------------------------------------- the pipeline
"$PI0" bench model --steps 1 --repeat 7 --pipeline "$frames/wrist.jpg" --json >out 2>err &&
    json 'd["pipeline"]["observations"] == 7 and all(d["pipeline"][k] > 0 for k in ("one_after_another_ms", "prepare_ms", "overlapped_ms", "latency_ms", "gain"))'
holds "bench --pipeline --json"
"$PI0" bench model --steps 1 --repeat 2 --pipeline "$frames/top.png" >out 2>err && grep -q '^pipeline: .* one after another.*overlapped.*the same actions' out
holds "bench --pipeline"
expect "bench model --steps 1 --repeat 2 --pipeline no.jpg" 3 'no.jpg' bench model --steps 1 --repeat 2 --pipeline no.jpg
expect "bench model --batch 2 --pipeline wrist.jpg" 2 'leave out --batch' bench model --batch 2 --pipeline "$frames/wrist.jpg"
expect "bench model --batch auto --pipeline wrist.jpg" 2 'leave out --batch' bench model --batch auto --pipeline "$frames/wrist.jpg"

# the program to copy; it waits for chunks, not for a time
"$BUILD/examples/loop" model "$frames/top.png" "$frames/wrist.jpg" pick 4 >out 2>err
[ $? = 0 ] && [ "$(grep -c '^observation [0-9]*, [0-9]* ms old, first action [-0-9.]*$' out)" = 4 ] && sort -c -k2 -n out && grep -q 'inferences, [0-9]* observations dropped' err
holds "examples/loop.c"

# ---------------------------------------------------------------- batch
expect "bench model --batch 0" 2 'from 1 to 16, or auto' bench model --batch 0
expect "bench model --latency-limit 100" 2 'batch auto' bench model --latency-limit 100
"$PI0" bench model --batch auto --steps 1 --repeat 1 --json >out 2>err && json '[r["batch"] for r in d["batch_auto"]["curve"]][0:2] == [1, 2] and d["batch"] == d["batch_auto"]["best"] and d["batch_auto"]["ended_by"] in ("share", "largest") and all(r["beyond"] is None and r["planned_bytes"] > 0 for r in d["batch_auto"]["curve"])'
holds "--batch auto has its curve"
for batch in 1 4; do
    "$PI0" bench model --batch $batch --steps 1 --repeat 1 --json >out 2>err
    number memory.total >planned$batch 2>>err
done
"$PI0" bench model --batch auto --memory-limit $(($(cat planned1) - 1000)) --steps 1 --repeat 1 >out 2>err
[ $? = 1 ] && grep -q 'needs more memory than the limit' err; holds "a memory limit below one robot"
"$PI0" bench model --batch auto --memory-limit $((($(cat planned4) + $(cat planned1)) / 2)) --steps 1 --repeat 1 --json >out 2>err &&
    json 'd["batch_auto"]["best"] in (1, 2) and all(r["planned_bytes"] <= d["batch_auto"]["memory_limit_bytes"] if r["beyond"] is None else r["beyond"] == "memory" for r in d["batch_auto"]["curve"]) and all(r["batch"] < 4 for r in d["batch_auto"]["curve"] if r["beyond"] is None) and d["memory"]["total"] <= d["batch_auto"]["memory_limit_bytes"]'
holds "--batch auto within a memory limit"
expect "bench model --batch auto --latency-limit 1" 1 'not even one robot' bench model --batch auto --latency-limit 1
"$PI0" bench model --batch auto --latency-limit 1000000 --steps 1 --repeat 1 >out 2>err && grep -q '^batch  *ms  *ms a robot' out && grep -q ' best$' out
holds "--batch auto within a latency limit"

# ---------------------------------------------------------------- windows
actions() { "$PI0" infer model $seen --json "$@" 2>err | python3 -c 'import json, sys; print(json.load(sys.stdin)["actions"])'; }
actions >dense
for window in 0 16 4096; do
    actions --window $window >windowed
    cmp -s dense windowed && ! grep -q 'local-window' err; holds "--window $window of 16 actions is none"
done
actions --window 2 >windowed
! cmp -s dense windowed && grep -q 'warning: local-window: each of 16 actions.*less than 2 away' err; holds "--window 2 warns"
expect "infer model --window 4097" 2 'from 0 to 4096' infer model $seen --window 4097
expect "infer model --window -1" 2 'from 0 to 4096' infer model $seen --window -1
"$PI0" inspect model --window 2 --json >out 2>err && json '[p["on"] for p in d["passes"] if p["name"] == "local-window"] == [True]'
holds "inspect shows the window's pass"
"$PI0" inspect model --json >out 2>err && json '[p["on"] for p in d["passes"] if p["name"] == "local-window"] == [False]'
holds "and that it is off"

finish
