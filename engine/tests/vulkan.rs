//! Models on a Vulkan device, software too: the CPU's bits in every way to cut a prompt, split, and after a loss.
#![cfg(feature = "vulkan")]

mod common;

use std::sync::Arc;

use common::{best, bits, file, tokens, with};
use llamay_engine::verify::{Mode, logits};
use llamay_engine::{CustomBackend, DeviceChoice, KvType, Model, Options};
use llamay_formats::Format;
use llamay_model::shapes::Shape;
use llamay_vulkan::{Gpu, VulkanBackend};

/// The device that all tests share, or `None` with a line that says why there is none.
fn device() -> Option<Gpu> {
    static DEVICE: std::sync::OnceLock<Option<Gpu>> = std::sync::OnceLock::new();
    DEVICE.get_or_init(|| Gpu::open_any().map_err(|why| eprintln!("skipped: {why}")).ok()).clone()
}

fn on(gpu: &Gpu) -> Options {
    let backend = VulkanBackend::of(gpu.clone()).expect("a device that passes its self-test");
    Options { backend: Some(CustomBackend(Arc::new(backend))), ..with(best(), 2) }
}

fn open(shape: &Shape, format: Format, options: &Options) -> Model {
    Model::from_gguf(file(shape, format), options, &|_, _| {}).expect("a model that runs")
}

fn on_cpu(shape: &Shape, format: Format, options: &Options, prompt: &[u32]) -> Vec<u32> {
    let cpu = Options { backend: None, device: DeviceChoice::Cpu, gpu_layers: None, ..options.clone() };
    bits(&logits(&open(shape, format, &cpu), prompt, Mode::Whole).unwrap())
}

fn assert_equal(shape: &Shape, format: Format, options: &Options, n: usize, modes: &[Mode]) {
    let prompt = tokens(n);
    let reference = on_cpu(shape, format, options, &prompt);
    let model = open(shape, format, options);
    for &mode in modes {
        let got = bits(&logits(&model, &prompt, mode).unwrap());
        assert!(got == reference, "{} {format} {mode:?}: {}", shape.name(), model.placement());
    }
}

#[test]
fn every_shape_runs_whole_on_the_device_with_the_same_bits() {
    let Some(gpu) = device() else { return };
    let options = on(&gpu);
    for shape in Shape::all() {
        assert_equal(shape, Format::F32, &options, 21, &[Mode::Chunked, Mode::Mixed]);
        let model = open(shape, Format::F32, &options);
        let n = model.plan().n_layer;
        assert!(model.placement().starts_with(&format!("{n}/{n} layers on Vulkan")), "{}", model.placement());
    }
}

#[test]
fn every_format_gives_the_same_bits_in_every_mode() {
    let Some(gpu) = device() else { return };
    let shape = Shape::named("llama-gqa").expect("a generated model");
    for format in shape.formats() {
        assert_equal(shape, format, &on(&gpu), 21, &Mode::ALL);
    }
}

#[test]
fn split_models_and_every_type_of_cache_give_the_same_bits() {
    let Some(gpu) = device() else { return };
    for name in ["llama-gqa", "gemma3", "gpt-oss"] {
        let shape = Shape::named(name).expect("a generated model");
        for layers in [0, 1] {
            let options = Options { gpu_layers: Some(layers), ..on(&gpu) };
            assert_equal(shape, Format::Q4_0, &options, 70, &[Mode::Whole, Mode::Decode]);
        }
        for kv in KvType::ALL {
            // Long enough that a token's pages are shared out.
            assert_equal(shape, Format::F32, &Options { kv, ..on(&gpu) }, 330, &[Mode::Chunked, Mode::Whole]);
        }
    }
}

/// Whatever fails, and whenever: an error that leaves the session whole, or the CPU takes over; never other text.
#[test]
fn a_device_that_fails_anywhere_costs_no_session() {
    let Some(_) = device() else { return };
    let shape = Shape::named("gemma3").expect("a generated model");
    let prompt = tokens(150);
    let reference = on_cpu(shape, Format::Q4_0, &with(best(), 2), &prompt);
    let n_vocab = llamay_model::shapes::N_VOCAB;
    for n in 0.. {
        // A device of its own, since a lost one stays lost.
        let gpu = Gpu::open_any().unwrap();
        let model = open(shape, Format::Q4_0, &on(&gpu));
        let mut session = model.session();
        session.feed(&prompt[..100]).unwrap();
        gpu.lose_after(n);
        for token in &prompt[100..104] {
            session.feed(&[*token]).unwrap();
        }
        let notices = model.take_notices();
        session.feed(&prompt[104..]).unwrap();
        let last = &reference[reference.len() - n_vocab..];
        assert!(bits(session.last_logits()) == last, "lost after {n}");
        if notices.is_empty() {
            assert!(n > 3, "the device was used for each token");
            break;
        }
        assert!(notices[0].contains("is lost") && notices[0].contains("CPU"), "{notices:?}");
    }
}

/// Where nobody asked for the device, a model that it cannot hold runs on the CPU; later the session stays as it was.
#[test]
fn memory_that_cannot_be_had_costs_no_text() {
    let Some(_) = device() else { return };
    let shape = Shape::named("gemma3").expect("a generated model");
    let prompt = tokens(150);
    let reference = on_cpu(shape, Format::Q4_0, &with(best(), 2), &prompt);
    let last = &reference[reference.len() - llamay_model::shapes::N_VOCAB..];
    let gpu = Gpu::open_any().unwrap();
    let (mut without, mut failed) = (0, 0);
    for n in 0.. {
        let options = on(&gpu);
        gpu.fail_allocation_after(n);
        let model = open(shape, Format::Q4_0, &options);
        if model.placement().contains("CPU") {
            without += 1;
            assert!(model.warnings().iter().any(|w| w.contains("out of memory")), "{:?}", model.warnings());
        }
        let mut session = model.session();
        let first = session.feed(&prompt);
        gpu.fail_allocation_after(u64::MAX);
        if first.is_err() {
            failed += 1;
            assert!(session.is_empty());
            session.feed(&prompt).unwrap();
        }
        assert!(bits(session.last_logits()) == last, "{n}");
        // A page is tried again in a smaller piece, so the first success behind loading is not the last allocation.
        if first.is_ok() && n > without + 5 && n > without + failed + 5 {
            break;
        }
    }
    assert!(without > 10 && failed > 10, "weights, cache and activations are allocated: {without}, {failed}");
    let options = Options { gpu_layers: Some(99), ..on(&gpu) };
    gpu.fail_allocation_after(0);
    let error = Model::from_gguf(file(shape, Format::Q4_0), &options, &|_, _| {}).err().expect("an error");
    assert!(error.to_string().contains("out of memory"), "{error}");
}

#[test]
fn a_device_is_found_by_its_name() {
    let Some(gpu) = device() else { return };
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let options = Options { device: DeviceChoice::Named("vulkan:0".to_owned()), ..with(best(), 1) };
    assert!(open(shape, Format::F32, &options).placement().contains("Vulkan"));
    let options = Options { device: DeviceChoice::Named("vulkan:77".to_owned()), ..with(best(), 1) };
    let error = Model::from_gguf(file(shape, Format::F32), &options, &|_, _| {}).err().expect("an error");
    assert!(error.to_string().contains("no device 77"), "{error}");
    let listed = llamay_engine::devices();
    let devices = listed[0].1.as_ref().unwrap();
    assert!(devices.iter().any(|d| d.description == gpu.name() && d.self_test.is_ok()), "{devices:?}");
}
