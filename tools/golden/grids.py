"""Prints formats/src/grids/packed.rs: the code books of the i-quants, packed, as the gguf package has them.

    python tools/golden/grids.py > formats/src/grids/packed.rs

The books are part of the file format. tests/golden.rs checks the expanded books against hashes that make.py writes.
"""

import gguf.quants as quants

# (constant, class, bits of one element, what an element's field stands for)
BOOKS = [
    ("IQ2_XXS", quants.IQ2_XXS, 2, "0, 1, 2 for 8, 25, 43"),
    ("IQ2_XS", quants.IQ2_XS, 2, "0, 1, 2 for 8, 25, 43"),
    ("IQ2_S", quants.IQ2_S, 2, "0, 1, 2 for 8, 25, 43"),
    ("IQ3_XXS", quants.IQ3_XXS, 4, "0 to 7 for 4, 12, 20, 28, 36, 44, 52, 62"),
    ("IQ3_S", quants.IQ3_S, 4, "0 to 7 for 1, 3, 5, 7, 9, 11, 13, 15"),
    ("IQ1", quants.IQ1_S, 2, "0, 1, 2 for -1, 0, 1"),
]
PER_LINE = 13


def main():
    print("//! The code books, one 16-bit word an entry. Printed by tools/golden/grids.py; not edited by hand.")
    for name, cls, bits, meaning in BOOKS:
        cls.init_grid()
        entries = cls.grid.reshape(cls.grid_shape)
        words = [
            sum(cls.grid_map.index(value) << (bits * i) for i, value in enumerate(entry)) for entry in entries
        ]
        print(f"\n/// {cls.grid_shape[1]} fields of {bits} bits, lowest first: {meaning}.")
        print("#[rustfmt::skip]")
        print(f"pub(super) const {name}: [u16; {len(words)}] = [")
        for at in range(0, len(words), PER_LINE):
            print("    " + " ".join(f"0x{word:04x}," for word in words[at : at + PER_LINE]))
        print("];")


main()
