"""GLM-4 of 2025, dense (`-0414`) and with experts (4.5)."""

from mapping import Table

from .base import Architecture
from .dots1 import Dots1


class Glm4(Architecture):
    """GLM-4 of 2025 (`-0414`): a norm before and behind each part, half of each head rotates."""

    name = "glm4"
    model_types = ("glm4",)
    defaults = {
        "rms_norm_eps": 1.5625e-07, "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "max_position_embeddings": 131072,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")

    def layer(self) -> Table:
        table = super().layer() | {
            "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "mlp.gate_up_proj": "ffn_up",
        }
        return {key: rule for key, rule in table.items() if key not in ("mlp.gate_proj", "mlp.up_proj")}


class Glm4Moe(Dots1):
    name = "glm4moe"
    model_types = ("glm4_moe",)
    defaults = Dots1.defaults | {
        "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "max_position_embeddings": 131072,
        "first_k_dense_replace": 1, "n_shared_experts": 1, "norm_topk_prob": True, "num_nextn_predict_layers": 0,
    }

    @property
    def dropped_prefixes(self) -> tuple[str, ...]:
        """Layers for predicting further tokens stand behind the others."""
        extra = self.config.int("num_nextn_predict_layers")
        return tuple(f"model.layers.{self.n_layer + i}." for i in range(extra))

    def layer(self) -> Table:
        return super().layer() | {"post_attention_layernorm": "post_attention_norm"}
