"""Arcee Trinity (AFMoE): gated attention with windows, dense layers first, then experts with shared ones."""

from typing import Any

from mapping import Table

from .base import Architecture
from .experts import GATING, expert_keys, n_expert, swiglu_experts


class AfMoe(Architecture):
    name = "afmoe"
    model_types = ("afmoe",)
    defaults = {
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 16384, "head_dim": 128, "num_experts": 64,
        "num_experts_per_tok": 6, "num_shared_experts": 2, "num_dense_layers": 1, "route_scale": 1.0, "sliding_window": 1024,
        "mup_enabled": False,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        # Readers always multiply the embedding by the root of its width.
        self.config.only("mup_enabled", True)
        self.config.only("score_func", "sigmoid")
        self.config.only("route_norm", True)
        self.config.only("n_group", 1)
        self.config.only("topk_group", 1)
        self.config.only("global_attn_every_n_layers", 4)
        windowed = [(i + 1) % 4 != 0 for i in range(self.n_layer)]
        self.config.only("layer_types", ["sliding_attention" if w else "full_attention" for w in windowed])

    def keys(self) -> dict[str, Any]:
        c = self.config
        n_ff, shared = c.int("moe_intermediate_size"), c.int("num_shared_experts")
        return super().keys() | expert_keys(n_expert(c), c.int("num_experts_per_tok"), n_ff) | {
            "leading_dense_block_count": c.int("num_dense_layers"),
            "expert_shared_count": shared,
            "expert_weights_scale": c.float("route_scale"),
            "expert_weights_norm": True,
            "expert_gating_func": GATING["sigmoid"],
            "attention.sliding_window": c.int("sliding_window"),
        }

    def layer(self) -> Table:
        return super().layer() | swiglu_experts(n_expert(self.config)) | {
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "self_attn.gate_proj": "attn_gate",
            "post_attention_layernorm": "post_attention_norm",
            "pre_mlp_layernorm": "ffn_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "mlp.router.gate.weight": "ffn_gate_inp.weight",
            "mlp.expert_bias": "exp_probs_b.bias",
            "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
            "mlp.shared_experts.up_proj": "ffn_up_shexp",
            "mlp.shared_experts.down_proj": "ffn_down_shexp",
        }
