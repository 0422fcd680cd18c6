"""Rotary scaling: what is computed from its parameters in `config.json`."""

import math
from typing import Any

import numpy as np

from hf_config import ConvertError


def number(rope: dict[str, Any], key: str) -> float:
    """A parameter that has to be there."""
    if rope.get(key) is None:
        raise ConvertError(f"the rotary scaling in config.json lacks {key}")
    return float(rope[key])


def usual_yarn_magnitude(factor: float) -> float:
    """By what YaRN multiplies sines and cosines, unless it is told otherwise."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def yarn_magnitude(rope: dict[str, Any]) -> float:
    """By what these parameters make YaRN multiply sines and cosines."""
    factor = number(rope, "factor")

    def scale(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1.0 else 1.0

    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return scale(rope["mscale"]) / scale(rope["mscale_all_dim"])
    return usual_yarn_magnitude(factor)


def llama3_divisors(rope: dict[str, Any], n_rot: int) -> np.ndarray:
    """Llama 3.1's divisor of each pair's frequency: 1 for short wavelengths, `factor` for long ones, a ramp between."""
    factor, low, high = (number(rope, key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    theta, original = number(rope, "rope_theta"), number(rope, "original_max_position_embeddings")
    # Single precision, as the published models were trained and converted.
    frequency = 1.0 / np.float32(theta) ** (np.arange(0, n_rot, 2, dtype=np.float32) / np.float32(n_rot))
    divisors = []
    for f in frequency.astype(np.float64):
        turns = original * f / (2 * math.pi)
        if turns > high:
            divisors.append(1.0)
        elif turns < low:
            divisors.append(factor)
        else:
            smooth = (turns - low) / (high - low)
            divisors.append(1.0 / ((1.0 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)


def long_rope_factors(rope: dict[str, Any], n_rot: int) -> dict[str, np.ndarray]:
    """The two tables of divisors, one a pair: for contexts up to the original length, and beyond."""
    factors = {}
    for kind in ("long", "short"):
        values = rope.get(f"{kind}_factor")
        if not isinstance(values, list) or len(values) != n_rot // 2:
            raise ConvertError(f"{kind}_factor in config.json has to be a list of {n_rot // 2} numbers")
        factors[f"rope_factors_{kind}.weight"] = np.array(values, dtype=np.float32)
    return factors
