"""The converter backwards: which element of a checkpoint each element of the GGUF file comes from.

The converter only renames, reorders, cuts, joins, and for some norms adds 1. So it is run once over a checkpoint
whose elements are their own numbers, times 4; what comes out tells for each element where it is from, and the
remainder by 4 what was added. That way there is one table of names and permutations, the converter's, and none here
to agree with it by mistake.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

Named = tuple[str, np.ndarray]
State = dict[str, np.ndarray]
Convert = Callable[[Iterable[Named]], Iterator[Named]]


@dataclass
class Source:
    """Where a GGUF tensor comes from: the numbers of its elements in the checkpoint, and what is added to them."""

    index: np.ndarray
    added: int


def sources(convert: Convert, state: State) -> dict[str, Source]:
    """The sources of all tensors. Elements of the checkpoint are numbered through, in the order of `state`."""
    start, numbered = 0, {}
    for name, w in state.items():
        numbered[name] = 4.0 * np.arange(start, start + w.size, dtype=np.float64).reshape(w.shape)
        start += w.size
    found = {}
    for name, w in convert(numbered.items()):
        assert w.dtype == np.float64, f"{name}: numbers went through {w.dtype}, which may have rounded them"
        numbers = np.rint(w).astype(np.int64)
        added = np.unique(numbers % 4)
        assert np.array_equal(numbers, w) and len(added) == 1 and added[0] in (0, 1), f"{name} is not merely reordered"
        found[name] = Source(numbers // 4, int(added[0]))
    return found


def fill(state: State, found: dict[str, Source], weights: Callable[[str, tuple[int, ...]], np.ndarray]) -> State:
    """A checkpoint of the shapes of `state` that converts to the given GGUF weights.

    What the converter leaves out, such as tables of masks, stays as it is.
    """
    flat = np.concatenate([w.astype(np.float32).reshape(-1) for w in state.values()])
    filled = np.zeros(flat.size, dtype=bool)
    for name, source in found.items():
        index = source.index.reshape(-1)
        shared = filled[index].any() or np.unique(index).size != index.size
        assert not shared, f"{name} has elements that another tensor has too"
        filled[index] = True
        # Exact: half-open ranges around 1 lie within a factor of 2 of it.
        flat[index] = weights(name, source.index.shape).reshape(-1) - np.float32(source.added)
    ends = np.cumsum([w.size for w in state.values()])
    pieces = np.split(flat, ends[:-1])
    return {name: piece.reshape(w.shape) for (name, w), piece in zip(state.items(), pieces, strict=True)}
