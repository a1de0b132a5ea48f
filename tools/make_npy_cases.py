#!/usr/bin/env python3
"""Writes tests/data/npy: small .npy and .npz files made by numpy itself, and a few that must be refused.

Run: python3 tools/make_npy_cases.py tests/data/npy      (needs numpy >= 2; tests/test_npy.c knows what is in each file)
The files of a zip carry a fixed date, so a second run gives the same bytes.
"""
import io
import pathlib
import sys
import zipfile

import numpy as np

GOOD_TYPES = ["|b1", "|u1", "|i1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"]


def ramp(dtype):
    """[2,3]: 0, 3, 6, ... ; signed and float types start at -7, so that the sign is seen."""
    values = np.arange(6) * 3
    if np.dtype(dtype).kind in "if":
        values = values - 7
    return values.astype(dtype).reshape(2, 3)


def npy_bytes(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asanyarray(array, order="A"), version=version, allow_pickle=True)
    return out.getvalue()


class Unseekable(io.RawIOBase):
    """Makes zipfile write data descriptors behind the members, as it does to a pipe."""

    def __init__(self):
        super().__init__()
        self.data = bytearray()

    def writable(self):
        return True

    def write(self, piece):
        self.data += piece
        return len(piece)


def npz_bytes(arrays, method, out=None, zip64=False):
    out = io.BytesIO() if out is None else out
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            with archive.open(info, "w", force_zip64=zip64) as member:
                member.write(npy_bytes(array))
    return bytes(out.data) if isinstance(out, Unseekable) else out.getvalue()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)

    def save(name, data):
        (folder / name).write_bytes(data)

    for dtype in GOOD_TYPES:
        save(f"little_{dtype[1:]}.npy", npy_bytes(ramp(dtype)))
        if np.dtype(dtype).itemsize > 1:
            save(f"big_{dtype[1:]}.npy", npy_bytes(ramp(dtype.replace("<", ">"))))
    cube = np.arange(24, dtype="<i4").reshape(2, 3, 4)
    save("fortran.npy", npy_bytes(np.asfortranarray(cube)))
    save("fortran_big.npy", npy_bytes(np.asfortranarray(cube.astype(">i4"))))
    save("version2.npy", npy_bytes(cube, (2, 0)))
    save("version3.npy", npy_bytes(cube, (3, 0)))
    save("scalar.npy", npy_bytes(np.float64(2.5)))
    save("empty.npy", npy_bytes(np.zeros((0, 3), "<f4")))
    text = "pick up the r\u00f6d \u65e5\u672c \U0001f600"
    save("text.npy", npy_bytes(np.array(text)))
    save("text_big.npy", npy_bytes(np.array(text).astype(np.array(text).dtype.newbyteorder(">"))))
    save("text_bytes.npy", npy_bytes(np.array(text.encode())))
    save("text_list.npy", npy_bytes(np.array([text])))
    save("text_empty.npy", npy_bytes(np.array("")))

    some = {"observation/state": np.linspace(-1, 1, 8), "noise": ramp("<f4"), "prompt": np.array(text), "\u00e9t\u00e9": ramp("|u1"),
            "zeros": np.zeros((40, 50), "<f4")}
    save("stored.npz", npz_bytes(some, zipfile.ZIP_STORED))
    save("deflated.npz", npz_bytes(some, zipfile.ZIP_DEFLATED))
    save("zip64.npz", npz_bytes(some, zipfile.ZIP_DEFLATED, zip64=True))
    save("descriptors.npz", npz_bytes(some, zipfile.ZIP_DEFLATED, Unseekable(), zip64=True))
    save("none.npz", npz_bytes({}, zipfile.ZIP_STORED))

    save("bad_object.npy", npy_bytes(np.array([{"a": 1}], dtype=object)))
    save("bad_struct.npy", npy_bytes(np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")])))
    save("bad_complex.npy", npy_bytes(np.zeros(2, "<c8")))
    save("bad_void.npy", npy_bytes(np.zeros(2, "|V2")))
    save("bad_texts.npy", npy_bytes(np.array(["one", "two"])))
    save("bad_bzip2.npz", npz_bytes({"a": ramp("<f4")}, zipfile.ZIP_BZIP2))
    save("bad_object.npz", npz_bytes({"a": ramp("<f4"), "b": np.array([None])}, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(folder / "bad_member.npz", "w") as archive:
        archive.writestr(zipfile.ZipInfo("readme.txt", (1980, 1, 1, 0, 0, 0)), "not an array")


if __name__ == "__main__":
    main()
