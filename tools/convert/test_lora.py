#!/usr/bin/env python3
"""Tests of the adapters' converter: python -m unittest test_lora.py"""

import json
import pathlib
import struct
import tempfile
import unittest

import gguf
import numpy as np

import convert
import lora
from hf_config import ConvertError
from test_convert import CONFIGS, DIM, HEADS, HEADS_KV, N_EMBD, N_FF, N_VOCAB, random

ADAPTER = {"peft_type": "LORA", "lora_alpha": 8, "r": 2, "bias": "none"}


def halves(name: str, rows: int, cols: int, rank: int = 2) -> dict[str, np.ndarray]:
    at = f"base_model.model.{name}"
    return {f"{at}.lora_A.weight": random(rank, cols), f"{at}.lora_B.weight": random(rows, rank)}


def product(state: dict[str, np.ndarray]) -> np.ndarray:
    a, b = state.values()
    return b @ a


def converted(arch: str, state: dict[str, np.ndarray], **options) -> dict[str, np.ndarray]:
    return dict(lora.adapter_tensors(ADAPTER | options, CONFIGS[arch], state.items()))


class Adapters(unittest.TestCase):
    def test_products_are_what_the_converter_makes_of_the_weight(self):
        for arch, name, rows, cols, tensors in [
            ("llama", "model.layers.1.self_attn.q_proj", HEADS * DIM, N_EMBD, ["blk.1.attn_q.weight"]),
            ("llama", "model.layers.0.self_attn.k_proj", HEADS_KV * DIM, N_EMBD, ["blk.0.attn_k.weight"]),
            ("llama", "model.layers.0.mlp.down_proj", N_EMBD, N_FF, ["blk.0.ffn_down.weight"]),
            ("qwen2", "model.layers.0.self_attn.q_proj", HEADS * DIM, N_EMBD, ["blk.0.attn_q.weight"]),
            ("llama", "lm_head", N_VOCAB, N_EMBD, ["output.weight"]),
        ]:
            state = halves(name, rows, cols)
            made = converted(arch, state)
            self.assertEqual(sorted(made), sorted(f"{t}.lora_{half}" for t in tensors for half in "ab"))
            wanted = dict(lora.feed(CONFIGS[arch], f"{name}.weight", product(state)))
            for tensor in tensors:
                got = made[f"{tensor}.lora_b"] @ made[f"{tensor}.lora_a"]
                np.testing.assert_allclose(got, wanted[tensor], rtol=1e-4, atol=1e-5)

    def test_rows_are_really_reordered(self):
        state = halves("model.layers.0.self_attn.q_proj", HEADS * DIM, N_EMBD)
        a, b = converted("llama", state).values()
        self.assertFalse(np.allclose(b @ a, product(state)))

    def test_layers_that_are_stored_the_other_way_round_stay_as_the_adapter_has_them(self):
        state = halves("transformer.h.0.mlp.c_fc", 4 * N_EMBD, N_EMBD)
        a, b = converted("gpt2", state, fan_in_fan_out=True).values()
        np.testing.assert_allclose(b @ a, product(state), rtol=1e-4, atol=1e-5)

    def test_the_embedding_is_looked_up(self):
        at = "base_model.model.model.embed_tokens.lora_embedding_"
        state = {at + "A": random(2, N_VOCAB), at + "B": random(N_EMBD, 2)}
        made = converted("llama", state)
        self.assertEqual(made["token_embd.weight.lora_a"].shape, (N_VOCAB, 2))
        self.assertEqual(made["token_embd.weight.lora_b"].shape, (N_EMBD, 2))

    def test_factors_that_readers_do_not_know_go_into_b(self):
        state = halves("lm_head", N_VOCAB, N_EMBD, rank=4)
        plain = converted("llama", state)["output.weight.lora_b"]
        root = converted("llama", state, use_rslora=True)["output.weight.lora_b"]
        own = converted("llama", state, alpha_pattern={"lm_head": 24})["output.weight.lora_b"]
        np.testing.assert_allclose(root, 2 * plain, rtol=1e-6)
        np.testing.assert_allclose(own, 3 * plain, rtol=1e-6)

    def test_what_cannot_be_kept_is_refused_in_one_sentence(self):
        good = halves("lm_head", N_VOCAB, N_EMBD)
        half = dict(list(good.items())[:1])
        for arch, state, options, words in [
            ("llama", good, {"use_dora": True}, "use_dora"),
            ("llama", good, {"bias": "all"}, "bias"),
            ("llama", good, {"peft_type": "IA3"}, "IA3"),
            ("llama", good, {"lora_alpha": 0}, "lora_alpha"),
            ("llama", half, {}, "one half"),
            ("llama", {}, {}, "no parameters"),
            ("llama", good | {"base_model.model.model.norm.weight": random(N_EMBD)}, {}, "model.norm"),
            ("llama", halves("model.layers.0.self_attn.nothing", 8, 8), {}, "no place"),
            ("llama", halves("model.layers.0.self_attn.q_proj", 7, N_EMBD), {}, "does not fit"),
            ("qwen3moe", halves("model.layers.0.mlp.experts.0.up_proj", 16, N_EMBD), {}, "put together"),
        ]:
            with self.assertRaisesRegex(ConvertError, words):
                converted(arch, state, **options)

    def test_a_folder_becomes_a_file(self):
        state = halves("model.layers.0.self_attn.q_proj", HEADS * DIM, N_EMBD)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "config.json").write_text(json.dumps(CONFIGS["llama"]))
            (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
            write_safetensors(folder / "adapter_model.safetensors", state)
            lora.convert(folder, folder / "out.gguf", folder, "f32")
            reader = gguf.GGUFReader(folder / "out.gguf")
            text = {key: bytes(f.parts[f.data[0]]).decode() for key, f in reader.fields.items() if f.types[0] == 8}
            self.assertEqual(text["general.type"], "adapter")
            self.assertEqual(text["adapter.type"], "lora")
            self.assertEqual(text["general.architecture"], "llama")
            shapes = {t.name: list(t.shape) for t in reader.tensors}
            self.assertEqual(shapes["blk.0.attn_q.weight.lora_a"], [N_EMBD, 2])
            self.assertEqual(shapes["blk.0.attn_q.weight.lora_b"], [2, HEADS * DIM])
            with self.assertRaises(ConvertError):
                convert.convert(folder, folder / "model.gguf", "keep", None)


def write_safetensors(path: pathlib.Path, state: dict[str, np.ndarray]) -> None:
    header, data = {}, b""
    for name, w in state.items():
        header[name] = {"dtype": "F32", "shape": list(w.shape), "data_offsets": [len(data), len(data) + w.nbytes]}
        data += w.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    unittest.main()
