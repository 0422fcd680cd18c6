"""Hunyuan 1, dense and with experts: norms over the heads of q and k behind the rotary embedding."""

from typing import Any

from hf_config import ConvertError
from mapping import Table

from .base import Architecture
from .experts import expert_keys, n_expert, swiglu_experts


class Hunyuan(Architecture):
    name = "hunyuan-dense"
    model_types = ("hunyuan_v1_dense",)
    rope_types = ("default", "linear", "dynamic")
    defaults = {"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 2048}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")

    def rope_keys(self) -> dict[str, Any]:
        """Scaling by a fixed `alpha` is a greater base."""
        keys, rope = super().rope_keys(), self.config.rope()
        if rope["rope_type"] == "dynamic":
            if not rope.get("alpha"):
                raise ConvertError(f"dynamic rotary scaling without alpha cannot be expressed in {self.name} files")
            stretch = float(rope["alpha"]) ** (self.head_dim / (self.head_dim - 2))
            keys |= {"rope.freq_base": float(rope["rope_theta"]) * stretch, "rope.scaling.type": "none"}
        return keys

    def layer(self) -> Table:
        return super().layer() | {
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
        }


class HunyuanMoe(Hunyuan):
    name = "hunyuan-moe"
    model_types = ("hunyuan_v1_moe", "hunyuan")

    def check(self) -> None:
        super().check()
        self.config.only("use_cla", False)

    def same_in_all_layers(self, name: str, default: int | None = None) -> int:
        """A number that the configuration gives once, or layer by layer."""
        value = self.config.get(name, default=default)
        values = set(value) if isinstance(value, list) else {value}
        if len(values) != 1 or not all(isinstance(v, int) for v in values):
            raise ConvertError(f"{name} = {value!r} cannot be expressed in hunyuan-moe files; only one for all layers")
        return values.pop()

    def keys(self) -> dict[str, Any]:
        c = self.config
        n_ff = self.same_in_all_layers("moe_intermediate_size", c.int("intermediate_size"))
        return super().keys() | expert_keys(n_expert(c), self.same_in_all_layers("moe_topk"), n_ff) | {
            "expert_shared_count": self.same_in_all_layers("num_shared_expert", 1),
            "expert_shared_feed_forward_length": c.int("intermediate_size"),
        }

    def layer(self) -> Table:
        return super().layer() | swiglu_experts(n_expert(self.config)) | {
            "mlp.gate.wg.weight": "ffn_gate_inp.weight",
            "mlp.shared_mlp.gate_proj": "ffn_gate_shexp",
            "mlp.shared_mlp.up_proj": "ffn_up_shexp",
            "mlp.shared_mlp.down_proj": "ffn_down_shexp",
        }
