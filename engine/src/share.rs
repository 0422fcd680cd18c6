//! How much of a plan a device gets: what it supports, as many layers as its memory holds, or as many as were asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use llamay_plan::{Backend, Op, Placement, Plan, Tier, WeightId};

use crate::model::batch;
use crate::{Error, Options};

/// Positions that the cache on a device is to hold, at the most, where nobody said how many.
const POSITIONS: usize = 8192;
/// Bytes that a device keeps for itself: kernels, staging, what its driver needs.
const SPARE: u64 = 128 << 20;

/// Who runs what.
pub(crate) struct Shares {
    /// The device, if it runs anything.
    pub(crate) device: Option<Arc<dyn Backend>>,
    pub(crate) placement: Placement,
    /// The line for the user.
    pub(crate) line: String,
}

/// Shares the plan out.
pub(crate) fn out(
    plan: &Plan,
    device: Option<Arc<dyn Backend>>,
    cpu: &dyn Backend,
    options: &Options,
    context: usize,
) -> Result<Shares, Error> {
    let Some(device) = device.filter(|_| options.gpu_layers != Some(0)) else {
        let placement = Placement::compute(plan, None, cpu, None)?;
        let line = placement.line(plan, None, cpu);
        return Ok(Shares { device: None, placement, line });
    };
    let positions = options.context.unwrap_or(context.min(POSITIONS));
    let needs = |layers| bytes(plan, options, positions, layers);
    let (n, free) = (plan.n_layer, device.free_memory());
    let layers = match (options.gpu_layers.map(|l| l.min(n)), free) {
        (Some(layers), Some(free)) if needs(layers) > free => {
            let device = device.describe();
            return Err(Error::DeviceMemory { device, layers, needs: needs(layers), free });
        }
        (Some(layers), _) => layers,
        (None, Some(free)) => (0..=n).rev().find(|l| needs(*l) <= free).unwrap_or(0),
        (None, None) => n,
    };
    let short = match free {
        Some(free) if options.gpu_layers.is_none() && layers < n => format!(
            "; cpu: {} layers (device memory: all need {} MiB, {} MiB are free)",
            n - layers,
            needs(n) >> 20,
            free >> 20
        ),
        _ => String::new(),
    };
    let used = (layers > 0).then_some(device);
    let placement = Placement::compute(plan, used.as_deref(), cpu, Some(layers))?;
    let line = placement.line(plan, used.as_deref(), cpu) + &short;
    // A device that refuses every step runs nothing.
    let device = used.filter(|_| placement.tiers.iter().any(|t| *t != Tier::Cpu));
    Ok(Shares { device, placement, line })
}

/// The steps that run on the CPU, or those that do not.
pub(crate) fn steps(placement: &Placement, cpu: bool) -> Arc<[bool]> {
    placement.tiers.iter().map(|t| (*t == Tier::Cpu) == cpu).collect()
}

/// Bytes on the device of the last `layers` layers: weights, the head's with the last one's, the cache of so many
/// positions, and the activations of a batch. Embedding tables stay in the file.
fn bytes(plan: &Plan, options: &Options, positions: usize, layers: u32) -> u64 {
    if layers == 0 {
        return 0;
    }
    let first = plan.n_layer - layers;
    let mut seen_layer = false;
    let mine: Vec<bool> = plan
        .steps
        .iter()
        .map(|step| {
            seen_layer |= step.layer.is_some();
            step.layer.map_or(seen_layer || first == 0, |l| l >= first)
        })
        .collect();
    let part = part(plan, |i| mine[i]);
    let n_batch = batch(options);
    let row = |s: &llamay_plan::Slot| {
        // Only the rows that are wanted have logits; of a prompt that is one.
        if s.width == plan.n_vocab { 8 * s.width as u64 } else { 4 * (s.width * n_batch) as u64 }
    };
    let activations: u64 = plan.slots.iter().map(row).sum();
    part.weight_bytes() as u64 + part.kv_bytes(options.kv, positions, n_batch) + activations + SPARE
}

/// The part of the plan that runs on the CPU, as far as memory goes.
pub(crate) fn cpu_part(plan: &Plan, placement: &Placement) -> Plan {
    part(plan, |i| placement.tiers[i] == Tier::Cpu)
}

/// A plan with the weights and cache layers of some steps, to be counted; it has no steps.
fn part(plan: &Plan, steps: impl Fn(usize) -> bool) -> Plan {
    let mut weights = BTreeSet::<WeightId>::new();
    for (_, step) in plan.steps.iter().enumerate().filter(|(i, _)| steps(*i)) {
        if !matches!(step.op, Op::Embed { .. }) {
            weights.extend(step.op.weights());
        }
    }
    let used = plan.kv_used(&steps);
    Plan {
        weights: weights.into_iter().map(|w| plan.weight_of(w).clone()).collect(),
        kv: plan.kv.iter().zip(used).filter(|(_, used)| *used).map(|(layer, _)| *layer).collect(),
        ..Plan::default()
    }
}

#[cfg(test)]
mod tests {
    use llamay_formats::Format;
    use llamay_gguf::Gguf;
    use llamay_model::shapes::Shape;

    use super::*;

    fn plan(name: &str) -> Plan {
        let shape = Shape::named(name).expect("a generated model");
        llamay_model::load(&Gguf::from_bytes(shape.gguf(Format::F32).unwrap()).unwrap()).unwrap().plan
    }

    #[test]
    fn each_layer_takes_more_and_all_take_every_weight_but_the_table() {
        let (plan, options) = (plan("gemma3"), Options::default());
        let needs: Vec<u64> = (0..=plan.n_layer).map(|l| bytes(&plan, &options, 100, l)).collect();
        assert!(needs.is_sorted_by(|a, b| a < b), "{needs:?}");
        let whole = part(&plan, |_| true);
        assert_eq!(whole.kv.len(), plan.kv.len());
        // The head is the table, transposed, so that both are one tensor.
        assert_eq!(whole.weight_bytes(), plan.weight_bytes());
    }
}
