#!/bin/bash
# `pi0 profile` and --trace: the page adds up, the trace keeps the rules of its format, the HTML page works in a browser. No time is asserted.
# Run: PI0=build/pi0 SRC=. tests/test_profile.sh        (CTest does; works from any folder, leaves nothing behind)
# ctest: timeout=600
name=pi0_profile; . "$(dirname "${BASH_SOURCE[0]}")/support.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
trap 'umount "$WORK/disk" 2>/dev/null; rm -rf "$WORK"' EXIT
export LC_ALL=C.UTF-8

cat >trace.py <<'P'
"""The rules of Chrome's trace format, as Perfetto reads it: python3 trace.py FILE RUNS STEPS SPAN..."""
import collections, json, sys
page = json.load(open(sys.argv[1]))
events, runs, steps, wanted = page["traceEvents"], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
processes, threads, tracks = {}, {}, collections.defaultdict(list)
for e in events:
    assert isinstance(e["name"], str) and isinstance(e["pid"], int) and isinstance(e["tid"], int), e
    if e["ph"] == "M":
        names = {"process_name": processes, "thread_name": threads}[e["name"]]
        key = e["pid"] if names is processes else (e["pid"], e["tid"])
        assert key not in names and e["args"]["name"], e
        names[key] = e["args"]["name"]
    else:
        assert e["ph"] == "X" and e["ts"] >= 0 and e["dur"] >= 0 and e["cat"] in ("stage", "layer", "op", "work"), e
        assert (e["cat"] == "work") == (e["pid"] == 2), e
        tracks[e["pid"], e["tid"]].append(e)
assert set(processes) == {1, 2} and "device" in processes[2], processes
assert set(tracks) <= set(threads) and set(p for p, _ in tracks) == {1, 2}, (tracks.keys(), threads)
assert min(e["ts"] for t in tracks.values() for e in t) == 0
for key, track in tracks.items():  # events of one track lie one in another or apart
    open_until = []
    for e in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= e["ts"] + 5e-4:
            open_until.pop()
        end = e["ts"] + e["dur"]
        assert not open_until or end <= open_until[-1] + 5e-4, (key, e)
        open_until.append(end)
count = collections.Counter(e["name"] for e in tracks[1, 0])
for name in wanted:
    assert count[name] >= 1, (name, count)
assert count["inference"] == runs and count["denoise"] == runs and all(count["step %d" % i] == runs for i in range(steps)), count
assert count["step %d" % steps] == 0 and page["otherData"]["dropped_spans"] == 0
ops = [e for e in tracks[1, 0] if e["cat"] == "op"]
assert all(a in e["args"] for e in ops for a in ("op", "plan", "rows", "cols", "flop", "bytes")), ops[0]
assert any(e["args"]["flop"] > 0 and e["args"].get("arithmetic") for e in ops) and any("product" in e["args"] for e in ops)
P

FRAMES=$SRC/examples/frames
"$PI0" synth model --model pi0 --layout lerobot --size tiny --cameras 2 --quiet >out 2>err
holds "a model"
OBS="--image base_0_rgb=$FRAMES/top.png --image left_wrist_0_rgb=$FRAMES/wrist.jpg --state 0,0,0,0,0,0,0,0,0,0,0,0,0,0 --prompt lift"

# ---------------------------------------------------------------- what is printed
"$PI0" profile model $OBS --repeat 2 --steps 3 --threads 2 --html page.html --trace trace.json >out 2>err
[ $? = 0 ] && grep -q '^stage' out && grep -q '^total .*100.0%' out && grep -q '^vision by layer, all cameras' out && grep -q '^denoise by step' out && grep -q '^all 2 ' out && grep -q 'mlp.gate_proj' out && grep -q 'this machine at best' out
holds "the page has stages, threads, ops and the machine"
python3 trace.py trace.json 2 3 decode "preprocess base_0_rgb" "preprocess left_wrist_0_rgb" tokenize upload vision "vision 0" prefix "prefix 0" post encode run 2>>err
holds "--trace keeps the rules"
"$PI0" profile model $OBS --repeat 2 --steps 3 --threads 2 --json >page.json 2>err && python3 - 2>>err <<'P'
import json
p = json.load(open("page.json"))
assert p["runs"] == 2 and p["cameras"] == 2 and p["threads"] == 2 == len(p["thread_shares"]) and p["steps"] == 3 and p["dropped_spans"] == 0
for shares in [p["shares"]] + p["thread_shares"]:
    assert abs(sum(shares.values()) - 1) < 1e-9 and all(0 <= v <= 1 for v in shares.values()), shares
assert p["thread_shares"][1]["host"] == 0
stages = {s["name"]: s for s in p["stages"]}
assert abs(sum(s["share"] for s in p["stages"]) - p["covered"]) < 1e-9 and 0 < p["covered"] <= 1, p
steps = [x for x in p["parts"] if x["stage"] == "denoise"]
assert [x["index"] for x in steps] == [0, 1, 2] and all(x["calls"] == 1 for x in steps)
for stage in ("vision", "prefix", "denoise"):
    assert 0 < sum(x["ms"] for x in p["parts"] if x["stage"] == stage) <= stages[stage]["ms"], stage
assert all(x["calls"] == 3 for x in p["parts"] if x["stage"] == "expert")
assert sum(o["share"] for o in p["ops"]) <= 1 and [o["ms"] for o in p["ops"]] == sorted((o["ms"] for o in p["ops"]), reverse=True)
for o in p["ops"]:
    assert o["calls"] == int(o["calls"]) and 0 < o["busy"] <= 1 and o["bytes"] > 0 and (o["arithmetic"] != "") == o["matrix"], o
    assert not o["matrix"] or o["limit"] in ("arithmetic", "memory") and o["fraction_of_peak"] > 0, o
attention = [o for o in p["ops"] if o["op"] == "attention" and o["plan"] == "denoise"]
assert len(attention) == 1 and attention[0]["calls"] % 3 == 0, attention
assert p["peaks"]["gflops"]["f32"] > 0 and p["peaks"]["memory_gbytes_per_s"] > 0 and p["machine"]["processor"] and p["memory"]["total"] > 0
P
holds "--json adds up"
"$PI0" infer model $OBS --steps 3 --repeat 2 --trace i.json -o i.csv >out 2>err && python3 trace.py i.json 2 3 decode open "preprocess base_0_rgb" tokenize vision post encode 2>>err
holds "infer --trace keeps them too"
"$PI0" infer model $OBS --steps 3 -o plain.csv >out 2>err && cmp i.csv plain.csv
holds "and gives the same actions"
"$PI0" profile model $OBS --repeat 1 --steps 1 --threads 1 --disable arena,flash-attention,replay --html eager.html >out 2>err && grep -q attn_scores out && grep -q softmax out
holds "one thread, op by op"

# ---------------------------------------------------------------- files that cannot be written
refuses() # NAME CODE PATTERN ARGUMENTS...
{
    local name=$1 want=$2 pattern=$3
    shift 3
    expect "$name" "$want" "$pattern" "$@"
    ! grep -q 'first run' err
    holds "is known before the work"
}
refuses "an ending that is no page" 2 'expected: *\.html' profile model $OBS --html page.txt
refuses "an ending that is no trace" 2 'expected: *\.json' profile model $OBS --trace trace.html
refuses "no such folder" 1 'absent/ (--html)' profile model $OBS --html absent/page.html
refuses "no such folder for infer" 1 'absent/ (--trace)' infer model $OBS --trace absent/t.json
mkdir folder.json
refuses "a directory of that name" 1 'a directory of that name' profile model $OBS --trace folder.json
refuses "nothing to look at" 2 'no observation' profile model
if [ -c /dev/full ]; then
    ln -s /dev/full full.json
    "$PI0" profile model $OBS --repeat 1 --steps 1 --trace full.json --html kept.html >out 2>err
    [ $? = 1 ] && grep -q 'No space left' err && grep -q '^total' out && grep -q '</html>' kept.html
    holds "a disk that fills up at the end costs neither the result nor the other file"
    "$PI0" infer model $OBS --steps 3 --trace full.json --json >out 2>err
    [ $? = 1 ] && grep -q 'No space left' err && grep -q '"actions"' out
    holds "nor the actions"
fi
mkdir disk
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=64k none disk 2>/dev/null; then
    refuses "a disk that is full already" 1 'the disk is full' profile model $OBS --trace disk/t.json
    umount disk
else
    echo "skipped: a full disk cannot be mounted here"
fi

# ---------------------------------------------------------------- the page
python3 - 2>>err <<'P'
import json, re
for name in ("page.html", "eager.html"):
    text = open(name, encoding="utf-8").read()
    assert not re.search(r'(src|href)\s*=|@import|url\(|fetch\(|XMLHttpRequest', text), "something from outside"
    assert {u for u in re.findall(r"https?://[^\s\"']+", text)} == {"http://www.w3.org/2000/svg"}, "an address"
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
    kinds = [s[0] for s in data["timeline"]]
    assert all(kinds.count(k) > 0 for k in range(4)) and len(data["map"]["plans"]) == 3 and data["profile"]["ops"]
    assert all(s[2] >= 0 and s[3] >= 0 and s[2] + s[3] <= data["run_ms"] * 1e3 + 1 for s in data["timeline"])
P
holds "the page is one file, and its data can be read"
CHROME=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
browse() # FILE: the page after its script ran, on stdout
{
    timeout 120 "$CHROME" --headless --no-sandbox --disable-gpu --user-data-dir="$WORK/chrome" --virtual-time-budget=4000 --enable-logging=stderr \
        --dump-dom "file://$WORK/$1" 2>console </dev/null
}
echo '<p>works' >probe.html
if [ -z "$CHROME" ] || ! browse probe.html | grep -q '<p>works'; then
    echo "skipped: the page in a browser: no chromium, or it does not start here"
else
    echo '<script>nothing_of_that_name()</script>' >broken.html
    browse broken.html >dom; grep -q 'Uncaught' console
    holds "the browser tells of a script's error"
    for page in page eager; do
        browse $page.html >dom
        grep -q 'data-ready="1"' dom && ! grep -i 'CONSOLE\|Uncaught' console >>err && grep -q '<h1 id="title">model</h1>' dom &&
            [ "$(grep -o '<circle' dom | wc -l)" -gt 5 ] && grep -o '<td[^>]*>vision</td>' dom | grep -q . &&
            [ "$(grep -o 'class="flame-row"' dom | wc -l)" -ge 3 ] && grep -q 'aria-sort="descending"' dom && grep -q 'of arena\|is off' dom
        holds "$page.html works in a browser, without an error on its console"
    done
    mkdir '<b>' && ln -s ../model '<b>/"&'
    "$PI0" profile '<b>/"&' $OBS --repeat 1 --steps 1 --html odd.html >out 2>err && browse odd.html >dom && grep -q 'data-ready="1"' dom && grep -q '&lt;b&gt;' dom
    holds "a model's name is text, whatever it is"
fi

finish
