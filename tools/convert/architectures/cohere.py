"""Cohere's Command R, R+, R7B and A, and Aya."""

from typing import Any

from mapping import Split, Table, nothing

from .base import Architecture


class CommandR(Architecture):
    """Cohere's Command R and Aya: attention and feed-forward part side by side behind one LayerNorm without bias."""

    name = "command-r"
    model_types = ("cohere",)
    tied = True
    rope_types = ("default",)
    defaults = {
        "layer_norm_eps": 1e-5, "rope_theta": 500000.0, "logit_scale": 0.0625, "max_position_embeddings": 8192,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("attention_bias", False)
        self.config.only("tie_word_embeddings", True)

    def keys(self) -> dict[str, Any]:
        if self.config.get("model_max_length"):
            # max_position_embeddings of the published models is that of a first stage of training.
            self.config.given["max_position_embeddings"] = self.config.int("model_max_length")
        return self.size_keys() | self.head_keys() | self.rope_keys() | {
            "attention.layer_norm_epsilon": self.config.float("layer_norm_eps"),
            "logit_scale": self.config.float("logit_scale"),
            "rope.scaling.type": "none",
        }

    def model(self) -> Table:
        return without_biases(super().model())

    def layer(self) -> Table:
        table = super().layer() | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
        del table["post_attention_layernorm"]
        return without_biases(table)


class Cohere2(CommandR):
    """Command R7B and A: windows, and in every fourth layer all positions but no rotary embedding."""

    name = "cohere2"
    model_types = ("cohere2",)
    defaults = CommandR.defaults | {"sliding_window": 4096}

    def keys(self) -> dict[str, Any]:
        keys = super().keys() | {"attention.sliding_window": self.config.int("sliding_window")}
        windowed = self.windowed(4)
        if windowed != [(i + 1) % 4 != 0 for i in range(self.n_layer)]:
            keys["attention.sliding_window_pattern"] = windowed
        return keys


def without_biases(table: Table) -> Table:
    """The table for checkpoints that carry biases of zeros."""
    return table | {f"{key}.bias": Split((), nothing) for key in table}
