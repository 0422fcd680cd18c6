//! Real models, where the cache folder has them (`tools/fetch.py`). `LLAMAY_REQUIRE_MODELS=1` makes it a failure if one of
//! those is missing that `fetch.py --all-test` brings.

mod common;

use std::path::PathBuf;

use common::{best, bits, isas, real_model, with, with_no_repack};
use llamay_engine::sampling::SamplingParams;
use llamay_engine::tokenizer::EncodeOptions;
use llamay_engine::verify::{Mode, logits};
use llamay_engine::{Cancel, Chat, DraftOptions, GenerateOptions, Isa, Model, Speculator};

const SMOLLM2: &str = "smollm2-135m-instruct-q4_1.gguf";
const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";
/// Half a gigabyte of matrices in four block formats, which is tested where somebody has fetched it.
const QWEN2: &str = "qwen2.5-coder-0.5b-instruct.gguf";
/// Tested where somebody has fetched it, too.
const QWEN2_LARGE: &str = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf";

/// The model's path, or `None` with a line that says it is skipped.
fn path(name: &str) -> Option<PathBuf> {
    let path = real_model(name);
    let optional = [QWEN2, QWEN2_LARGE].contains(&name);
    let required = !optional && std::env::var_os("LLAMAY_REQUIRE_MODELS").is_some();
    assert!(path.is_some() || !required, "{name} is not in the cache folder");
    path
}

fn open(name: &str, isa: Isa, threads: usize) -> Option<Model> {
    let path = path(name)?;
    Some(Model::open(path, &with(isa, threads), &|_, _| {}).expect("a model that runs"))
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    let sampling = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    GenerateOptions { max_tokens: Some(max_tokens), sampling, ..GenerateOptions::default() }
}

/// The likeliest continuations are those that llama.cpp of 2026-10-01 gives for the same files.
#[test]
fn greedy_tokens_are_those_of_llama_cpp() {
    let question = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
                    <|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n";
    let task = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n\
                <|im_start|>user\nWrite a Python function that reverses a string.<|im_end|>\n<|im_start|>assistant\n";
    for (name, prompt, want) in [
        (QWEN2, task, [8420, 594, 264, 13_027, 729, 429, 17_431, 288]),
        (QWEN2, "fn fibonacci(n: u32) -> u64 {\n", [262, 421, 308, 2651, 220, 16, 341, 286]),
        (SMOLLM2, question, [60, 23, 39614, 1141, 552, 28, 2618, 2828]),
        (
            GEMMA3,
            "The largest planet in our solar system is",
            [506, 7488, 528, 1023, 10321, 1458, 236_761, 1030],
        ),
    ] {
        let Some(model) = open(name, best(), 2) else { continue };
        let prompt =
            model.tokenizer().encode(prompt, EncodeOptions { add_special: true, parse_special: true });
        let done = model.session().generate(&prompt, &greedy(8), &Cancel::new(), &mut |_| {}).unwrap();
        assert_eq!(done.tokens, want, "{name}: {}", done.text);
    }
}

#[test]
fn a_chat_renders_the_template_of_the_file() {
    let Some(model) = open(SMOLLM2, best(), 2) else { return };
    let mut chat = Chat::new(&model).unwrap();
    let reply = chat.say("What is the capital of France?", &greedy(8), &Cancel::new(), &mut |_| {}).unwrap();
    assert_eq!(reply.generation.tokens, [60, 23, 39614, 1141, 552, 28, 2618, 2828]);
    assert_eq!(reply.generation.stats.prompt_tokens, 37, "the default system message is the template's own");
}

#[test]
fn every_kernel_set_gives_the_same_bits_on_real_models() {
    for name in [SMOLLM2, GEMMA3] {
        let mut reference = None;
        for isa in isas().into_iter().filter(|i| *i != Isa::Portable) {
            let Some(model) = open(name, isa, 2) else { return };
            let options = EncodeOptions { add_special: true, parse_special: false };
            let mut prompt =
                model.tokenizer().encode(&"Once upon a time there was a fox. ".repeat(12), options);
            prompt.truncate(90);
            for mode in [Mode::Whole, Mode::Chunked] {
                let got = bits(&logits(&model, &prompt, mode).unwrap());
                assert!(
                    got == *reference.get_or_insert_with(|| got.clone()),
                    "{name} {} {mode:?}",
                    isa.name()
                );
            }
        }
        let Some(path) = path(name) else { return };
        let streamed = Model::open(path, &with_no_repack(best(), 2), &|_, _| {});
        // The portable kernels are slow, so they see a few tokens.
        let Some(portable) = open(name, Isa::Portable, 2) else { return };
        let Some(one_thread) = open(name, best(), 1) else { return };
        let prompt = [100, 2000, 30, 4];
        let [a, b] = [portable, one_thread].map(|m| bits(&logits(&m, &prompt, Mode::Whole).unwrap()));
        assert!(a == b, "{name}: portable and {}", best().name());
        let streamed = streamed.expect("a model that runs");
        for mode in [Mode::Whole, Mode::Decode] {
            assert!(bits(&logits(&streamed, &prompt, mode).unwrap()) == a, "{name}, not repacked, {mode:?}");
        }
    }
}

#[test]
fn speculation_changes_no_token_of_real_models() {
    let code = "fn sum(a: &[i32]) -> i32 {\n    let mut sum = 0;\n    for x in a {\n        sum += x;\n    }\n    sum\n}\n\n\
                // The same for products of f64.\nfn product(";
    let list = "red, green, blue, red, green, blue, red, green";
    for (name, draft, prompt) in [
        (SMOLLM2, None, list),
        (SMOLLM2, Some(SMOLLM2), code),
        (GEMMA3, None, list),
        (QWEN2, None, list),
        (QWEN2_LARGE, Some(QWEN2), code),
    ] {
        let Some(model) = open(name, best(), 2) else { continue };
        let draft = match draft.map(|name| open(name, best(), 2)) {
            None => None,
            Some(Some(draft)) => Some(draft),
            Some(None) => continue,
        };
        let prompt =
            model.tokenizer().encode(prompt, EncodeOptions { add_special: true, parse_special: true });
        let mut accepted = 0;
        let sampled = SamplingParams { seed: Some(3), ..SamplingParams::default() };
        for sampling in [greedy(0).sampling, sampled] {
            let options = GenerateOptions { sampling, ..greedy(32) };
            let generate = |speculator| {
                let mut session = model.session();
                session.set_speculator(speculator);
                session.generate(&prompt, &options, &Cancel::new(), &mut |_| {}).unwrap()
            };
            let guesses = DraftOptions::default();
            let speculator = match &draft {
                Some(draft) => Speculator::draft(draft, &model, &guesses),
                None => Speculator::lookup(&guesses),
            };
            let (plain, guessed) = (generate(None), generate(Some(speculator.unwrap())));
            assert_eq!((guessed.tokens, guessed.finish), (plain.tokens, plain.finish), "{name}");
            accepted += guessed.stats.drafts.expect("a speculator").accepted;
        }
        assert!(accepted > 0, "{name}");
    }
}
