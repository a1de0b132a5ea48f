#!/usr/bin/env python3
"""Makes tests/data/tokenizer: small vocabularies and what the two reference libraries make of random strings with them.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install sentencepiece tokenizers protobuf
    /tmp/venv/bin/python tools/make_tokenizer_data.py [OUT_DIR [CORPUS_DIR]]

Recorded with sentencepiece 0.2.3 and tokenizers 0.23.3. Nothing in it comes from a published vocabulary: SentencePiece is trained on
the sentences below, with the settings of Gemma's tokenizer. Files:

    small.model        byte-fallback BPE; pieces in Gemma's order, with user-defined pieces appended after the characters
    small_old.json     small.model as early converters wrote it: user-defined pieces not declared, merges "a b", byte 9 as a tab
    small_new.json     small.model as Hugging Face's GemmaConverter writes it: user-defined pieces as added tokens, merges ["a", "b"]
    plain.model        no byte fallback, and some pieces marked UNUSED
    odd.json           what only Hugging Face's rules know: normalized and stripping added tokens, tokens outside the vocabulary,
                       missing bytes, ignore_merges; the test also reads it with "fuse_unk" switched on
    cases.bin          the strings and their ids. Little-endian: u32 number of strings; for each: u16 bytes of text, the text, and for
                       each of LISTS a u16 count and as many u16 ids; a count of 65535 means the same ids as the list before
    decode.bin         u32 number of cases; for each: u16 count, ids, u16 bytes and text of Hugging Face's decoding (small_old.json),
                       u16 bytes and text of SentencePiece's (small.model)
"""
import io
import json
import random
import struct
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import Tokenizer

LISTS = ["spm small", "hf small_old", "hf small_new", "spm plain", "hf odd", "hf odd fused"]

SENTENCES = """
pick up the red cube and put it into the blue bowl
open the drawer, then close it again
move the gripper 12 cm to the left and 7 cm up
Task: fold the towel, State: 128 0 255 -1 77 64 93;
Action: turn the knob by 45 degrees; wait; release
the robot holds a screwdriver; the other arm holds the box
place every apple, pear and orange in the basket
lege die gelbe Schraube in die Kiste und schließe den Deckel
öffne die Tür, drücke den grünen Knopf, warte fünf Sekunden
prends le gâteau, pose la tasse à côté de l'assiette
abre el cajón y guarda la cuchara pequeña
возьми красный куб и положи его в коробку
открой дверь и подожди
拿起红色的方块，放进蓝色的碗里
打开抽屉，然后关上
箱を開けて、りんごを取り出す
로봇 팔을 왼쪽으로 움직여
שים את הכוס על השולחן
ضع الكوب على الطاولة
ताला खोलो और दरवाज़ा बंद करो
if (x > 0) { y[i] += 0.5 * x; } else { return -1; }
{"robot": "arm", "dof": 7, "ready": true}
wipe the table with the sponge 🧽 and smile 🙂
the the the quick quick slow slow stacking stacked stacks restack unstack
pushing pushed pusher, grasping grasped grasper, lifting lifted lifter
"""
USER_DEFINED = ["<mask>", "<start_of_turn>", "<end_of_turn>", "\n", "\n\n", "\n\n\n", "\n\n\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<b>", "</b>", "<loc01>"]
APPENDED = ["[mark=0]", "\t\t", "\t\t\t", "<tail>", "<tail><tail>"]


def train(sentences=None, **settings):
    out = io.BytesIO()
    lines = [line for line in SENTENCES.strip().split("\n")[:sentences] for _ in range(4)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", normalization_rule_name="identity", add_dummy_prefix=False,
        remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", unk_piece="<unk>", **settings)
    model = proto.ModelProto()
    model.ParseFromString(out.getvalue())
    return model


def make_small():
    model = train(vocab_size=900, byte_fallback=True, character_coverage=0.995, user_defined_symbols=USER_DEFINED)
    learned = max(i for i, p in enumerate(model.pieces) if p.type == 1 and len(p.piece) > 1)
    with_tab = proto.ModelProto.SentencePiece(piece="\tt", score=model.pieces[learned].score - 0.5)  # no character of its own for the tab
    pieces = list(model.pieces)
    pieces.insert(learned + 1, with_tab)
    del model.pieces[:]
    model.pieces.extend(pieces)
    for text in APPENDED:
        model.pieces.add(piece=text, score=0.0, type=proto.ModelProto.SentencePiece.USER_DEFINED)
    model.trainer_spec.vocab_size = len(model.pieces)
    return model


def make_plain():
    model = train(vocab_size=600, byte_fallback=False, character_coverage=0.98, user_defined_symbols=["<b>", "\n"])
    normal = [p for p in model.pieces if p.type == 1 and len(p.piece) > 1]
    for piece in normal[::7]:
        piece.type = proto.ModelProto.SentencePiece.UNUSED
    return model


def listed_merges(pieces, by_score):
    """All ways to make a piece of two others, in the order in which Hugging Face's converters rank them."""
    ids = {text: i for i, (text, _) in enumerate(pieces)}
    merges = []
    for i, (text, score) in enumerate(pieces):
        ways = [(text[:k], text[k:]) for k in range(1, len(text)) if text[:k] in ids and text[k:] in ids]
        ways.sort(key=lambda way: (ids[way[0]], ids[way[1]]))
        merges += [(score, i, way) for way in ways]
    if by_score:
        merges.sort(key=lambda m: (m[0], len(m[2][0]), len(m[2][1])), reverse=True)  # sort keeps the order of equals, reversed or not
    else:
        merges.sort(key=lambda m: -m[0])
    return [way for _, _, way in merges]


def convert(model, new):
    pieces = [(p.piece, p.score) for p in model.pieces]
    tab = [text for text, _ in pieces].index("<0x09>")
    pieces[tab] = ("\t", 0.0)
    kind = proto.ModelProto.SentencePiece
    declared = [(i, p.piece, p.type != kind.USER_DEFINED or "_of_turn>" in p.piece) for i, p in enumerate(model.pieces)
                if p.type in (kind.CONTROL, kind.UNKNOWN) or (new and p.type == kind.USER_DEFINED)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    merges = listed_merges(pieces, new)
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": text, **flags, "special": special} for i, text, special in declared],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False} if new else None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}}},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                     {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, **({"ignore_merges": False} if new else {}),
                  "vocab": {text: i for i, (text, _) in enumerate(pieces)},
                  "merges": [list(way) for way in merges] if new else [" ".join(way) for way in merges]}}


def make_odd(small):
    odd = convert(small, True)
    vocab = odd["model"]["vocab"]
    missing = {"<0xE2>", "<0xF0>", "<0xD7>"}
    kept = [text for text in vocab if text not in missing]
    odd["model"].update(ignore_merges=True, fuse_unk=False, vocab={text: i for i, text in enumerate(kept)})
    ids, extra = odd["model"]["vocab"], len(kept)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    added = [{"content": t["content"], "special": t["special"]} for t in odd["added_tokens"] if t["content"] not in missing]
    added += [{"content": "<image>", "special": True}, {"content": "<left>", "lstrip": True}, {"content": "<right>", "rstrip": True},
              {"content": "<both>", "lstrip": True, "rstrip": True, "special": True}, {"content": "the robot", "normalized": True},
              {"content": "the rob", "normalized": True}, {"content": "pick", "normalized": True},
              {"content": "\n<n>", "normalized": True, "rstrip": True}, {"content": "é", "normalized": True, "lstrip": True}]
    for token in added:
        if token["content"] in ids:
            token["id"] = ids[token["content"]]
        else:
            token["id"], extra = extra, extra + 1
    odd["added_tokens"] = [{**flags, **token} for token in added]
    odd["decoder"] = None
    return odd


def random_text(rng, pieces):
    lines = SENTENCES.strip().split("\n")
    blocks = [(0x20, 0x7f), (0xa0, 0x180), (0x370, 0x530), (0x5d0, 0x5eb), (0x620, 0x64b), (0x900, 0x970), (0x2000, 0x2070), (0x2190, 0x2200),
              (0x3040, 0x3100), (0x4e00, 0x9fff), (0xac00, 0xd7a4), (0xe000, 0xf900), (0xfe00, 0x10000), (0x1f300, 0x1f650),
              (0x20000, 0x20100), (0x10ff00, 0x110000), (0x0, 0x20), (0x80, 0xa0)]
    literals = ["<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "<start_of_turn>", "<b>", "</b>", "<0x41>", "<0x09>", "[mark=0]", "<tail>", "<loc01>",
                "<image>", "<left>", "<right>", "<both>", "\tthe", "the robot", "the▁robot", "the rob", "pick", "\n<n>", "é", "< bos>", "<tail"]
    if rng.random() < 0.2:
        line = rng.choice(lines)
        start = rng.randrange(len(line))
        return line[start:start + rng.randrange(1, 40)]
    parts = []
    for _ in range(rng.randrange(1, 8)):
        kind = rng.random()
        if kind < 0.25:
            first, end = rng.choice(blocks)
            parts += [chr(rng.randrange(first, end)) for _ in range(rng.randrange(1, 4))]
        elif kind < 0.45:
            parts.append(rng.choice([" ", "\n", "\t", "▁", "\u3000", "\u00a0", "0", " \n", "e"]) * rng.choice([1, 1, 1, 2, 3, 4, 5, 8]))
        elif kind < 0.65:
            parts.append(rng.choice(literals))
        else:
            parts.append(rng.choice(pieces).replace("▁", rng.choice([" ", " ", "▁"])))
    return "".join(parts)


def put_text(out, text):
    data = text.encode()
    out.write(struct.pack("<H", len(data)) + data)


def record_cases(out, files, rng, count):
    small, plain = (sentencepiece.SentencePieceProcessor(model_proto=files[n]) for n in ("small.model", "plain.model"))
    fused = json.loads(files["odd.json"])
    fused["model"]["fuse_unk"] = True
    hf = [Tokenizer.from_str(t) for t in (files["small_old.json"].decode(), files["small_new.json"].decode(), files["odd.json"].decode(), json.dumps(fused))]
    pieces = [small.id_to_piece(i) for i in range(small.get_piece_size())]
    texts = ["", " ", "\n", "\0", "a\0b", "the", "▁the"]
    texts += [random_text(rng, pieces) for _ in range(count - len(texts))]
    out.write(struct.pack("<I", len(texts)))
    for text in texts:
        put_text(out, text)
        plain_hf = [t.encode(text, add_special_tokens=False).ids for t in hf]
        before = None
        for ids in (small.encode(text), plain_hf[0], plain_hf[1], plain.encode(text), plain_hf[2], plain_hf[3]):
            out.write(struct.pack("<H", 65535) if ids == before else struct.pack("<H%dH" % len(ids), len(ids), *ids))
            before = ids


def record_decoding(out, files, rng, count):
    small = sentencepiece.SentencePieceProcessor(model_proto=files["small.model"])
    old = Tokenizer.from_str(files["small_old.json"].decode())
    first = small.piece_to_id("<0x00>")
    out.write(struct.pack("<I", count))
    for _ in range(count):
        ids = small.encode(rng.choice(["é🙂", "ſ 漢", "Ω", "the box"])) + [rng.randrange(4, small.get_piece_size()) for _ in range(4)]
        ids += [first + rng.choice([0x41, 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xff, 0x80, 9]) for _ in range(rng.randrange(6))]
        if rng.random() < 0.5:
            rng.shuffle(ids)
        ids = [i for i in ids if i != first]  # the C function's text ends at a NUL
        out.write(struct.pack("<H%dH" % len(ids), len(ids), *ids))
        put_text(out, old.decode(ids, skip_special_tokens=False))
        put_text(out, small.decode(ids))


def write_seeds(folder):
    """A byte of choices (1: json, 2: hf, 4: with BOS), a file, and at its end text to encode, where the format lets it stand."""
    small = train(3, vocab_size=330, byte_fallback=True, user_defined_symbols=["<b>", "\n", "▁▁"])
    plain = train(3, vocab_size=75, byte_fallback=False, character_coverage=0.98)
    for piece in [p for p in plain.pieces if p.type == 1 and len(p.piece) > 1][::2]:
        piece.type = proto.ModelProto.SentencePiece.UNUSED
    tiny = {"added_tokens": [{"id": 5, "content": "<x>", "lstrip": True, "rstrip": True, "normalized": True}, {"id": 6, "content": "a b", "special": True}],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "model": {"type": "BPE", "unk_token": "u", "fuse_unk": False, "ignore_merges": True,
                      "vocab": {"u": 0, "a": 1, "b": 2, "ab": 3, "abab": 4}, "merges": ["#version: 0.2", "a b", ["ab", "ab"]]}}
    text = "  the cube\n\n<b> é🧽"
    seeds = {"small_old": (3, convert(small, False)), "small_new": (7, convert(small, True)), "spm_json": (1, convert(small, False)), "tiny": (3, tiny)}
    inputs = {name: bytes([choice]) + json.dumps(value, separators=(",", ":")).encode() + b" " * 4 for name, (choice, value) in seeds.items()}
    tail = b"\x32" + bytes([len(text.encode())]) + text.encode()  # an unknown field
    for name, choice, model in (("small_spm", 4, small), ("small_hf", 6, small), ("plain_spm", 0, plain), ("plain_hf", 2, plain)):
        inputs[name] = bytes([choice]) + model.SerializeToString() + tail
    for name, data in inputs.items():
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)
        print(f"{folder}/{name}: {len(data)} bytes")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/data/tokenizer"
    rng = random.Random(20240)
    small = make_small()
    files = {"small.model": small.SerializeToString(), "plain.model": make_plain().SerializeToString()}
    for name, value in (("small_old", convert(small, False)), ("small_new", convert(small, True)), ("odd", make_odd(small))):
        files[name + ".json"] = json.dumps(value, ensure_ascii=name == "small_new", separators=(",", ":")).encode()
    cases, decoding = io.BytesIO(), io.BytesIO()
    record_cases(cases, files, rng, 2500)
    record_decoding(decoding, files, rng, 400)
    files.update({"cases.bin": cases.getvalue(), "decode.bin": decoding.getvalue()})
    for name, data in files.items():
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)
        print(f"{name}: {len(data)} bytes")
    if len(sys.argv) > 2:
        write_seeds(sys.argv[2])


if __name__ == "__main__":
    main()
