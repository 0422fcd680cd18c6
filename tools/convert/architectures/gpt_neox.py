"""GPT-NeoX and Pythia: partial rotary embedding; attention and feed-forward part in parallel or in series."""

from typing import Any

import numpy as np

from mapping import Rename, Table

from .base import Architecture


class GptNeoX(Architecture):
    name = "gptneox"
    model_types = ("gpt_neox",)
    prefixes = ("gpt_neox.",)
    rope_types = ("default", "linear")
    defaults = {"layer_norm_eps": 1e-5, "rotary_pct": 0.25, "rotary_emb_base": 10000.0, "use_parallel_residual": True}

    def check(self) -> None:
        self.config.only("hidden_act", "gelu")
        self.config.only("attention_bias", True)

    def keys(self) -> dict[str, Any]:
        return self.size_keys() | {"attention.head_count": self.n_head} | self.rope_keys() | {
            "attention.layer_norm_epsilon": self.config.float("layer_norm_eps"),
            "use_parallel_residual": self.config.flag("use_parallel_residual"),
        }

    def rows_in_order(self, w: np.ndarray) -> np.ndarray:
        """From q, k and v head by head, to all of q, then k, then v."""
        return w.reshape(self.n_head, 3, self.head_dim, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)

    def model(self) -> Table:
        return {"embed_in": "token_embd", "final_layer_norm": "output_norm", "lm_head": "output", "embed_out": "output"}

    def layer(self) -> Table:
        return {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            "attention.query_key_value": Rename("attn_qkv", self.rows_in_order),
            "attention.dense": "attn_output",
            "attention.bias": None,  # The causal mask of old checkpoints.
            "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        }
