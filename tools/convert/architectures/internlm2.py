"""InternLM 2 and 2.5: q, k and v in one matrix, group by group."""

import numpy as np

from mapping import Split, Table, permute_pairs

from .base import Architecture


class InternLm2(Architecture):
    name = "internlm2"
    model_types = ("internlm2",)
    rope_types = ("default", "linear")
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 2048}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("bias", False)
        if self.config.rope()["rope_type"] == "dynamic":
            # The scaling acts beyond the context that the model was trained for, and files state that context.
            self.config.given.pop("rope_scaling", None)

    def split_groups(self, w: np.ndarray) -> tuple[np.ndarray, ...]:
        """From groups of some q heads with their k and v, to q, k and v, the pairs of the former two side by side."""
        per_group = self.n_head // self.n_head_kv
        w = w.reshape(self.n_head_kv, per_group + 2, self.head_dim, *w.shape[1:])
        q, k, v = (part.reshape(-1, *w.shape[3:]) for part in (w[:, :per_group], w[:, per_group], w[:, per_group + 1]))
        return permute_pairs(self.n_head)(q), permute_pairs(self.n_head_kv)(k), v

    def model(self) -> Table:
        return {"tok_embeddings": "token_embd", "norm": "output_norm", "output": "output"}

    def layer(self) -> Table:
        return {
            "attention_norm": "attn_norm",
            "attention.wqkv": Split(("attn_q", "attn_k", "attn_v"), self.split_groups),
            "attention.wo": "attn_output",
            "ffn_norm": "ffn_norm",
            "feed_forward.w1": "ffn_gate",
            "feed_forward.w3": "ffn_up",
            "feed_forward.w2": "ffn_down",
        }
