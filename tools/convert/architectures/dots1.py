"""dots.llm1: dense layers first, then experts chosen by a sigmoid and a learned bias, with shared ones."""

from typing import Any

from mapping import Table

from .base import Architecture
from .experts import GATING, expert_keys, swiglu_experts


class Dots1(Architecture):
    name = "dots1"
    model_types = ("dots1",)
    defaults = {
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 2048, "first_k_dense_replace": 0,
        "routed_scaling_factor": 1.0, "norm_topk_prob": False, "n_shared_experts": 0,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("n_group", 1)
        self.config.only("topk_group", 1)
        self.config.only("layer_types", ["full_attention"] * self.n_layer)

    def keys(self) -> dict[str, Any]:
        c = self.config
        n_ff, shared = c.int("moe_intermediate_size"), c.int("n_shared_experts")
        keys = super().keys() | expert_keys(c.int("n_routed_experts"), c.int("num_experts_per_tok"), n_ff) | {
            "leading_dense_block_count": c.int("first_k_dense_replace"),
            "expert_shared_count": shared,
            "expert_weights_scale": c.float("routed_scaling_factor"),
            "expert_weights_norm": c.flag("norm_topk_prob"),
            "expert_gating_func": GATING["sigmoid"],
        }
        if shared:
            keys["expert_shared_feed_forward_length"] = shared * n_ff
        return keys

    def layer(self) -> Table:
        return super().layer() | swiglu_experts(self.config.int("n_routed_experts")) | {
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
            "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
            "mlp.shared_experts.up_proj": "ffn_up_shexp",
            "mlp.shared_experts.down_proj": "ffn_down_shexp",
        }
