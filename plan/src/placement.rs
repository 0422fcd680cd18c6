//! Which device runs which step: three tiers, decided once at load, and told to the user in one line.

use std::collections::{BTreeMap, BTreeSet};

use llamay_formats::Format;

use crate::{Backend, Op, Plan, Refusal};

/// How a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// On the device, among its neighbours; activations stay there.
    Graph,
    /// A matmul that visits the device alone.
    Matmul,
    /// On the CPU.
    Cpu,
}

/// A step that did not run where it should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fall {
    /// Index of the step.
    pub step: usize,
    /// The device that refused it.
    pub device: String,
    /// Why.
    pub refusal: Refusal,
}

/// Where every step of a plan runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The accelerator's name, if there is one.
    pub device: Option<String>,
    /// The tier of each step.
    pub tiers: Vec<Tier>,
    /// Steps that the accelerator refused.
    pub falls: Vec<Fall>,
}

/// No backend, not even the CPU, runs this step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step} cannot run here: {refusal}")]
pub struct Unplaced {
    /// The step, as [`Plan::describe_step`] names it.
    pub step: String,
    /// The CPU's reason.
    pub refusal: Refusal,
}

/// A part of the plan that runs whole on the device, or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Embedding,
    Layer(u32),
    Head,
}

/// The part of each step: what has no layer is the embedding before the first layer, and the head behind.
fn parts(plan: &Plan) -> Vec<Part> {
    let mut outside = Part::Embedding;
    let part = |step: &crate::Step| match step.layer {
        Some(l) => {
            outside = Part::Head;
            Part::Layer(l)
        }
        None => outside,
    };
    plan.steps.iter().map(part).collect()
}

impl Placement {
    /// Places each step on `device` where it is supported, else on `cpu`.
    ///
    /// A layer whose every step is supported by the device runs there whole ([`Tier::Graph`]); of any other layer only
    /// the matmuls go there. `max_layers` bounds the layers on the device, the last ones first. The output head counts
    /// with the last layer and the embedding with the first.
    pub fn compute(
        plan: &Plan,
        device: Option<&dyn Backend>,
        cpu: &dyn Backend,
        max_layers: Option<u32>,
    ) -> Result<Placement, Unplaced> {
        let mut placement = Placement {
            device: device.map(Backend::name),
            tiers: Vec::with_capacity(plan.steps.len()),
            falls: vec![],
        };
        let first_layer = plan.n_layer - max_layers.unwrap_or(plan.n_layer).min(plan.n_layer);
        let parts = parts(plan);
        let mut refused = BTreeSet::new();
        let mut answers = Vec::with_capacity(plan.steps.len());
        for (i, (step, part)) in plan.steps.iter().zip(&parts).enumerate() {
            let wanted = device.filter(|_| match part {
                Part::Embedding => first_layer == 0,
                Part::Layer(l) => *l >= first_layer,
                Part::Head => first_layer < plan.n_layer,
            });
            let answer = wanted.map(|d| d.supports_in(plan, &step.op));
            if let (Some(Err(refusal)), Some(device)) = (&answer, device) {
                refused.insert(*part);
                placement.falls.push(Fall { step: i, device: device.name(), refusal: refusal.clone() });
            }
            answers.push(answer);
        }
        for (i, ((step, part), answer)) in plan.steps.iter().zip(&parts).zip(answers).enumerate() {
            let tier = match answer {
                Some(Ok(())) if !refused.contains(part) => Tier::Graph,
                Some(Ok(())) if matches!(step.op, Op::Linear { .. } | Op::ExpertLinear { .. }) => {
                    Tier::Matmul
                }
                _ => Tier::Cpu,
            };
            if tier == Tier::Cpu {
                cpu.supports(&step.op, &plan.formats_of(&step.op))
                    .map_err(|refusal| Unplaced { step: plan.describe_step(i), refusal })?;
            }
            placement.tiers.push(tier);
        }
        Ok(placement)
    }

    /// Layers that run whole on the device.
    pub fn device_layers(&self, plan: &Plan) -> u32 {
        (0..plan.n_layer)
            .filter(|l| {
                let mut steps =
                    plan.steps.iter().zip(&self.tiers).filter(|(s, _)| s.layer == Some(*l)).peekable();
                steps.peek().is_some() && steps.all(|(_, t)| *t == Tier::Graph)
            })
            .count() as u32
    }

    /// The one line that is always shown: where the layers run, and the reason of every fall.
    pub fn line(&self, plan: &Plan, device: Option<&dyn Backend>, cpu: &dyn Backend) -> String {
        let n = plan.n_layer;
        let Some(device) = device else {
            return format!("{n}/{n} layers on {}", cpu.describe());
        };
        let mut line = format!("{}/{n} layers on {}", self.device_layers(plan), device.describe());
        let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for fall in &self.falls {
            let op = &plan.steps[fall.step].op;
            let formats: Vec<Format> = plan.formats_of(op);
            let names = op.weights().into_iter().map(|w| plan.weight_of(w).name.clone());
            let what = match &fall.refusal {
                Refusal::Format(_, format) => names.zip(formats).find(|(_, f)| f == format).map(|(n, _)| n),
                Refusal::Op(_) | Refusal::Device(..) => None,
            };
            reasons
                .entry(fall.refusal.to_string())
                .or_default()
                .push(what.unwrap_or_else(|| plan.describe_step(fall.step)));
        }
        if !reasons.is_empty() {
            let falls: Vec<String> = reasons
                .into_iter()
                .map(|(why, steps)| match steps.as_slice() {
                    [one] => format!("{one} ({why})"),
                    [first, rest @ ..] => format!("{first} and {} more ({why})", rest.len()),
                    [] => why,
                })
                .collect();
            line.push_str(&format!("; cpu: {}", falls.join(", ")));
        }
        line
    }
}
