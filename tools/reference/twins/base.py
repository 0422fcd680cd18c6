"""What all twins share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedConfig

from table import Shape

# Tokens of the vocabularies in `model/src/shapes/vocabulary.rs`.
N_VOCAB = 320

Checkpoint = tuple[dict[str, Any], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Twin:
    """A model that both Hugging Face and the generated models have."""

    name: str
    config: PreTrainedConfig
    # The kind of vocabulary that the generated file gets: "bpe" or "spm".
    vocabulary: str = "bpe"
    # For a model that transformers lacks and another one computes: turns that one's configuration and tensors into
    # those of a checkpoint of the model meant. Tensors may be renamed, cut, joined and reordered, and nothing else.
    disguise: Callable[[dict[str, Any], dict[str, np.ndarray]], Checkpoint] | None = None
    # False for a table that no model of transformers computes, because of the keys that `edit` adds.
    reference: bool = True
    edit: Callable[[Shape], None] = lambda shape: None


def sizes(n_embd: int, n_layer: int, heads: int, heads_kv: int, n_ff: int) -> dict[str, Any]:
    """Arguments that most configurations name alike; the special tokens have to be within the vocabulary."""
    return dict(
        vocab_size=N_VOCAB, hidden_size=n_embd, num_hidden_layers=n_layer, num_attention_heads=heads,
        num_key_value_heads=heads_kv, intermediate_size=n_ff, max_position_embeddings=512,
        bos_token_id=1, eos_token_id=2, pad_token_id=None,
    )


def rope(theta: float, kind: str = "default", **more: Any) -> dict[str, Any]:
    """Rotary parameters."""
    return {"rope_type": kind, "rope_theta": theta, **more}
