"""Reading a checkpoint's folder: `config.json`, and the `.safetensors` files, which are mapped and never read whole.

The format is a JSON header in front of the raw data. It is read here, and not by the package of the name, because numpy
has no bfloat16: the elements are widened on the way.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from hf_config import ConvertError

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "<u1"}
MOST_HEADER = 100_000_000  # The limit that the format's specification sets.


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The dictionary in a JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConvertError(f"{path} cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise ConvertError(f"{path} is not JSON: {e}") from e
    if not isinstance(value, dict):
        raise ConvertError(f"{path} does not hold a JSON object")
    return value


class Checkpoint:
    """The parameters in a folder, by name; `last_type` is the stored type of the one that was given last."""

    def __init__(self, folder: pathlib.Path):
        self.entries: dict[str, tuple[pathlib.Path, str, list[int], int, int]] = {}
        self.last_type = ""
        for path in _files(folder):
            for name, entry in _header(path).items():
                if name in self.entries:
                    raise ConvertError(f"{name} is in {self.entries[name][0].name} and again in {path.name}")
                self.entries[name] = (path, *entry)

    def shapes(self) -> Iterator[tuple[str, np.ndarray]]:
        """All parameters as zeros that take no memory, in the order of `arrays`."""
        for name, (_, dtype, shape, _, _) in self.entries.items():
            self.last_type = dtype
            kind = np.uint8 if dtype == "U8" else np.float32
            yield name, np.broadcast_to(np.zeros((), kind), shape)

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """All parameters as float32, or as uint8 where they are bytes."""
        for name, (path, dtype, shape, offset, _) in self.entries.items():
            self.last_type = dtype
            count = int(np.prod(shape))
            raw = np.memmap(path, DTYPES[dtype], "r", offset, (count,)) if count else np.zeros(0, DTYPES[dtype])
            yield name, _widen(raw, dtype).reshape(shape)


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = [folder / name for name in dict.fromkeys(read_json(index).get("weight_map", {}).values())]
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConvertError(f"{folder} has no .safetensors files; older formats such as .bin are not read")
    return files


def _header(path: pathlib.Path) -> dict[str, tuple[str, list[int], int, int]]:
    """Type, shape, offset and size in bytes of each parameter; checked to lie within the file."""
    try:
        with open(path, "rb") as f:
            length = int.from_bytes(f.read(8), "little")
            if length > MOST_HEADER:
                raise ConvertError(f"{path} is not a safetensors file: its header would be {length} bytes long")
            header = json.loads(f.read(length))
    except OSError as e:
        raise ConvertError(f"{path} cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise ConvertError(f"{path} is not a safetensors file: {e}") from e
    size, entries = path.stat().st_size, {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        except (KeyError, TypeError, ValueError) as e:
            raise ConvertError(f"{path}: the entry of {name} is not one of a safetensors file") from e
        if dtype not in DTYPES:
            raise ConvertError(f"{path}: {name} is of type {dtype}, which is not supported")
        if 8 + length + end > size or end - begin != int(np.prod(shape)) * np.dtype(DTYPES[dtype]).itemsize:
            raise ConvertError(f"{path} is truncated or damaged: {name} does not fit")
        entries[name] = (dtype, shape, 8 + length + begin, end - begin)
    return entries


def _widen(raw: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "U8":
        return np.asarray(raw)
    if dtype == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32)
