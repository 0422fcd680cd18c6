#!/usr/bin/env python3
"""Converts a Hugging Face checkpoint to GGUF.

    pip install -r requirements.txt
    python convert.py HF_FOLDER OUT.gguf

As a module: `hyperparameters`, `constants` and `tensors` convert a model's parts, `vocabulary` its tokenizer.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from architectures import architecture
from architectures.base import COMPUTED
from hf_config import ConvertError
from mapping import Mapper


def hyperparameters(config: dict[str, Any]) -> dict[str, Any]:
    """The metadata of the model part, from the dictionary of a `config.json`.

    Integers stand for uint32, floats for float32; lists are arrays.
    """
    arch = architecture(config)
    return {"general.architecture": arch.name} | {f"{arch.name}.{key}": value for key, value in arch.keys().items()}


def constants(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """The tensors that are computed from the configuration alone, float32."""
    return architecture(config).constants()


def tensors(config: dict[str, Any], state: Iterable[tuple[str, np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    """The GGUF tensors of a checkpoint's parameters, both by name and as float32; their order is not important.

    Shapes are numpy's, the row length last. A tensor is given as soon as the parameters that make it were read, so that no
    more is held than the parts of unfinished stacks. An array of uint8 stands for the bytes of MXFP4 blocks, 17 for each 32
    elements of a row. Without parameters too few or too many the result is the whole model, but for `constants`.
    """
    arch = architecture(config)
    mapper = Mapper(arch.model(), arch.layer(), arch.layers, arch.n_layer)
    tied = arch.config.get("tie_word_embeddings")
    for name, w in state:
        if name.endswith(COMPUTED) or name.startswith(arch.dropped_prefixes):
            continue
        name = relative(name, arch.text_prefixes, arch.prefixes)
        if name == "lm_head.weight" and (arch.tied if tied is None else tied):
            continue
        yield from mapper.feed(name, w)
    mapper.finish()
    if tied is False and "output.weight" not in mapper.made:
        raise ConvertError("the checkpoint is incomplete: nothing in it makes output.weight")


def relative(name: str, *alternatives: tuple[str, ...]) -> str:
    """A parameter's name within the model: of each group of prefixes, the first that is there is taken off."""
    for prefixes in alternatives:
        name = name.removeprefix(next((p for p in prefixes if name.startswith(p)), ""))
    return name
