#!/usr/bin/env python3
"""Makes the generated models' table and their reference logits with Hugging Face transformers.

    pip install -r requirements.txt
    python make.py            # rewrites model/src/shapes/shapes.json and model/tests/reference

For each twin (`twins/`) the converter of `tools/convert` gives keys and tensors; run backwards (`invert.py`) it puts
the seeded weights of `weights.py` into the Hugging Face model, whose logits are kept: float32, eager attention, the
first PROMPT tokens in one go and the rest one by one over the model's own cache. `variants.py` adds other files of the
same models.

A file of logits holds, little-endian: the magic, then u32 counts of tokens, prompt tokens and columns; the tokens; the
columns of the vocabulary that are kept; for every token the column of the greatest logit of all (u32), and the kept
logits (f32).
"""

import json
import pathlib
import struct
import sys
import warnings

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "convert"))

import convert  # noqa: E402

import invert  # noqa: E402
import run  # noqa: E402
import table  # noqa: E402
import weights  # noqa: E402
from twins import N_VOCAB, TWINS, Twin  # noqa: E402
from variants import VARIANTS  # noqa: E402

OUT = ROOT / "model" / "tests" / "reference"
SHAPES = ROOT / "model" / "src" / "shapes" / "shapes.json"
MAGIC = b"LLAMAYR1"
COLUMNS = np.arange(0, N_VOCAB, 5, dtype=np.uint32)
# The standard deviation of a position's logits, over all positions: neither flat nor far from what real models have.
SPREAD = (0.2, 30.0)


def shape(twin: Twin, config: dict, found: dict[str, invert.Source]) -> table.Shape:
    """The table of a converted twin."""
    keys = convert.hyperparameters(config)
    tensors = {name: table.Tensor(list(source.index.shape[::-1])) for name, source in found.items()}
    n_layer = keys[f"{keys['general.architecture']}.block_count"]
    shape = table.Shape(
        twin.name, twin.vocabulary, twin.name if twin.reference else None, keys, table.joined_layers(tensors, n_layer),
        convert.constants(config),
    )
    twin.edit(shape)
    return shape


def make(twin: Twin) -> tuple[table.Shape, run.Outcome | None, str]:
    """A twin's table, what it computes if it is a reference, and the name of the class that computed it."""
    checkpoint = run.Checkpoint(twin.config)
    config = json.loads((checkpoint.path / "config.json").read_text())

    disguise = twin.disguise or (lambda config, state: (config, state))
    meant, _ = disguise(config, checkpoint.state)

    def converted(state):
        return convert.tensors(meant, disguise(config, dict(state))[1].items())

    found = invert.sources(converted, checkpoint.state)
    made = shape(twin, meant, found)
    if not twin.reference:
        return made, None, ""
    state = invert.fill(checkpoint.state, found, weights.tensor)
    for name, w in converted(state.items()):
        assert np.array_equal(w, weights.tensor(name, w.shape)), f"{twin.name}: {name} does not convert to its weights"
    model = checkpoint.load(state)
    return made, run.run(model, twin.name, N_VOCAB), type(model).__name__


def check(name: str, outcome: run.Outcome) -> float:
    """The spread of the logits. Refuses what would be a poor reference."""
    assert outcome.apart < 1e-5, f"{name}: prefill and decode are {outcome.apart} apart"
    spread = float(outcome.logits.std(axis=1).mean())
    assert SPREAD[0] < spread < SPREAD[1], f"{name}: logits spread by {spread}"
    return spread


def write(name: str, outcome: run.Outcome) -> None:
    """The file of a reference."""
    with open(OUT / f"{name}.bin", "wb") as f:
        f.write(MAGIC + struct.pack("<3I", run.TOKENS, run.PROMPT, len(COLUMNS)))
        f.write(outcome.tokens.astype("<u4").tobytes() + COLUMNS.astype("<u4").tobytes())
        f.write(outcome.logits.argmax(axis=1).astype("<u4").tobytes())
        f.write(outcome.logits[:, COLUMNS].astype("<f4").tobytes())


def write_list(names: list[str]) -> None:
    """The list of references, as the Rust expression that includes them."""
    lines = "".join(f'    ("{name}", include_bytes!("{name}.bin")),\n' for name in names)
    (OUT / "files.rs").write_text(f"// Written by tools/reference/make.py.\n&[\n{lines}]\n")
    for stray in set(OUT.glob("*.bin")) - {OUT / f"{name}.bin" for name in names}:
        stray.unlink()


def main() -> None:
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.simplefilter("ignore", FutureWarning)
    torch.manual_seed(0)
    OUT.mkdir(parents=True, exist_ok=True)
    index = {"torch": torch.__version__, "transformers": transformers.__version__, "models": {}}
    shapes = []
    for twin in TWINS:
        made, outcome, model = make(twin)
        shapes += [made, *(v.shape(made) for v in VARIANTS if v.of == twin.name)]
        if outcome is None:
            continue
        spread = check(twin.name, outcome)
        write(twin.name, outcome)
        index["models"][twin.name] = {"class": model, "spread": round(spread, 3)} | (
            {} if outcome.gap is None else {"router_gap": round(outcome.gap, 5)}
        )
        print(f"{twin.name}: logits spread by {spread:.2f}, decode and prefill {outcome.apart:.1e} apart", flush=True)
    SHAPES.write_text(table.document(shapes))
    write_list(list(index["models"]))
    (OUT / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
