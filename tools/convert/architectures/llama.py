"""Llama and what is shaped like it: Mistral, SmolLM2, Yi, DeepSeek-LLM, and Mixtral's mixture of experts."""

from typing import Any

from mapping import Rename, Table, permute_pairs

from .base import Architecture
from .experts import expert_keys, swiglu_experts


class Llama(Architecture):
    name = "llama"
    model_types = ("llama", "mistral", "mixtral", "yi")
    rope_types = ("default", "linear", "yarn", "llama3")
    defaults = {
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 2048,
        "num_local_experts": None, "num_experts_per_tok": 2,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")

    @property
    def n_expert(self) -> int:
        return self.config.get("num_local_experts", default=0) if self.config.get("model_type") == "mixtral" else 0

    def keys(self) -> dict[str, Any]:
        keys = super().keys()
        window = self.config.get("sliding_window")
        if window and self.config.get("use_sliding_window", default=True):
            # Mistral's. Readers that do not know it attend to all positions.
            keys["attention.sliding_window"] = int(window)
        if self.n_expert:
            keys |= expert_keys(self.n_expert, self.config.int("num_experts_per_tok"))
        return keys

    def layer(self) -> Table:
        table = super().layer() | {
            "self_attn.q_proj": Rename("attn_q", permute_pairs(self.n_head)),
            "self_attn.k_proj": Rename("attn_k", permute_pairs(self.n_head_kv)),
        }
        if self.n_expert:
            table |= swiglu_experts(self.n_expert)
        return table
