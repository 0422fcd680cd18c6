//! Every generated model runs on every backend, or is declared to be refused there, with the reason.
//!
//! A backend that is added joins [`every_shape_runs_on_every_backend_or_is_declared`] with its own list. The list cannot go
//! stale: a refusal that is not declared fails, and so does a declared one that no longer happens.

use std::sync::Arc;

use llamay_cpu::CpuBackend;
use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::shapes::Shape;
use llamay_plan::{Backend, ExecError, Executor, LoadOptions, Op, Plan, Progress, Refusal, WeightSource};

/// A shape that a backend does not run, and words of its reason.
type Declared = (&'static str, &'static str);

fn plan(shape: &Shape) -> Plan {
    let file = shape.gguf(Format::F32).expect("a generated model");
    llamay_model::plan(&Gguf::from_bytes(file).expect("a valid file")).expect("a plan")
}

/// The first step that the backend refuses, if any.
fn refusal(plan: &Plan, backend: &dyn Backend) -> Option<String> {
    let answers = plan.steps.iter().map(|step| backend.supports(&step.op, &plan.formats_of(&step.op)));
    answers.filter_map(Result::err).map(|refusal| refusal.to_string()).next()
}

/// What is wrong with a backend's list, in words; nothing if it is right.
fn faults(backend: &dyn Backend, declared: &[Declared]) -> Vec<String> {
    let mut faults: Vec<String> = (declared.iter().filter(|(name, _)| Shape::named(name).is_none()))
        .map(|(name, _)| format!("there is no shape {name}"))
        .collect();
    for shape in Shape::all() {
        let name = shape.name();
        let reasons: Vec<&str> = declared.iter().filter(|(n, _)| *n == name).map(|(_, why)| *why).collect();
        match (refusal(&plan(shape), backend), reasons.as_slice()) {
            (None, []) => {}
            (Some(found), [why]) if found.contains(why) => {}
            (Some(found), _) => faults.push(format!("{name} is refused and not declared so: {found}")),
            (None, _) => faults.push(format!("{name} is declared to be refused, and runs")),
        }
    }
    faults
}

#[test]
fn every_shape_runs_on_every_backend_or_is_declared() {
    let cpu: &[Declared] = &[];
    assert_eq!(faults(&CpuBackend::new(None, 1), cpu), Vec::<String>::new());
}

/// A device without experts.
struct Dense;

impl Backend for Dense {
    fn name(&self) -> String {
        "dense".into()
    }

    fn describe(&self) -> String {
        "a device without experts".into()
    }

    fn supports(&self, op: &Op, _: &[Format]) -> Result<(), Refusal> {
        match op {
            Op::ExpertLinear { .. } => Err(Refusal::Op("expert_linear")),
            _ => Ok(()),
        }
    }

    fn free_memory(&self) -> Option<u64> {
        None
    }

    fn load(
        &self,
        _: Arc<Plan>,
        _: Arc<dyn WeightSource>,
        _: LoadOptions,
        _: Progress<'_>,
    ) -> Result<Box<dyn Executor>, ExecError> {
        Err(ExecError::OutOfMemory { what: "a fake device", bytes: 0 })
    }
}

#[test]
fn a_list_that_is_not_the_truth_is_found_out() {
    let has_experts = |shape: &&Shape| plan(shape).steps.iter().any(|s| s.op.name() == "expert_linear");
    let truth: Vec<Declared> =
        Shape::all().iter().filter(has_experts).map(|s| (s.name(), "no expert_linear kernel")).collect();
    assert!(truth.len() > 3, "there are mixtures among the shapes");
    assert_eq!(faults(&Dense, &truth), Vec::<String>::new());
    assert_eq!(faults(&Dense, &truth[1..]).len(), 1, "one is missing");
    let stale: Vec<Declared> = truth.iter().copied().chain([("llama-gqa", "no reason")]).collect();
    assert_eq!(faults(&Dense, &stale), ["llama-gqa is declared to be refused, and runs"]);
    let wrong: Vec<Declared> = truth.iter().map(|(name, _)| (*name, "another reason")).collect();
    assert_eq!(faults(&Dense, &wrong).len(), truth.len());
}
