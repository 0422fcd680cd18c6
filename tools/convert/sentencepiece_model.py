"""Reading `tokenizer.model`, a protocol buffer: just the fields that a vocabulary needs.

Source: sentencepiece's `sentencepiece_model.proto`, and the encoding of protocol buffers.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from hf_config import ConvertError

UNIGRAM, BPE = 1, 2


@dataclass
class SentencePieceModel:
    """Pieces with their scores and types (numbered as GGUF's), the kind of model, and two of its settings."""

    pieces: list[tuple[str, float, int]]
    model_type: int
    add_dummy_prefix: bool


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: an integer, or the bytes of anything else."""
    at = 0

    def varint() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise ValueError("a number is too long")

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: lambda: 8, 2: varint, 5: lambda: 4}.get(kind, lambda: -1)()
        if size < 0 or at + size > len(data):
            raise ValueError(f"a field does not fit at byte {at}")
        yield key >> 3, data[at : at + size]
        at += size


def parse(data: bytes) -> SentencePieceModel:
    """The model in the bytes of a file."""
    model = SentencePieceModel([], UNIGRAM, True)
    try:
        for number, value in _fields(data):
            if number == 1:
                piece = dict(_fields(value))
                score = struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0
                model.pieces.append((piece.get(1, b"").decode(), score, piece.get(3, 1)))
            elif number == 2:
                model.model_type = dict(_fields(value)).get(3, UNIGRAM)
            elif number == 3:
                model.add_dummy_prefix = bool(dict(_fields(value)).get(3, 1))
    except (ValueError, IndexError, TypeError, AttributeError, struct.error) as e:
        raise ConvertError(f"tokenizer.model is not a SentencePiece model: {e}") from e
    if not model.pieces:
        raise ConvertError("tokenizer.model is not a SentencePiece model: it has no pieces")
    return model
