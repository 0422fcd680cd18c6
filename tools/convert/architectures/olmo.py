"""OLMo 1 (norms without weights), 2 and 3 (norms behind each part, and over the whole of q and k; windows in the latter) and OLMoE."""

from typing import Any

from mapping import Rename, Table, permute_pairs

from .base import Architecture
from .experts import expert_keys, n_expert, swiglu_experts

QK_NORMS: Table = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


class Olmo(Architecture):
    name = "olmo"
    model_types = ("olmo",)
    rope_types = ("default", "linear")
    defaults = {"rope_theta": 10000.0, "max_position_embeddings": 2048}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("attention_bias", False)

    def keys(self) -> dict[str, Any]:
        # The model's code has its epsilon as a constant.
        keys = self.size_keys() | self.head_keys() | self.rope_keys() | {"attention.layer_norm_epsilon": 1e-5}
        if self.config.get("clip_qkv"):
            keys["attention.clamp_kqv"] = self.config.float("clip_qkv")
        return keys

    def model(self) -> Table:
        return {"embed_tokens": "token_embd", "lm_head": "output"}

    def layer(self) -> Table:
        table = super().layer() | {
            "self_attn.q_proj": Rename("attn_q", permute_pairs(self.n_head)),
            "self_attn.k_proj": Rename("attn_k", permute_pairs(self.n_head_kv)),
        }
        return {key: rule for key, rule in table.items() if not key.endswith("layernorm")}


class Olmo2(Architecture):
    name = "olmo2"
    model_types = ("olmo2", "olmo3")
    defaults = {"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 2048}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("attention_bias", False)

    def keys(self) -> dict[str, Any]:
        keys = super().keys()
        if self.config.get("model_type") == "olmo3" and self.config.get("sliding_window"):
            keys["attention.sliding_window"] = self.config.int("sliding_window")
            keys["attention.sliding_window_pattern"] = self.windowed(4)
            local = self.windowed_rope()
            if local and local["rope_theta"] != self.config.rope()["rope_theta"]:
                keys["rope.freq_base_swa"] = float(local["rope_theta"])
        return keys

    def layer(self) -> Table:
        table = super().layer() | QK_NORMS | {
            "post_attention_layernorm": "post_attention_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
        del table["input_layernorm"]
        return table


class Olmoe(Architecture):
    name = "olmoe"
    model_types = ("olmoe",)
    defaults = {
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096,
        "num_experts": 64, "num_experts_per_tok": 8,
    }

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("attention_bias", False)
        self.config.only("clip_qkv")
        self.config.only("norm_topk_prob", False)

    def keys(self) -> dict[str, Any]:
        return super().keys() | expert_keys(n_expert(self.config), self.config.int("num_experts_per_tok"))

    def layer(self) -> Table:
        return super().layer() | QK_NORMS | swiglu_experts(n_expert(self.config))
