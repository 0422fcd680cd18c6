"""Writes formats/tests/golden: blocks of every tensor type and what the gguf package makes of them.

    pip install -r tools/golden/requirements.txt
    python tools/golden/make.py

decode/<type>.bin   blocks, then the float32 weights that they decode to
encode/input.bin    float32 weights, INPUT_LEN of them
encode/<type>.bin   the bytes that they encode to
grids.txt           name, entries, elements of an entry and FNV-1a hash of each code book

All numbers are little-endian. Types for which the package has no decoder get no file; tests/golden.rs names them.
"""

from pathlib import Path

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

OUT = Path(__file__).resolve().parents[2] / "formats/tests/golden"

# Byte offsets of the half-precision scales and minima in a block.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ2_XXS: [0], Type.IQ2_XS: [0], Type.IQ2_S: [0], Type.IQ3_XXS: [0], Type.IQ3_S: [0], Type.IQ1_S: [0],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.TQ1_0: [52], Type.TQ2_0: [64],
}  # fmt: skip
# Types of one element a block, read by numpy itself.
PLAIN = {
    Type.F32: "<f4", Type.F64: "<f8", Type.F16: "<f2", Type.I8: "i1", Type.I16: "<i2", Type.I32: "<i4", Type.I64: "<i8",
}  # fmt: skip
PLAIN_LEN = 64
INPUT_LEN = 1024


def scale(rng, kind):
    """A finite half-precision number, as bits."""
    match kind:
        case "subnormal":
            return np.uint16(rng.integers(1, 0x400))
        case "zero":
            return np.uint16(rng.integers(0, 2) << 15)
        case "negative":
            return np.float16(-(10.0 ** rng.uniform(-4, 0))).view(np.uint16)
        case _:
            return np.float16(10.0 ** rng.uniform(-4, 0)).view(np.uint16)


def put_scale(qtype, block, index, bits):
    """Writes scale number `index` of a block."""
    if qtype == Type.IQ1_M:
        for i in range(4):  # four bits on top of each word
            block[49 + 2 * i] = (block[49 + 2 * i] & 0x0F) | ((int(bits) >> (4 * i) & 15) << 4)
    else:
        at = HALVES[qtype][index]
        block[at : at + 2] = np.frombuffer(np.uint16(bits).astype("<u2").tobytes(), np.uint8)


def blocks(qtype, rng):
    """Blocks of random and of extreme bytes."""
    size = GGML_QUANT_SIZES[qtype][1]
    fills = [None, None, None, None, 0x00, 0xFF]
    kinds = ["usual", "negative", "subnormal", "zero", "usual", "negative"]
    out = np.stack([rng.integers(0, 256, size, np.uint8) if f is None else np.full(size, f, np.uint8) for f in fills])
    if qtype == Type.MXFP4:
        out[:, 0] = [127, 120, 0, 1, 2, 255]
    elif qtype == Type.NVFP4:
        out[:, :4] = [[0x38, 0x40, 0x01, 0x7E], [0x00, 0x7F, 0x80, 0xFF], *rng.integers(0, 127, (4, 4))]
    else:
        for block, kind in zip(out, kinds):
            for index in range(len(HALVES.get(qtype, [0]))):
                put_scale(qtype, block, index, scale(rng, kind))
    return out


def plain(qtype, rng):
    """Random elements of a plain type, the finite ones of random bits if it is a float."""
    size = GGML_QUANT_SIZES[qtype][1]
    data = rng.integers(0, 256, PLAIN_LEN * 4 * size, np.uint8)
    if qtype == Type.BF16:
        finite = (data.view("<u2") & 0x7F80) != 0x7F80
    elif np.dtype(PLAIN[qtype]).kind == "f":
        finite = np.isfinite(data.view(PLAIN[qtype]))
    else:
        finite = np.full(data.size // size, True)
    return data.reshape(-1, size)[finite][:PLAIN_LEN]


def decode(qtype):
    """The file's blocks and weights, or None if there is no reference for the type."""
    rng = np.random.default_rng(int(qtype))
    if qtype in PLAIN or qtype == Type.BF16:
        data = plain(qtype, rng)
    elif qtype in quants._type_traits:
        data = blocks(qtype, rng)
    else:
        return None
    with np.errstate(over="ignore"):
        if qtype in PLAIN:
            weights = data.view(PLAIN[qtype]).astype("<f4")
        else:
            weights = quants.dequantize(data, qtype)
    assert not np.isnan(weights).any(), qtype.name
    return data.tobytes() + weights.astype("<f4").tobytes()


def weights_to_encode():
    """Usual weights, all magnitudes, zeros, constants and ties, heavy tails."""
    rng = np.random.default_rng(2024)
    usual = rng.normal(0, 0.02, 256)
    magnitudes = rng.normal(0, 1, (8, 32)) * 10.0 ** rng.uniform(-7, 3, (8, 1))
    zeros = np.zeros(64)
    constants = np.concatenate([np.full(32, 0.75), np.full(32, -0.3)])
    ties = np.concatenate([np.arange(-16, 16), np.arange(-32, 32) / 4, np.arange(32) / 8])
    tails = rng.laplace(0, 0.05, 256)
    tails[::37] *= 20
    weights = np.concatenate([usual, magnitudes.ravel(), zeros, constants, ties, tails]).astype("<f4")
    assert weights.size == INPUT_LEN
    return weights


def fnv1a(data):
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def main():
    for folder in ("decode", "encode"):
        (OUT / folder).mkdir(parents=True, exist_ok=True)
    weights = weights_to_encode()
    (OUT / "encode/input.bin").write_bytes(weights.tobytes())
    for qtype in Type:
        if (data := decode(qtype)) is not None:
            (OUT / f"decode/{qtype.name.lower()}.bin").write_bytes(data)
        try:
            encoded = quants.quantize(weights, qtype)
        except NotImplementedError:
            continue
        (OUT / f"encode/{qtype.name.lower()}.bin").write_bytes(encoded.tobytes())
    with open(OUT / "grids.txt", "w") as file:
        for cls in (quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ3_XXS, quants.IQ3_S, quants.IQ1_S):
            cls.init_grid()
            entries, length = cls.grid_shape
            print(cls.qtype.name, entries, length, f"{fnv1a(cls.grid.astype(np.int8).tobytes()):016x}", file=file)


main()
