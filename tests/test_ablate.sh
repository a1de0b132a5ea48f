#!/bin/bash
# `pi0 bench --ablate` and `--scenario`: every rung is there, computes the same actions, and the page can be read by a program. No time is asserted.
# Run: PI0=build/pi0 SRC=. tests/test_ablate.sh        (CTest does; works from any folder, leaves nothing behind)
# ctest: timeout=600
name=pi0_ablate; . "$(dirname "${BASH_SOURCE[0]}")/support.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
export LC_ALL=C.UTF-8
mkdir room; export TMPDIR=$WORK/room

# refuses PATTERN ARGUMENTS...: a usage error that says so
refuses()
{
    local pattern=$1
    shift
    expect "bench $*" 2 "$pattern" bench "$@"
}

refuses 'or one of: full' --size tiny --ablate=half
refuses 'one of: ascend data' --size tiny --scenario moon
refuses 'both --ablate and --scenario' --size tiny --ablate --scenario data
refuses 'leave --disable out' --size tiny --ablate --disable arena
refuses 'leave --batch out' --size tiny --scenario data --batch 2
refuses '1 to 3' --size tiny --ablate --cameras 4
refuses 'tokens' --size tiny --ablate --prompt-tokens 49

cat >check.py <<'P'
import json, re, sys
page, passes, full = json.load(open(sys.argv[1])), sys.argv[2].split(), sys.argv[3] == "full"
rungs = page["rungs"]
names = [(r["kind"], r["rung"]) for r in rungs]
want = [("reference", "as the reference")] + [("pass", p) for p in passes] + [("precision", "bf16"), ("precision", "int8")]
want += [("without", p) for p in passes] if full else []
assert names == want, names
first, top = rungs[0], rungs[len(passes)]
assert set(first["disabled"].split(",")) == set(passes) and top["disabled"] is None
assert page["cameras"] == 2 and page["camera_slots"] == 3 and page["prompt_tokens"] == 20 < page["max_tokens"], page
for r in rungs:
    f32 = r["kind"] != "precision"
    assert r["precision"].startswith("f32" if f32 else r["rung"]), r
    assert r["largest_difference"] <= (2e-5 if f32 else 1) and r["cosine"] >= (0.9999999 if f32 else 0.998), r
    arena_off = r["disabled"] is not None and "arena" in r["disabled"].split(",")
    assert (r["allocations"] > 0) == arena_off, r
    assert all(r["latency_ms"][k] > 0 for k in ("total", "vision", "prefix", "denoise")) and r["runs"] == 1, r
    assert 0 < r["fraction_of_peak"] and r["planned_bytes"] > 1e6, r
    assert r["peak_resident_bytes"] is None or r["peak_resident_bytes"] > 1e6, r
    assert (r["speedup_previous"] is None) == (r["kind"] in ("reference", "without")), r
assert first["speedup_first"] == 1 and top["time_against_top"] == 1 and top["largest_difference"] == 0
assert first["planned_bytes"] > top["planned_bytes"], "the score matrix"
founding = {r["founding_work"] for r in rungs} | {w["founding_work"] for w in page["without_rung"]}
for row in "rotary hoisted,rotary of q and k,flash attention,RMSNorm,fused QKV,whole graph,mixed precision,memory pool,layout,window".split(","):
    assert any(f and row in f for f in founding), row
P
passes=$(sed -n '/ MODEL,/d; s/^PASS([^,]*, *"\([a-z-]*\)".*/\1/p' "$SRC/src/plan/passes/passes.def" | tr '\n' ' ')
form=full
[ -z "${SANITIZE:-}" ] || form=on # half the rungs, and every line of code all the same
"$PI0" bench --size tiny --ablate=$form --repeat 1 --steps 2 --json >out 2>err && python3 check.py out "$passes" $form 2>>err
holds "--ablate=$form has every rung, each with the actions of the top one"
[ -z "$(ls room)" ]; holds "nothing is left of the checkpoint"

"$PI0" synth model --model pi05 --layout lerobot --size tiny --cameras 2 --quiet >out 2>err &&
    "$PI0" bench model --ablate --precision bf16 --repeat 1 --steps 1 --markdown >out 2>err
[ $? = 0 ] && [ "$(grep -c '^|---|' out)" = 2 ] && [ "$(grep -c '^| + ' out)" = $((2 * $(echo "$passes int8" | wc -w))) ] &&
    grep -q '2 of 2 camera slots' out && grep -q '^| + int8' out && ! grep -q '^| + bf16' out
holds "--ablate of a MODEL in bf16 ends with int8; --markdown is two tables"

"$PI0" bench --size tiny --scenario ascend --repeat 1 --steps 1 >out 2>err
[ $? = 0 ] && grep -q '2 of 2 camera slots.*horizon 50; scenario ascend' out && grep -q '^before, f32, batch 1' out && grep -q '^after, f32, batch 1' out && grep -q '█' out
holds "--scenario ascend"
"$PI0" bench model --scenario data --repeat 1 --steps 1 --json >out 2>err &&
    python3 -c 'import json; p = json.load(open("out")); assert p["horizon"] == 100 and p["scenario"] == "data"; r = [(x["batch"], x["kind"]) for x in p["rungs"]]; k = ["reference", "every pass", "precision", "precision"]; assert r == [(1, x) for x in k] + [(8, x) for x in k], r; assert all(x["largest_difference"] < 2e-5 for x in p["rungs"] if x["kind"] != "precision")' 2>>err
holds "--scenario data has one robot and eight"

finish
