"""What architectures share: the decoder's usual keys and tables, which a module adjusts."""

from typing import Any

import numpy as np

from hf_config import Config, ConvertError
from mapping import Rename, Table, plus_one

from . import rope as scaling

# Parameters that are computed from the configuration, and that old checkpoints carry nonetheless.
COMPUTED = ("rotary_emb.inv_freq", "attn.masked_bias", "attention.masked_bias")
# What belongs to the image encoder in a checkpoint with one.
IMAGES = tuple(f"{prefix}{part}." for prefix in ("", "model.") for part in ("vision_tower", "multi_modal_projector"))
# Far above any model that exists; some keys have an entry a layer.
MOST_LAYERS = 4096


class Architecture:
    """One GGUF architecture.

    A subclass states what differs from a pre-norm decoder with RMS norms, SwiGLU and rotary embeddings.
    """

    # `general.architecture`.
    name = ""
    # The `model_type`s of config.json that are converted to it.
    model_types: tuple[str, ...] = ()
    # What config.json may leave out.
    defaults: dict[str, Any] = {}
    # Whether the head is the embedding where config.json does not say.
    tied = False
    # The names before those of the tables, as one of them or none may stand before a parameter.
    prefixes = ("model.",)
    # The list of layers within the model.
    layers = "layers"
    # What may stand before a text model's parameters in a checkpoint that has others too, and those others.
    text_prefixes: tuple[str, ...] = ()
    dropped_prefixes: tuple[str, ...] = ()
    # Kinds of rotary scaling that the keys can express.
    rope_types: tuple[str, ...] = ("default", "linear", "yarn")
    # Whether the ends of YaRN's ramp are rounded to whole pairs; files do not say.
    truncated_yarn = True
    # The `quant_method`s of checkpoints that are understood.
    quantizations: tuple[str, ...] = ()

    def __init__(self, config: dict[str, Any]):
        self.config = Config(config, self.defaults)
        method = self.config.get("quantization_config", default={}).get("quant_method")
        if method is not None and method not in self.quantizations:
            raise ConvertError(f"a checkpoint that is quantized by {method} cannot be converted; take the original one")
        if self.n_layer > MOST_LAYERS:
            raise ConvertError(f"{self.n_layer} layers are more than any model has")
        self.check()

    # Sizes.

    @property
    def n_layer(self) -> int:
        return self.config.int("num_hidden_layers", "n_layer")

    @property
    def n_embd(self) -> int:
        return self.config.int("hidden_size", "n_embd")

    @property
    def n_head(self) -> int:
        return self.config.int("num_attention_heads", "n_head")

    @property
    def n_head_kv(self) -> int:
        if self.config.get("num_key_value_heads") is None:
            return self.n_head
        return self.config.int("num_key_value_heads")

    @property
    def head_dim(self) -> int:
        if self.config.get("head_dim") is not None:
            return self.config.int("head_dim")
        if self.n_embd % self.n_head:
            raise ConvertError(f"{self.n_head} heads do not divide the hidden size {self.n_embd}")
        return self.n_embd // self.n_head

    @property
    def n_rot(self) -> int:
        """Elements of a head that rotate."""
        factor = self.config.rope().get("partial_rotary_factor")
        return self.head_dim if factor is None else int(self.head_dim * factor)

    # What a subclass adjusts.

    def check(self) -> None:
        """Refuses configurations that the keys cannot express."""

    def keys(self) -> dict[str, Any]:
        """The model's keys, without the architecture's name before them."""
        return {
            **self.size_keys(),
            **self.head_keys(),
            "attention.layer_norm_rms_epsilon": self.config.float("rms_norm_eps"),
            **self.rope_keys(),
        }

    def model(self) -> Table:
        """The rules of parameters outside of layers."""
        return {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}

    def layer(self) -> Table:
        """The rules of a layer's parameters."""
        return {
            "input_layernorm": "attn_norm",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output",
            "post_attention_layernorm": "ffn_norm",
            "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        }

    def constants(self) -> dict[str, np.ndarray]:
        """Tensors that are computed from the configuration."""
        rope = self.config.rope()
        if rope["rope_type"] != "llama3":
            return {}
        return {"rope_freqs.weight": scaling.llama3_divisors(rope, self.n_rot)}

    # Parts of `keys`.

    def size_keys(self) -> dict[str, Any]:
        return {
            "vocab_size": self.config.int("vocab_size"),
            "context_length": self.config.int("max_position_embeddings", "n_positions", "n_ctx"),
            "embedding_length": self.n_embd,
            "block_count": self.n_layer,
            "feed_forward_length": self.config.int("intermediate_size", "n_inner"),
        }

    def head_keys(self) -> dict[str, Any]:
        keys = {"attention.head_count": self.n_head, "attention.head_count_kv": self.n_head_kv}
        if self.config.get("head_dim") is not None:
            keys |= {"attention.key_length": self.head_dim, "attention.value_length": self.head_dim}
        return keys

    def rope_keys(self) -> dict[str, Any]:
        """Base, width and scaling of the rotary embedding."""
        rope = self.config.rope()
        keys: dict[str, Any] = {"rope.dimension_count": self.n_rot}
        if rope["rope_theta"] is not None:
            keys["rope.freq_base"] = float(rope["rope_theta"])
        kind = rope["rope_type"]
        if kind not in self.rope_types:
            raise ConvertError(f"rotary scaling of the kind {kind!r} cannot be expressed in {self.name} files")
        if kind == "linear":
            keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": scaling.number(rope, "factor")}
        if kind == "yarn":
            keys |= self.yarn_keys(rope)
        return keys

    def yarn_keys(self, rope: dict[str, Any]) -> dict[str, Any]:
        """YaRN. The factor of the embedding is only written where it is not the usual `0.1 ln(factor) + 1`."""
        if rope.get("truncate", True) != self.truncated_yarn:
            raise ConvertError(f"YaRN with truncate = {rope.get('truncate')} cannot be expressed in {self.name} files")
        factor = scaling.number(rope, "factor")
        original = rope.get("original_max_position_embeddings") or self.config.int("max_position_embeddings")
        keys = {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": factor,
            "rope.scaling.original_context_length": int(original),
        }
        for key in ("beta_fast", "beta_slow"):
            if rope.get(key) is not None:
                keys[f"rope.scaling.yarn_{key}"] = float(rope[key])
        usual, wanted = scaling.usual_yarn_magnitude(factor), scaling.yarn_magnitude(rope)
        if abs(wanted - usual) > 1e-6:
            # Readers multiply this with the usual factor.
            keys["rope.scaling.attn_factor"] = wanted / usual
        return keys

    def windowed_rope(self) -> dict[str, Any] | None:
        """The rotary parameters of layers with a window, where they are given apart; such layers cannot be scaled."""
        nested = (self.config.get("rope_parameters") or {}).get("sliding_attention")
        if not isinstance(nested, dict):
            return None
        rope = self.config.rope("sliding_attention")
        if rope["rope_type"] != "default":
            raise ConvertError(f"rotary scaling in layers with a window cannot be expressed in {self.name} files")
        return rope

    def windowed(self, period: int) -> list[bool]:
        """Which layers have a window; by default, all but the last of every `period`."""
        types = self.config.get("layer_types")
        if types is not None:
            if len(types) != self.n_layer:
                raise ConvertError(f"layer_types in config.json has {len(types)} entries for {self.n_layer} layers")
            return [kind == "sliding_attention" for kind in types]
        pattern = self.config.get("sliding_window_pattern", "_sliding_window_pattern", default=period)
        if isinstance(pattern, str):  # Such as LLLG, for local and global.
            return [pattern[i % len(pattern)] == "L" for i in range(self.n_layer)]
        return [(i + 1) % pattern != 0 for i in range(self.n_layer)]

    def with_plus_one(self, table: Table) -> Table:
        """The table, with all its plain norms scaled by `1 + w`; their biases stay."""
        norms = {key: to for key, to in table.items() if isinstance(to, str) and to.endswith("norm")}
        shifted: Table = {f"{key}.weight": Rename(f"{to}.weight", plus_one) for key, to in norms.items()}
        return table | shifted
