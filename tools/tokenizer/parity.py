#!/usr/bin/env python3
"""Compares llamay's tokenizer with Hugging Face's, and makes the golden files that `cargo test` checks.

    pip install -r requirements.txt
    parity.py fixtures                  # tests/fixtures/*.json, tests/golden/tiny-*: tiny vocabularies and the texts' tokens
    parity.py golden [--cache DIR]      # tests/golden/*.jsonl: the same for real vocabularies in the cache folder
    parity.py live [--cache DIR] [-n N] [--seed S] [--binary PATH]   # N random texts for every vocabulary there is

`live` runs the example `encode_lines` (built with cargo unless --binary gives it) and prints each vocabulary's number
of differences; exit status 1 if there are any. `make test-vectors` is `vectors.py`, which brings all that this needs.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ggufkeys
import oracle
import published
import texts
import tiny

GOLDEN_MODELS = ("smollm2-135m-instruct-q4_1", "gemma-3-270m-q4_k_m")
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
        if pre in ("dbrx", "glm4", "bailingmoe", "minimax-m2"):
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


# Names whose tokenizer is that of another in `oracle.PRE`.
SAME_PRE = {"starcoder": "smollm", "refact": "smollm", "mpt": "gpt-2"}


def real_files(cache):
    """The GGUF files in the cache folder whose vocabulary llamay reads."""
    for path in sorted((cache / "models").glob("*.gguf")) + sorted((cache / "vocabs").glob("*.gguf")):
        if ggufkeys.tokenizer_model(path) in ("llama", "gpt2", "gemma4", "bert"):
            yield path


def hugging_face(path, cache):
    """Hugging Face's tokenizer for a GGUF file; None where it is not known."""
    keys = ggufkeys.tokenizer(path)
    model, pre = keys["model"], keys.get("pre", "default")
    pre = SAME_PRE.get(pre, pre)
    gemma3 = cache / "tokenizers" / "gemma3.json"
    if model == "llama" and "gemma-3" in path.stem and gemma3.exists():
        return oracle.of_json(gemma3)
    return None if model == "gpt2" and pre not in oracle.PRE else oracle.of_gguf(path, pre)


def golden(cache):
    """Goldens for the two models that the tests use."""
    sample = texts.TRICKY + texts.PROSE + texts.CODE + texts.random_texts(2, 20)
    for path in real_files(cache):
        if path.stem not in GOLDEN_MODELS:
            continue
        tokenizer = hugging_face(path, cache)
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


class Comparison:
    """What every worker has: the program, the texts and the cache folder. A task is a method and its arguments."""

    def __init__(self, binary, sample, cache):
        self.binary, self.sample, self.cache = binary, sample, cache

    def run(self, task):
        """The report of one vocabulary and its number of differences."""
        method, *args = task
        name, path, encode = getattr(self, method)(*args)
        try:
            return self.compare(name, path, encode)
        finally:
            if path.parent == Path(tempfile.gettempdir()):
                path.unlink()

    def compare(self, name, path, encode):
        """`encode` takes a text and whether control tokens are parsed; where it gives None nothing is compared."""
        lines, bad, n = [], 0, 0
        for special in (False, True):
            want = [encode(text, special) for text in self.sample]
            if None in want:
                continue
            for text, ids, got in zip(self.sample, want, ours(self.binary, path, self.sample, special), strict=True):
                n += 1
                if got != ids:
                    bad += 1
                    lines += [f"  {text!r}", f"    llamay {got}", f"    theirs {ids}"] if bad <= 3 else []
        return "\n".join([f"{name}: {bad} of {n} differ", *lines]), bad

    def written(self, vocabulary, keys):
        """A file with the vocabulary, for `run` to remove."""
        handle, path = tempfile.mkstemp(suffix=".gguf")
        os.close(handle)
        tiny.write_gguf(path, vocabulary, **keys)
        return Path(path)

    def tiny_bpe(self, vocabulary, pre):
        tokenizer = oracle.bpe(vocabulary["tokens"], vocabulary["types"], vocabulary["merges"], pre)
        path = self.written(vocabulary, {"pre": pre})
        return f"tiny BPE, {pre}", path, lambda text, special: oracle.ids(tokenizer, text, special)

    def tiny_spm(self, vocabulary, prefix):
        tokenizer = oracle.spm(vocabulary["tokens"], vocabulary["types"], vocabulary["scores"], prefix)
        path = self.written(vocabulary, {"add_space_prefix": prefix})
        name = f"tiny SPM, add_space_prefix {prefix}"
        return name, path, lambda text, special: oracle.ids(tokenizer, text, special)

    def file(self, path):
        tokenizer = hugging_face(path, self.cache)
        return path.stem, path, lambda text, special: tokenizer and oracle.ids(tokenizer, text, special)

    def published(self, loader):
        known = published.load(loader)
        return f"published {known.name}", self.written(known.vocabulary, known.keys), known.encode


def live(cache, n, seed, binary):
    """Random texts through both; returns the number of differences."""
    comparison = Comparison(binary, texts.chosen() + texts.random_texts(seed, n), cache)
    bpe, spm = tiny.train_bpe(), tiny.train_spm()
    # The large ones first, so that no worker ends alone with one of them.
    tasks = [("file", path) for path in real_files(cache)]
    tasks.sort(key=lambda task: -task[1].stat().st_size)
    tasks = [("published", loader) for loader in published.loaders(cache)] + tasks
    tasks += [("tiny_spm", spm, prefix) for prefix in (False, True)]
    tasks += [("tiny_bpe", bpe, pre) for pre in oracle.PRE]
    total = 0
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        for report, bad in pool.imap_unordered(comparison.run, tasks):
            print(report, flush=True)
            total += bad
    print(f"{len(tasks)} vocabularies, {total} differences")
    return total


def build_example():
    """Builds the example and gives its path."""
    command = ["cargo", "build", "--quiet", "-p", "llamay-tokenizer", "--example", "encode_lines"]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "debug/examples/encode_lines"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fixtures", "golden", "live"])
    parser.add_argument("--cache")
    parser.add_argument("-n", type=int, default=1500)
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
