#!/bin/bash
# The memory plan from outside: what is measured is what was planned, a limit is refused with what would fit, plans without weights.
# Run: PI0=build/pi0 tests/test_memory_cli.sh        (CTest does; works from any folder, leaves nothing behind)
# ctest: timeout=600
name=pi0_memory; . "$(dirname "${BASH_SOURCE[0]}")/support.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

# ---------------------------------------------------------------- plans alone: the published sizes, nothing of 7 GB on the disk
mkdir room
for model in pi0 pi05; do
    TMPDIR=$WORK/room try bench --size base --model $model --plan-report --json
    [ $code = 0 ] && [ -z "$(ls room)" ] && python3 - $model <<'EOF' 2>>err
import json, sys
model, report = sys.argv[1], json.load(open("out"))
assert report["model"] == model and report["precision"] == "bf16", report
assert [row["batch"] for row in report["batches"]] == list(range(1, 9))
ratios = [row[plan]["over_live"] for row in report["batches"] for plan in ("context", "schedule", "denoise")]
assert len(ratios) == 24 and all(1 <= r <= 1.10 for r in ratios) and report["worst_over_live"] == max(ratios), ratios
memory = [row["memory"] for row in report["batches"]]
assert all(a["activations"] < b["activations"] and a["kv_cache"] < b["kv_cache"] for a, b in zip(memory, memory[1:]))
assert model == "pi05" or memory[0]["beside_weights"] < 150e6, memory[0]  # for one robot; pi05's prompt alone has four times the rows
print(model, "at most", max(ratios), "times what is alive; beside the weights", memory[0]["beside_weights"], "bytes")
EOF
    holds "$model: arenas of one to eight robots, and nothing left behind"
done
TMPDIR=$WORK/room try bench --size base --plan-report --batch 2
[ $code = 0 ] && grep -q '^ *2 *context ' out && grep -q '^ *2 *denoise ' out && ! grep -q '^ *1 *context ' out
holds "--batch 2 reports that batch alone"
expect "a plan report of an absent model" 3 'absent_model' bench ./absent_model --plan-report

# ---------------------------------------------------------------- planned and measured
try synth small --model pi05 --layout lerobot --size small --dtype bf16 --cameras 2
try inspect small --json; cp out inspect.json
if [ -z "${SANITIZE:-}" ] && grep -q VmHWM /proc/self/status 2>/dev/null; then
    # The program's own few MB, pictures and libraries among them, count less the larger a model is: they are the same in both precisions, so
    # what int8 saves must be what the plans say it saves.
    try bench small --precision int8 --repeat 1 --json; cp out int8.json
    try bench small --precision bf16 --repeat 1 --json
    python3 - <<'EOF' 2>>err
import json
measured, int8, planned = (json.load(open(name))["memory"] for name in ("out", "int8.json", "inspect.json"))
peaks = [memory.pop("peak_resident") for memory in (measured, int8)]
program = measured.pop("resident_before")
assert measured == planned, (measured, planned)  # known before anything was loaded
off = peaks[0] / (program + measured["total"]) - 1
saved = (peaks[0] - peaks[1]) / (measured["total"] - int8["total"]) - 1
print("planned", measured["total"], "beside a program of", program, "resident at most", peaks[0], "%+.2f %%, int8 saves %+.2f %%" % (100 * off, 100 * saved))
assert 0 < program < 32e6 and abs(off) < 0.05 and abs(saved) < 0.05, (program, peaks, measured, int8)
EOF
    holds "resident at most within 5 % of the plan, and so is what int8 saves"
fi

# ---------------------------------------------------------------- a limit
cp inspect.json out
limit=$(($(number memory.total) - 1))
expect "a limit that the plan passes" 1 'more memory than the limit' inspect small --memory-limit $limit
grep -q -e 'would fit: --precision int8' err && grep -q 'K/V cache' err && grep -q 'weights' err
holds "the refusal has the lines and what would fit"
expect "what was said to fit does" 0 - inspect small --memory-limit $limit --precision int8

finish
