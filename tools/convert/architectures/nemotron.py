"""Nemotron 4 and Minitron: LayerNorm by `1 + w`, and a squared ReLU instead of a gate."""

from typing import Any

from mapping import Table

from .base import Architecture


class Nemotron(Architecture):
    name = "nemotron"
    model_types = ("nemotron",)
    rope_types = ("default",)
    defaults = {"norm_eps": 1e-5, "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "max_position_embeddings": 4096}

    def check(self) -> None:
        self.config.only("hidden_act", "relu2")

    def keys(self) -> dict[str, Any]:
        return self.size_keys() | self.head_keys() | self.rope_keys() | {
            "attention.layer_norm_epsilon": self.config.float("norm_eps"),
            "rope.scaling.type": "none",
        }

    def model(self) -> Table:
        return self.with_plus_one(super().model())

    def layer(self) -> Table:
        table = super().layer()
        del table["mlp.gate_proj"]
        return self.with_plus_one(table)
