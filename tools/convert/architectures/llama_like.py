"""Close relatives of Llama whose files have names of their own: what is not said here is as in `llama.py`."""

from typing import Any

import numpy as np

from hf_config import ConvertError
from mapping import Rename, Split, Table, halves, permute_pairs

from .base import Architecture
from .gemma import IMAGES
from .llama import Llama, llama3_divisors


class SmolLm3(Llama):
    """Every fourth layer has no rotary embedding."""

    name = "smollm3"
    model_types = ("smollm3",)
    tied = True
    defaults = Llama.defaults | {"rope_theta": 2000000.0, "num_key_value_heads": 4, "max_position_embeddings": 32768}

    def check(self) -> None:
        super().check()
        self.config.only("use_sliding_window", False)
        given = self.config.get("no_rope_layers")
        if given is None:
            self.config.only("no_rope_layer_interval", 4)
        elif [bool(flag) for flag in given] != [(i + 1) % 4 != 0 for i in range(self.n_layer)]:
            raise ConvertError("smollm3 files can only express that every fourth layer has no rotary embedding")

    def keys(self) -> dict[str, Any]:
        keys = super().keys()
        keys.pop("attention.sliding_window", None)
        return keys


class Arcee(Llama):
    """The feed-forward part has a squared ReLU instead of a gate."""

    name = "arcee"
    model_types = ("arcee",)

    def check(self) -> None:
        self.config.only("hidden_act", "relu2")
        self.config.only("mlp_bias", False)

    def layer(self) -> Table:
        table = super().layer()
        del table["mlp.gate_proj"]
        return table


class Mistral3(Llama):
    """Ministral 3 and the text part of Mistral Small 3.1: queries grow with the position."""

    name = "mistral3"
    model_types = ("ministral3", "mistral3")
    rope_types = ("default", "yarn")
    text_prefixes = ("language_model.model.", "model.language_model.", "language_model.")
    dropped_prefixes = IMAGES

    def keys(self) -> dict[str, Any]:
        keys = super().keys()
        beta = self.config.rope().get("llama_4_scaling_beta")
        if beta:
            if "rope.scaling.original_context_length" not in keys:
                raise ConvertError("attention temperature without YaRN cannot be expressed in mistral3 files")
            keys["attention.temperature_scale"] = float(beta)
        return keys

    def yarn_keys(self, rope: dict[str, Any]) -> dict[str, Any]:
        """Readers of this architecture divide by the factor for `mscale_all_dim`, and take `mscale` for 1."""
        if not rope.get("mscale_all_dim") or rope.get("attention_factor") is not None:
            return super().yarn_keys(rope)
        if rope.get("mscale") != 1.0:
            raise ConvertError(f"YaRN's mscale of {rope.get('mscale')} cannot be expressed in mistral3 files, only 1")
        plain = {key: value for key, value in rope.items() if not key.startswith("mscale")}
        return super().yarn_keys(plain) | {"rope.scaling.yarn_log_multiplier": float(rope["mscale_all_dim"])}


class MiniCpm(Llama):
    """MiniCPM 1 and 2: Llama with three multipliers."""

    name = "minicpm"
    model_types = ("minicpm",)
    tied = True
    rope_types = ("default", "linear")
    defaults = Llama.defaults | {"scale_emb": 1.0, "dim_model_base": 256, "scale_depth": 1.0}

    def keys(self) -> dict[str, Any]:
        return super().keys() | {
            "embedding_scale": self.config.float("scale_emb"),
            "residual_scale": self.config.float("scale_depth") / self.n_layer**0.5,
            "logit_scale": self.n_embd / self.config.float("dim_model_base"),
        }


class InternLm2(Architecture):
    """InternLM 2 and 2.5: q, k and v in one matrix, group by group."""

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

    def constants(self) -> dict[str, np.ndarray]:
        rope = self.config.rope()
        return {"rope_freqs.weight": llama3_divisors(rope, self.n_rot)} if rope["rope_type"] == "llama3" else {}


class Exaone4(Exaone):
    """EXAONE 4: norms behind each part and over the heads of q and k; windows in most layers of the large one."""

    name = "exaone4"
    model_types = ("exaone4",)
    prefixes = ("model.",)
    layers = "layers"
    defaults = {"rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "max_position_embeddings": 2048}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")

    def keys(self) -> dict[str, Any]:
        keys = Architecture.keys(self)
        if self.config.get("sliding_window"):
            keys["attention.sliding_window"] = self.config.int("sliding_window")
            keys["attention.sliding_window_pattern"] = self.windowed()
        return keys

    def windowed(self) -> list[bool]:
        """Which layers have a window; the others have no rotary embedding."""
        types = self.config.get("layer_types")
        if types is not None:
            return [kind == "sliding_attention" for kind in types]
        pattern = self.config.get("sliding_window_pattern", default=4)
        if isinstance(pattern, str):
            return [pattern[i % len(pattern)] == "L" for i in range(self.n_layer)]
        return [(i + 1) % pattern != 0 for i in range(self.n_layer)]

    def model(self) -> Table:
        return Architecture.model(self)

    def layer(self) -> Table:
        table = Architecture.layer(self) | {
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "post_attention_layernorm": "post_attention_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
        del table["input_layernorm"]
        return table
