"""The tiny Hugging Face models whose converted files are the generated models of `model/src/shapes`.

Every twin has the features of real models of its kind, shorter: two or three layers, windows shorter than the prompt, a
few experts. A hidden size of 256 lets every block format fit; some twins have odd sizes instead.
"""

from twins import dense, mixtures, older, scaled
from twins.base import N_VOCAB, Twin

__all__ = ["N_VOCAB", "TWINS", "Twin"]

TWINS: list[Twin] = [*dense.TWINS, *scaled.TWINS, *older.TWINS, *mixtures.TWINS]

assert len({twin.name for twin in TWINS}) == len(TWINS), "two twins of one name"
