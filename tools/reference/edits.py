"""Edits of a converted table: for other files of the same model than the converter writes, and for other models."""

from collections.abc import Callable
from typing import Any

import numpy as np

from table import Shape, Tensor

Edit = Callable[[Shape], None]


def renamed(architecture: str) -> Edit:
    """Another architecture whose files are the same but for the name."""

    def edit(shape: Shape) -> None:
        prefix = shape.architecture + "."
        keys = {key.replace(prefix, architecture + ".", 1) if key.startswith(prefix) else key: value
                for key, value in shape.keys.items()}
        shape.keys = keys | {"general.architecture": architecture}

    return edit


def without_keys(*keys: str) -> Edit:
    """Leaves out keys whose defaults are the twin's values."""

    def edit(shape: Shape) -> None:
        for key in keys:
            del shape.keys[f"{shape.architecture}.{key}"]

    return edit


def with_keys(**keys: Any) -> Edit:
    """Sets keys; `__` stands for a point."""

    def edit(shape: Shape) -> None:
        for key, value in keys.items():
            shape.keys[f"{shape.architecture}.{key.replace('__', '.')}"] = value

    return edit


def double_divisors(factor: float, low: float, high: float, original: int) -> Edit:
    """Llama 3.1's divisors in double precision; the converter computes them in single, as those of published files."""

    def edit(shape: Shape) -> None:
        base, n_rot = shape.key("rope.freq_base"), shape.key("rope.dimension_count")
        turns = original * np.float64(base) ** (np.arange(0, n_rot, 2) / -n_rot) / (2 * np.pi)
        share = np.clip((turns - low) / (high - low), 0.0, 1.0)
        shape.constants["rope_freqs.weight"] = (1.0 / ((1.0 - share) / factor + share)).astype(np.float32)

    return edit


def split_experts(shape: Shape) -> None:
    """A tensor for each expert, as files had before experts were stacked."""
    for name, t in list(shape.tensors.items()):
        if "_exps.weight" in name:
            *dims, n = t.dims
            size = dims[0] * dims[1]
            for i in range(n):
                part = name.replace("_exps.weight", f".{i}.weight")
                shape.tensors[part] = Tensor(dims, [(name, i * size, size)])
            del shape.tensors[name]


def fused_qkv(shape: Shape) -> None:
    """Queries, keys and values in one tensor."""
    for kind in ("weight", "bias"):
        names = [f"blk.*.attn_{x}.{kind}" for x in "qkv"]
        if names[0] not in shape.tensors:
            continue
        parts = [shape.tensors.pop(name) for name in names]
        assert not any(t.parts for t in parts), "a part of a part would need the seed of the whole"
        sizes = [size(t) for t in parts]
        dims = [*parts[0].dims[:-1], sum(t.dims[-1] for t in parts)]
        shape.tensors[f"blk.*.attn_qkv.{kind}"] = Tensor(dims, [(n, 0, s) for n, s in zip(names, sizes, strict=True)])


def split_qkv(shape: Shape) -> None:
    """Queries, keys and values in a tensor each."""
    n_head, n_head_kv = shape.key("attention.head_count"), shape.key("attention.head_count_kv")
    for kind in ("weight", "bias"):
        name = f"blk.*.attn_qkv.{kind}"
        if name not in shape.tensors:
            continue
        fused = shape.tensors.pop(name)
        assert not fused.parts, "a part of a part would need the seed of the whole"
        *row, rows = fused.dims
        head, first = rows // (n_head + 2 * n_head_kv), 0
        for x, heads in (("q", n_head), ("k", n_head_kv), ("v", n_head_kv)):
            t = Tensor([*row, heads * head])
            t.parts = [(name, first, size(t))]
            first += size(t)
            shape.tensors[f"blk.*.attn_{x}.{kind}"] = t


def size(t: Tensor) -> int:
    """The number of elements."""
    n = 1
    for d in t.dims:
        n *= d
    return n


def untied_copy(shape: Shape) -> None:
    """The tied head written out once more, as some converters do."""
    t = shape.tensors["token_embd.weight"]
    shape.tensors["output.weight"] = Tensor(t.dims, [("token_embd.weight", 0, size(t))])
