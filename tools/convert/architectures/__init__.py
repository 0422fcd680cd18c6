"""The architectures, one family a module. A new one is a module here and a line in `ALL`."""

from typing import Any

from hf_config import ConvertError

from . import gemma, gpt2, llama, qwen
from .base import Architecture

ALL: tuple[type[Architecture], ...] = (
    llama.Llama,
    qwen.Qwen2,
    qwen.Qwen3,
    qwen.Qwen2Moe,
    qwen.Qwen3Moe,
    gemma.Gemma,
    gemma.Gemma2,
    gemma.Gemma3,
    gpt2.Gpt2,
)


def architecture(config: dict[str, Any]) -> Architecture:
    """The architecture of a `config.json`, by its `model_type`."""
    kind = config.get("model_type")
    for cls in ALL:
        if kind in cls.model_types:
            return cls(config)
    known = ", ".join(sorted(kind for cls in ALL for kind in cls.model_types))
    raise ConvertError(f"model_type {kind!r} is not supported; supported are {known}")
