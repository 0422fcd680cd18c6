"""Vocabularies that packages publish, each as a vocabulary to write as GGUF and its authors' own encoder.

They lie in the cache folder that `tools/fetch.py --vectors` fills.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import oracle

# tokenizer.json by the name that fetch.py gives it → what llamay calls its pre-tokenizer.
JSON_PRE = {
    "qwen3": "qwen2",
    "llama3": "llama-bpe",
    "llama3.1": "llama-bpe",
    "gpt-oss": "gpt-4o",
    "deepseek-v3": "deepseek-v3",
    "gemma3": "gemma4",
}


@dataclass
class Published:
    """A vocabulary, the keys that `tiny.write_gguf` takes beside it, and (text, special) → ids.

    The encoder gives None where its library has no notion of control tokens in a text.
    """

    name: str
    vocabulary: dict
    keys: dict
    encode: Callable[[str, bool], list[int] | None]


def of_json(path: Path, pre: str) -> Published:
    """A Hugging Face tokenizer.json, encoded by the library that wrote it."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    model, added = config["model"], config["added_tokens"]
    kinds = {t["id"]: oracle.CONTROL if t["special"] else oracle.USER_DEFINED for t in added}
    texts = {i: text for text, i in model["vocab"].items()} | {t["id"]: t["content"] for t in added}
    size = max(texts) + 1

    def kind(i: int) -> int:
        if model["byte_fallback"] and texts.get(i, "").startswith("<0x") and i not in kinds:
            return oracle.BYTE
        return kinds.get(i, oracle.NORMAL if i in texts else oracle.UNUSED)

    vocabulary = {
        "model": "gemma4" if model["byte_fallback"] else "gpt2",
        "tokens": [texts.get(i, f"[unused{i}]") for i in range(size)],
        "types": [kind(i) for i in range(size)],
        "merges": [m if isinstance(m, str) else " ".join(m) for m in model["merges"]],
    }
    tokenizer = oracle.of_json(path)
    return Published(path.stem, vocabulary, {"pre": pre}, lambda text, special: oracle.ids(tokenizer, text, special))


def of_sentencepiece(path: Path) -> Published:
    """A SentencePiece model, encoded by SentencePiece."""
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_file=str(path))
    size = model.vocab_size()
    kinds = (
        (model.is_unknown, oracle.UNKNOWN),
        (model.is_control, oracle.CONTROL),
        (model.is_byte, oracle.BYTE),
        (model.is_unused, oracle.UNUSED),
    )
    vocabulary = {
        "model": "llama",
        "tokens": [model.id_to_piece(i) for i in range(size)],
        "types": [next((kind for test, kind in kinds if test(i)), oracle.NORMAL) for i in range(size)],
        "scores": [model.get_score(i) for i in range(size)],
    }
    return Published(
        f"mistral {path.suffix[1:]}",
        vocabulary,
        {"add_space_prefix": True},
        lambda text, special: None if special else model.encode(text),
    )


def of_tekken(path: Path) -> Published:
    """A tekken.json, encoded by tiktoken. Its tokens come with ranks, not merges."""
    import tiktoken

    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    n_special = config["config"]["default_num_special_tokens"]
    n_words = config["config"]["default_vocab_size"] - n_special
    ranks = {base64.b64decode(word["token_bytes"]): i for i, word in enumerate(config["vocab"][:n_words])}
    pattern = config["config"]["pattern"]
    encoding = tiktoken.Encoding("tekken", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    spell = oracle.byte_alphabet()
    special = [f"<SPECIAL_{i}>" for i in range(n_special)]
    vocabulary = {
        "model": "gpt2",
        "tokens": special + ["".join(spell[byte] for byte in word) for word in ranks],
        "types": [oracle.CONTROL] * n_special + [oracle.NORMAL] * n_words,
        "merges": [" ".join("".join(spell[b] for b in part) for part in pair) for pair in rank_merges(ranks)],
    }
    return Published(
        "mistral tekken",
        vocabulary,
        {"pre": "tekken"},
        lambda text, special: None if special else [n_special + i for i in encoding.encode_ordinary(text)],
    )


def rank_merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """All ways to join two tokens into a third, the lowest third first: how ranks read as merges."""
    cuts = ((word[:at], word[at:]) for word in ranks for at in range(1, len(word)))
    return [(left, right) for left, right in cuts if left in ranks and right in ranks]


def of_gpt2(folder: Path) -> Published:
    """GPT-2's vocabulary and merges as its authors published them."""
    ids = json.loads((folder / "gpt2_vocab.json").read_text(encoding="utf-8"))
    lines = (folder / "gpt2_merges.txt").read_text(encoding="utf-8").split("\n")
    merges = [line for line in lines[1:] if line]
    tokens = sorted(ids, key=ids.get)
    types = [oracle.CONTROL if text == "<|endoftext|>" else oracle.NORMAL for text in tokens]
    vocabulary = {"model": "gpt2", "tokens": tokens, "types": types, "merges": merges}
    tokenizer = oracle.bpe(tokens, types, merges, "gpt-2")
    return Published("gpt2", vocabulary, {"pre": "gpt-2"}, lambda text, special: oracle.ids(tokenizer, text, special))


def loaders(cache: Path) -> list[tuple]:
    """What `load` takes for each vocabulary in the cache."""
    folder = cache / "tokenizers"
    found = [
        *((of_json, folder / f"{name}.json", pre) for name, pre in JSON_PRE.items()),
        *((of_sentencepiece, path) for path in sorted((folder / "mistral").glob("*.model.*"))),
        *((of_tekken, path) for path in sorted((folder / "mistral").glob("tekken_*.json"))),
        (of_gpt2, folder / "gpt2"),
    ]
    return [loader for loader in found if loader[1].exists()]


def load(loader: tuple) -> Published:
    """One of `loaders`; takes up to a few seconds."""
    function, *arguments = loader
    return function(*arguments)
