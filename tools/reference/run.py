"""Runs a twin: its weights set through its checkpoint, then its logits in float32, eager attention."""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedConfig

import weights

PROMPT, TOKENS = 40, 56
# Router scores that are closer than this might come in another order elsewhere.
CLOSE = 1e-3
# How many other sequences of tokens are tried for one without such scores.
TRIES = 50


class Checkpoint:
    """A model's folder as `save_pretrained` writes it, so that names are those of published files."""

    def __init__(self, config: PreTrainedConfig):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(self.path)
        self.state = load_file(self.path / "model.safetensors")

    def load(self, state: dict[str, np.ndarray]) -> torch.nn.Module:
        """The model with other weights."""
        arrays = {name: np.ascontiguousarray(w) for name, w in state.items()}
        save_file(arrays, self.path / "model.safetensors", {"format": "pt"})
        model, info = AutoModelForCausalLM.from_pretrained(
            self.path, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
        return model.eval()


@dataclass
class Outcome:
    """What a twin gives for its tokens."""

    tokens: np.ndarray
    # Logits of every token, the first PROMPT at once and the rest over the cache.
    logits: np.ndarray
    # How far they are from those of one call for all, as a share of the greatest.
    apart: float
    # The least distance of a chosen expert's score to that of one that was not chosen; None without experts.
    gap: float | None


@contextlib.contextmanager
def watched_topk() -> Iterator[list[float]]:
    """Keeps the gaps between the last that is chosen and the first that is not, of every choice within.

    Between probabilities, all positive, the gap is relative: that is what an error of the logits under them changes.
    """
    gaps, plain = [], torch.topk

    def topk(x: torch.Tensor, k: int, *args: Any, **kwargs: Any):
        if k < x.shape[-1]:
            best = plain(x.detach(), k + 1, dim=-1).values
            gap = best[..., -2] - best[..., -1]
            gaps.append(float((gap if (x < 0).any() else gap / best[..., -2]).min()))
        return plain(x, k, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        for owner in (torch, torch.Tensor):
            stack.callback(setattr, owner, "topk", owner.topk)
            owner.topk = topk
        yield gaps


@torch.no_grad()
def logits(model: torch.nn.Module, ids: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Logits of every token over the cache, and those of one call for all."""
    whole = model(input_ids=ids, use_cache=False).logits[0]
    out = model(input_ids=ids[:, :PROMPT], use_cache=True)
    rows = [out.logits[0]]
    for i in range(PROMPT, TOKENS):
        out = model(input_ids=ids[:, i : i + 1], past_key_values=out.past_key_values, use_cache=True)
        rows.append(out.logits[0])
    return torch.cat(rows).numpy(), whole.numpy()


def run(model: torch.nn.Module, name: str, n_vocab: int) -> Outcome:
    """Logits for tokens that the name seeds; with experts, for the first such sequence in which no choice is close."""
    for seed in [name, *(f"{name} {i}" for i in range(2, TRIES))]:
        tokens = weights.tokens(seed, TOKENS, n_vocab)
        with watched_topk() as gaps:
            got, whole = logits(model, torch.from_numpy(tokens.astype(np.int64))[None])
        if not gaps or min(gaps) > CLOSE:
            apart = float(np.abs(got - whole).max() / np.abs(whole).max())
            return Outcome(tokens, got, apart, min(gaps, default=None))
    raise AssertionError(f"{name}: expert scores are closer than {CLOSE} for every sequence that was tried")
