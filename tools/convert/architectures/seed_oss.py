"""Seed-OSS: the norm before the feed-forward part has another name."""

from mapping import Table

from .base import Architecture


class SeedOss(Architecture):
    name = "seed_oss"
    model_types = ("seed_oss",)
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "head_dim": 128, "max_position_embeddings": 524288}

    def check(self) -> None:
        self.config.only("hidden_act", "silu")
        self.config.only("mlp_bias", False)

    def layer(self) -> Table:
        return super().layer() | {"post_attention_layernorm": "post_attention_norm"}
