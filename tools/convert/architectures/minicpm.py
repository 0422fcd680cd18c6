"""MiniCPM 1 and 2: Llama with three multipliers."""

from typing import Any

from .llama import Llama


class MiniCpm(Llama):
    name = "minicpm"
    model_types = ("minicpm",)
    tied = True
    rope_types = ("default", "linear")
    defaults = Llama.defaults | {"scale_emb": 1.0, "dim_model_base": 256, "scale_depth": 1.0}

    def keys(self) -> dict[str, Any]:
        return super().keys() | {
            "embedding_scale": self.config.float("scale_emb"),
            "residual_scale": self.config.float("scale_depth") / self.n_layer**0.5,
            "logit_scale": self.n_embd / self.config.float("dim_model_base"),
        }
