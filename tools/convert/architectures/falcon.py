"""Falcon 7B and 40B: attention and feed-forward part side by side, behind one norm or two."""

from typing import Any

import numpy as np

from mapping import Rename, Table

from .base import Architecture


class Falcon(Architecture):
    name = "falcon"
    model_types = ("falcon", "RefinedWeb", "RefinedWebModel")
    prefixes = ("transformer.",)
    layers = "h"
    tied = True
    rope_types = ("default", "linear")
    defaults = {
        "layer_norm_epsilon": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 2048,
        "multi_query": True, "parallel_attn": True,
    }

    def check(self) -> None:
        self.config.only("alibi", False)
        self.config.only("bias", False)
        self.config.only("parallel_attn", True)
        self.config.only("activation", "gelu")

    @property
    def n_head_kv(self) -> int:
        c = self.config
        if c.get("model_type") == "RefinedWeb" or c.flag("new_decoder_architecture"):
            return int(c.get("num_kv_heads", "n_head_kv", default=self.n_head))
        return 1 if c.flag("multi_query") else self.n_head

    def keys(self) -> dict[str, Any]:
        n_ff = int(self.config.get("ffn_hidden_size", default=4 * self.n_embd))
        self.config.defaults["intermediate_size"] = n_ff
        return self.size_keys() | self.head_keys() | self.rope_keys() | {
            "feed_forward_length": n_ff,
            "attention.layer_norm_epsilon": self.config.float("layer_norm_epsilon"),
            "tensor_data_layout": "jploski",  # The name that files give to rows in the order q, k, v.
        }

    def rows_in_order(self, w: np.ndarray) -> np.ndarray:
        """From groups of some q heads with their k and v, to all of q, then k, then v."""
        groups, per_group = self.n_head_kv, self.n_head // self.n_head_kv
        w = w.reshape(groups, per_group + 2, self.head_dim, *w.shape[1:])
        q, k, v = w[:, :per_group], w[:, per_group], w[:, per_group + 1]
        return np.concatenate([part.reshape(-1, *w.shape[3:]) for part in (q, k, v)])

    def model(self) -> Table:
        return {"word_embeddings": "token_embd", "ln_f": "output_norm", "lm_head": "output"}

    def layer(self) -> Table:
        return {
            "input_layernorm": "attn_norm",
            "ln_mlp": "attn_norm",
            "ln_attn": "attn_norm_2",
            "self_attention.query_key_value": Rename("attn_qkv", self.rows_in_order),
            "self_attention.dense": "attn_output",
            "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        }
