"""Mixtures of experts: their keys, and the ways in which checkpoints store the same stack of matrices."""

from typing import Any

import numpy as np

from hf_config import Config
from mapping import Rename, Split, Stack, Table

# `expert_gating_func`.
GATING = {"softmax": 1, "sigmoid": 2}


def expert_keys(n_expert: int, n_used: int, n_ff: int | None = None) -> dict[str, Any]:
    """The number of experts, how many a token uses, and their width where it differs from `feed_forward_length`."""
    keys = {"expert_count": int(n_expert), "expert_used_count": int(n_used)}
    if n_ff is not None:
        keys["expert_feed_forward_length"] = int(n_ff)
    return keys


def n_expert(config: Config) -> int:
    """The number of experts of a layer, under whichever name."""
    return config.int("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def stacked(count: int, w: np.ndarray) -> np.ndarray:
    """A tensor of all experts, checked to be of that many."""
    if len(w) != count:
        raise ValueError(f"it is of {len(w)} experts instead of {count}")
    return w


def swiglu_experts(count: int) -> Table:
    """A SwiGLU mixture: one matrix an expert, in either naming, or transformers 5's `[n_expert, 2 * n_ff, n_embd]`."""
    return {
        "mlp.gate.weight": "ffn_gate_inp.weight",
        "mlp.router.weight": "ffn_gate_inp.weight",
        "mlp.experts.#.gate_proj.weight": Stack("ffn_gate_exps.weight", count),
        "mlp.experts.#.up_proj.weight": Stack("ffn_up_exps.weight", count),
        "mlp.experts.#.down_proj.weight": Stack("ffn_down_exps.weight", count),
        "mlp.experts.gate_up_proj": Split(
            ("ffn_gate_exps.weight", "ffn_up_exps.weight"), lambda w: np.split(stacked(count, w), 2, 1)
        ),
        "mlp.experts.down_proj": Rename("ffn_down_exps.weight", lambda w: stacked(count, w)),
        "block_sparse_moe.gate.weight": "ffn_gate_inp.weight",
        "block_sparse_moe.experts.#.w1.weight": Stack("ffn_gate_exps.weight", count),
        "block_sparse_moe.experts.#.w3.weight": Stack("ffn_up_exps.weight", count),
        "block_sparse_moe.experts.#.w2.weight": Stack("ffn_down_exps.weight", count),
    }
