#!/usr/bin/env python3
"""Converts a Hugging Face checkpoint to GGUF.

    pip install -r requirements.txt
    python convert.py HF_FOLDER OUT.gguf

As a module: `hyperparameters`, `constants` and `tensors` convert a model's parts, `vocabulary` its tokenizer.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from architectures import architecture
from architectures.base import COMPUTED
from checkpoint import Checkpoint, read_json
from hf_config import ConvertError, reading
from mapping import Mapper
from vocabulary import vocabulary

__all__ = ["ConvertError", "constants", "hyperparameters", "tensors", "vocabulary"]


def to_stderr(text: str) -> None:
    """Tells the user something that is not a result."""
    print(text, file=sys.stderr)


def hyperparameters(config: dict[str, Any]) -> dict[str, Any]:
    """The metadata of the model part, from the dictionary of a `config.json`.

    Integers stand for uint32, floats for float32; lists are arrays.
    """
    with reading("config.json"):
        arch = architecture(config)
        keys = arch.keys()
    return {"general.architecture": arch.name} | {f"{arch.name}.{key}": value for key, value in keys.items()}


def constants(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The tensors that are computed from the configuration alone, float32."""
    with reading("config.json"):
        return architecture(config).constants()


def tensors(
    config: dict[str, Any], state: Iterable[tuple[str, np.ndarray]], note: Callable[[str], None] = to_stderr
) -> Iterator[tuple[str, np.ndarray]]:
    """The GGUF tensors of a checkpoint's parameters, both by name and as float32; their order is not important.

    Shapes are numpy's, the row length last. A tensor is given as soon as the parameters that make it were read, so that
    no more is held than the parts of unfinished stacks. An array of uint8 stands for the bytes of MXFP4 blocks, 17 for
    each 32 elements of a row. Together with `constants` these are all tensors of the file. `note` is told what is left
    out although it is part of the checkpoint, such as an image encoder.
    """
    with reading("config.json"):
        arch = architecture(config)
        mapper = Mapper(arch.model(), arch.layer(), arch.layers, arch.n_layer)
        tied = arch.config.get("tie_word_embeddings")
    dropped = 0
    for name, w in state:
        if name.endswith(COMPUTED):
            continue
        if name.startswith(arch.dropped_prefixes):
            dropped += 1
            continue
        name = relative(name, arch.text_prefixes, arch.prefixes)
        if name == "lm_head.weight" and (arch.tied if tied is None else tied):
            continue
        yield from mapper.feed(name, w)
    mapper.finish()
    if tied is False and "output.weight" not in mapper.made:
        raise ConvertError("the checkpoint is incomplete: nothing in it makes output.weight")
    if dropped:
        note(f"note: {dropped} parameters that are not of the text model are left out")


def relative(name: str, *alternatives: tuple[str, ...]) -> str:
    """A parameter's name within the model: of each group of prefixes, the first that is there is taken off."""
    for prefixes in alternatives:
        name = name.removeprefix(next((p for p in prefixes if name.startswith(p)), ""))
    return name


def convert(folder: pathlib.Path, out: pathlib.Path, kind: str, pre: str | None) -> None:
    """Converts a folder; `kind` is a `--type`, `pre` a `--pre`.

    The first pass over the parameters sees shapes only: most faults show before anything is written.
    """
    # Here, so that the functions above do without the package.
    from gguf_file import Output, file_type, kept_type, tensor_format

    config = read_json(folder / "config.json")
    source = Checkpoint(folder)
    metadata = hyperparameters(config)
    architecture_name = metadata["general.architecture"]
    declared = [(name, w, tensor_format(name, w, "f32")) for name, w in constants(config).items()]
    fixed = [(name, w) for name, w, _ in declared]
    for name, w in tensors(config, source.shapes()):
        declared.append((name, w, tensor_format(name, w, kept_type(source.last_type) if kind == "keep" else kind)))
    rows = next(len(w) for name, w, _ in declared if name == "token_embd.weight")
    if metadata[f"{architecture_name}.vocab_size"] != rows:
        raise ConvertError(f"the embedding has {rows} rows, which is not config.json's vocab_size")
    metadata |= {
        "general.type": "model",
        "general.name": folder.resolve().name,
        "general.file_type": file_type(declared),
    } | vocabulary(folder, pre, rows, to_stderr)
    output = Output(out, architecture_name)
    output.metadata(metadata)
    for name, w, form in declared:
        output.declare(name, w, form)
    # The notes were given on the first pass.
    made = tensors(config, source.arrays(), note=lambda text: None)
    output.write(item for part in (fixed, made) for item in part)


def main() -> int:
    parser = argparse.ArgumentParser(description="Converts a Hugging Face checkpoint to GGUF.")
    parser.add_argument("folder", type=pathlib.Path, help="folder with config.json, *.safetensors and a tokenizer")
    parser.add_argument("out", type=pathlib.Path, help="the file to write")
    parser.add_argument(
        "--type", choices=["f32", "f16", "bf16", "keep"], default="keep",
        help="format of matrices; keep, the default, is that of the checkpoint (vectors are f32 always)",
    )
    parser.add_argument("--pre", metavar="NAME", help="the pre-tokenizer, where it cannot be told from tokenizer.json")
    args = parser.parse_args()
    try:
        convert(args.folder, args.out, args.type, args.pre)
    except (ConvertError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
