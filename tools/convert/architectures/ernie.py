"""ERNIE 4.5, dense and with experts."""

from typing import Any

from mapping import Rename, Table

from .base import Architecture
from .experts import GATING, expert_keys, n_expert, swiglu_experts


class Ernie(Architecture):
    name = "ernie4_5"
    model_types = ("ernie4_5",)
    tied = True
    prefixes = ("model.", "ernie.")
    defaults = {"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 131072}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("use_bias", False)


class ErnieMoe(Ernie):
    name = "ernie4_5-moe"
    model_types = ("ernie4_5_moe",)
    # Layers for predicting further tokens, which no reader uses.
    dropped_prefixes = ("model.mtp_",)
    defaults = Ernie.defaults | {
        "moe_num_experts": 64, "moe_k": 6, "moe_layer_start_index": 1, "moe_layer_interval": 1,
        "moe_num_shared_experts": 2,
    }

    def check(self) -> None:
        super().check()
        self.config.only("moe_layer_end_index", -1, self.n_layer - 1)
        self.config.only("moe_layer_interval", 1)

    def keys(self) -> dict[str, Any]:
        c = self.config
        shared = c.int("moe_num_shared_experts")
        keys = super().keys() | expert_keys(
            n_expert(c), c.int("moe_k", "num_experts_per_tok"), c.int("moe_intermediate_size")
        )
        keys |= {
            "interleave_moe_layer_step": c.int("moe_layer_interval"),
            "leading_dense_block_count": c.int("moe_layer_start_index"),
            "expert_shared_count": shared,
            "expert_gating_func": GATING["softmax"],
        }
        if shared:
            keys["expert_shared_feed_forward_length"] = shared * c.int("moe_intermediate_size")
        return keys

    def layer(self) -> Table:
        bias = Rename("exp_probs_b.bias", lambda w: w.reshape(-1))
        return super().layer() | swiglu_experts(n_expert(self.config)) | {
            "mlp.moe_statics.e_score_correction_bias": bias,
            "mlp.gate.moe_statics.e_score_correction_bias": bias,
            "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
            "mlp.shared_experts.up_proj": "ffn_up_shexp",
            "mlp.shared_experts.down_proj": "ffn_down_shexp",
        }
