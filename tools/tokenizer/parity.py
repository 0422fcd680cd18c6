#!/usr/bin/env python3
"""Compares llamay's tokenizer with Hugging Face's, and makes the golden files that `cargo test` checks.

    pip install -r requirements.txt
    parity.py fixtures                  # tests/fixtures/*.json: tiny vocabularies with what Hugging Face makes of the texts
    parity.py golden [--cache DIR]      # tests/golden/*.jsonl: the same for real vocabularies in the cache folder
    parity.py live [--cache DIR] [-n N] [--seed S] [--binary PATH]   # N random texts for every vocabulary there is

`live` runs the example `encode_lines` (built with cargo unless --binary gives it) and prints each vocabulary's number of
differences; exit status 1 if there are any.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf

import oracle
import texts
import tiny

ROOT = Path(__file__).resolve().parents[2]
CRATE = ROOT / "tokenizer"


def cache_dir(given):
    """The folder of models and vocabularies, as `tools/fetch.py` fills it."""
    return Path(given or os.environ.get("LLAMAY_CACHE") or Path.home() / ".cache" / "llamay")


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


def fixtures():
    """Trains the tiny vocabularies and writes them with their goldens."""
    chosen = texts.TRICKY + texts.PROSE + texts.CODE + texts.random_texts(1, 20)
    bpe = tiny.train_bpe()
    write_lines(CRATE / "tests/fixtures/tiny-bpe.json", [bpe])
    golden, base = [], None
    for pre in oracle.PRE:
        if pre in ("dbrx", "glm4", "bailingmoe"):
            continue  # the same patterns as others
        tokenizer = oracle.bpe(bpe["tokens"], bpe["types"], bpe["merges"], pre)
        ids = [oracle.ids(tokenizer, text) for text in chosen]
        base = base or ids
        # The first is written out, of the others what differs from it.
        changed = [[i, own] for i, own in enumerate(ids) if own != base[i] or pre == next(iter(oracle.PRE))]
        golden.append({"pre": pre, "ids": changed})
    write_lines(CRATE / "tests/golden/tiny-bpe.jsonl", [{"texts": chosen}, *golden])

    spm = tiny.train_spm()
    write_lines(CRATE / "tests/fixtures/tiny-spm.json", [spm])
    golden = []
    for prefix in (False, True):
        tokenizer = oracle.spm(spm["tokens"], spm["types"], spm["scores"], prefix)
        # With a prefix, Hugging Face puts one before each part between added tokens; so does SentencePiece.
        ids = [[i, oracle.ids(tokenizer, text)] for i, text in enumerate(chosen)]
        golden.append({"add_space_prefix": prefix, "ids": ids})
    write_lines(CRATE / "tests/golden/tiny-spm.jsonl", [{"texts": chosen}, *golden])


def real(cache):
    """Name, GGUF file and Hugging Face tokenizer of each real vocabulary in the cache folder."""
    models = sorted((cache / "models").glob("*.gguf")) + sorted((cache / "vocabs").glob("*.gguf"))
    for path in models:
        fields = gguf.GGUFReader(path).fields
        if "tokenizer.ggml.model" not in fields:
            continue
        model = fields["tokenizer.ggml.model"].contents()
        pre = fields.get("tokenizer.ggml.pre")
        pre = pre.contents() if pre else "default"
        if model == "gpt2":
            pre = {"starcoder": "smollm", "refact": "smollm", "mpt": "gpt-2"}.get(pre, pre)
            yield path, oracle.of_gguf(path, pre) if pre in oracle.PRE else None
        elif model == "llama":
            published = cache / "tokenizers" / "gemma3.json" if "gemma-3" in path.stem else Path("/nowhere")
            yield path, oracle.of_json(published) if published.exists() else oracle.of_gguf(path, None)


def golden(cache):
    """Goldens for the two models that the tests use."""
    sample = texts.TRICKY + texts.PROSE + texts.CODE + texts.random_texts(2, 20)
    for path, tokenizer in real(cache):
        if path.parent.name != "models":
            continue
        records = []
        for text in sample:
            plain, special = oracle.ids(tokenizer, text), oracle.ids(tokenizer, text, special=True)
            records.append({"text": text, "plain": plain} | ({"special": special} if special != plain else {}))
        write_lines(CRATE / f"tests/golden/{path.stem}.jsonl", records)


def ours(binary, path, sample, special):
    """What llamay makes of the texts."""
    lines = "".join(json.dumps(text) + "\n" for text in sample)
    command = [str(binary), str(path)] + (["--special"] if special else [])
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(binary, name, path, tokenizer, sample):
    """Prints how many texts differ, and the first; returns their number."""
    bad = 0
    for special in (False, True):
        for text, got in zip(sample, ours(binary, path, sample, special), strict=True):
            want = oracle.ids(tokenizer, text, special)
            if got != want:
                bad += 1
                if bad <= 3:
                    print(f"  {text!r}\n    llamay {got}\n    HF     {want}")
    print(f"{name}: {bad} of {2 * len(sample)} differ", flush=True)
    return bad


def live(cache, n, seed, binary):
    """Random texts through both; returns the number of differences."""
    sample = texts.chosen() + texts.random_texts(seed, n)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        bpe = tiny.train_bpe()
        for pre in oracle.PRE:
            tiny.write_gguf(path, bpe, pre=pre)
            tokenizer = oracle.bpe(bpe["tokens"], bpe["types"], bpe["merges"], pre)
            bad += compare(binary, f"tiny BPE, {pre}", path, tokenizer, sample)
        spm = tiny.train_spm()
        for prefix in (False, True):
            tiny.write_gguf(path, spm, add_space_prefix=prefix)
            tokenizer = oracle.spm(spm["tokens"], spm["types"], spm["scores"], prefix)
            bad += compare(binary, f"tiny SPM, add_space_prefix {prefix}", path, tokenizer, sample)
    for path, tokenizer in real(cache):
        if tokenizer is not None:
            bad += compare(binary, path.stem, path, tokenizer, sample)
    return bad


def build_example():
    """Builds the example and gives its path."""
    command = ["cargo", "build", "--release", "-p", "llamay-tokenizer", "--example", "encode_lines"]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples/encode_lines"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fixtures", "golden", "live"])
    parser.add_argument("--cache")
    parser.add_argument("-n", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--binary", type=Path)
    args = parser.parse_args()
    cache = cache_dir(args.cache)
    if args.what == "fixtures":
        fixtures()
    elif args.what == "golden":
        golden(cache)
    elif live(cache, args.n, args.seed, args.binary or build_example()):
        sys.exit(1)


if __name__ == "__main__":
    main()
