"""Writing a GGUF file, tensor by tensor."""

import os
import pathlib
from collections.abc import Iterable
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Format
from gguf import GGUFValueType, LlamaFileType

from hf_config import ConvertError

# `--type` to the format of matrices and `general.file_type`.
TYPES = {
    "f32": (Format.F32, LlamaFileType.ALL_F32),
    "f16": (Format.F16, LlamaFileType.MOSTLY_F16),
    "bf16": (Format.BF16, LlamaFileType.MOSTLY_BF16),
}
# Small tensors that readers want in float32, apart from vectors.
FLOAT32 = ("_norm.weight", ".bias", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "position_embd.weight")
ITEM = {bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32, str: GGUFValueType.STRING}


def tensor_format(name: str, array: np.ndarray, kind: str) -> Format:
    """The format in which a tensor is stored, if matrices are to be of this `--type`."""
    if array.dtype == np.uint8:
        return Format.MXFP4
    return Format.F32 if array.ndim < 2 or name.endswith(FLOAT32) else TYPES[kind][0]


def kept_type(stored: str) -> str:
    """The `--type` that is a checkpoint's own."""
    return {"F16": "f16", "BF16": "bf16"}.get(stored, "f32")


def file_type(tensors: Iterable[tuple[str, np.ndarray, Format]]) -> int:
    """`general.file_type`: after the format of most elements."""
    elements = {form: 0 for form, _ in TYPES.values()} | {Format.MXFP4: 0}
    for _, array, form in tensors:
        elements[form] += array.size
    types = {form: kind for form, kind in TYPES.values()} | {Format.MXFP4: LlamaFileType.MOSTLY_MXFP4_MOE}
    return int(types[max(elements, key=elements.__getitem__)])


def encode(name: str, array: np.ndarray, kind: Format) -> np.ndarray:
    """The elements in a format; refuses what float16 cannot hold."""
    if kind == Format.MXFP4:
        return array
    if kind == Format.BF16:
        return gguf.quants.quantize(np.ascontiguousarray(array), kind)
    if kind == Format.F16:
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        if np.isinf(half).any() and not np.isinf(array).any():
            raise ConvertError(f"{name} has values that float16 cannot hold; use --type bf16 or f32")
        return half
    return array.astype(np.float32, copy=False)


class Output:
    """A GGUF file that appears under its name when it is complete, and not at all if something fails before."""

    def __init__(self, path: pathlib.Path, architecture: str):
        self.path = path
        self.partial = path.with_name(f".{path.name}.{os.getpid()}.part")
        self.writer = gguf.GGUFWriter(self.partial, architecture)
        self.formats: list[tuple[str, Format]] = []

    def metadata(self, values: dict[str, Any]) -> None:
        """Sets keys; `general.architecture` is set already."""
        for key, value in values.items():
            if key == "general.architecture":
                continue
            if isinstance(value, list):
                self._array(key, value)
            else:
                self.writer.add_key_value(key, value, ITEM[type(value)])

    def _array(self, key: str, values: list) -> None:
        if not values:
            raise ConvertError(f"{key} would be an empty array")
        # The field's files have signed integers in arrays.
        kind = GGUFValueType.INT32 if type(values[0]) is int else ITEM[type(values[0])]
        self.writer.add_key_value(key, values, GGUFValueType.ARRAY, kind)

    def declare(self, name: str, array: np.ndarray, kind: Format) -> None:
        """Announces a tensor, by an array of its shape; `write` then wants them in the same order."""
        rows, width = array.shape[:-1], array.shape[-1]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = width if kind == Format.MXFP4 else width // block * size
        shape = (*rows, row_bytes) if kind in (Format.MXFP4, Format.BF16) else array.shape
        count = int(np.prod(rows, dtype=np.int64))
        dtype = np.dtype({Format.F32: np.float32, Format.F16: np.float16}.get(kind, np.uint8))
        self.writer.add_tensor_info(name, shape, dtype, count * row_bytes, raw_dtype=kind)
        self.formats.append((name, kind))

    def write(self, tensors: Iterable[tuple[str, np.ndarray]]) -> None:
        """Writes the file: all that was announced."""
        try:
            self.writer.write_header_to_file()
            self.writer.write_kv_data_to_file()
            self.writer.write_ti_data_to_file()
            for (name, kind), (given, array) in zip(self.formats, tensors, strict=True):
                if name != given:
                    raise ConvertError(f"{given} came where {name} was announced")
                self.writer.write_tensor_data(np.ascontiguousarray(encode(name, array, kind)))
            self.writer.close()
            self.partial.replace(self.path)
        except BaseException:
            self.writer.close()
            self.partial.unlink(missing_ok=True)
            raise
