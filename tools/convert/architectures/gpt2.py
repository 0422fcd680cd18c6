"""GPT-2: learned positions, one matrix for q, k and v, and linear layers stored the other way round."""

from typing import Any

from mapping import Rename, Table, transpose

from .base import Architecture


class Gpt2(Architecture):
    name = "gpt2"
    model_types = ("gpt2",)
    prefixes = ("transformer.",)
    layers = "h"
    tied = True
    defaults = {"layer_norm_epsilon": 1e-5, "vocab_size": 50257}

    def check(self) -> None:
        self.config.only("activation_function", "gelu_new", "gelu_pytorch_tanh")
        self.config.only("scale_attn_weights", True)
        self.config.only("scale_attn_by_inverse_layer_idx", False)
        self.config.only("add_cross_attention", False)

    def keys(self) -> dict[str, Any]:
        return self.size_keys() | {
            "attention.head_count": self.n_head,
            "attention.layer_norm_epsilon": self.config.float("layer_norm_epsilon"),
        }

    def size_keys(self) -> dict[str, Any]:
        self.config.defaults["n_inner"] = 4 * self.n_embd
        return super().size_keys()

    def model(self) -> Table:
        return {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output"}

    def layer(self) -> Table:
        return {
            "ln_1": "attn_norm",
            "attn.c_attn": Rename("attn_qkv", transpose),
            "attn.c_proj": Rename("attn_output", transpose),
            "attn.bias": None,  # The causal mask of old checkpoints.
            "ln_2": "ffn_norm",
            "mlp.c_fc": Rename("ffn_up", transpose),
            "mlp.c_proj": Rename("ffn_down", transpose),
        }
