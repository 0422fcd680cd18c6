//! Adapters: a model with one gives what the model with merged weights gives, and without one it is as it was.

mod common;

use std::path::PathBuf;

use common::{best, bits, file, tokens, with_f32_cache};
use llamay_engine::gguf::Gguf;
use llamay_engine::quantize::{Recipe, quantize};
use llamay_engine::verify::{Mode, logits};
use llamay_engine::{AdapterSource, Cancel, Error, Isa, Model};
use llamay_formats::Format;
use llamay_model::shapes::{Shape, lora_adapter};

const FEW: usize = 9;

fn shape(name: &str) -> &'static Shape {
    Shape::named(name).expect("a generated model")
}

/// An adapter of every matrix of the shape that can have one, with a factor of 2.
fn adapter(shape: &Shape, rank: usize, seed: u32, scale: f32) -> AdapterSource {
    let plan = llamay_model::plan(&file(shape, Format::F32)).unwrap();
    let bytes = lora_adapter(&plan, rank, 2.0 * rank as f32, seed).unwrap();
    AdapterSource { name: format!("adapter {seed}"), gguf: Gguf::from_bytes(bytes).unwrap(), scale }
}

fn open(shape: &Shape, format: Format, adapters: Vec<AdapterSource>) -> Model {
    let options = with_f32_cache(best(), 2);
    Model::with_adapters(file(shape, format), adapters, &options, &|_, _| {}).unwrap()
}

fn run(model: &Model, mode: Mode) -> Vec<f32> {
    logits(model, &tokens(FEW), mode).unwrap()
}

/// The greatest difference as a share of the greatest logit.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    let most = b.iter().fold(0.0, |m: f32, x| m.max(x.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / most).fold(0.0, f32::max)
}

/// A file that goes with the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        Temporary(std::env::temp_dir().join(format!("llamay-lora-{}-{name}.gguf", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The shape's file with the adapters in its weights.
fn merged(shape: &Shape, from: Format, to: &str, adapters: &[AdapterSource]) -> Result<Gguf, Error> {
    let out = Temporary::new(&format!("{}-{from}-{to}", shape.name()));
    let recipe = Recipe::named(to, true).unwrap();
    quantize(&file(shape, from), adapters, &out.0, &recipe, 2, &Cancel::new(), &mut |_| {})?;
    Ok(Gguf::from_bytes(std::fs::read(&out.0).unwrap()).unwrap())
}

#[test]
fn an_adapter_is_worth_its_merged_weights() {
    let options = with_f32_cache(best(), 2);
    for (i, shape) in Shape::all().iter().enumerate() {
        let lora = || adapter(shape, [1, 3, 8, 16][i % 4], 1, 0.5);
        let got = run(&open(shape, Format::F32, vec![lora()]), Mode::Whole);
        let merged = merged(shape, Format::F32, "F32", &[lora()]).unwrap();
        let wanted = run(&Model::from_gguf(merged, &options, &|_, _| {}).unwrap(), Mode::Whole);
        let apart = apart(&got, &wanted);
        assert!(apart < 1e-5, "{}: {apart}", shape.name());
    }
}

#[test]
fn every_mode_gives_the_same_bits() {
    for name in ["llama-gqa", "llama-mha", "gemma3"] {
        for format in [Format::F32, Format::Q8_0] {
            let model = open(shape(name), format, vec![adapter(shape(name), 3, 1, 0.7)]);
            let whole = bits(&run(&model, Mode::Whole));
            for mode in Mode::ALL {
                assert!(bits(&run(&model, mode)) == whole, "{name} {format} {mode:?}");
            }
            let portable = Model::with_adapters(
                file(shape(name), format),
                vec![adapter(shape(name), 3, 1, 0.7)],
                &with_f32_cache(Isa::Portable, 1),
                &|_, _| {},
            );
            assert!(bits(&run(&portable.unwrap(), Mode::Whole)) == whole, "{name} {format}, portable");
        }
    }
}

#[test]
fn a_scale_of_zero_gives_the_bits_of_the_model() {
    for name in ["llama-gqa", "llama-bias", "gemma3"] {
        let base = bits(&run(&open(shape(name), Format::Q8_0, vec![]), Mode::Whole));
        let off = open(shape(name), Format::Q8_0, vec![adapter(shape(name), 4, 1, 0.0)]);
        assert!(bits(&run(&off, Mode::Whole)) == base, "{name}");
        let on = open(shape(name), Format::Q8_0, vec![adapter(shape(name), 4, 1, 1.0)]);
        assert!(bits(&run(&on, Mode::Whole)) != base, "{name}");
    }
}

#[test]
fn scales_change_while_the_model_is_loaded() {
    let shape = shape("llama-gqa");
    let pair = |a, b| vec![adapter(shape, 4, 1, a), adapter(shape, 2, 2, b)];
    let model = open(shape, Format::Q8_0, pair(1.0, 0.0));
    for (a, b) in [(1.0, 0.0), (0.0, 0.0), (0.0, -0.5), (0.25, 2.0), (1.0, 0.0)] {
        model.set_adapter_scale(0, a).unwrap();
        model.set_adapter_scale(1, b).unwrap();
        let fresh = open(shape, Format::Q8_0, pair(a, b));
        assert!(bits(&run(&model, Mode::Whole)) == bits(&run(&fresh, Mode::Whole)), "{a} and {b}");
        let scales: Vec<f32> = model.adapters().iter().map(|a| a.scale).collect();
        assert_eq!(scales, [a, b]);
    }
    let base = open(shape, Format::Q8_0, vec![]);
    model.set_adapter_scale(0, 0.0).unwrap();
    assert!(bits(&run(&model, Mode::Decode)) == bits(&run(&base, Mode::Whole)));
}

#[test]
fn scales_do_not_change_under_a_session_or_to_nonsense() {
    let shape = shape("llama-gqa");
    let model = open(shape, Format::Q8_0, vec![adapter(shape, 4, 1, 1.0)]);
    let mut session = model.session();
    session.feed(&tokens(3)).unwrap();
    let refused = |scale, words: &str| {
        let message = model.set_adapter_scale(0, scale).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(0.5, "no session holds tokens");
    session.truncate(0);
    model.set_adapter_scale(0, 0.5).unwrap();
    let other = session.fork();
    drop(other);
    refused(f32::NAN, "finite");
    refused(f32::MAX, "finite");
    assert!(model.set_adapter_scale(1, 0.5).unwrap_err().to_string().contains("1 adapters"));
    assert_eq!(model.adapters()[0].scale, 0.5, "a refused scale changes nothing");
}

#[test]
fn merging_keeps_what_has_no_adapter() {
    let shape = shape("llama-bias");
    let (base, lora) = (file(shape, Format::F16), adapter(shape, 4, 1, 1.0));
    let merged = merged(shape, Format::F16, "F16", std::slice::from_ref(&lora)).unwrap();
    for tensor in base.tensors() {
        let changed = lora.gguf.tensor(&format!("{}.lora_a", tensor.name)).is_some();
        let same = base.data(tensor).unwrap() == merged.data(merged.tensor(&tensor.name).unwrap()).unwrap();
        assert_eq!(same, !changed, "{}", tensor.name);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_adapters_name() {
    let (model, other) = (shape("llama-gqa"), shape("llama-mha"));
    let options = with_f32_cache(Isa::Portable, 1);
    let open = |adapters| Model::with_adapters(file(model, Format::Q8_0), adapters, &options, &|_, _| {});
    let says = |error: Option<Error>, words: &[&str]| {
        let message = error.expect("a refusal").to_string();
        assert!(words.iter().all(|w| message.contains(w)) && !message.contains('\n'), "{message}");
    };
    let wrong = || vec![adapter(model, 4, 1, 1.0), adapter(other, 4, 2, 1.0)];
    says(open(wrong()).err(), &["adapter 2: ", "[160, 4]"]);
    says(merged(model, Format::Q8_0, "Q8_0", &wrong()).err(), &["adapter 2: ", "[160, 4]"]);
    let gemma = || vec![adapter(shape("gemma3"), 4, 3, 1.0)];
    says(open(gemma()).err(), &["adapter 3: ", "gemma3", "llama"]);
    says(merged(model, Format::Q8_0, "Q8_0", &gemma()).err(), &["adapter 3: ", "gemma3", "llama"]);
    let no_adapter = AdapterSource { name: "model".into(), gguf: file(model, Format::Q8_0), scale: 1.0 };
    says(open(vec![no_adapter]).err(), &["model: ", "no adapter"]);
    let lora = adapter(model, 4, 1, 1.0).gguf;
    says(Model::from_gguf(lora, &options, &|_, _| {}).err(), &["adapter", "--lora"]);
}
