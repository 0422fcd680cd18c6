"""Where llama.cpp (llama-cpp-python 0.3.36) is known to compute something else than a model's authors do, or nothing.

llamay follows Hugging Face transformers there; its logits of the same files are tested against those.
"""

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Departure:
    """A reason, the models it holds for, and what has to agree all the same."""

    # Patterns of model names, or of architectures with a colon before.
    models: tuple[str, ...]
    reason: str
    # It does not touch so many first positions.
    rows: int | None = None
    # With float32 weights it stays within this error, as a share of the greatest logit.
    error: float | None = None
    # llama.cpp does not run the file.
    refuses: bool = False


# A model takes the first that fits.
DEPARTURES = [
    Departure(("mistral-window",), "ignores the windows of llama files", rows=12),
    Departure(("phi3", "phi3-split"), "ignores the windows of phi3 files", rows=12),
    Departure(("phi3-short",), "chooses divisors by its context, which is 256 at least"),
    Departure(("mixtral-split",), "no longer reads experts in tensors of their own", refuses=True),
    Departure(("llama-yarn",), "reads the ends of YaRN's ramp in mistral3 files only"),
    Departure(("gpt-oss",), "rounds the ends of YaRN's ramp, which this model does not"),
    Departure(("gemma3-deep",), "computes the factor on gemma3's scores from sizes and ignores its key"),
    Departure(("llama-partial-rope",), "wants llama's heads to turn whole", refuses=True),
    Departure(("baichuan",), "tells Baichuan 7B by its 32 layers and gives others no rotary positions"),
    Departure(("exaone4",), "knows exaone4's windows by 64 layers only"),
    Departure(("command-r-plus",), "looks for command-r's norms of heads in models of 64 layers or more", refuses=True),
    Departure((":gemma*", ":gpt2", ":starcoder*", ":phi2", ":falcon", ":gptneox"), "takes GELU from a float16 table",
              error=2e-3),
]


def of(name: str, architecture: str) -> Departure | None:
    """The departure that a model is known for."""
    for departure in DEPARTURES:
        for pattern in departure.models:
            if fnmatch.fnmatchcase(f":{architecture}" if pattern.startswith(":") else name, pattern):
                return departure
    return None
