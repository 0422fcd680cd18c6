#!/usr/bin/env python3
"""Tests of the converter that need neither torch nor transformers: python -m unittest test_convert.py"""

import json
import pathlib
import struct
import tempfile
import unittest

import gguf
import numpy as np

import architectures
import convert
import pretokenizers
import sentencepiece_model
from gguf_file import Format
from hf_config import ConvertError

N_VOCAB, N_EMBD, N_FF, HEADS, HEADS_KV, DIM = 300, 32, 48, 4, 2, 8
CONFIG = {
    "vocab_size": N_VOCAB, "hidden_size": N_EMBD, "intermediate_size": N_FF, "num_hidden_layers": 2,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS_KV, "max_position_embeddings": 64,
    "moe_intermediate_size": 16, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4,
    "num_experts_per_tok": 2, "moe_topk": 2, "moe_k": 2, "norm_topk_prob": None, "num_shared_experts": 1,
    "mup_enabled": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
YARN = {
    "rope_type": "yarn", "rope_theta": 1e5, "factor": 4.0, "truncate": False, "original_max_position_embeddings": 16,
}
CONFIGS = {cls.name: CONFIG | {"model_type": cls.model_types[0]} for cls in architectures.ALL}
CONFIGS["gpt-oss"] |= {"rope_parameters": YARN}
RNG = np.random.default_rng(7)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def llama_state(n_layer: int = 2) -> dict[str, np.ndarray]:
    state = {
        "model.embed_tokens.weight": random(N_VOCAB, N_EMBD),
        "model.norm.weight": random(N_EMBD),
        "lm_head.weight": random(N_VOCAB, N_EMBD),
    }
    for i in range(n_layer):
        at = f"model.layers.{i}."
        state |= {
            at + "self_attn.q_proj.weight": random(HEADS * DIM, N_EMBD),
            at + "self_attn.k_proj.weight": random(HEADS_KV * DIM, N_EMBD),
            at + "self_attn.v_proj.weight": random(HEADS_KV * DIM, N_EMBD),
            at + "self_attn.o_proj.weight": random(N_EMBD, HEADS * DIM),
            at + "mlp.gate_proj.weight": random(N_FF, N_EMBD),
            at + "mlp.up_proj.weight": random(N_FF, N_EMBD),
            at + "mlp.down_proj.weight": random(N_EMBD, N_FF),
            at + "input_layernorm.weight": random(N_EMBD),
            at + "post_attention_layernorm.weight": random(N_EMBD),
        }
    return state


def tensors(config: dict, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(convert.tensors(config, state.items(), note=lambda text: None))


def stem(name: str) -> str:
    """A tensor's name without its kind, which some checkpoints leave out."""
    return name.removesuffix(".weight").removesuffix(".bias")


class Names(unittest.TestCase):
    def test_model_types_belong_to_one_architecture(self):
        kinds = [kind for cls in architectures.ALL for kind in cls.model_types]
        self.assertEqual(len(kinds), len(set(kinds)))

    def test_tensor_names_are_those_of_the_gguf_package(self):
        by_name = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
        known = 0
        for config in CONFIGS.values():
            arch = architectures.architecture(config)
            names = gguf.get_tensor_name_map(by_name[arch.name], arch.n_layer)
            for table, inside, at in ((arch.model(), "", ""), (arch.layer(), f"{arch.layers}.1.", "blk.1.")):
                for key, rule in table.items():
                    if rule is None or getattr(rule, "to", None) == ():
                        continue  # Not in GGUF files.
                    full = [prefix + inside + key.replace("#", "0") for prefix in (*arch.prefixes, "")]
                    theirs = next(filter(None, (names.get_name(name, (".weight", ".bias")) for name in full)), None)
                    if theirs is None:
                        continue
                    to = [rule] if isinstance(rule, str) else rule.to
                    ours = {at + stem(name) for name in ([to] if isinstance(to, str) else to)}
                    self.assertIn(stem(theirs), ours, f"{arch.name}: {key}")
                    known += 1
        self.assertGreater(known, 450)

    def test_keys_are_those_of_the_gguf_package(self):
        theirs = {
            value.replace("{arch}.", "")
            for group in vars(gguf.constants.Keys).values() if isinstance(group, type)
            for value in vars(group).values() if isinstance(value, str)
        }
        for name, config in CONFIGS.items():
            for key in convert.hyperparameters(config):
                self.assertIn(key.removeprefix(f"{name}."), theirs)


class Tensors(unittest.TestCase):
    config = CONFIGS["llama"]

    def test_rotary_pairs_become_neighbours(self):
        state = llama_state()
        q = state["model.layers.1.self_attn.q_proj.weight"]
        made = tensors(self.config, state)["blk.1.attn_q.weight"]
        for head in range(HEADS):
            for pair in range(DIM // 2):
                row = head * DIM + 2 * pair
                np.testing.assert_array_equal(made[row], q[head * DIM + pair])
                np.testing.assert_array_equal(made[row + 1], q[head * DIM + pair + DIM // 2])

    def test_order_of_parameters_is_not_important(self):
        state = llama_state()
        there, back = tensors(self.config, state), tensors(self.config, dict(reversed(state.items())))
        self.assertEqual(there.keys(), back.keys())
        for name in there:
            np.testing.assert_array_equal(there[name], back[name])

    def test_a_tied_head_is_left_out(self):
        self.assertNotIn("output.weight", tensors(self.config | {"tie_word_embeddings": True}, llama_state()))
        self.assertIn("output.weight", tensors(self.config, llama_state()))

    def test_gemma_norms_hold_one_plus_w_and_others_what_they_are(self):
        state = llama_state()
        made = tensors(CONFIGS["gemma"] | {"head_dim": DIM}, state)
        np.testing.assert_array_equal(made["output_norm.weight"], state["model.norm.weight"] + np.float32(1))
        v = "model.layers.0.self_attn.v_proj.weight"
        np.testing.assert_array_equal(made["blk.0.attn_v.weight"], state[v])

    def test_nemotron_norms_keep_their_bias(self):
        state = {name: w for name, w in llama_state().items() if "gate_proj" not in name}
        state["model.norm.bias"] = random(N_EMBD)
        made = tensors(CONFIGS["nemotron"], state)
        np.testing.assert_array_equal(made["output_norm.bias"], state["model.norm.bias"])
        np.testing.assert_array_equal(made["output_norm.weight"], state["model.norm.weight"] + np.float32(1))

    def test_fused_experts_are_the_same_as_single_ones(self):
        single = {name: w for name, w in llama_state().items() if ".mlp." not in name}
        fused = dict(single)
        for i in range(2):
            at = f"model.layers.{i}.mlp."
            gate, up, down = random(4, 16, N_EMBD), random(4, 16, N_EMBD), random(4, N_EMBD, 16)
            single[at + "gate.weight"] = fused[at + "gate.weight"] = random(4, N_EMBD)
            for part, stack in (("gate", gate), ("up", up), ("down", down)):
                single |= {f"{at}experts.{e}.{part}_proj.weight": w for e, w in enumerate(stack)}
            fused |= {at + "experts.gate_up_proj": np.concatenate([gate, up], 1), at + "experts.down_proj": down}
        one, other = tensors(CONFIGS["qwen3moe"], single), tensors(CONFIGS["qwen3moe"], fused)
        self.assertEqual(one.keys(), other.keys())
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])

    def test_mxfp4_blocks_keep_their_values(self):
        from architectures.gpt_oss import mxfp4

        blocks = RNG.integers(0, 256, (2, 3, 4, 16), dtype=np.uint8)
        scales = RNG.integers(110, 130, (2, 3, 4), dtype=np.uint8)
        values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
        wanted = values[np.stack([blocks & 15, blocks >> 4], -1)].reshape(2, 3, 4, 32)
        wanted = (wanted * np.exp2(scales.astype(np.float32) - 127)[..., None]).reshape(2, 3, 128)
        np.testing.assert_array_equal(gguf.quants.dequantize(mxfp4(blocks, scales), Format.MXFP4), wanted)

    def test_llama3_divisors_leave_short_wavelengths_and_stretch_long_ones(self):
        rope = {
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        }
        divisors = convert.constants(self.config | {"rope_parameters": rope, "head_dim": 64})["rope_freqs.weight"]
        self.assertEqual((divisors[0], divisors[-1], len(divisors)), (1.0, 8.0, 32))
        self.assertTrue((np.diff(divisors) >= 0).all())


class Refusals(unittest.TestCase):
    def refused(self, config, state, text):
        with self.assertRaisesRegex(ConvertError, text):
            tensors(config, state)

    def test_incomplete_and_foreign_checkpoints(self):
        config, state = CONFIGS["llama"], llama_state()
        gone = {name: w for name, w in state.items() if ".layers.1." not in name}
        self.refused(config, gone, "layer 1 of 2 is missing")
        gone = {name: w for name, w in state.items() if "embed" not in name}
        self.refused(config, gone, "nothing in it makes token_embd.weight")
        gone = {name: w for name, w in state.items() if "lm_head" not in name}
        self.refused(config | {"tie_word_embeddings": False}, gone, "nothing in it makes output.weight")
        self.refused(config, state | {"model.layers.0.extra.weight": random(1)}, "no place for it")
        self.refused(config, llama_state(3), "says 2 layers")
        self.refused(config | {"num_attention_heads": 7, "head_dim": 8}, state, "does not fit config.json")

    def test_only_zero_biases_are_dropped(self):
        config = CONFIGS["command-r"] | {"tie_word_embeddings": True}
        state = {name: w for name, w in llama_state().items() if "post_attention" not in name}
        zero = state | {"model.norm.bias": np.zeros(N_EMBD, np.float32)}
        self.assertEqual(tensors(config, state).keys(), tensors(config, zero).keys())
        self.refused(config, state | {"model.norm.bias": random(N_EMBD)}, "it is not zero")

    def test_unfinished_experts(self):
        state = llama_state()
        state["model.layers.0.mlp.experts.1.up_proj.weight"] = random(16, N_EMBD)
        self.refused(CONFIGS["qwen3moe"], state, "incomplete: only 1 parts of blk.0.mlp.experts")
        state["model.layers.0.mlp.experts.9.up_proj.weight"] = random(16, N_EMBD)
        self.refused(CONFIGS["qwen3moe"], state, "number 9 of only 4")

    def test_features_that_keys_cannot_express(self):
        for name, change in (
            ("llama", {"hidden_act": "gelu"}),
            ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "rope_parameters": None}),
            ("llama", {"rope_parameters": YARN}),
            ("llama", {"quantization_config": {"quant_method": "gptq"}}),
            ("qwen2", {"use_sliding_window": True}),
            ("qwen3moe", {"norm_topk_prob": False}),
            ("falcon", {"alibi": True}),
            ("smollm3", {"no_rope_layers": [1, 0]}),
            ("gpt-oss", {"layer_types": ["full_attention", "sliding_attention"]}),
            ("llama", {"num_hidden_layers": "two"}),
            ("llama", {"vocab_size": None}),
        ):
            with self.subTest(name, **change), self.assertRaises(ConvertError):
                convert.hyperparameters(CONFIGS[name] | change)

    def test_absurd_values_are_errors_or_harmless(self):
        for name, config in CONFIGS.items():
            for key in config:
                for absurd in (None, -1, 0, 0.5, 2**32, 2**63, "x", [], [1], {}, {"rope_type": 5}, float("nan"), True):
                    changed = config | {key: absurd}
                    with self.subTest(name, **{key: absurd}):
                        for step in (convert.hyperparameters, convert.constants, lambda c: tensors(c, {})):
                            try:
                                step(changed)
                            except ConvertError:
                                pass

    def test_unknown_models(self):
        with self.assertRaisesRegex(ConvertError, "model_type 'mamba' is not supported"):
            convert.hyperparameters({"model_type": "mamba"})


class Hyperparameters(unittest.TestCase):
    def test_both_ways_to_write_rotary_parameters_say_the_same(self):
        new = {"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0}
        one = convert.hyperparameters(CONFIGS["llama"] | {"rope_parameters": new})
        old = {"rope_parameters": None, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}}
        self.assertEqual(one, convert.hyperparameters(CONFIGS["llama"] | old))

    def test_only_an_unusual_yarn_factor_is_written(self):
        rope = {key: value for key, value in YARN.items() if key != "truncate"}
        key = "llama.rope.scaling.attn_factor"
        self.assertNotIn(key, convert.hyperparameters(CONFIGS["llama"] | {"rope_parameters": rope}))
        config = CONFIGS["llama"] | {"rope_parameters": rope | {"attention_factor": 1.0}}
        self.assertAlmostEqual(convert.hyperparameters(config)[key], 1 / (0.1 * np.log(4) + 1))

    def test_text_models_are_found_within_others(self):
        text = CONFIGS["gemma3"] | {"model_type": "gemma3_text"}
        whole = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 5}}
        self.assertEqual(convert.hyperparameters(text), convert.hyperparameters(whole))
        state = {f"language_model.{name}": w for name, w in llama_state().items()}
        state["vision_tower.x.weight"] = random(3)
        notes = []
        made = dict(convert.tensors(whole | {"head_dim": DIM}, state.items(), notes.append))
        self.assertIn("blk.1.ffn_up.weight", made)
        self.assertEqual(len(notes), 1)


def protobuf(number: int, value) -> bytes:
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


class Folder(unittest.TestCase):
    """Checkpoints on disk."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.out = self.folder / "out.gguf"
        self.json("config.json", CONFIGS["llama"])
        self.json("tokenizer.json", self.byte_level())

    def json(self, name: str, value) -> None:
        (self.folder / name).write_text(json.dumps(value))

    @staticmethod
    def byte_level(**more) -> dict:
        vocab = {chr(0x100 + i): i for i in range(256)} | {chr(0x100) + chr(0x101): 256}
        return {
            "model": {"type": "BPE", "vocab": vocab, "merges": [[chr(0x100), chr(0x101)]], "ignore_merges": False},
            "added_tokens": [
                {"id": 257, "content": "<s>", "special": True}, {"id": 258, "content": "<x>", "special": False},
            ],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "post_processor": {
                "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
            },
        } | more

    def safetensors(self, state: dict[str, np.ndarray], dtype: str) -> None:
        header, body = {}, b""
        for name, w in state.items():
            raw = (w.view(np.uint32) >> 16).astype(np.uint16) if dtype == "BF16" else w
            offsets = [len(body), len(body) + raw.nbytes]
            header[name] = {"dtype": dtype, "shape": list(w.shape), "data_offsets": offsets}
            body += raw.tobytes()
        text = json.dumps(header).encode()
        (self.folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)

    def test_bfloat16_is_kept_and_vectors_are_widened(self):
        state = llama_state()
        self.safetensors(state, "BF16")
        convert.convert(self.folder, self.out, "keep", None)
        reader = gguf.GGUFReader(self.out)
        stored = {tensor.name: tensor for tensor in reader.tensors}
        self.assertEqual(len(stored), len(state))
        v, norm = stored["blk.0.attn_v.weight"], stored["output_norm.weight"]
        self.assertEqual((v.tensor_type, norm.tensor_type), (Format.BF16, Format.F32))
        wanted = state["model.layers.0.self_attn.v_proj.weight"].view(np.uint32) >> 16
        np.testing.assert_array_equal(v.data.view(np.uint16), wanted)
        self.assertEqual(reader.fields["general.file_type"].contents(), gguf.LlamaFileType.MOSTLY_BF16)
        self.assertEqual(len(reader.fields["tokenizer.ggml.tokens"].contents()), N_VOCAB)

    def test_a_failure_leaves_no_file(self):
        state = llama_state()
        state["model.embed_tokens.weight"][3, 3] = 1e9
        self.safetensors(state, "F32")
        before = set(self.folder.iterdir())
        with self.assertRaisesRegex(ConvertError, "token_embd.weight has values that float16 cannot hold"):
            convert.convert(self.folder, self.out, "f16", None)
        self.assertEqual(set(self.folder.iterdir()), before)

    def test_truncated_files_are_refused(self):
        self.safetensors(llama_state(), "F32")
        path = self.folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-4])
        with self.assertRaisesRegex(ConvertError, "truncated or damaged"):
            convert.convert(self.folder, self.out, "f32", None)

    def test_byte_level_vocabulary(self):
        self.json("tokenizer_config.json", {"bos_token": "<s>", "chat_template": "{{ x }}"})
        v = convert.vocabulary(self.folder)
        self.assertEqual((v["tokenizer.ggml.model"], v["tokenizer.ggml.pre"]), ("gpt2", "gpt-2"))
        self.assertEqual(v["tokenizer.ggml.tokens"][256:260], ["Āā", "<s>", "<x>", "[PAD259]"])
        self.assertEqual(v["tokenizer.ggml.token_type"][256:260], [1, 3, 4, 5])
        self.assertEqual(v["tokenizer.ggml.merges"], ["Ā ā"])
        self.assertEqual((v["tokenizer.ggml.bos_token_id"], v["tokenizer.ggml.add_bos_token"]), (257, True))
        self.assertEqual((v["tokenizer.ggml.add_eos_token"], v["tokenizer.chat_template"]), (False, "{{ x }}"))

    def test_an_unknown_pre_tokenizer_has_to_be_named(self):
        step = {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated", "invert": False}
        self.json("tokenizer.json", self.byte_level(pre_tokenizer=step))
        with self.assertRaisesRegex(ConvertError, "say --pre NAME"):
            convert.vocabulary(self.folder)
        self.assertEqual(convert.vocabulary(self.folder, pre="mine")["tokenizer.ggml.pre"], "mine")

    def test_scores_follow_the_ranks_of_merges(self):
        vocab = {"<unk>": 0, "<0x41>": 1, "a": 2, "b": 3, "aab": 4, "aa": 5}
        model = {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "vocab": vocab}
        model["merges"] = ["a a", "aa b", "a ab"]
        self.json("tokenizer.json", {"model": model, "normalizer": {"type": "Prepend", "prepend": "\u2581"}})
        v = convert.vocabulary(self.folder, n_vocab=6)
        self.assertEqual(v["tokenizer.ggml.token_type"], [2, 6, 1, 1, 1, 1])
        scores = v["tokenizer.ggml.scores"]
        self.assertGreater(scores[5], scores[4])
        self.assertTrue(v["tokenizer.ggml.add_space_prefix"])

    def test_malformed_tokenizers_are_refused(self):
        for more in ({"added_tokens": [{}]}, {"model": []}, {"pre_tokenizer": {"type": "Sequence"}}):
            self.json("tokenizer.json", self.byte_level(**more))
            with self.assertRaises(ConvertError):
                convert.vocabulary(self.folder)

    def test_sentencepiece_files(self):
        pieces = [(b"<unk>", 0.0, 2), (b"\xe2\x96\x81a", -1.5, 1), (b"<0x41>", -2.0, 6)]
        data = b"".join(
            protobuf(1, protobuf(1, text) + protobuf(2, score) + protobuf(3, kind)) for text, score, kind in pieces
        )
        bpe = data + protobuf(2, protobuf(3, sentencepiece_model.BPE)) + protobuf(3, protobuf(3, 0))
        (self.folder / "tokenizer.json").unlink()
        (self.folder / "tokenizer.model").write_bytes(bpe)
        v = convert.vocabulary(self.folder, n_vocab=3)
        self.assertEqual(v["tokenizer.ggml.tokens"], ["<unk>", "\u2581a", "<0x41>"])
        self.assertEqual(v["tokenizer.ggml.scores"], [0.0, -1.5, -2.0])
        self.assertFalse(v["tokenizer.ggml.add_space_prefix"])
        for broken, text in ((data, "Unigram"), (bpe[:-1], "is not a SentencePiece model"), (b"", "no pieces")):
            (self.folder / "tokenizer.model").write_bytes(broken)
            with self.assertRaisesRegex(ConvertError, text):
                convert.vocabulary(self.folder, n_vocab=3)


class PreTokenizers(unittest.TestCase):
    def test_the_table_is_written_canonically(self):
        for patterns, _, _ in pretokenizers.NAMES:
            for pattern in patterns:
                self.assertEqual(pretokenizers.canonical(pattern), pattern)

    def test_variants_of_a_pattern_are_one(self):
        llama3 = pretokenizers.cl100k("{1,3}")
        for old, new in (
            (r"\p{L}", r"[\p{L}]"), (r"\r", "\r"), (r"]?\p{L}", r"]?+\p{L}"),
            (pretokenizers.CONTRACTION, "'(?i:[sdmt]|ll|ve|re)"),
        ):
            self.assertEqual(pretokenizers.canonical(llama3.replace(old, new, 1)), llama3)


if __name__ == "__main__":
    unittest.main()
