"""Ministral 3 and the text part of Mistral Small 3.1: Llama whose queries grow with the position."""

from typing import Any

from hf_config import ConvertError

from .base import IMAGES
from .llama import Llama


class Mistral3(Llama):
    name = "mistral3"
    model_types = ("ministral3", "mistral3")
    rope_types = ("default", "yarn")
    text_prefixes = ("language_model.model.", "model.language_model.", "language_model.")
    dropped_prefixes = IMAGES

    def keys(self) -> dict[str, Any]:
        keys = super().keys()
        beta = self.config.rope().get("llama_4_scaling_beta")
        if beta:
            if "rope.scaling.original_context_length" not in keys:
                raise ConvertError("attention temperature without YaRN cannot be expressed in mistral3 files")
            keys["attention.temperature_scale"] = float(beta)
        return keys

    def yarn_keys(self, rope: dict[str, Any]) -> dict[str, Any]:
        """Readers of this architecture divide by the factor for `mscale_all_dim`, and take `mscale` for 1."""
        if not rope.get("mscale_all_dim") or rope.get("attention_factor") is not None:
            return super().yarn_keys(rope)
        if rope.get("mscale") != 1.0:
            raise ConvertError(f"YaRN's mscale of {rope.get('mscale')} cannot be expressed in mistral3 files, only 1")
        plain = {key: value for key, value in rope.items() if not key.startswith("mscale")}
        return super().yarn_keys(plain) | {"rope.scaling.yarn_log_multiplier": float(rope["mscale_all_dim"])}
