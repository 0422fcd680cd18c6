"""Qwen 2 (and 2.5) and 3, with and without experts."""

from typing import Any

from mapping import Table

from .base import Architecture
from .experts import expert_keys, n_expert, swiglu_experts


class Qwen2(Architecture):
    name = "qwen2"
    model_types = ("qwen2",)
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 32768}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        # The published models have windows in their configurations, and all of them switch them off.
        self.config.only("use_sliding_window", False)


class Qwen3(Qwen2):
    name = "qwen3"
    model_types = ("qwen3",)
    defaults = Qwen2.defaults | {"head_dim": 128}

    def layer(self) -> Table:
        return super().layer() | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


class Qwen2Moe(Qwen2):
    name = "qwen2moe"
    model_types = ("qwen2_moe",)
    defaults = Qwen2.defaults | {"num_experts": 60, "num_experts_per_tok": 4}

    def check(self) -> None:
        super().check()
        self.config.only("decoder_sparse_step", 1)
        self.config.only("mlp_only_layers", [])
        self.check_router()

    def check_router(self) -> None:
        self.config.only("norm_topk_prob", False)

    def keys(self) -> dict[str, Any]:
        c = self.config
        keys = super().keys()
        keys |= expert_keys(n_expert(c), c.int("num_experts_per_tok"), c.int("moe_intermediate_size"))
        if c.get("shared_expert_intermediate_size"):
            keys["expert_shared_feed_forward_length"] = c.int("shared_expert_intermediate_size")
        return keys

    def layer(self) -> Table:
        return super().layer() | swiglu_experts(n_expert(self.config)) | {
            "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
            "mlp.shared_expert.up_proj": "ffn_up_shexp",
            "mlp.shared_expert.down_proj": "ffn_down_shexp",
            "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
        }


class Qwen3Moe(Qwen2Moe):
    name = "qwen3moe"
    model_types = ("qwen3_moe",)
    defaults = Qwen2.defaults | {"num_experts": 128, "num_experts_per_tok": 8}

    def check_router(self) -> None:
        # Readers of this architecture always normalise; the class's own default would not.
        self.config.only("norm_topk_prob", True)

    def layer(self) -> Table:
        return super().layer() | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
