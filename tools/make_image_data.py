#!/usr/bin/env python3
"""make_image_data.py [--out tests/data/image] [--only files|pil|torch]: what PIL and torch make of many pictures, for tests/test_image.c.

    pip install pillow==11.2.1 numpy torch
    python3 tools/make_image_data.py

Pillow 11.2.1 is what openpi pins. Pillow 13 chooses the order of its two passes by cost: pictures at least about 2.5 times as tall as wide
come out one step different in a few values, ordinary ones do not.

Writes
    files/*            PNG and JPEG files of many kinds (the PNGs by the few lines below, since PIL writes neither interlaced ones nor odd depths)
    files.txt          name, width, height, CRC-32 of the bytes of PIL's Image.open(name).convert("RGB")
    pil.txt            width, height, size, CRC-32 of the bytes of the letterboxed picture as openpi_client.image_tools makes it with PIL
    torch.npz          for each row of `cases` (rule, width, height, size, float input): `samples` of the result at `positions`, their `mean`,
                       and some whole results as full.<row>
pil.txt and torch.npz use pictures that the test makes again by itself: byte i (rows, columns, channels) is the top byte of
mix(seed + i), mix being SplitMix64's finaliser and seed = width * 100003 + height.
The resize rules are written here from their description and call PIL's and torch's own resize: nothing of openpi or LeRobot is needed.
"""
import argparse
import os
import struct
import zlib

import numpy as np

M64 = (1 << 64) - 1


def noise_picture(width, height):
    """u8 [height,width,3]"""
    with np.errstate(over="ignore"):
        z = np.arange(width * height * 3, dtype=np.uint64) + np.uint64(width * 100003 + height)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(56)).astype(np.uint8).reshape(height, width, 3)


def smooth_picture(width, height):
    """u8 [height,width,3]: slopes, a disc and some grain, so that a JPEG of it is small"""
    y, x = np.mgrid[0:height, 0:width]
    out = np.zeros((height, width, 3), np.int64)
    disc = (x - width // 3) ** 2 + (y - height // 2) ** 2 < (height // 4) ** 2
    for c in range(3):
        v = 40 + (x * (150 - 50 * c)) // width + (y * (30 + 35 * c)) // height
        out[..., c] = np.where(disc, 230 - 90 * c, v) + (x * 7 + y * 13 + c * 5) % 4
    return np.clip(out, 0, 255).astype(np.uint8)


def letterbox(width, height, size):
    """-> width, height after the resize"""
    ratio = max(width / size, height / size)
    return int(width / ratio), int(height / ratio)


# ------------------------------------------------------------------ PNG files
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(path, samples, colour, depth, interlaced=False, extra=b""):
    """samples: [h,w,channels] integers of `depth` bits. Filter 0 on every line: PIL and libpng must decode, not we encode well."""
    h, w, channels = samples.shape

    def scanlines(part):
        out = b""
        for row in part:
            flat = row.reshape(-1)
            if depth == 16:
                body = flat.astype(">u2").tobytes()
            elif depth == 8:
                body = flat.astype(np.uint8).tobytes()
            else:
                bits = ((flat[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8).reshape(-1)
                body = np.packbits(bits).tobytes()
            out += b"\0" + body
        return out

    parts = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7] if interlaced else [samples]
    raw = b"".join(scanlines(p) for p in parts if p.shape[0] and p.shape[1])
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, int(interlaced))))
        f.write(extra + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def make_files(out):
    from PIL import Image

    folder = os.path.join(out, "files")
    os.makedirs(folder, exist_ok=True)
    path = lambda name: os.path.join(folder, name)
    rgb = smooth_picture(61, 47)
    grey = rgb[..., :1]
    alpha = (np.indices((47, 61)).sum(0) * 2 % 256).astype(np.uint8)[..., None]
    index = (rgb[..., :1] // 16).astype(np.int64)
    palette = bytes(range(255, 207, -1))  # 16 colours of three bytes
    wide = rgb.astype(np.int64) * 257 - 100 * (rgb > 0)
    png(path("rgb8.png"), rgb, 2, 8)
    png(path("rgb8_interlaced.png"), rgb, 2, 8, True)
    png(path("rgba8.png"), np.concatenate([rgb, alpha], 2), 6, 8)
    png(path("rgba8_interlaced.png"), np.concatenate([rgb, alpha], 2), 6, 8, True)
    png(path("rgb16.png"), wide, 2, 16)
    png(path("rgba16.png"), np.concatenate([wide, alpha.astype(np.int64) * 257], 2), 6, 16)
    png(path("grey8.png"), grey, 0, 8)
    png(path("greyalpha8.png"), np.concatenate([grey, alpha], 2), 4, 8)
    for depth in (1, 2, 4):
        png(path("grey%d.png" % depth), grey.astype(np.int64) >> (8 - depth), 0, depth)
    png(path("grey4_interlaced.png"), grey.astype(np.int64) >> 4, 0, 4, True)
    png(path("palette4.png"), index, 3, 4, extra=chunk(b"PLTE", palette))
    png(path("palette8_transparent.png"), index, 3, 8, extra=chunk(b"PLTE", palette) + chunk(b"tRNS", bytes(range(0, 256, 16))))
    png(path("rgb8_transparent_gamma.png"), rgb, 2, 8,
        extra=chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"tRNS", struct.pack(">HHH", *map(int, rgb[0, 0]))))
    png(path("one_pixel.png"), rgb[:1, :1], 2, 8)
    png(path("one_column_interlaced.png"), rgb[:, :1], 2, 8, True)

    im = Image.fromarray(rgb)
    im.save(path("444.jpg"), quality=90, subsampling=0)
    im.save(path("422.jpg"), quality=85, subsampling=1)
    im.save(path("420.jpg"), quality=75, subsampling=2)
    im.save(path("420_progressive.jpg"), quality=80, progressive=True)
    im.save(path("420_optimised_low.jpg"), quality=20, optimize=True)
    im.save(path("420_restarts.jpg"), quality=80, restart_marker_blocks=2)
    im.convert("L").save(path("grey.jpg"), quality=80)
    im.crop((0, 0, 1, 1)).save(path("one_pixel.jpg"))
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate by 90 degrees": not applied
    im.save(path("rotated_by_exif.jpg"), exif=exif)

    with open(os.path.join(out, "files.txt"), "w") as f:
        for name in sorted(os.listdir(folder)):
            a = np.asarray(Image.open(path(name)).convert("RGB"))
            f.write("%s %d %d %08x\n" % (name, a.shape[1], a.shape[0], zlib.crc32(a.tobytes())))

    # refused, so not in files.txt
    refused = os.path.join(out, "refused")
    os.makedirs(refused, exist_ok=True)
    im.convert("CMYK").save(os.path.join(refused, "cmyk.jpg"))
    jpeg = open(path("444.jpg"), "rb").read()
    with open(os.path.join(refused, "truncated.jpg"), "wb") as f:
        f.write(jpeg[: len(jpeg) * 2 // 3])
    at = jpeg.index(b"\xff\xc0")
    for side in (16000, 60000, 65535):  # height and width of the frame header
        with open(os.path.join(refused, "bomb_%d.jpg" % side), "wb") as f:
            f.write(jpeg[: at + 5] + struct.pack(">HH", side, side) + jpeg[at + 9 :])
    whole = open(path("rgb8.png"), "rb").read()
    with open(os.path.join(refused, "truncated.png"), "wb") as f:
        f.write(whole[: len(whole) * 2 // 3])
    with open(os.path.join(refused, "bomb_2147483647.png"), "wb") as f:
        f.write(whole[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 2, 0, 0, 0)) + whole[33:])
    with open(os.path.join(refused, "bad_checksum.png"), "wb") as f:
        f.write(whole[:-13] + bytes([whole[-13] ^ 1]) + whole[-12:])  # the checksum of the pixels' chunk


# ------------------------------------------------------------------ PIL
def sizes(count):
    """-> (width, height, size), the well-known ones first"""
    known = [(640, 480), (1280, 720), (1920, 1080), (848, 480), (424, 240), (320, 240), (320, 180), (256, 256), (224, 224), (224, 126), (126, 224),
             (240, 288), (667, 375), (224, 225), (225, 224), (1024, 768), (288, 240), (130, 200), (400, 300), (448, 448), (223, 223), (222, 224),
             (1, 1), (1, 2), (2, 1), (1, 224), (224, 1), (1, 100), (100, 1), (3, 5), (223, 224), (449, 448), (2, 448)]
    out = [(w, h, 224) for w, h in known]
    state = 12345
    while len(out) < count:
        draws = []
        for _ in range(4):
            state = (state * 6364136223846793005 + 1442695040888963407) & M64
            draws.append(state >> 33)
        top = (16, 120, 300, 700)[draws[3] % 4]
        w, h, size = 1 + draws[0] % top, 1 + draws[1] % top, (224, 224, 96, 31, 256, 14, 1)[draws[2] % 7]
        if h != 3 and min(letterbox(w, h, size)) > 0:  # [3,w,3] has no readable layout
            out.append((w, h, size))
    return out


def make_pil(out):
    from PIL import Image

    with open(os.path.join(out, "pil.txt"), "w") as f:
        for w, h, size in sizes(400):
            im = Image.fromarray(noise_picture(w, h))
            if (w, h) != (size, size):
                nw, nh = letterbox(w, h, size)
                canvas = Image.new("RGB", (size, size), 0)
                canvas.paste(im.resize((nw, nh), resample=Image.BILINEAR), (max(0, int((size - nw) / 2)), max(0, int((size - nh) / 2))))
                im = canvas
            f.write("%d %d %d %08x\n" % (w, h, size, zlib.crc32(np.asarray(im).tobytes())))


# ------------------------------------------------------------------ torch
RULES = ("torch", "torch-lerobot04", "top-left")
SAMPLES = 24


def torch_result(rule, picture, size):
    """f32 [h,w,3] in [0,1] -> f32 [size,size,3]: LeRobot >= 0.5, 0.4 and <= 0.3"""
    import torch
    import torch.nn.functional as F

    h, w = picture.shape[:2]
    x = torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1)))[None]
    nw, nh = letterbox(w, h, size)
    if rule == "top-left" or (w, h) != (size, size):
        x = F.interpolate(x, size=(nh, nw), mode="bilinear", align_corners=False)
        left, top = size - nw, size - nh
        if rule == "top-left":
            x = F.pad(x, (left, 0, top, 0), value=0.0)
        else:
            low = 0.0 if rule == "torch" else -1.0
            x = F.pad(x.clamp(low, 1.0), (left // 2, left - left // 2, top // 2, top - top // 2), value=low)
    return (x * 2.0 - 1.0)[0].permute(1, 2, 0).contiguous().numpy()


def make_torch(out):
    import torch

    torch.set_num_threads(1)
    cases, samples, means, full = [], [], [], {}
    for n, (w, h, size) in enumerate(sizes(120)):
        for r, rule in enumerate(RULES):
            as_float = (n + r) % 2
            u8 = noise_picture(w, h)
            # a float picture that no byte picture equals
            picture = (u8.astype(np.float32) + np.float32(0.25)) / np.float32(256) if as_float else u8.astype(np.float32) / np.float32(255)
            result = torch_result(rule, picture, size)
            positions = [i * 7919 % result.size for i in range(SAMPLES)]
            if size in (14, 31) and len(full) < 9:
                full["full.%d" % len(cases)] = result
            cases.append((r, w, h, size, as_float))
            samples.append(result.reshape(-1)[positions])
            means.append(result.astype(np.float64).mean())
    path = os.path.join(out, "torch.npz")
    np.savez_compressed(path, cases=np.array(cases, np.int32), samples=np.array(samples, np.float32), mean=np.array(means), **full)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(root, "tests", "data", "image"))
    parser.add_argument("--only", choices=("files", "pil", "torch"))
    options = parser.parse_args()
    for name, make in (("files", make_files), ("pil", make_pil), ("torch", make_torch)):
        if options.only in (None, name):
            make(options.out)


if __name__ == "__main__":
    main()
