"""Tiny vocabularies, trained on the difficult texts so that every merge is one of theirs."""

import gguf
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import oracle
import texts

BPE_TOKENS = 900
SPM_TOKENS = 900


def _corpus():
    # Random texts make merges across all kinds of characters, so that a word cut at the wrong place shows.
    return texts.chosen() + texts.random_texts(0, 600)


def train_bpe():
    """Byte-level BPE trained without a pre-tokenizer: its merges cross every border that one draws."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    encode = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    lines = ["".join(part for part, _ in encode.pre_tokenize_str(text)) for text in _corpus() if text]
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=BPE_TOKENS, initial_alphabet=alphabet, max_token_length=8, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    model = _model(tokenizer)
    tokens = [text for text, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    added = {"<|endoftext|>": oracle.CONTROL, "<|im_start|>": oracle.CONTROL, "<|im_end|>": oracle.CONTROL}
    added |= {"<html>": oracle.USER_DEFINED, "\n\n": oracle.USER_DEFINED, "\n\n\n": oracle.USER_DEFINED}
    added = {text: kind for text, kind in added.items() if text not in model["vocab"]}
    return {
        "model": "gpt2",
        "tokens": tokens + list(added),
        "types": [oracle.NORMAL] * len(tokens) + list(added.values()),
        "merges": [" ".join(merge) for merge in model["merges"]],
    }


def train_spm():
    """A vocabulary as SentencePiece's BPE makes them: control and byte tokens first, scores by rank."""
    lines = [text.replace(" ", "\u2581") for text in _corpus() if text]
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=SPM_TOKENS, limit_alphabet=400, max_token_length=8, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    model = _model(tokenizer)
    pieces = [text for text, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    # As in SentencePiece's files, characters come last and score lowest.
    pieces = [p for p in pieces if len(p) > 1] + [p for p in pieces if len(p) == 1]
    head = {"<unk>": oracle.UNKNOWN, "<s>": oracle.CONTROL, "</s>": oracle.CONTROL}
    head |= {f"<0x{byte:02X}>": oracle.BYTE for byte in range(256)}
    head |= {"<html>": oracle.USER_DEFINED, "<end_of_turn>": oracle.CONTROL}
    pieces = [p for p in pieces if p not in head]
    return {
        "model": "llama",
        "tokens": list(head) + pieces,
        "types": list(head.values()) + [oracle.NORMAL] * len(pieces),
        "scores": [0.0] * len(head) + [-float(rank) for rank in range(len(pieces))],
    }


def _model(tokenizer):
    import json

    model = json.loads(tokenizer.to_str())["model"]
    model["merges"] = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    return model


def write_gguf(path, vocabulary, pre=None, add_space_prefix=None):
    """Writes a vocabulary as a GGUF file without tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(vocabulary["model"])
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types(vocabulary["types"])
    if pre is not None:
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(vocabulary["merges"])
    else:
        writer.add_token_scores(vocabulary["scores"])
        writer.add_add_space_prefix(add_space_prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
