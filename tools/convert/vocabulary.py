"""The metadata of a tokenizer: `tokenizer.*`."""

import pathlib
from typing import Any

import pretokenizers
import sentencepiece_model
from checkpoint import read_json
from hf_config import ConvertError, reading

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"
# The score of tokens that no merge makes; it takes part in nothing.
NO_SCORE = -10000.0
# GGUF's names of special tokens, and transformers'.
SPECIAL = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}


class Vocabulary:
    """The tokens by id, with holes, and what else the keys need."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.config = self._optional("tokenizer_config.json")
        self.json = self._optional("tokenizer.json")
        self.model_config = self._optional("config.json")
        self.tokens: dict[int, tuple[str, int, float]] = {}
        self.values: dict[str, Any] = {}

    def _optional(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return read_json(path) if path.is_file() else {}

    def read(self, pre: str | None) -> None:
        """Reads the folder's tokenizer, whichever it is."""
        model = self.json.get("model", {})
        kind, bpe = model.get("type"), "merges" in model
        spm_file = self.folder / "tokenizer.model"
        if bpe and not model.get("byte_fallback"):
            self.read_byte_level(model, pre)
        elif spm_file.is_file():
            self.read_sentencepiece(sentencepiece_model.parse(spm_file.read_bytes()))
        elif bpe:
            self.read_ranked(model)
        elif self.json:
            raise ConvertError(f"a tokenizer.json of the kind {kind!r} is not supported, only BPE")
        else:
            raise ConvertError(f"{self.folder} has neither tokenizer.json nor tokenizer.model; no other is read")

    def read_byte_level(self, model: dict[str, Any], pre: str | None) -> None:
        """BPE over bytes, as in GPT-2."""
        for key in ("continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(key):
                raise ConvertError(f"a tokenizer.json with {key} is not supported")
        self.values["tokenizer.ggml.model"] = "gpt2"
        self.values["tokenizer.ggml.pre"] = pre or pretokenizers.name(self.json)
        self.tokens = {index: (text, NORMAL, 0.0) for text, index in model["vocab"].items()}
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        self.values["tokenizer.ggml.merges"] = merges

    def read_sentencepiece(self, model: sentencepiece_model.SentencePieceModel) -> None:
        """SentencePiece's own file."""
        if model.model_type != sentencepiece_model.BPE:
            raise ConvertError("tokenizer.model is not of the kind BPE; Unigram models are not supported")
        self.tokens = {i: (text, kind, score) for i, (text, score, kind) in enumerate(model.pieces)}
        self.set_sentencepiece(model.add_dummy_prefix)

    def read_ranked(self, model: dict[str, Any]) -> None:
        """A SentencePiece vocabulary as transformers stores it: merges in the order that the scores had."""
        ranks: dict[str, int] = {}
        for rank, merge in enumerate(model["merges"]):
            text = merge.replace(" ", "", 1) if isinstance(merge, str) else "".join(merge)
            ranks.setdefault(text, rank)
        for text, index in model["vocab"].items():
            byte = len(text) == 6 and text.startswith("<0x") and text.endswith(">")
            kind = BYTE if byte else UNKNOWN if text == model.get("unk_token") else NORMAL
            self.tokens[index] = (text, kind, -float(ranks[text]) if text in ranks else NO_SCORE)
        self.set_sentencepiece(_adds_space(self.json))

    def set_sentencepiece(self, space_prefix: bool) -> None:
        self.values["tokenizer.ggml.model"] = "llama"
        self.values["tokenizer.ggml.pre"] = "default"
        self.values["tokenizer.ggml.add_space_prefix"] = space_prefix

    def added(self) -> dict[int, tuple[str, bool]]:
        """Text of the added tokens by id, and whether they are special; later sources win."""
        added = {index: (text, False) for text, index in self._optional("added_tokens.json").items()}
        listed = {int(i): token for i, token in self.config.get("added_tokens_decoder", {}).items()}
        listed |= {int(token["id"]): token for token in self.json.get("added_tokens", [])}
        return added | {i: (token["content"], bool(token.get("special"))) for i, token in listed.items()}

    def add(self) -> None:
        """Puts the added tokens in."""
        sentencepiece = self.values["tokenizer.ggml.model"] == "llama"
        for index, (text, special) in self.added().items():
            kind = CONTROL if special or _looks_special(text) else USER_DEFINED
            if self.tokens.get(index, ("", NORMAL, 0.0))[1] in (UNKNOWN, BYTE):
                kind = self.tokens[index][1]
            if sentencepiece and kind == USER_DEFINED:
                text = text.replace(SPACE, " ")
            self.tokens[index] = (text, kind, -1000.0 if kind in (CONTROL, USER_DEFINED) else self.tokens[index][2])

    def fill(self, n_vocab: int, note) -> None:
        """Sets the lists of tokens: as many as the embedding has rows."""
        beyond = [index for index in self.tokens if index >= n_vocab]
        if beyond and not set(beyond) <= set(self.added()):
            raise ConvertError(f"the tokenizer has token {max(beyond)}, and the embedding only {n_vocab} rows")
        if beyond:
            note(f"note: {len(beyond)} added tokens are beyond the embedding's {n_vocab} rows and are left out")
        filled = [self.tokens.get(i, (f"[PAD{i}]", UNUSED, NO_SCORE)) for i in range(n_vocab)]
        texts, kinds, scores = (list(column) for column in zip(*filled))
        self.values["tokenizer.ggml.tokens"] = texts
        self.values["tokenizer.ggml.token_type"] = kinds
        if self.values["tokenizer.ggml.model"] == "llama":
            self.values["tokenizer.ggml.scores"] = scores

    def special(self) -> None:
        """Sets the ids of special tokens, and whether they stand around a text."""
        ids = {text: index for index, (text, _, _) in self.tokens.items()}
        n_vocab = len(self.values["tokenizer.ggml.tokens"])
        for key, name in SPECIAL.items():
            text = self.config.get(f"{name}_token")
            text = text.get("content") if isinstance(text, dict) else text
            index = ids.get(text) if text else self.model_config.get(f"{name}_token_id")
            index = index[0] if isinstance(index, list) and index else index
            if isinstance(index, int) and 0 <= index < n_vocab:
                self.values[f"tokenizer.ggml.{key}_token_id"] = index
        before, after = _around(self.json.get("post_processor"))
        for key, place in (("bos", before), ("eos", after)):
            flag = self.config.get(f"add_{key}_token")
            if not isinstance(flag, bool):
                index = self.values.get(f"tokenizer.ggml.{key}_token_id")
                flag = index is not None and self.tokens[index][0] in place
                if not self.json:
                    continue  # The field's default for the kind of vocabulary.
            self.values[f"tokenizer.ggml.add_{key}_token"] = flag

    def templates(self) -> None:
        """Sets the chat templates."""
        path = self.folder / "chat_template.jinja"
        template = path.read_text(encoding="utf-8") if path.is_file() else self.config.get("chat_template")
        if isinstance(template, str):
            self.values["tokenizer.chat_template"] = template
        elif isinstance(template, list):
            named = {entry["name"]: entry["template"] for entry in template}
            if "default" in named:
                self.values["tokenizer.chat_template"] = named.pop("default")
            if named:
                self.values["tokenizer.chat_templates"] = list(named)
                self.values |= {f"tokenizer.chat_template.{name}": text for name, text in named.items()}


def _looks_special(text: str) -> bool:
    """Tokens that are markup although their models do not mark them as special."""
    return (
        (text.startswith("<|") and text.endswith("|>"))
        or (text.startswith("<｜") and text.endswith("｜>"))
        or (text.startswith("<unused") and text.endswith(">"))
        or text in ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
    )


def _adds_space(tokenizer: dict[str, Any]) -> bool:
    """Whether a space is put before a text."""
    steps = [tokenizer.get("normalizer"), tokenizer.get("pre_tokenizer")]
    while steps:
        step = steps.pop()
        if step is None:
            continue
        if step.get("type") == "Prepend" or step.get("prepend_scheme") in ("first", "always"):
            return True
        if step.get("type") == "Metaspace" and "prepend_scheme" not in step and step.get("add_prefix_space"):
            return True
        steps += step.get("normalizers", []) + step.get("pretokenizers", [])
    return False


def _around(step: dict[str, Any] | None) -> tuple[list[str], list[str]]:
    """The special tokens that a post-processor puts before and behind a text."""
    if step is None:
        return [], []
    if step["type"] == "Sequence":
        parts = [_around(part) for part in step["processors"]]
        return [t for before, _ in parts for t in before], [t for _, after in parts for t in after]
    before: list[str] = []
    after: list[str] = []
    if step["type"] == "TemplateProcessing":
        place = before
        for piece in step["single"]:
            if "Sequence" in piece:
                place = after
            else:
                place.append(piece["SpecialToken"]["id"])
    return before, after


def vocabulary(folder: pathlib.Path, pre: str | None = None, n_vocab: int | None = None, note=lambda text: None):
    """The metadata of the tokenizer in a folder.

    `pre` is the name of the pre-tokenizer of a byte-level vocabulary, which is found out otherwise. `n_vocab` are the
    rows of the embedding; by default config.json's `vocab_size`, else the number of tokens.
    """
    vocab = Vocabulary(pathlib.Path(folder))
    with reading(f"the tokenizer in {folder}"):
        vocab.read(pre)
        vocab.add()
        config = vocab.model_config
        size = (config.get("text_config") or {}).get("vocab_size", config.get("vocab_size"))
        vocab.fill(n_vocab or size or max(vocab.tokens) + 1, note)
        vocab.special()
        vocab.templates()
    return vocab.values
