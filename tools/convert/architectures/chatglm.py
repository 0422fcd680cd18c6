"""GLM-4 of 2024 (`glm-4-9b-hf`): half of each head rotates, biases of q, k and v alone."""

from mapping import Table

from .base import Architecture


class ChatGlm(Architecture):
    name = "chatglm"
    model_types = ("glm",)
    defaults = {
        "rms_norm_eps": 1.5625e-07, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "head_dim": 128,
        "num_key_value_heads": 2, "max_position_embeddings": 131072,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")

    def layer(self) -> Table:
        table = super().layer() | {"mlp.gate_up_proj": "ffn_up"}
        return {key: rule for key, rule in table.items() if key not in ("mlp.gate_proj", "mlp.up_proj")}
