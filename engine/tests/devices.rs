//! Plans that a device and the CPU share: the CPU's bits, wherever the border runs, and a placement that says so.

mod common;

use std::sync::Arc;

use common::{best, bits, file, tokens, with};
use llamay_cpu::CpuBackend;
use llamay_engine::verify::{Mode, logits};
use llamay_engine::{CustomBackend, DeviceChoice, Error, Model, Options};
use llamay_formats::Format;
use llamay_model::shapes::Shape;
use llamay_plan::{Backend, ExecError, Executor, LoadOptions, Op, Plan, Progress, Refusal, WeightSource};

/// The CPU as a device of its own that does not run everything.
struct Fake {
    cpu: CpuBackend,
    refuses: fn(&Op, &[Format]) -> bool,
    memory: Option<u64>,
}

impl Backend for Fake {
    fn name(&self) -> String {
        "fake:0".to_owned()
    }

    fn describe(&self) -> String {
        "Fake".to_owned()
    }

    fn supports(&self, op: &Op, formats: &[Format]) -> Result<(), Refusal> {
        if (self.refuses)(op, formats) { Err(Refusal::Op(op.name())) } else { Ok(()) }
    }

    fn free_memory(&self) -> Option<u64> {
        self.memory
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: Arc<dyn WeightSource>,
        options: LoadOptions,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Executor>, ExecError> {
        self.cpu.load(plan, weights, options, progress)
    }
}

/// Options with a fake device.
fn fake(refuses: fn(&Op, &[Format]) -> bool, memory: Option<u64>) -> Options {
    let device = Fake { cpu: CpuBackend::new(Some(best()), 1), refuses, memory };
    Options { backend: Some(CustomBackend(Arc::new(device))), ..with(best(), 2) }
}

fn open(shape: &Shape, options: &Options) -> Model {
    Model::from_gguf(file(shape, Format::F32), options, &|_, _| {}).expect("a model that runs")
}

/// Asserts that the options give the CPU's bits in every mode; returns the placement.
fn assert_equal(shape: &Shape, options: &Options) -> String {
    let prompt = tokens(70);
    let cpu = Options { device: DeviceChoice::Cpu, ..with(best(), 2) };
    let reference = bits(&logits(&open(shape, &cpu), &prompt, Mode::Whole).unwrap());
    let model = open(shape, options);
    for mode in Mode::ALL {
        let got = bits(&logits(&model, &prompt, mode).unwrap());
        assert!(got == reference, "{}, {mode:?}: {}", shape.name(), model.placement());
    }
    model.placement().to_owned()
}

/// Plain, windows and norms of every kind, experts, parallel branches.
const SHAPES: [&str; 5] = ["llama-gqa", "gemma3", "mixtral", "gpt-oss", "phi2"];

#[test]
fn every_border_gives_the_same_bits() {
    let refusals: [fn(&Op, &[Format]) -> bool; 5] = [
        |_, _| false,
        |op, _| matches!(op, Op::Attend { .. }),
        |op, _| !matches!(op, Op::Linear { .. } | Op::ExpertLinear { .. }),
        |op, _| matches!(op, Op::Linear { projections, .. } if projections.len() == 1),
        |op, _| matches!(op, Op::Embed { .. } | Op::Select { .. } | Op::Gate { .. }),
    ];
    for name in SHAPES {
        let shape = Shape::named(name).expect("a generated model");
        for refuses in refusals {
            assert_equal(shape, &fake(refuses, None));
        }
        for layers in 0..3 {
            assert_equal(shape, &Options { gpu_layers: Some(layers), ..fake(|_, _| false, None) });
        }
    }
}

#[test]
fn the_line_says_where_layers_run_and_why_some_do_not() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let line = |options: &Options| open(shape, options).placement().to_owned();
    let n = open(shape, &with(best(), 1)).plan().n_layer;
    assert_eq!(line(&fake(|_, _| false, None)), format!("{n}/{n} layers on Fake"));
    let one = Options { gpu_layers: Some(1), ..fake(|_, _| false, None) };
    assert_eq!(line(&one), format!("1/{n} layers on Fake"));
    let none = Options { gpu_layers: Some(0), ..fake(|_, _| false, None) };
    assert!(line(&none).starts_with(&format!("{n}/{n} layers on CPU")));
    let refused = line(&fake(|op, _| matches!(op, Op::Attend { .. }), None));
    assert!(refused.contains("0/") && refused.contains("no attend kernel"), "{refused}");
    let short = line(&fake(|_, _| false, Some(0)));
    assert!(short.contains("on CPU") && short.contains("device memory"), "{short}");
}

#[test]
fn more_layers_than_memory_holds_are_an_error_with_both_numbers() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let options = Options { gpu_layers: Some(1), ..fake(|_, _| false, Some(1 << 20)) };
    let error = Model::from_gguf(file(shape, Format::F32), &options, &|_, _| {}).err().expect("an error");
    assert!(matches!(error, Error::DeviceMemory { layers: 1, .. }), "{error}");
    assert!(error.to_string().contains("1 MiB are free"), "{error}");
}

#[test]
fn a_device_that_this_build_has_not_is_an_error() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let options = Options { device: DeviceChoice::Named("cuda:9".to_owned()), ..with(best(), 1) };
    let error = Model::from_gguf(file(shape, Format::F32), &options, &|_, _| {}).err().expect("an error");
    assert!(error.to_string().starts_with("cuda:9 cannot be used"), "{error}");
}
