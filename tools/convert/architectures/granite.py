"""Granite 3 and 4 without state-space layers: Llama with four multipliers, dense or with experts."""

from typing import Any

import numpy as np

from mapping import Rename, Split, Table, halves

from .experts import stacked
from .llama import Llama

MULTIPLIERS = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}


class Granite(Llama):
    name = "granite"
    model_types = ("granite",)
    defaults = Llama.defaults | {name: 1.0 for name in MULTIPLIERS}

    def keys(self) -> dict[str, Any]:
        return super().keys() | {key: self.config.float(name) for name, key in MULTIPLIERS.items()}


class GraniteMoe(Granite):
    name = "granitemoe"
    model_types = ("granitemoe", "granitemoeshared")
    defaults = Granite.defaults | {"num_local_experts": 8, "num_experts_per_tok": 2}

    @property
    def n_expert(self) -> int:
        return self.config.int("num_local_experts")

    @property
    def n_ff_shared(self) -> int:
        return int(self.config.get("shared_intermediate_size", default=0))

    def keys(self) -> dict[str, Any]:
        keys = super().keys()
        if self.n_ff_shared:
            keys["expert_shared_feed_forward_length"] = self.n_ff_shared
        return keys

    def layer(self) -> Table:
        count = self.n_expert
        gate_up = ("ffn_gate_exps.weight", "ffn_up_exps.weight")
        fused: Table = {
            "input_linear.weight": Split(gate_up, lambda w: np.split(stacked(count, w), 2, 1)),
            "experts.gate_up_proj": Split(gate_up, lambda w: np.split(stacked(count, w), 2, 1)),
            "output_linear.weight": Rename("ffn_down_exps.weight", lambda w: stacked(count, w)),
            "experts.down_proj": Rename("ffn_down_exps.weight", lambda w: stacked(count, w)),
            "router.layer.weight": "ffn_gate_inp.weight",
            "router.weight": "ffn_gate_inp.weight",
        }
        return super().layer() | {f"block_sparse_moe.{key}": rule for key, rule in fused.items()} | {
            "shared_mlp.input_linear.weight": Split(("ffn_gate_shexp.weight", "ffn_up_shexp.weight"), halves(0)),
            "shared_mlp.output_linear.weight": "ffn_down_shexp.weight",
        }
