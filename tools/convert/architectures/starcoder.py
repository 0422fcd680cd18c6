"""StarCoder 1 and 2."""

from typing import Any

from mapping import Table

from .base import Architecture


class Starcoder(Architecture):
    """StarCoder 1: learned positions, and one head of keys and values."""

    name = "starcoder"
    model_types = ("gpt_bigcode",)
    prefixes = ("transformer.",)
    layers = "h"
    tied = True
    defaults = {"layer_norm_epsilon": 1e-5, "vocab_size": 50257, "num_key_value_heads": 1}

    def check(self) -> None:
        self.config.only("multi_query", True)
        self.config.only("activation_function", "gelu_pytorch_tanh")
        self.config.only("scale_attn_weights", True)

    def keys(self) -> dict[str, Any]:
        self.config.defaults["n_inner"] = 4 * self.n_embd
        eps = {"attention.layer_norm_epsilon": self.config.float("layer_norm_epsilon")}
        return self.size_keys() | self.head_keys() | eps

    def model(self) -> Table:
        return {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output"}

    def layer(self) -> Table:
        return {
            "ln_1": "attn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            "attn.bias": None,  # The causal mask of old checkpoints.
            "ln_2": "ffn_norm",
            "mlp.c_fc": "ffn_up",
            "mlp.c_proj": "ffn_down",
        }


class Starcoder2(Architecture):
    """LayerNorm, biases and no gate."""

    name = "starcoder2"
    model_types = ("starcoder2",)
    tied = True
    rope_types = ("default", "linear")
    defaults = {"norm_epsilon": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096}

    def check(self) -> None:
        self.config.only("hidden_act", "gelu_pytorch_tanh")
        self.config.only("use_bias", True)

    def keys(self) -> dict[str, Any]:
        keys = self.size_keys() | self.head_keys() | self.rope_keys()
        if self.config.get("sliding_window"):
            keys["attention.sliding_window"] = self.config.int("sliding_window")
        return keys | {"attention.layer_norm_epsilon": self.config.float("norm_epsilon")}

    def layer(self) -> Table:
        table = super().layer() | {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
        gone = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
        return {key: rule for key, rule in table.items() if key not in gone}
