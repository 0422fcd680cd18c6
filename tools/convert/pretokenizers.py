"""`tokenizer.ggml.pre`: the name of a byte-level tokenizer's pre-tokenizer, from what its `tokenizer.json` says.

Names stand for regular expressions, for whether a word that is a token is taken whole (`ignore_merges`), and for
Unicode normalization form C. Of names that mean the same, the table has the best known.
"""

import re
from typing import Any

from hf_config import ConvertError

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT2_NO_LAST = GPT2.removesuffix(r"|\s+")
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + SPACES
)
SPARK = V3.replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+", r"[\p{P}\p{S}]+|[\r\n]")
HAN_AND_KANA = "[一-龥\u3040-ヿ]+"
# Of very long character classes, the beginning.
LONG, KEPT = 200, 12
DEEPSEEK_CASED = "\\s?[A-Za-zµÀ…"
PUNCTUATION = "punctuation"


def cl100k(digits: str, letters: str = r"\p{L}") -> str:
    """The pattern of GPT-4, Llama 3, Qwen and others."""
    return (
        CONTRACTION
        + rf"|[^\r\n\p{{L}}\p{{N}}]?{letters}+|\p{{N}}{digits}| ?[^\s{letters.strip('[]')}\p{{N}}]+[\r\n]*|"
        + SPACES
    )


def cased(digits: str, contraction: str) -> str:
    """The pattern of GPT-4o and of Mistral's Tekken: words end before a capital letter."""
    words = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{contraction}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{contraction}"
    return words + rf"|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + SPACES


SEED_CODER = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES
DEEPSEEK_LLM = (
    r"[\r\n]", DEEPSEEK_CASED, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK, r"\p{N}+",
)

# Patterns, ignore_merges, NFC: name.
NAMES: dict[tuple[tuple[str, ...], bool, bool], str] = {
    ((GPT2,), False, False): "gpt-2",
    ((r"\p{N}", GPT2), False, False): "smollm",
    ((r"\p{N}", GPT2), False, True): "command-r",
    ((PUNCTUATION, GPT2, "[0-9][0-9][0-9]"), False, False): "falcon",
    ((PUNCTUATION, GPT2, r"\p{N}+", "[0-9][0-9][0-9]"), False, False): "falcon",
    ((BLOOM,), False, False): "bloom",
    ((BLOOM, r"\p{N}"), False, False): "viking",
    ((cl100k("{1,3}"),), True, False): "llama-bpe",
    ((cl100k("{1,3}"),), False, False): "dbrx",
    ((cl100k(""),), False, True): "qwen2",
    ((cl100k(""),), False, False): "deepseek-r1-qwen",
    ((cl100k("", r"[\p{L}\p{M}]"),), False, False): "qwen35",
    ((SEED_CODER,), False, False): "seed-coder",
    ((cased("{1,3}", CONTRACTION + "?"),), True, False): "gpt-4o",
    ((cased("{1,3}", CONTRACTION + "?"),), False, False): "minimax-m2",
    ((cased("", ""),), True, False): "tekken",
    (DEEPSEEK_LLM, False, False): "deepseek-llm",
    ((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"), False, False): "deepseek-coder",
    ((r"\p{N}{1,3}", HAN_AND_KANA, V3), False, False): "deepseek-v3",
    ((r"\p{N}{1,3}", HAN_AND_KANA, SPARK, r"\p{N}"), False, False): "spark2_5",
    ((r"\p{N}{1,3}", cl100k("+")), True, False): "minicpm5",
    ((r"[^\n]+|[\n]+", cl100k("")), False, False): "laguna",
    ((cl100k("").removeprefix(CONTRACTION + "|"),), False, False): "ufakzeka",
}


def canonical(pattern: str) -> str:
    """The same pattern as the table writes it."""
    for variant in (
        "'(?i:[sdmt]|ll|ve|re)",
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
        "(?:'s|'S|'t|'T|'re|'RE|'rE|'Re|'ve|'VE|'vE|'Ve|'m|'M|'ll|'LL|'lL|'Ll|'d|'D)",
    ):
        pattern = pattern.replace(variant, CONTRACTION)
    # Possessive repetitions: none of these patterns could give anything back.
    pattern = pattern.replace("?+", "?").replace("++", "+")
    pattern = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), pattern)
    for long, short in (
        ("\r", r"\r"), ("\n", r"\n"), (r"\p{N}{1}", r"\p{N}"), (r"[\p{L}]", r"\p{L}"), ("ゟ゠-ヿ", "ヿ"),
        # The spaces before take all line ends but one.
        (r"\s*[\r\n]|\s+(?!\S)", r"\s*[\r\n]+|\s+(?!\S)"),
    ):
        pattern = pattern.replace(long, short)
    # What is left of a text between matches is a word of its own, and this pattern's last part only matches that.
    pattern = GPT2 if pattern == GPT2_NO_LAST else pattern
    return re.sub(rf"(\[[^\]]{{{KEPT - 4}}})[^\]]{{{LONG},}}\]\+", r"\1…", pattern)


def _steps(step: dict[str, Any] | None) -> list[str]:
    """The patterns of a pre-tokenizer and its parts, in order."""
    kind = (step or {}).get("type")
    match kind:
        case None:
            return []
        case "Sequence":
            return [pattern for part in step["pretokenizers"] for pattern in _steps(part)]
        case "ByteLevel" if not step.get("add_prefix_space"):
            return [GPT2] if step.get("use_regex", True) else []
        case "Digits":
            return [r"\p{N}" if step.get("individual_digits") else r"\p{N}+"]
        case "Punctuation" if step.get("behavior") == "Contiguous":
            return [PUNCTUATION]
        case "Split":
            pattern = step["pattern"].get("Regex")
            isolated = (step.get("behavior"), bool(step.get("invert"))) in (("Isolated", False), ("Removed", True))
            if pattern is not None and isolated:
                return [canonical(pattern)]
    return [f"a step {step!r} that has no name"]


def _normalizer(step: dict[str, Any] | None) -> bool | None:
    """Whether a text is brought into form C; `None` if something else is done to it."""
    if step is None or (step["type"] == "Sequence" and not step["normalizers"]):
        return False
    if step["type"] == "Sequence" and len(step["normalizers"]) == 1:
        step = step["normalizers"][0]
    return True if step["type"] == "NFC" else None


def name(tokenizer: dict[str, Any]) -> str:
    """The name for a `tokenizer.json`."""
    patterns = tuple(_steps(tokenizer.get("pre_tokenizer")))
    nfc = _normalizer(tokenizer.get("normalizer"))
    ignore_merges = bool(tokenizer["model"].get("ignore_merges"))
    found = NAMES.get((patterns, ignore_merges, bool(nfc))) if nfc is not None else None
    if found is None:
        raise ConvertError(
            "the pre-tokenizer of tokenizer.json has no name that is known; if you know which it is, say --pre NAME"
            f" (its patterns: {list(patterns)}, ignore_merges: {ignore_merges},"
            f" normalizer: {tokenizer.get('normalizer')})"
        )
    return found
