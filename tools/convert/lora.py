#!/usr/bin/env python3
"""Converts a LoRA adapter of Hugging Face PEFT to GGUF.

    pip install -r requirements.txt
    python lora.py ADAPTER_FOLDER OUT.gguf --base HF_FOLDER

As a module: `adapter_metadata` and `adapter_tensors` convert its parts.
"""

import argparse
import math
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from architectures import architecture
from checkpoint import Checkpoint, read_json
from convert import relative
from hf_config import ConvertError, reading
from mapping import Mapper

__all__ = ["ConvertError", "adapter_metadata", "adapter_tensors"]

# What PEFT puts before the model's own names.
PREFIX = "base_model.model."
HALVES = {
    ".lora_A.weight": "A", ".lora_B.weight": "B",
    ".lora_embedding_A": "embedding_A", ".lora_embedding_B": "embedding_B",
}
# Options of PEFT that change what an adapter computes, and the values that ask for nothing.
NEUTRAL = {
    "use_dora": (False, None), "bias": ("none", None), "lora_bias": (False, None), "modules_to_save": ([], None),
    "trainable_token_indices": (None,), "alora_invocation_tokens": (None,), "target_parameters": ([], None),
    "layer_replication": ([], None), "corda_config": (None,), "use_qalora": (False, None),
}


def adapter_metadata(adapter: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """The metadata of the file, from the dictionaries of `adapter_config.json` and of the model's `config.json`."""
    if adapter.get("peft_type") != "LORA":
        raise ConvertError(f"adapters of the type {adapter.get('peft_type')!r} are not supported; only 'LORA' is")
    for key, neutral in NEUTRAL.items():
        if adapter.get(key) not in neutral:
            raise ConvertError(f"{key} = {adapter[key]!r} in adapter_config.json cannot be expressed in GGUF files")
    with reading("config.json"):
        name = architecture(base).name
    return {
        "general.architecture": name,
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": number(adapter, "lora_alpha"),
    }


def adapter_tensors(
    adapter: dict[str, Any], base: dict[str, Any], state: Iterable[tuple[str, np.ndarray]]
) -> Iterator[tuple[str, np.ndarray]]:
    """The GGUF tensors of an adapter's parameters, by name and as float32; shapes are numpy's, the row length last.

    An adapter's rows are ordered as those of the weight that it changes, so each `B` passes the rule of that weight.
    What this gives is compared with the same rule's result for the whole product, so that no rule can go unnoticed that
    is more than an order of rows.
    """
    alpha = adapter_metadata(adapter, base)["adapter.lora.alpha"]
    for name, halves in modules(state).items():
        embedding = "embedding_A" in halves
        a, b = (halves.get(f"embedding_{half}" if embedding else half) for half in "AB")
        if a is None or b is None:
            raise ConvertError(f"{name} has only one half of its adapter")
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1] or 0 in a.shape:
            shapes = f"{list(a.shape)} and {list(b.shape)}"
            raise ConvertError(f"{name} has halves of the shapes {shapes}, which have no rank in common")
        # Readers multiply by alpha / rank; what PEFT multiplies by beyond that goes into B.
        b = b * np.float32(factor(adapter, name, len(a)) / (alpha / len(a)))
        if embedding:
            made = [("token_embd.weight", a.T, b)] if mapped(base, name, a.T) == ["token_embd.weight"] else []
        else:
            made = list(matrices(base, name, a, b, bool(adapter.get("fan_in_fan_out"))))
        if not made:
            raise ConvertError(f"{name} is put together with others in GGUF files, so its adapter cannot be kept")
        for tensor, first, second in made:
            yield f"{tensor}.lora_a", np.ascontiguousarray(first)
            yield f"{tensor}.lora_b", np.ascontiguousarray(second)


def modules(state: Iterable[tuple[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """The halves of each adapter, by the name of the weight that it changes."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, array in state:
        suffix = next((s for s in HALVES if name.endswith(s)), None)
        if suffix is None:
            raise ConvertError(f"{name} is no part of a LoRA adapter, so that it cannot be kept")
        module = name.removesuffix(suffix).removeprefix(PREFIX).removesuffix(".base_layer")
        found.setdefault(module + ".weight", {})[HALVES[suffix]] = array
    if not found:
        raise ConvertError("the adapter has no parameters")
    return found


def feed(base: dict[str, Any], name: str, array: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """What the rule of a weight makes of an array in its place; nothing if it waits for other weights."""
    with reading("config.json"):
        arch = architecture(base)
        mapper = Mapper(arch.model(), arch.layer(), arch.layers, arch.n_layer)
    return list(mapper.feed(relative(name, arch.text_prefixes, arch.prefixes), array))


def mapped(base: dict[str, Any], name: str, array: np.ndarray) -> list[str]:
    """The names of the tensors that a weight makes, if they are the weight as it is."""
    return [to for to, made in feed(base, name, array) if made is array]


def matrices(
    base: dict[str, Any], name: str, a: np.ndarray, b: np.ndarray, transposed: bool
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The tensors that a weight becomes, each with both halves; a `transposed` weight has rows of inputs."""
    if name.endswith("lm_head.weight"):
        # The largest of all, with nothing done to it.
        yield "output.weight", a, b
        return
    turn = (lambda w: w.T) if transposed else (lambda w: w)
    products, rows = feed(base, name, turn(b @ a)), feed(base, name, turn(b))
    for (tensor, product), (_, second) in zip(products, rows, strict=True):
        apart = np.abs(second @ a - product).max() if product.shape == (len(second), a.shape[1]) else np.inf
        if not apart <= 1e-4 * max(np.abs(product).max(), 1e-30):
            raise ConvertError(f"{name} is more than reordered for {tensor}, so its adapter cannot be kept")
        yield tensor, a, second


def factor(adapter: dict[str, Any], name: str, rank: int) -> float:
    """What PEFT multiplies a product by."""
    alpha = pattern(adapter, "alpha_pattern", name) or number(adapter, "lora_alpha")
    return alpha / math.sqrt(rank) if adapter.get("use_rslora") else alpha / rank


def pattern(adapter: dict[str, Any], key: str, name: str) -> float | None:
    """The value that one of PEFT's patterns has for a module: they are ends of names, or regular expressions."""
    module = name.removesuffix(".weight")
    for text, value in (adapter.get(key) or {}).items():
        if re.match(rf"(.*\.)?({text})$", module):
            return float(value)
    return None


def number(adapter: dict[str, Any], key: str) -> float:
    """A positive number of `adapter_config.json`."""
    value = adapter.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ConvertError(f"{key} = {value!r} in adapter_config.json is not a positive number")
    return float(value)


def convert(folder: pathlib.Path, out: pathlib.Path, base: pathlib.Path, kind: str) -> None:
    """Converts a folder; an adapter is small, so it is held as a whole."""
    # Here, so that the functions above do without the package.
    from gguf_file import TYPES, Output

    adapter, config = read_json(folder / "adapter_config.json"), read_json(base / "config.json")
    metadata = adapter_metadata(adapter, config)
    made = list(adapter_tensors(adapter, config, Checkpoint(folder).arrays()))
    output = Output(out, metadata["general.architecture"])
    output.metadata(metadata | {"general.name": folder.resolve().name, "general.file_type": int(TYPES[kind][1])})
    for name, array in made:
        output.declare(name, array, TYPES[kind][0])
    output.write(made)


def main() -> int:
    parser = argparse.ArgumentParser(description="Converts a LoRA adapter of Hugging Face PEFT to GGUF.")
    parser.add_argument("folder", type=pathlib.Path, help="folder with adapter_config.json and *.safetensors")
    parser.add_argument("out", type=pathlib.Path, help="the file to write")
    parser.add_argument("--base", type=pathlib.Path, required=True, help="the model's folder; only config.json is read")
    parser.add_argument("--type", choices=["f32", "f16", "bf16"], default="f32", help="format of the matrices")
    args = parser.parse_args()
    try:
        convert(args.folder, args.out, args.base, args.type)
    except (ConvertError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
