"""SmolLM 3: Llama without a rotary embedding in every fourth layer."""

from typing import Any

from hf_config import ConvertError

from .llama import Llama


class SmolLm3(Llama):
    name = "smollm3"
    model_types = ("smollm3",)
    tied = True
    defaults = Llama.defaults | {"rope_theta": 2000000.0, "num_key_value_heads": 4, "max_position_embeddings": 32768}

    def check(self) -> None:
        super().check()
        self.config.only("use_sliding_window", False)
        given = self.config.get("no_rope_layers")
        if given is None:
            self.config.only("no_rope_layer_interval", 4)
        elif [bool(flag) for flag in given] != [(i + 1) % 4 != 0 for i in range(self.n_layer)]:
            raise ConvertError("smollm3 files can only express that every fourth layer has no rotary embedding")

    def keys(self) -> dict[str, Any]:
        keys = super().keys()
        keys.pop("attention.sliding_window", None)
        return keys
