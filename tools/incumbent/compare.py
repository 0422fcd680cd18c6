#!/usr/bin/env python3
"""Compares llamay's logits of every generated model with those of llama.cpp, which reads the same files.

    compare.py --llamay BINARY --shapes EXAMPLE [--format F32] [--format Q8_0] [NAME ...]

BINARY is llamay, EXAMPLE the compiled example `shapes` of llamay-model, which writes the files. Where llama-cpp-python
is not to be had, this runs again in the environment that `tools/bench` keeps for it.

For each model and format a line: the share of positions with the same likeliest token, the greatest difference as a
share of llama.cpp's greatest logit, and the mean Kullback-Leibler divergence of llamay's distribution from llama.cpp's.
Float32 weights meet a float32 cache, others a float16 one. Where llama.cpp is known to compute something else than the
model's authors do (`departures.py`), the line says so, and only what that leaves alone is required to agree. Exit
status 1 if anything required does not hold, or if a declared departure is none.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]

try:
    import llama_cpp  # noqa: F401
except ImportError:
    sys.path += [str(ROOT / "tools"), str(ROOT / "tools" / "bench")]
    import bench
    import fetch

    peer = bench.Peer(fetch.cache_folder())
    peer.install()
    os.execv(peer.python, [str(peer.python), *sys.argv])

import numpy as np

import departures
import engines
from departures import Departure

# What is required: the error of float32 weights, the divergence of all.
F32_ERROR, KL = 1e-4, 1e-3
# Quantized weights meet activations that each engine rounds in its own way. Tokens whose logits are closer than this
# share of the greatest one may change places.
TIE = 0.05
# Then, too, a router whose scores are close sends a token to other experts, and later tokens attend to that one. So
# many positions of a mixture may differ, and all where llamay is nearer to float32's logits than llama.cpp.
ROUTED_OTHERWISE = 0.1


@dataclass
class Difference:
    """How far llamay's logits are from llama.cpp's, for each position."""

    # Greatest difference as a share of the greatest logit of all positions.
    error: np.ndarray
    # Kullback-Leibler divergence in nats.
    kl: np.ndarray
    # How far below llama.cpp's likeliest token llamay's likeliest is there, as a share of the greatest logit of all.
    margin: np.ndarray

    def at(self, positions) -> "Difference":
        """Those of some positions."""
        return Difference(self.error[positions], self.kl[positions], self.margin[positions])

    def __str__(self) -> str:
        same = (self.margin == 0).mean()
        worst = "" if same == 1 else f", margins up to {self.margin.max():.1e}"
        return f"{same:>4.0%} {self.error.max():.1e} {self.kl.mean():8.1e}{worst}"


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def difference(ours: np.ndarray, theirs: np.ndarray) -> Difference:
    """Between two arrays of logits, [n_tokens, n_vocab] each."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    p, q, greatest = log_softmax(theirs), log_softmax(ours), np.abs(theirs).max()
    at_our_top = theirs[np.arange(len(ours)), ours.argmax(axis=1)]
    return Difference(
        np.abs(ours - theirs).max(axis=1) / greatest,
        (np.exp(p) * (p - q)).sum(axis=1),
        (theirs.max(axis=1) - at_our_top) / greatest,
    )


def failures(found: Difference, format: str, error: float) -> list[str]:
    """Which requirements a difference does not meet."""
    out = []
    if (other := found.margin > (0.0 if format == "F32" else TIE)).any():
        out.append(f"another top token at {np.flatnonzero(other).tolist()}")
    if format == "F32" and found.error.max() > error:
        out.append(f"error above {error:g}")
    if found.kl.mean() > KL:
        out.append(f"divergence above {KL:g}")
    return out


def write_shapes(example: str, folder: str, format: str, names: list[str]) -> list[dict]:
    """The generated models in a format; each with its name, architecture, path and tokens."""
    done = subprocess.run([example, folder, format, *names], stdout=subprocess.PIPE, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def judge(found: Difference, format: str, departure: Departure | None) -> tuple[str, list[str]]:
    """What to say of a difference, and which requirements it does not meet."""
    if departure is None:
        return str(found), failures(found, format, F32_ERROR)
    text = f"{found}  [{departure.reason}]"
    if departure.refuses or (format == "F32" and not failures(found, format, F32_ERROR)):
        return text, ["the declared departure is none"]
    if departure.rows:
        part = found.at(slice(departure.rows))
        return f"{text}  first {departure.rows}: {part}", failures(part, format, F32_ERROR)
    return text, failures(found, format, departure.error) if departure.error else []


def judge_mixture(ours: np.ndarray, theirs: np.ndarray, exact: np.ndarray, format: str) -> tuple[str, list[str]]:
    """The same for quantized experts; `exact` are the logits of float32 weights."""
    found = difference(ours, theirs)
    kept = np.sort(np.argsort(found.kl)[: round(len(found.kl) * (1 - ROUTED_OTHERWISE))])
    fails = failures(found.at(kept), format, F32_ERROR)
    away, theirs_away = difference(ours, exact).kl.mean(), difference(theirs, exact).kl.mean()
    text = f"{found}; but for a tenth {found.at(kept)}; from float32 {away:.1e}, llama.cpp {theirs_away:.1e}"
    return text, fails if away > theirs_away else []


def compare(llamay: str, shape: dict, format: str, exact: dict[str, np.ndarray]) -> bool:
    """Prints the line of one file; returns whether all that is required holds.

    `exact` keeps llamay's logits of the float32 files.
    """
    kv_type = "f32" if format == "F32" else "f16"
    name, path, tokens = shape["name"], shape["path"], shape["tokens"]
    departure = departures.of(name, shape["architecture"])
    mixture = b"ffn_gate_inp.weight" in pathlib.Path(path).read_bytes()
    text, fails = "", []
    try:
        ours = engines.llamay(llamay, path, tokens, kv_type)
        if format == "F32":
            exact[name] = ours
        try:
            theirs = engines.llama_cpp_logits(path, tokens, kv_type)
            if mixture and departure is None and format != "F32" and name in exact:
                text, fails = judge_mixture(ours, theirs, exact[name], format)
            else:
                text, fails = judge(difference(ours, theirs), format, departure)
        except engines.Refused as reason:
            known = departure is not None and departure.refuses
            text = f"[{departure.reason}: {reason}]" if known else ""
            fails = [] if known else [f"llama.cpp does not run it: {reason}"]
    except engines.Refused as reason:
        fails = [f"llamay does not run it: {reason}"]
    print(f"{format:<5} {name:<20} {text}" + (f"  FAILS: {'; '.join(fails)}" if fails else ""), flush=True)
    return not fails


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--llamay", required=True)
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--format", action="append")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    passed, exact = [], {}
    for format in args.format or ["F32", "Q8_0"]:
        with tempfile.TemporaryDirectory() as folder:
            shapes = write_shapes(args.shapes, folder, format, args.names)
            passed += [compare(args.llamay, shape, format, exact) for shape in shapes]
    print(f"{sum(passed)} of {len(passed)} files agree, but for what is declared")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
