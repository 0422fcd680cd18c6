"""From the parameters of a checkpoint to GGUF tensors: rules, and the stream that applies them.

An architecture writes a table from parameter names to rules. A key without a suffix (`self_attn.q_proj`) stands for
the `.weight` and the `.bias` of a module; one with a suffix for that parameter only. `#` in a key stands for a number,
that of an expert or a head. A rule is
 - a string, the GGUF name;
 - `None`, for what a GGUF file does not hold;
 - `Rename`, `Split`, `Stack` or `Join`.
A GGUF name without a suffix gets that of the parameter.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from hf_config import ConvertError

Named = tuple[str, np.ndarray]
SUFFIXES = (".weight", ".bias")


@dataclass(frozen=True)
class Rename:
    """One parameter to one tensor, changed on the way."""

    to: str
    change: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Split:
    """One parameter to several tensors: `cut` gives one array for each name in `to`."""

    to: tuple[str, ...]
    cut: Callable[[np.ndarray], Iterable[np.ndarray]]


@dataclass(frozen=True)
class Stack:
    """The parameters that differ in their number only, 0 to `count` - 1, stacked along a new first axis."""

    to: str
    count: int


@dataclass(frozen=True)
class Join:
    """Several parameters to one or more tensors.

    The entries of the table that share `group` are collected; `part` is this one's role and `parts` are all roles. Then
    `join` gets the arrays in the order of `parts`, and gives one array for each name in `to`.
    """

    group: str
    part: str
    parts: tuple[str, ...]
    to: tuple[str, ...]
    join: Callable[..., Iterable[np.ndarray]]


Rule = str | None | Rename | Split | Stack | Join
Table = dict[str, Rule]


def permute_pairs(heads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Reorders rows of q or k, so that the two elements of a rotary pair, half a head apart before, are neighbours."""

    def change(w: np.ndarray) -> np.ndarray:
        return w.reshape(heads, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)

    return change


def transpose(w: np.ndarray) -> np.ndarray:
    """A matrix the other way round; a vector stays as it is. Several matrices are each turned round."""
    return w.swapaxes(-1, -2) if w.ndim > 1 else w


def plus_one(w: np.ndarray) -> np.ndarray:
    """For norms that scale by `1 + w`: GGUF files hold the sum."""
    return w + np.float32(1.0)


def nothing(w: np.ndarray) -> tuple[np.ndarray, ...]:
    """For parameters that may be in a checkpoint if they are zero, and that GGUF files do not have."""
    if np.any(w):
        raise ValueError("it is not zero, and the architecture's files have no place for it")
    return ()


def halves(axis: int) -> Callable[[np.ndarray], Iterable[np.ndarray]]:
    """Cuts in two equal parts along an axis."""
    return lambda w: np.split(w, 2, axis=axis)


class Mapper:
    """Applies an architecture's tables to a stream of parameters."""

    def __init__(self, model: Table, layer: Table, layers: str, n_layer: int):
        """`model` is the table of what is outside of layers, `layer` that within `{layers}.{i}.`, for i < `n_layer`."""
        self.model, self.layer, self.layers, self.n_layer = model, layer, layers, n_layer
        self.pending: dict[str, dict[str, np.ndarray]] = {}
        self.made: set[str] = set()

    def feed(self, name: str, w: np.ndarray) -> Iterator[Named]:
        """The tensors that are complete with this parameter; `name` is relative to the model."""
        found = re.match(rf"{re.escape(self.layers)}\.(\d+)\.(.+)$", name)
        table, rest, prefix = self.model, name, ""
        if found:
            table, rest, prefix = self.layer, found[2], f"blk.{int(found[1])}."
            if int(found[1]) >= self.n_layer:
                raise ConvertError(f"the checkpoint has {name}, but config.json says {self.n_layer} layers")
        key, rule, suffix, number = _find(table, rest, name)
        try:
            made = list(self._apply(rule, prefix, key, suffix, number, w))
        except (ValueError, IndexError) as e:
            raise ConvertError(f"{name} of the shape {list(w.shape)} does not fit config.json: {e}") from e
        for to, array in made:
            to = prefix + (to if to.endswith(SUFFIXES) else to + suffix)
            if to in self.made:
                raise ConvertError(f"{name} would make {to} a second time")
            self.made.add(to)
            yield to, array

    def _apply(self, rule, prefix, key, suffix, number, w) -> Iterable[Named]:
        match rule:
            case None:
                return []
            case str():
                return [(rule, w)]
            case Rename():
                return [(rule.to, rule.change(w))]
            case Split():
                return list(zip(rule.to, rule.cut(w), strict=True))
            case Stack():
                parts = [str(i) for i in range(rule.count)]
                done = self._collect(prefix + key + suffix, parts, number, w)
                return [(rule.to, np.stack(done))] if done else []
            case Join():
                done = self._collect(prefix + rule.group + suffix, rule.parts, rule.part, w)
                return list(zip(rule.to, rule.join(*done), strict=True)) if done else []
        raise TypeError(rule)

    def _collect(self, group: str, parts, part: str, w: np.ndarray) -> list[np.ndarray] | None:
        """Keeps a part; once all are there, gives them in order and forgets them."""
        if part not in parts:
            raise ValueError(f"it is number {part} of only {len(parts)}")
        kept = self.pending.setdefault(group, {})
        kept[part] = w
        if len(kept) < len(parts):
            return None
        del self.pending[group]
        return [kept[p] for p in parts]

    def finish(self) -> None:
        """Refuses a checkpoint that ended too early."""
        for group, kept in self.pending.items():
            raise ConvertError(f"the checkpoint is incomplete: only {len(kept)} parts of {group}")
        for name in ("token_embd.weight", "output_norm.weight"):
            if name not in self.made and any(rule_makes(rule, name) for rule in self.model.values()):
                raise ConvertError(f"the checkpoint is incomplete: nothing in it makes {name}")
        for i in range(self.n_layer):
            if not any(name.startswith(f"blk.{i}.") for name in self.made):
                raise ConvertError(f"the checkpoint is incomplete: layer {i} of {self.n_layer} is missing")


def rule_makes(rule: Rule, name: str) -> bool:
    """Whether a rule can give the tensor `name`, with or without its suffix."""
    names = () if rule is None else (rule,) if isinstance(rule, str) else rule.to
    names = (names,) if isinstance(names, str) else names
    return any(name in (n, n + ".weight", n + ".bias") for n in names)


def _find(table: Table, rest: str, name: str) -> tuple[str, Rule, str, str]:
    """The key, rule, suffix and number of a parameter."""
    numbers = re.findall(r"(?<=\.)\d+(?=\.)", rest)
    general = re.sub(r"(?<=\.)\d+(?=\.)", "#", rest)
    suffix = next((s for s in SUFFIXES if rest.endswith(s)), "")
    for key in (rest, general, rest.removesuffix(suffix), general.removesuffix(suffix)):
        if key in table:
            return key, table[key], suffix, numbers[0] if numbers else ""
    raise ConvertError(f"the checkpoint has {name}, and this architecture has no place for it")
