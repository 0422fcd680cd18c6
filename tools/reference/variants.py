"""Generated models without a Hugging Face model of their own: other files of the same model, edited from a twin's table."""

from collections.abc import Callable
from dataclasses import dataclass

from table import Shape, Tensor


@dataclass(frozen=True)
class Variant:
    """Another file of what the twin `of` computes, or without reference if the edit changes that."""

    name: str
    of: str
    edit: Callable[[Shape], None]
    same_logits: bool = True

    def shape(self, twin: Shape) -> Shape:
        """The edited table."""
        shape = twin.copy(self.name)
        self.edit(shape)
        if not self.same_logits:
            shape.reference = None
        return shape


def without_keys(*keys: str) -> Callable[[Shape], None]:
    """Leaves out keys whose defaults are the twin's values."""

    def edit(shape: Shape) -> None:
        for key in keys:
            del shape.keys[f"{shape.architecture}.{key}"]

    return edit


def with_keys(**keys: int | float | bool | str) -> Callable[[Shape], None]:
    """Sets keys; `__` stands for a point."""

    def edit(shape: Shape) -> None:
        for key, value in keys.items():
            shape.keys[f"{shape.architecture}.{key.replace('__', '.')}"] = value

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


VARIANTS = [
    Variant("llama-fused", "llama-bias", fused_qkv),
    # What readers take absent keys for.
    Variant("llama-few-keys", "llama-mha", without_keys(
        "attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.freq_base",
        "rope.dimension_count", "vocab_size",
    )),
    Variant("llama-head-twice", "llama-gqa", untied_copy),
    Variant("mixtral-split", "mixtral", split_experts),
]
