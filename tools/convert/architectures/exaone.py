"""EXAONE 3 to 4."""

from typing import Any

from mapping import Table

from .base import Architecture


class Exaone(Architecture):
    """EXAONE 3 and 3.5."""

    name = "exaone"
    model_types = ("exaone",)
    prefixes = ("transformer.",)
    layers = "h"
    rope_types = ("default", "linear", "llama3")
    defaults = {"layer_norm_epsilon": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 2048}

    def check(self) -> None:
        self.config.only("activation_function", "silu")

    @property
    def n_layer(self) -> int:
        return self.config.int("num_layers", "num_hidden_layers")

    def keys(self) -> dict[str, Any]:
        self.config.defaults["rms_norm_eps"] = self.config.float("layer_norm_epsilon")
        return super().keys()

    def model(self) -> Table:
        return {"wte": "token_embd", "ln_f": "output_norm", "lm_head": "output"}

    def layer(self) -> Table:
        return {
            "ln_1": "attn_norm",
            "attn.attention.q_proj": "attn_q",
            "attn.attention.k_proj": "attn_k",
            "attn.attention.v_proj": "attn_v",
            "attn.attention.out_proj": "attn_output",
            "ln_2": "ffn_norm",
            "mlp.c_fc_0": "ffn_gate",
            "mlp.c_fc_1": "ffn_up",
            "mlp.c_proj": "ffn_down",
        }


class Exaone4(Architecture):
    """EXAONE 4: norms behind each part and over the heads of q and k; windows in most layers of the large one."""

    name = "exaone4"
    model_types = ("exaone4",)
    rope_types = ("default", "linear", "llama3")
    defaults = {"rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "max_position_embeddings": 2048}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")

    def keys(self) -> dict[str, Any]:
        keys = super().keys()
        if self.config.get("sliding_window"):
            # The layers without a window have no rotary embedding either.
            keys["attention.sliding_window"] = self.config.int("sliding_window")
            keys["attention.sliding_window_pattern"] = self.windowed(4)
        return keys

    def layer(self) -> Table:
        table = super().layer() | {
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "post_attention_layernorm": "post_attention_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
        del table["input_layernorm"]
        return table
