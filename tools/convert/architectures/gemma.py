"""Gemma 1 to 3: norms that scale by `1 + w`, and windows."""

from typing import Any

from mapping import Table

from .base import IMAGES, Architecture


class Gemma(Architecture):
    name = "gemma"
    model_types = ("gemma",)
    tied = True
    defaults = {
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "head_dim": 256, "max_position_embeddings": 8192,
        "vocab_size": 256000,
    }

    def check(self) -> None:
        # The first release named the exact form; the models were trained with the approximation, and classes use that.
        self.config.only("hidden_activation", "gelu_pytorch_tanh")
        self.config.only("attention_bias", False)

    def model(self) -> Table:
        return self.with_plus_one(super().model())

    def layer(self) -> Table:
        return self.with_plus_one(self.plain_layer())

    def plain_layer(self) -> Table:
        """The layer's rules before `1 +`."""
        return super().layer()


class Gemma2(Gemma):
    name = "gemma2"
    model_types = ("gemma2",)
    # The number of layers by which readers know the model whose scores are scaled by n_embd / n_head.
    layers_of_27b = 46
    # Every so many layers, one sees all positions.
    window_period = 2
    defaults = Gemma.defaults | {
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0, "num_key_value_heads": 4, "num_attention_heads": 8,
    }

    def keys(self) -> dict[str, Any]:
        keys = super().keys() | self.window_keys() | self.scale_keys()
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if self.config.get(key):
                keys[key] = self.config.float(key)
        return keys

    def scale_keys(self) -> dict[str, Any]:
        """The factor of scores, where it is not what readers take it for."""
        share = self.n_layer == self.layers_of_27b
        assumed = self.n_embd // self.n_head if share else self.head_dim
        scalar = self.config.float("query_pre_attn_scalar")
        return {} if scalar == assumed else {"attention.scale": scalar**-0.5}

    def window_keys(self) -> dict[str, Any]:
        usual = [(i + 1) % self.window_period != 0 for i in range(self.n_layer)]
        windowed = self.windowed(self.window_period)
        keys: dict[str, Any] = {"attention.sliding_window": self.config.int("sliding_window")}
        if windowed != usual:
            keys["attention.sliding_window_pattern"] = windowed
        return keys

    def plain_layer(self) -> Table:
        return super().plain_layer() | {
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }


class Gemma3(Gemma2):
    name = "gemma3"
    model_types = ("gemma3_text", "gemma3")
    layers_of_27b = 62
    window_period = 6
    defaults = Gemma.defaults | {
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "num_key_value_heads": 4, "num_attention_heads": 8,
        "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "max_position_embeddings": 131072,
        "vocab_size": 262208,
    }
    text_prefixes = ("language_model.model.", "model.language_model.", "language_model.")
    dropped_prefixes = IMAGES

    def check(self) -> None:
        super().check()
        self.config.only("use_bidirectional_attention", False)

    def rope_keys(self) -> dict[str, Any]:
        local = self.windowed_rope()
        base = local["rope_theta"] if local else self.config.float("rope_local_base_freq")
        return super().rope_keys() | {"rope.freq_base_swa": float(base)}

    def plain_layer(self) -> Table:
        return super().plain_layer() | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
