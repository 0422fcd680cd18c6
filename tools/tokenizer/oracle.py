"""Hugging Face tokenizers for GGUF vocabularies, put together from what the models' tokenizer.json files say."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import ggufkeys

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def _split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def _bytes(use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UP = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOW = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _cl100k(digits, letters=r"\p{L}"):
    return _split(
        _CONTRACTION
        + rf"|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|\p{{N}}{digits}| ?[^\s{letters}\p{{N}}]+[\r\n]*|"
        + _SPACES
    )


def _cased(digits, suffix):
    words = rf"[^\r\n\p{{L}}\p{{N}}]?{_UP}*{_LOW}+{suffix}|[^\r\n\p{{L}}\p{{N}}]?{_UP}+{_LOW}*{suffix}"
    return _split(words + rf"|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + _SPACES)


_DEEPSEEK_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-"
    "\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-"
    "\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-"
    "\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-"
    "\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

_GPT2 = [_bytes(use_regex=True)]
_DIGIT_GPT2 = [pre_tokenizers.Digits(individual_digits=True), *_GPT2]

_V3_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"""
)
_HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u30ff]+"
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_EAST_ASIAN = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
    "\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_KIMI_UP = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_KIMI_LOW = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_POWERS = "".join(rf"|\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))

# name → (pre-tokenizers, ignore_merges, NFC)
PRE = {
    "gpt-2": (_GPT2, False, False),
    "smollm": (_DIGIT_GPT2, False, False),
    "command-r": (_DIGIT_GPT2, False, True),
    "default": (
        [
            _split(r"[\p{P}\$\+<=>\^~\|]+"),
            _split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
            _split(r"\p{N}+"),
            _split("[0-9][0-9][0-9]"),
            _bytes(),
        ],
        False,
        False,
    ),
    "falcon": (
        [
            pre_tokenizers.Punctuation("contiguous"),
            _split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
            _split("[0-9][0-9][0-9]"),
            _bytes(),
        ],
        False,
        False,
    ),
    "bloom": ([_split(r" ?[^(\s|.,!?…。，、।۔،)]+"), _bytes()], False, False),
    "viking": (
        [_split(r" ?[^(\s|.,!?…。，、।۔،)]+"), pre_tokenizers.Digits(individual_digits=True), _bytes()],
        False,
        False,
    ),
    "llama-bpe": ([_cl100k("{1,3}"), _bytes()], True, False),
    "dbrx": ([_cl100k("{1,3}"), _bytes()], False, False),
    "glm4": ([_cl100k("{1,3}"), _bytes()], True, False),
    "qwen2": ([_cl100k(""), _bytes()], False, True),
    "deepseek-r1-qwen": ([_cl100k(""), _bytes()], False, False),
    "qwen35": ([_cl100k("", r"\p{L}\p{M}"), _bytes()], False, False),
    "minicpm5": ([_split(r"\p{N}{1,3}"), _cl100k("+"), _bytes()], True, False),
    "seed-coder": (
        [
            _split(
                _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + _SPACES
            ),
            _bytes(),
        ],
        False,
        False,
    ),
    "bailingmoe": (
        [
            _split(
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
                r"\s*[\r\n]|\s+(?!\S)|\s+"
            ),
            _bytes(),
        ],
        False,
        False,
    ),
    "laguna": ([_split(r"[^\n]+|[\n]+"), _cl100k(""), _bytes()], False, False),
    "gpt-4o": ([_cased("{1,3}", _CONTRACTION + "?"), _bytes()], True, False),
    "minimax-m2": ([_cased("{1,3}", _CONTRACTION + "?"), _bytes()], False, False),
    "tekken": ([_cased("", ""), _bytes()], True, False),
    "deepseek-llm": (
        [
            _split("[\r\n]"),
            _split(rf"\s?[{_DEEPSEEK_CASED}]+"),
            _split(r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
            _split(r"\s+$"),
            _split(_CJK),
            _split(r"\p{N}+"),
            _bytes(),
        ],
        False,
        False,
    ),
    "deepseek-coder": (
        [
            _split("[\r\n]"),
            _split(r"\s?\p{L}+"),
            _split(r"\s?\p{P}+"),
            _split(_CJK),
            pre_tokenizers.Digits(individual_digits=True),
            _bytes(),
        ],
        False,
        False,
    ),
    "deepseek-v3": (
        [
            _split(r"\p{N}{1,3}"),
            _split(_HAN_AND_KANA),
            _split(_V3_WORDS + r"[\r\n]*|" + _SPACES),
            _bytes(),
        ],
        False,
        False,
    ),
    "spark2_5": (
        [
            _split(r"\p{N}{1,3}"),
            _split(_HAN_AND_KANA),
            _split(_V3_WORDS + r"|[\r\n]|\s+(?!\S)|\s+"),
            _split(r"\p{N}"),
            _bytes(),
        ],
        False,
        False,
    ),
    "afmoe": (
        [
            _split(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"),
            _split(_AFMOE_SCRIPTS),
            _split(_V3_WORDS + r"[\r\n]*|" + _SPACES),
            _bytes(),
        ],
        False,
        False,
    ),
    "ufakzeka": (
        [
            _split(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES),
            _bytes(),
        ],
        False,
        False,
    ),
    "jais-2": (
        [
            _split(
                _CONTRACTION
                + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                + _POWERS
                + r"|\s{1}"
            ),
            _bytes(),
        ],
        False,
        False,
    ),
    "exaone-moe": (
        [
            _split(
                _CONTRACTION
                + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|"
                + r"\s*[\r\n]|\s+(?!\S)|\s+"
            ),
            _bytes(),
        ],
        False,
        False,
    ),
    "superbpe": ([_split(r"\p{N}+"), _split(r"(?=(\d{3})+(?!\d))"), _bytes()], False, False),
    "tiny_aya": (
        [_split(r"\d{1,3}(?=(?:\d{3})*\b)"), _cased("{1,3}", _CONTRACTION + "?"), _bytes()],
        False,
        False,
    ),
    "youtu": ([_split(_EAST_ASIAN), _cased("", _CONTRACTION + "?"), _bytes()], True, False),
    "kimi-k2": (
        [
            _split(
                rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{_KIMI_UP}*{_KIMI_LOW}+{_CONTRACTION}?|"
                rf"[^\r\n\p{{L}}\p{{N}}]?{_KIMI_UP}+{_KIMI_LOW}*{_CONTRACTION}?|"
                r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
            ),
            _bytes(),
        ],
        False,
        False,
    ),
}


def byte_alphabet():
    """The character that GPT-2 writes for each byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _add(tokenizer, tokens, types):
    # Adding in the order of ids keeps them: each is in the vocabulary already.
    for text, kind in zip(tokens, types):
        # Old converters left this one unmarked.
        kind = CONTROL if text == "<|endoftext|>" else kind
        if kind in (CONTROL, USER_DEFINED, UNKNOWN):
            tokenizer.add_tokens([AddedToken(text, special=kind != USER_DEFINED, normalized=False)])
    return tokenizer


def bpe(tokens, types, merges, pre):
    """A byte-level BPE tokenizer with the named pre-tokenizer."""
    steps, ignore_merges, nfc = PRE[pre]
    ids = {text: i for i, text in enumerate(tokens)}
    pairs = [_pair(merge) for merge in merges]
    tokenizer = Tokenizer(models.BPE(ids, pairs, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return _add(tokenizer, tokens, types)


def text_bpe(tokens, types, merges):
    """A BPE vocabulary over characters with SentencePiece's spelling, as Gemma's tokenizer.json has it."""
    ids = {text: i for i, text in enumerate(tokens)}
    pairs = [_pair(merge) for merge in merges]
    tokenizer = Tokenizer(models.BPE(ids, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    return _add(tokenizer, tokens, types)


def _pair(merge):
    # The first part may itself be a space.
    space = merge.index(" ", 1)
    return merge[:space], merge[space + 1 :]


def wpm(tokens, types):
    """A WordPiece vocabulary, whose pieces GGUF writes with a mark at the start of words."""
    mark = "\u2581"
    special = {text for text, kind in zip(tokens, types) if kind in (CONTROL, UNKNOWN)}
    plain = [t if t in special else t[1:] if t.startswith(mark) else "##" + t for t in tokens]
    ids = {text: i for i, text in enumerate(plain)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _add(tokenizer, plain, types)


def spm_merges(tokens, scores):
    """All merges that make tokens, best score first: how transformers turns SentencePiece files into BPE."""
    ids = {text: i for i, text in enumerate(tokens)}
    merges = []
    for text, score in zip(tokens, scores):
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in ids and right in ids:
                merges.append((left, right, score))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [(left, right) for left, right, _ in merges]


def spm(tokens, types, scores, space_prefix):
    """A SentencePiece vocabulary as BPE with byte fallback."""
    ids = {text: i for i, text in enumerate(tokens)}
    plain = [t if kind in (NORMAL, USER_DEFINED) else "" for t, kind in zip(tokens, types)]
    model = models.BPE(
        ids, spm_merges(plain, scores), unk_token="<unk>", byte_fallback=True, fuse_unk=True
    )
    tokenizer = Tokenizer(model)
    replace = normalizers.Replace(" ", "\u2581")
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend("\u2581"), replace]) if space_prefix else replace
    )
    return _add(tokenizer, tokens, types)


def of_gguf(path, pre):
    """The tokenizer of a GGUF file's vocabulary; a BPE one with the named pre-tokenizer."""
    get = ggufkeys.tokenizer(path).get
    tokens = get("tokens")
    types = get("token_type", [NORMAL] * len(tokens))
    if get("model") == "gpt2":
        return bpe(tokens, types, get("merges"), pre)
    if get("model") == "gemma4":
        return text_bpe(tokens, types, get("merges"))
    if get("model") == "bert":
        return wpm(tokens, types)
    return spm(tokens, types, get("scores"), get("add_space_prefix", True))


def of_json(path):
    """The tokenizer of a tokenizer.json, without what it adds before and after."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["post_processor"] = None
    return Tokenizer.from_str(json.dumps(config))


def ids(tokenizer, text, special=False):
    """The ids of a text. Without special, text that spells a control token stays text."""
    tokenizer.encode_special_tokens = not special
    return tokenizer.encode(text, add_special_tokens=False).ids
