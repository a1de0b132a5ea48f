#!/usr/bin/env bash
# The memory plan from outside: what is measured is what was planned, a limit is refused with what would fit, plans without weights.
# ctest: timeout=600
set -eu
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/pi0_memory.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "not ok - $1"; exit 1; }

# ------------------------------------------------------------------ plans alone: the published sizes, nothing of 7 GB on the disk
for model in pi0 pi05; do
    mkdir room
    TMPDIR=$work/room "$PI0" bench --size base --model $model --plan-report --json >$model.json
    [ -z "$(ls room)" ] || fail "the plan report left something behind"
    rmdir room
    "$PI0" bench --size base --model $model --plan-report --batch 2 >page
    grep -q '^ *2 *context ' page && grep -q '^ *2 *denoise ' page || fail "no row for each plan"
    ! grep -q '^ *1 *context ' page || fail "--batch 2 reports batch 1 too"
done
python3 - <<'EOF'
import json
for model in "pi0", "pi05":
    report = json.load(open(model + ".json"))
    assert report["model"] == model and report["precision"] == "bf16", report
    assert [row["batch"] for row in report["batches"]] == list(range(1, 9))
    ratios = [row[plan]["over_live"] for row in report["batches"] for plan in ("context", "schedule", "denoise")]
    assert len(ratios) == 24 and all(1 <= r <= 1.10 for r in ratios) and report["worst_over_live"] == max(ratios), ratios
    memory = [row["memory"] for row in report["batches"]]
    assert all(a["activations"] < b["activations"] and a["kv_cache"] < b["kv_cache"] for a, b in zip(memory, memory[1:]))
    assert model == "pi05" or memory[0]["beside_weights"] < 150e6, memory[0]  # for one robot; pi05's prompt alone has four times the rows
    print(model, "at most", max(ratios), "times what is alive; beside the weights", memory[0]["beside_weights"], "bytes")
EOF

# ------------------------------------------------------------------ planned and measured
"$PI0" synth small --model pi05 --layout lerobot --size small --dtype bf16 --cameras 2 -q >/dev/null
"$PI0" inspect small --json >inspect.json
if [ -z "${SANITIZE:-}" ] && grep -q VmHWM /proc/self/status 2>/dev/null; then
    for precision in bf16 int8; do
        "$PI0" bench small --precision $precision --repeat 1 --json -q >bench_$precision.json
    done
    python3 - <<'EOF'
import json
planned = json.load(open("inspect.json"))["memory"]
for precision in "bf16", "int8":
    memory = json.load(open("bench_%s.json" % precision))["memory"]
    peak = memory.pop("peak_resident")
    assert precision != "bf16" or memory == planned, (memory, planned)  # known before anything was loaded
    print(precision, "planned", memory["total"], "resident at most", peak, "%+.2f %%" % (100 * (peak / memory["total"] - 1)))
    assert abs(peak / memory["total"] - 1) < 0.05, (precision, peak, memory)
EOF
fi

# ------------------------------------------------------------------ a limit
code=0
limit=$(python3 -c 'import json; print(json.load(open("inspect.json"))["memory"]["total"] - 1)')
"$PI0" inspect small --memory-limit "$limit" >out 2>err || code=$?
[ $code = 1 ] && [ ! -s out ] || fail "a limit that the plan passes: exit $code"
for words in 'more memory than the limit' 'would fit: --precision int8' 'K/V cache' 'weights'; do
    grep -q -e "$words" err || { cat err; fail "the refusal does not say: $words"; }
done
"$PI0" inspect small --memory-limit "$limit" --precision int8 >/dev/null || fail "what was said to fit does not"
echo "ok"
