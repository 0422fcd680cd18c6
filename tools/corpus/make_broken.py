#!/usr/bin/env python3
"""Makes the broken GGUF files that gguf/tests/broken.rs opens, and the valid ones that they derive from.

    tools/corpus/make_broken.py            writes gguf/tests/broken/*.bin and gguf/tests/valid/*.bin
    tools/corpus/make_broken.py --check    exit status 1 if a checked-in file differs from what would be written

Each broken file has one thing wrong, which its name says. Needs nothing but Python 3.
"""

import struct
import sys
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARRAY, U64, I64, F64 = range(13)
NUMBERS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
TYPE_F32, TYPE_Q8_0 = 0, 8

TESTS = Path(__file__).resolve().parents[2] / "gguf" / "tests"


class Order:
    """Writes fields in one byte order."""

    def __init__(self, mark="<"):
        self.mark = mark

    def num(self, code, value):
        return struct.pack(self.mark + code, value)

    def string(self, text, length=None):
        raw = text if isinstance(text, bytes) else text.encode()
        return self.num("Q", len(raw) if length is None else length) + raw

    def value(self, kind, value):
        if kind == STR:
            return self.string(value)
        if kind == ARRAY:
            element, items = value
            return self.array(element, [self.value(element, item) for item in items])
        return self.num(NUMBERS[kind], value)

    def array(self, element, items, count=None):
        return self.num("I", element) + self.num("Q", len(items) if count is None else count) + b"".join(items)

    def key(self, name, kind, value):
        return self.string(name) + self.num("I", kind) + self.value(kind, value)

    def tensor(self, name, dims, kind, offset, n_dims=None):
        head = self.string(name) + self.num("I", len(dims) if n_dims is None else n_dims)
        return head + b"".join(self.num("Q", d) for d in dims) + self.num("I", kind) + self.num("Q", offset)

    def file(self, keys=None, tensors=None, data=None, version=3, n_keys=None, n_tensors=None, alignment=32):
        keys = self.keys() if keys is None else keys
        tensors = self.tensors() if tensors is None else tensors
        head = b"GGUF" + self.num("I", version)
        head += self.num("Q", len(tensors) if n_tensors is None else n_tensors)
        head += self.num("Q", len(keys) if n_keys is None else n_keys)
        head += b"".join(keys) + b"".join(tensors)
        return head + bytes(-len(head) % alignment) + (self.data() if data is None else data)

    def keys(self):
        return [
            self.key("general.architecture", STR, "llama"),
            self.key("general.alignment", U32, 32),
            self.key("llama.block_count", U16, 2),
            self.key("llama.rope.freq_base", F32, 10000.0),
            self.key("tokenizer.ggml.add_bos_token", BOOL, 1),
            self.key("tokenizer.ggml.tokens", ARRAY, (STR, ["<s>", "▁the", ""])),
            self.key("tokenizer.ggml.scores", ARRAY, (F32, [0.0, -1.5, -2.0])),
            self.key("test.nested", ARRAY, (ARRAY, [(U8, [1, 2]), (STR, ["a"]), (I64, [])])),
        ]

    def tensors(self):
        return [
            self.tensor("token_embd.weight", [4, 3], TYPE_F32, 0),
            self.tensor("blk.0.attn_q.weight", [32, 2], TYPE_Q8_0, 64),
            self.tensor("output_norm.weight", [4], TYPE_F32, 160),
        ]

    def data(self):
        floats = b"".join(self.num("f", i / 2) for i in range(12))
        blocks = b"".join(self.num("e", 0.5) + bytes(range(32)) for _ in range(2))
        norm = b"".join(self.num("f", 1.0) for _ in range(4))
        return floats.ljust(64, b"\0") + blocks.ljust(96, b"\0") + norm


LE, BE = Order("<"), Order(">")


def replace(fields, index, field):
    return fields[:index] + [field] + fields[index + 1 :]


def with_key(raw):
    return LE.file(keys=LE.keys() + [raw])


def with_tensor(index, *args, **kwargs):
    return LE.file(tensors=replace(LE.tensors(), index, LE.tensor(*args, **kwargs)))


def typed(name, kind, raw):
    """A key whose value bytes are given."""
    return LE.string(name) + LE.num("I", kind) + raw


def nested(depth):
    raw = LE.array(U8, [])
    for _ in range(depth - 1):
        raw = LE.array(ARRAY, [raw])
    return raw


def alignment(raw_key):
    return LE.file(keys=replace(LE.keys(), 1, raw_key))


def split(number, count):
    return LE.file(keys=LE.keys() + [LE.key("split.no", U16, number), LE.key("split.count", U16, count)])


def valid_files():
    return {
        "v3-little": LE.file(),
        "v3-big": BE.file(),
        "v2-little": LE.file(version=2),
        "no-tensors": LE.file(tensors=[], data=b""),
        "unknown-tensor-type": with_tensor(1, "blk.0.attn_q.weight", [32, 2], 999, 64),
        "deepest-nesting": with_key(typed("test.deep", ARRAY, nested(8))),
        "scalar-and-empty-tensor": LE.file(
            tensors=[LE.tensor("scalar", [], TYPE_F32, 0), LE.tensor("empty", [0, 7], TYPE_F32, 32)], data=bytes(32)
        ),
    }


def broken_files():
    whole = LE.file()
    head = len(whole) - len(LE.data())
    first_keys = LE.keys()
    return {
        # Not GGUF at all.
        "empty": b"",
        "magic-cut": b"GGU",
        "magic-backwards": b"FUGG" + whole[4:],
        "is-zip": b"PK\x03\x04\x14\0\0\0\x08\0",
        "is-safetensors": struct.pack("<Q", 66) + b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        "is-html": b"\n<!DOCTYPE html><html><body>404 Not Found</body></html>",
        "is-lfs-pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "is-gzip": b"\x1f\x8b\x08\0\0\0\0\0",
        "is-ggjt": b"tjgg\x03\0\0\0",
        "is-json": b'{"architectures": ["LlamaForCausalLM"]}',
        "is-zeros": bytes(64),
        "is-unknown": b"\x89hello\n",
        # The header.
        "version-missing": b"GGUF",
        "version-0": LE.file(version=0),
        "version-1": LE.file(version=1),
        "version-4": LE.file(version=4),
        "version-5-big-endian": BE.file(version=5),
        "header-cut": whole[:15],
        "tensor-count-huge": LE.file(n_tensors=2**63),
        "key-count-huge": LE.file(n_keys=2**64 - 1),
        "key-count-one-too-many": LE.file(n_keys=len(first_keys) + 1),
        # Keys and values.
        "key-length-huge": LE.file(keys=[LE.string("general.name", length=2**40)]),
        "key-not-utf8": with_key(LE.key(b"general.\xff", U8, 0)),
        "key-twice": with_key(LE.key("llama.block_count", U32, 3)),
        "key-with-control-characters": with_key(typed("\x1b[2J\n" + "k" * 200, 13, b"")),
        "value-type-unknown": with_key(typed("test.value", 13, bytes(8))),
        "value-cut": whole[: whole.index(b"general.alignment") + 17 + 4 + 2],
        "value-bool-2": with_key(typed("test.value", BOOL, b"\2")),
        "value-string-length-huge": with_key(typed("test.value", STR, LE.string("x", length=2**63))),
        "value-string-not-utf8": with_key(typed("test.value", STR, LE.string(b"ab\xc3("))),
        "array-type-unknown": with_key(typed("test.array", ARRAY, LE.array(77, []))),
        "array-count-huge": with_key(typed("test.array", ARRAY, LE.array(F32, [], count=2**32))),
        "array-size-overflows": with_key(typed("test.array", ARRAY, LE.array(F64, [], count=2**61))),
        "array-bool-7": with_key(typed("test.array", ARRAY, LE.array(BOOL, [b"\0", b"\1", b"\7"]))),
        "array-string-length-huge": with_key(
            typed("test.array", ARRAY, LE.array(STR, [LE.string("a"), LE.string("b", length=2**20)]))
        ),
        "array-string-not-utf8": with_key(typed("test.array", ARRAY, LE.array(STR, [LE.string("a"), LE.string(b"\x80")]))),
        "array-nested-count-huge": with_key(
            typed("test.array", ARRAY, LE.array(ARRAY, [LE.array(U8, [], count=2**50)]))
        ),
        "array-nested-too-deep": with_key(typed("test.array", ARRAY, nested(9))),
        "alignment-0": alignment(LE.key("general.alignment", U32, 0)),
        "alignment-48": alignment(LE.key("general.alignment", U32, 48)),
        "alignment-string": alignment(LE.key("general.alignment", STR, "32")),
        "alignment-beyond-file": alignment(LE.key("general.alignment", U32, 2**31)),
        # The table of tensors.
        "tensor-table-cut": whole[: head - 40],
        "tensor-name-length-huge": LE.file(tensors=[LE.string("x", length=2**64 - 1) + bytes(32)]),
        "tensor-name-not-utf8": with_tensor(1, b"blk\xfe", [32, 2], TYPE_Q8_0, 64),
        "tensor-twice": with_tensor(2, "token_embd.weight", [4], TYPE_F32, 160),
        "tensor-dims-5": with_tensor(0, "token_embd.weight", [1, 1, 1, 1, 12], TYPE_F32, 0),
        "tensor-dims-huge": with_tensor(0, "token_embd.weight", [4, 3], TYPE_F32, 0, n_dims=2**32 - 1),
        "tensor-elements-overflow": with_tensor(0, "token_embd.weight", [2**32, 2**32], TYPE_F32, 0),
        "tensor-bytes-overflow": with_tensor(0, "token_embd.weight", [2**31, 2**31], TYPE_F32, 0),
        "tensor-row-not-whole-blocks": with_tensor(1, "blk.0.attn_q.weight", [48, 2], TYPE_Q8_0, 64),
        "tensor-offset-misaligned": with_tensor(1, "blk.0.attn_q.weight", [32, 2], TYPE_Q8_0, 68),
        "tensor-offset-past-end": with_tensor(2, "output_norm.weight", [4], TYPE_F32, 2**40),
        "tensor-offset-overflows": with_tensor(2, "output_norm.weight", [4], TYPE_F32, 2**64 - 32),
        "tensor-overlap": with_tensor(1, "blk.0.attn_q.weight", [32, 2], TYPE_Q8_0, 32),
        "tensor-data-cut": whole[:-1],
        "tensor-data-cut-big-endian": BE.file()[:-20],
        "tensor-data-missing": whole[:head],
        # Split models.
        "split-misnamed": split(number=0, count=2),
        "split-without-number": with_key(LE.key("split.count", U16, 2)),
        "split-number-past-count": split(number=2, count=2),
    }


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for folder, files in (("valid", valid_files()), ("broken", broken_files())):
        (TESTS / folder).mkdir(exist_ok=True)
        wanted = {TESTS / folder / f"{name}.bin": raw for name, raw in files.items()}
        extra = set((TESTS / folder).glob("*.bin")) - set(wanted)
        stale += extra
        for path, raw in wanted.items():
            if not path.is_file() or path.read_bytes() != raw:
                stale.append(path)
                if not check:
                    path.write_bytes(raw)
        if not check:
            for path in extra:
                path.unlink()
        print(f"{folder}: {len(files)} files")
    if check and stale:
        sys.exit("not what the script makes: " + ", ".join(sorted(p.name for p in stale)))


if __name__ == "__main__":
    main()
