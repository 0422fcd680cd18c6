"""StableLM 3B, 2 1.6B and 2 12B: partial rotary embedding; in the last a parallel residual and a norm for each head."""

from typing import Any

from mapping import Stack, Table

from .base import Architecture


class StableLm(Architecture):
    name = "stablelm"
    model_types = ("stablelm", "stablelm_epoch")
    rope_types = ("default", "linear")
    defaults = {
        "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "rope_theta": 10000.0, "max_position_embeddings": 4096,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")

    def keys(self) -> dict[str, Any]:
        return self.size_keys() | self.head_keys() | self.rope_keys() | {
            "attention.layer_norm_epsilon": self.config.float("layer_norm_eps", "norm_eps"),
            "use_parallel_residual": self.config.flag("use_parallel_residual"),
        }

    def layer(self) -> Table:
        return super().layer() | {
            "self_attn.q_layernorm.norms.#": Stack("attn_q_norm", self.n_head),
            "self_attn.k_layernorm.norms.#": Stack("attn_k_norm", self.n_head_kv),
        }
