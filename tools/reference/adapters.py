#!/usr/bin/env python3
"""Makes adapters for some generated models, and the logits that transformers gives with them merged.

    pip install -r requirements.txt
    python adapters.py        # rewrites model/tests/lora

NAME.gguf is the adapter, of every matrix that can have one, converted by `tools/convert/lora.py` from PEFT's names.
NAME.bin holds, little-endian: u32 counts of tokens and of logits a token; the tokens (u32); the logits (f32) of one call
for all, with SCALE times the adapter added to the weights.
"""

import json
import pathlib
import struct
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from make import N_VOCAB, ROOT, TWINS, convert, invert, run, weights

import lora  # of tools/convert, to which `make` leads

OUT = ROOT / "model" / "tests" / "lora"
# Separate matrices with an embedding of its own; fused ones; layers that are stored the other way round.
NAMES = ("llama-mha", "phi3", "gpt2")
RANK, ALPHA, SCALE, TOKENS = 2, 4, 0.75, 24


def filled(twin) -> tuple[run.Checkpoint, dict, dict[str, np.ndarray]]:
    """A twin's checkpoint, configuration, and state with the seeded weights."""
    checkpoint = run.Checkpoint(twin.config)
    config = json.loads((checkpoint.path / "config.json").read_text())
    found = invert.sources(lambda state: convert.tensors(config, state), checkpoint.state)
    return checkpoint, config, invert.fill(checkpoint.state, found, weights.tensor)


def halves(name: str, rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Seeded `A` and `B`, which half precision holds."""
    rng = np.random.default_rng(list(name.encode()))
    return tuple(rng.integers(-16, 17, shape).astype(np.float32) / 64 for shape in ((RANK, cols), (rows, RANK)))


def adapt(config: dict, state: dict[str, np.ndarray], turned: bool) -> tuple[dict, dict]:
    """An adapter by PEFT's names, and the state with it merged."""
    adapter, merged = {}, dict(state)
    tied = "lm_head.weight" not in state
    for name, w in state.items():
        lookup = name.endswith("embed_tokens.weight")
        if w.ndim != 2 or "wpe" in name or (tied and (lookup or "wte" in name)):
            continue
        inner = turned and "wte" not in name and "lm_head" not in name
        at, (rows, cols) = "base_model.model." + name.removesuffix(".weight"), w.T.shape if inner or lookup else w.shape
        a, b = halves(name, rows, cols)
        kinds = ("lora_embedding_A", "lora_embedding_B") if lookup else ("lora_A.weight", "lora_B.weight")
        adapter |= {f"{at}.{kind}": half for kind, half in zip(kinds, (a, b), strict=True)}
        product = b @ a
        merged[name] = w + np.float32(SCALE * ALPHA / RANK) * (product.T if inner or lookup else product)
    return adapter, merged


@torch.no_grad()
def main() -> None:
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    OUT.mkdir(parents=True, exist_ok=True)
    for twin in (t for t in TWINS if t.name in NAMES):
        checkpoint, config, state = filled(twin)
        turned = twin.name == "gpt2"
        adapter, merged = adapt(config, state, turned)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "adapter"
            folder.mkdir()
            save_file(adapter, folder / "adapter_model.safetensors")
            options = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "fan_in_fan_out": turned}
            (folder / "adapter_config.json").write_text(json.dumps(options))
            lora.convert(folder, OUT / f"{twin.name}.gguf", checkpoint.path, "f16")
        tokens = weights.tokens(twin.name, TOKENS, N_VOCAB)
        ids = torch.from_numpy(tokens.astype(np.int64))[None]
        logits = [checkpoint.load(s)(input_ids=ids, use_cache=False).logits[0].numpy() for s in (state, merged)]
        with open(OUT / f"{twin.name}.bin", "wb") as f:
            f.write(struct.pack("<2I", TOKENS, N_VOCAB) + tokens.astype("<u4").tobytes())
            f.write(logits[1].astype("<f4").tobytes())
        moved = np.abs(logits[1] - logits[0]).max() / np.abs(logits[0]).max()
        print(f"{twin.name}: {len(adapter) // 2} matrices, logits moved by {moved:.2f} of the greatest")


if __name__ == "__main__":
    main()
