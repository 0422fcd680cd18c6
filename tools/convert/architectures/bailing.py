"""Ling lite and plus (Bailing): Llama's attention in one matrix, every layer a mixture with shared experts."""

from typing import Any

import numpy as np

from hf_config import ConvertError
from mapping import Rename, Split, Table, permute_pairs

from .base import Architecture
from .experts import expert_keys, n_expert, swiglu_experts


class Bailing(Architecture):
    name = "bailingmoe"
    model_types = ("bailing_moe",)
    defaults = {
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 16384, "norm_topk_prob": True,
        "num_shared_experts": 0, "first_k_dense_replace": 0,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("norm_softmax", False)
        self.config.only("first_k_dense_replace", 0)

    def keys(self) -> dict[str, Any]:
        c = self.config
        n_ff, shared = c.int("moe_intermediate_size"), c.int("num_shared_experts")
        if not shared:
            raise ConvertError("bailingmoe files have shared experts, and config.json has none")
        return super().keys() | expert_keys(n_expert(c), c.int("num_experts_per_tok"), n_ff) | {
            "expert_shared_count": shared,
            "expert_weights_norm": c.flag("norm_topk_prob"),
        }

    def split_heads(self, w: np.ndarray) -> tuple[np.ndarray, ...]:
        """To q, k and v, the pairs of the former two side by side."""
        q, k = self.n_head * self.head_dim, self.n_head_kv * self.head_dim
        q, k, v = np.split(w, [q, q + k])
        return permute_pairs(self.n_head)(q), permute_pairs(self.n_head_kv)(k), v

    def head(self, w: np.ndarray) -> np.ndarray:
        """The output matrix; some models divide each of its columns by its length."""
        if not self.config.flag("norm_head"):
            return w
        w = w.astype(np.float32)
        return w / (np.linalg.norm(w, axis=0, keepdims=True) + np.float32(1e-7))

    def model(self) -> Table:
        return {"word_embeddings": "token_embd", "norm": "output_norm", "lm_head": Rename("output", self.head)}

    def layer(self) -> Table:
        return super().layer() | swiglu_experts(n_expert(self.config)) | {
            "attention.query_key_value": Split(("attn_q", "attn_k", "attn_v"), self.split_heads),
            "attention.dense": "attn_output",
            "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
            "mlp.shared_experts.up_proj": "ffn_up_shexp",
            "mlp.shared_experts.down_proj": "ffn_down_shexp",
        }
