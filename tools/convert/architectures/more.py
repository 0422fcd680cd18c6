"""Dense decoders that differ from `base.py` in a few lines each."""

from typing import Any

from mapping import Split, Table, nothing

from .base import Architecture


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


class CommandR(Architecture):
    """Cohere's Command R and Aya: attention and feed-forward part side by side behind one LayerNorm without bias."""

    name = "command-r"
    model_types = ("cohere",)
    tied = True
    rope_types = ("default",)
    defaults = {
        "layer_norm_eps": 1e-5, "rope_theta": 500000.0, "logit_scale": 0.0625, "max_position_embeddings": 8192,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("attention_bias", False)
        self.config.only("tie_word_embeddings", True)

    def keys(self) -> dict[str, Any]:
        if self.config.get("model_max_length"):
            # max_position_embeddings of the published models is that of a first stage of training.
            self.config.given["max_position_embeddings"] = self.config.int("model_max_length")
        return self.size_keys() | self.head_keys() | self.rope_keys() | {
            "attention.layer_norm_epsilon": self.config.float("layer_norm_eps"),
            "logit_scale": self.config.float("logit_scale"),
            "rope.scaling.type": "none",
        }

    def model(self) -> Table:
        return without_biases(super().model())

    def layer(self) -> Table:
        table = super().layer() | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
        del table["post_attention_layernorm"]
        return without_biases(table)


def without_biases(table: Table) -> Table:
    """The table for checkpoints that carry biases of zeros."""
    return table | {f"{key}.bias": Split((), nothing) for key in table}


class Cohere2(CommandR):
    """Command R7B and A: windows, and in every fourth layer all positions but no rotary embedding."""

    name = "cohere2"
    model_types = ("cohere2",)
    defaults = CommandR.defaults | {"sliding_window": 4096}

    def keys(self) -> dict[str, Any]:
        keys = super().keys() | {"attention.sliding_window": self.config.int("sliding_window")}
        types = self.config.get("layer_types")
        if types is not None:
            windowed = [kind == "sliding_attention" for kind in types]
        else:
            period = self.config.get("sliding_window_pattern", default=4)
            windowed = [(i + 1) % period != 0 for i in range(self.n_layer)]
        if windowed != [(i + 1) % 4 != 0 for i in range(self.n_layer)]:
            keys["attention.sliding_window_pattern"] = windowed
        return keys


class Nemotron(Architecture):
    """Nemotron 4 and Minitron: LayerNorm by `1 + w`, and a squared ReLU instead of a gate."""

    name = "nemotron"
    model_types = ("nemotron",)
    rope_types = ("default",)
    defaults = {"norm_eps": 1e-5, "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "max_position_embeddings": 4096}

    def check(self) -> None:
        self.config.only("hidden_act", "relu2")

    def keys(self) -> dict[str, Any]:
        return self.size_keys() | self.head_keys() | self.rope_keys() | {
            "attention.layer_norm_epsilon": self.config.float("norm_eps"),
            "rope.scaling.type": "none",
        }

    def model(self) -> Table:
        return self.with_plus_one(super().model())

    def layer(self) -> Table:
        table = super().layer()
        del table["mlp.gate_proj"]
        return self.with_plus_one(table)


class SeedOss(Architecture):
    name = "seed_oss"
    model_types = ("seed_oss",)
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "head_dim": 128, "max_position_embeddings": 524288}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("mlp_bias", False)

    def layer(self) -> Table:
        return super().layer() | {"post_attention_layernorm": "post_attention_norm"}


class Glm4(Architecture):
    """GLM-4 of 2025 (`-0414`): a norm before and behind each part, half of each head rotates."""

    name = "glm4"
    model_types = ("glm4",)
    defaults = {
        "rms_norm_eps": 1.5625e-07, "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "max_position_embeddings": 131072,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")

    def layer(self) -> Table:
        table = super().layer() | {
            "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "mlp.gate_up_proj": "ffn_up",
        }
        return {key: rule for key, rule in table.items() if key not in ("mlp.gate_proj", "mlp.up_proj")}
