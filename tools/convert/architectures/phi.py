"""Phi 1 and 2, and Phi 3 and 4: q, k and v in one matrix, rotary factors for long contexts."""

import math
from typing import Any

import numpy as np

from mapping import Table

from .base import Architecture
from .rope import long_rope_factors


class Phi2(Architecture):
    name = "phi2"
    model_types = ("phi",)
    rope_types = ("default", "linear")
    defaults = {
        "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "max_position_embeddings": 2048,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "gelu_new", "gelu_pytorch_tanh")
        self.config.only("qk_layernorm", False)

    def keys(self) -> dict[str, Any]:
        eps = {"attention.layer_norm_epsilon": self.config.float("layer_norm_eps", "layer_norm_epsilon")}
        self.config.defaults["intermediate_size"] = 4 * self.n_embd
        return self.size_keys() | self.head_keys() | eps | self.rope_keys()

    def model(self) -> Table:
        return {"embed_tokens": "token_embd", "final_layernorm": "output_norm", "lm_head": "output"}

    def layer(self) -> Table:
        return {
            "input_layernorm": "attn_norm",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.dense": "attn_output",
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
        }


class Phi3(Architecture):
    name = "phi3"
    model_types = ("phi3",)
    rope_types = ("default", "longrope", "su")
    defaults = {"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("attention_bias", False)

    @property
    def n_ctx_original(self) -> int:
        """Positions before the extension."""
        original = self.config.rope().get("original_max_position_embeddings")
        return int(original) if original else self.config.int("max_position_embeddings")

    def keys(self) -> dict[str, Any]:
        # 0, which says that there is no window, tells Phi 4 from its elder siblings.
        window = {"attention.sliding_window": int(self.config.get("sliding_window", default=0))}
        return super().keys() | window

    def rope_keys(self) -> dict[str, Any]:
        keys = super().rope_keys() | {"rope.scaling.original_context_length": self.n_ctx_original}
        rope = self.config.rope()
        if rope["rope_type"] != "default":
            keys["rope.scaling.attn_factor"] = self.attention_factor(rope)
        return keys

    def attention_factor(self, rope: dict[str, Any]) -> float:
        """By what sines and cosines are multiplied."""
        if rope.get("attention_factor") is not None:
            return float(rope["attention_factor"])
        extension = rope.get("factor") or self.config.int("max_position_embeddings") / self.n_ctx_original
        return math.sqrt(1.0 + math.log(extension) / math.log(self.n_ctx_original)) if extension > 1.0 else 1.0

    def layer(self) -> Table:
        return {
            "input_layernorm": "attn_norm",
            "self_attn.qkv_proj": "attn_qkv",
            "self_attn.o_proj": "attn_output",
            "post_attention_layernorm": "ffn_norm",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        }

    def constants(self) -> dict[str, np.ndarray]:
        rope = self.config.rope()
        return {} if rope["rope_type"] == "default" else long_rope_factors(rope, self.n_rot)
