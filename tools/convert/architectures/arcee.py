"""Arcee: Llama with a squared ReLU instead of a gate."""

from mapping import Table

from .llama import Llama


class Arcee(Llama):
    name = "arcee"
    model_types = ("arcee",)

    def check(self) -> None:
        self.config.only("hidden_act", "relu2")
        self.config.only("mlp_bias", False)

    def layer(self) -> Table:
        table = super().layer()
        del table["mlp.gate_proj"]
        return table
