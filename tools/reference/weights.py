"""The weights of the generated models, bit for bit as `model/src/shapes/weights.rs` makes them.

Element `i` of a tensor is a function of the tensor's GGUF name and of `i` alone: SplitMix64 (Steele, Lea and Flood,
"Fast Splittable Pseudorandom Number Generators", 2014), started from the FNV-1a hash of the name. The upper 24 bits
give a number of [-1, 1) that float32 holds exactly, so that one rounding, of the product with the amplitude, remains
(and one more for norms, which lie around 1).
"""

import numpy as np

MATRIX, NORM, BIAS = np.float32(0.14), np.float32(0.3), np.float32(0.2)
# Scores then differ clearly between experts, and the first does not take all.
ROUTER = np.float32(0.2)
# About as far as scores spread, so that sinks take a part that differs between heads.
SINK = np.float32(1.0)


def bits(name: str, n: int) -> np.ndarray:
    """`n` random 64-bit numbers."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def amplitude(name: str) -> np.float32:
    """Half the range of a tensor's elements."""
    if name.endswith("_norm.weight"):
        return NORM
    if name.endswith(".bias"):
        return BIAS
    if name.endswith(".ffn_gate_inp.weight"):
        return ROUTER
    if name.endswith(".attn_sinks.weight"):
        return SINK
    return MATRIX


def tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A weight by its GGUF name; `shape` as numpy has it, the row length last."""
    mantissa = (bits(name, int(np.prod(shape))) >> np.uint64(40)).astype(np.int64) - 2**23
    w = mantissa.astype(np.float32) * np.float32(2.0**-23) * amplitude(name)
    return (w + np.float32(1.0) if name.endswith("_norm.weight") else w).reshape(shape)


def tokens(seed: str, n: int, n_vocab: int) -> np.ndarray:
    """The tokens that a generated model is run over."""
    return ((bits(f"{seed} tokens", n) >> np.uint64(40)) % np.uint64(n_vocab)).astype(np.uint32)
