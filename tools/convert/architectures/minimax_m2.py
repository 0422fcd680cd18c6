"""MiniMax M2: experts chosen by a sigmoid and a learned bias, norms over the whole of q and k, half of each head rotates."""

from typing import Any

from mapping import Table

from .base import Architecture
from .experts import GATING, expert_keys, n_expert, swiglu_experts


class MiniMaxM2(Architecture):
    name = "minimax-m2"
    model_types = ("minimax_m2",)
    defaults = {
        "rms_norm_eps": 1e-6, "rope_theta": 5000000.0, "head_dim": 128, "max_position_embeddings": 196608,
        "num_local_experts": 256, "num_experts_per_tok": 8,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("scoring_func", "sigmoid")
        self.config.only("use_qk_norm", True)
        self.config.only("qk_norm_type", "per_layer")

    @property
    def n_rot(self) -> int:
        return self.config.int("rotary_dim") if self.config.get("rotary_dim") else super().n_rot

    def keys(self) -> dict[str, Any]:
        c = self.config
        n_ff = c.int("intermediate_size")
        keys = super().keys() | expert_keys(n_expert(c), c.int("num_experts_per_tok"), n_ff)
        return keys | {"expert_gating_func": GATING["sigmoid"]}

    def layer(self) -> Table:
        return super().layer() | swiglu_experts(n_expert(self.config)) | {
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "mlp.e_score_correction_bias": "exp_probs_b.bias",
            "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
        }
