"""gpt-oss: experts in MXFP4, attention sinks, alternating windows, and YaRN whose ramp is not rounded."""

from typing import Any

import numpy as np

from mapping import Join, Rename, Split, Table, transpose

from .base import Architecture
from .experts import expert_keys, n_expert, stacked


class GptOss(Architecture):
    name = "gpt-oss"
    model_types = ("gpt_oss",)
    rope_types = ("yarn",)
    truncated_yarn = False
    # The checkpoint's own blocks are taken over; see `mxfp4`.
    quantizations = ("mxfp4",)
    defaults = {
        "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "head_dim": 64, "max_position_embeddings": 131072,
        "sliding_window": 128, "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("attention_bias", True)
        self.config.only("swiglu_alpha", 1.702)
        self.config.only("swiglu_limit", 7.0)
        pattern = [("sliding_attention", "full_attention")[i % 2] for i in range(self.n_layer)]
        self.config.only("layer_types", pattern)

    def keys(self) -> dict[str, Any]:
        c = self.config
        n_ff = c.int("intermediate_size")
        return super().keys() | expert_keys(n_expert(c), c.int("num_experts_per_tok", "experts_per_token"), n_ff) | {
            "attention.sliding_window": c.int("sliding_window"),
        }

    def layer(self) -> Table:
        count = n_expert(self.config)
        gate_up = ("ffn_gate_exps.weight", "ffn_up_exps.weight")
        halves = ("blocks", "scales")
        return super().layer() | {
            "post_attention_layernorm": "post_attention_norm",
            "self_attn.sinks": "attn_sinks.weight",
            "mlp.router": "ffn_gate_inp",
            "mlp.experts.gate_up_proj": Split(gate_up, lambda w: alternate(transpose(stacked(count, w)))),
            "mlp.experts.gate_up_proj_bias": Split(("ffn_gate_exps.bias", "ffn_up_exps.bias"), alternate),
            "mlp.experts.down_proj": Rename("ffn_down_exps.weight", lambda w: transpose(stacked(count, w))),
            "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
        } | {
            f"mlp.experts.gate_up_proj_{part}": Join(
                "gate_up", part, halves, gate_up, lambda b, s: alternate(mxfp4(b, s))
            )
            for part in halves
        } | {
            f"mlp.experts.down_proj_{part}": Join(
                "down", part, halves, ("ffn_down_exps.weight",), lambda b, s: (mxfp4(b, s),)
            )
            for part in halves
        }


def alternate(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The even and the odd rows (or elements) of each expert: gate and up are interleaved."""
    return np.ascontiguousarray(w[:, ::2]), np.ascontiguousarray(w[:, 1::2])


def mxfp4(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The bytes of GGUF's MXFP4 rows: a scale, then 16 bytes for 32 elements.

    In the checkpoint, `blocks` `[.., n_blocks, 16]` hold elements 2i and 2i + 1 in the low and high half of byte i; in
    GGUF, byte i holds elements i and i + 16.
    """
    if blocks.dtype != np.uint8 or scales.dtype != np.uint8 or blocks.shape != (*scales.shape, 16):
        raise ValueError(f"blocks and scales {list(scales.shape)} do not go together")
    elements = np.stack([blocks & 0xF, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    packed = elements[..., :16] | (elements[..., 16:] << 4)
    rows = np.concatenate([scales[..., None], packed], axis=-1)
    return rows.reshape(*scales.shape[:-1], -1)
