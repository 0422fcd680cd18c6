//! Real models, where the cache folder has them (`tools/fetch.py`); `LLAMAY_REQUIRE_MODELS=1` makes a missing one a failure.

mod common;

use std::path::PathBuf;

use common::{bits, with};
use llamay_engine::sampling::SamplingParams;
use llamay_engine::verify::{Mode, logits};
use llamay_engine::{Cancel, Chat, GenerateOptions, Isa, Model};
use llamay_engine::tokenizer::EncodeOptions;

const SMOLLM2: &str = "smollm2-135m-instruct-q4_1.gguf";
const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

/// The model's path, or `None` with a line that says it is skipped.
fn path(name: &str) -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = var("LLAMAY_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|p| p.join("llamay")))
        .or_else(|| var("HOME").map(|p| p.join(".cache/llamay")))?;
    let path = cache.join("models").join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("LLAMAY_REQUIRE_MODELS").is_none(), "{name} is not in the cache folder");
    eprintln!("skipped: {name} is not in the cache folder");
    None
}

fn open(name: &str, isa: Isa, threads: usize) -> Option<Model> {
    let path = path(name)?;
    Some(Model::open(path, &with(isa, threads), &|_, _| {}).expect("a model that runs"))
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    let sampling = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    GenerateOptions { max_tokens: Some(max_tokens), sampling, ..GenerateOptions::default() }
}

#[test]
fn smollm2_answers_a_question() {
    let Some(model) = open(SMOLLM2, Isa::best(None), 2) else { return };
    let mut chat = Chat::new(&model).unwrap();
    let reply =
        chat.say("What is the capital of France?", &greedy(40), &Cancel::new(), &mut |_| {}).unwrap();
    assert!(reply.generation.text.contains("Paris"), "{}", reply.generation.text);
}

#[test]
fn gemma3_continues_a_sentence() {
    let Some(model) = open(GEMMA3, Isa::best(None), 2) else { return };
    let prompt = model
        .tokenizer()
        .encode("The largest planet in our solar system is", EncodeOptions { add_special: true, parse_special: true });
    let done = model.session().generate(&prompt, &greedy(8), &Cancel::new(), &mut |_| {}).unwrap();
    assert!(done.text.contains("Jupiter"), "{}", done.text);
}

#[test]
fn every_kernel_set_gives_the_same_bits_on_real_models() {
    for name in [SMOLLM2, GEMMA3] {
        let mut reference = None;
        for isa in Isa::available().into_iter().filter(|i| *i != Isa::Portable) {
            let Some(model) = open(name, isa, 2) else { return };
            let options = EncodeOptions { add_special: true, parse_special: false };
            let mut prompt = model.tokenizer().encode(&"Once upon a time there was a fox. ".repeat(12), options);
            prompt.truncate(90);
            for mode in [Mode::Whole, Mode::Chunked] {
                let got = bits(&logits(&model, &prompt, mode).unwrap());
                assert!(got == *reference.get_or_insert_with(|| got.clone()), "{name} {} {mode:?}", isa.name());
            }
        }
        // The portable kernels are slow, so they see a few tokens.
        let Some(portable) = open(name, Isa::Portable, 2) else { return };
        let Some(best) = open(name, Isa::best(None), 1) else { return };
        let prompt = [100, 2000, 30, 4];
        let [a, b] = [portable, best].map(|m| bits(&logits(&m, &prompt, Mode::Whole).unwrap()));
        assert!(a == b, "{name}: portable and {}", Isa::best(None).name());
    }
}
