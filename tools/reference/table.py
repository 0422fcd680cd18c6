"""The table of generated models that `model/src/shapes` reads: keys and tensors as our converter writes them."""

import copy
import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Tensor:
    """Dimensions, row length first, and for a tensor made of others' elements the runs: name, first element, number."""

    dims: list[int]
    parts: list[tuple[str, int, int]] | None = None


@dataclass
class Shape:
    """One generated model."""

    name: str
    vocabulary: str
    # The name of the reference logits that it has to reproduce, if there are any.
    reference: str | None
    keys: dict[str, Any]
    # `blk.*.x` for tensors that are the same in all layers.
    tensors: dict[str, Tensor]
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return self.keys["general.architecture"]

    def key(self, key: str) -> Any:
        """The value of a key of the architecture."""
        return self.keys[f"{self.architecture}.{key}"]

    def copy(self, name: str) -> "Shape":
        """A copy of another name."""
        other = copy.deepcopy(self)
        other.name = name
        return other


def joined_layers(tensors: dict[str, Tensor], n_layer: int) -> dict[str, Tensor]:
    """Tensors that are the same in all layers as one `blk.*.x`; those outside of layers come first."""
    outside = {name: t for name, t in tensors.items() if not name.startswith("blk.")}
    stems = dict.fromkeys(re.sub(r"^blk\.\d+\.", "", name) for name in tensors if name.startswith("blk."))
    inside = {}
    for stem in sorted(stems):
        layers = {i: tensors[f"blk.{i}.{stem}"] for i in range(n_layer) if f"blk.{i}.{stem}" in tensors}
        first = next(iter(layers.values()))
        if len(layers) == n_layer and all(t == first for t in layers.values()):
            inside[f"blk.*.{stem}"] = first
        else:
            inside |= {f"blk.{i}.{stem}": t for i, t in layers.items()}
    return dict(sorted(outside.items())) | inside


def number(value: Any) -> str:
    """A value as JSON, with a point in every number that stands for float32, and no more digits than that takes."""
    if isinstance(value, (float, np.floating)):
        text = str(np.float32(value))
        assert np.float32(float(text)) == np.float32(value)
        return text
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(number(v) for v in value) + "]"
    return json.dumps(value.item() if isinstance(value, np.generic) else value, ensure_ascii=False)


def tensor(t: Tensor) -> str:
    """A tensor as JSON."""
    return number(t.dims) if t.parts is None else f'{{"dims": {number(t.dims)}, "parts": {number(t.parts)}}}'


def section(name: str, entries: dict[str, str]) -> str:
    """One line for each entry."""
    return f'  "{name}": {{\n' + ",\n".join(f'   "{k}": {v}' for k, v in entries.items()) + "\n  }"


def document(shapes: list[Shape]) -> str:
    """The file."""
    texts = []
    for s in shapes:
        keys = {k: number(v) for k, v in s.keys.items() if k != "general.architecture"}
        parts = [
            f'  "name": "{s.name}", "architecture": "{s.architecture}", "vocabulary": "{s.vocabulary}",\n'
            f'  "reference": {json.dumps(s.reference)}',
            section("keys", keys),
            section("tensors", {name: tensor(t) for name, t in s.tensors.items()}),
        ]
        if s.constants:
            parts.append(section("constants", {name: number(v) for name, v in s.constants.items()}))
        texts.append(" {\n" + ",\n".join(parts) + "\n }")
    return "[\n" + ",\n".join(texts) + "\n]\n"
