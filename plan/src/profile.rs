//! Where the time of forward calls goes: a record for each step of a plan.

use std::time::Duration;

use llamay_formats::Format;

use crate::{Cost, Op, Plan, Rows};

/// A step of the plan, or several of one kind, over the forward calls that were profiled.
#[derive(Clone, Debug, PartialEq)]
pub struct StepProfile {
    /// What people call the kind of step, such as `linear q+k+v Q4_K`; see [`Plan::step_label`].
    pub label: String,
    /// How often it ran.
    pub calls: u64,
    /// Time that it took.
    pub time: Duration,
    /// What it did.
    pub cost: Cost,
}

/// What [`crate::Executor::take_profile`] gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The steps that ran, in the order of the plan.
    pub steps: Vec<StepProfile>,
    /// Time that went into counting, which no forward call takes when it is not profiled.
    pub counting: Duration,
}

impl Profile {
    /// Time of all steps.
    pub fn step_time(&self) -> Duration {
        self.steps.iter().map(|s| s.time).sum()
    }

    /// The work of all steps.
    pub fn cost(&self) -> Cost {
        let mut sum = Cost::default();
        self.steps.iter().for_each(|s| sum += s.cost);
        sum
    }

    /// The steps of each kind put together, in the order of their first.
    pub fn by_kind(&self) -> Vec<StepProfile> {
        let mut kinds: Vec<StepProfile> = Vec::new();
        for step in &self.steps {
            match kinds.iter_mut().find(|kind| kind.label == step.label) {
                Some(kind) => {
                    kind.calls += step.calls;
                    kind.time += step.time;
                    kind.cost += step.cost;
                }
                None => kinds.push(step.clone()),
            }
        }
        kinds
    }

    /// Takes over the time of each step that was faster in another run of the same work: what remains is what the steps take
    /// when nothing disturbs them.
    pub fn keep_fastest(&mut self, other: &Profile) {
        for (step, other) in self.steps.iter_mut().zip(&other.steps) {
            step.time = step.time.min(other.time);
        }
    }
}

/// Gathers a [`Profile`] for an executor, which tells it of every step that ran.
#[derive(Clone, Debug, Default)]
pub struct Profiler {
    /// One a step of the plan.
    records: Vec<Record>,
    /// Time that went into counting.
    pub counting: Duration,
}

#[derive(Clone, Debug, Default)]
struct Record {
    calls: u64,
    time: Duration,
    cost: Cost,
}

impl Profiler {
    /// A profiler of a plan's steps.
    pub fn new(plan: &Plan) -> Profiler {
        Profiler { records: vec![Record::default(); plan.steps.len()], counting: Duration::ZERO }
    }

    /// Counts one run of a step.
    pub fn add(&mut self, step: usize, time: Duration, cost: Cost) {
        let record = &mut self.records[step];
        record.calls += 1;
        record.time += time;
        record.cost += cost;
    }

    /// What was gathered; from then on the profiler is as new.
    pub fn take(&mut self, plan: &Plan) -> Profile {
        let gathered = std::mem::replace(self, Profiler::new(plan));
        let ran = gathered.records.into_iter().zip(&plan.steps).filter(|(record, _)| record.calls > 0);
        let steps = ran.map(|(Record { calls, time, cost }, step)| StepProfile {
            label: plan.step_label(&step.op),
            calls,
            time,
            cost,
        });
        Profile { steps: steps.collect(), counting: gathered.counting }
    }
}

impl Plan {
    /// The kind of a step in words that name its weights' roles and formats: `linear gate+up Q4_K`, `attention window 512`.
    /// Steps of the same kind in different layers have the same label.
    pub fn step_label(&self, op: &Op) -> String {
        match op {
            Op::Embed { weight, .. } => format!("embedding {}", self.weight_of(*weight).format),
            Op::Norm { heads: 1, .. } => "norm".to_owned(),
            Op::Norm { .. } => "norm of heads".to_owned(),
            Op::Linear { projections, .. } => {
                format!("linear {}", self.weights_label(projections.iter().map(|p| p.weight)))
            }
            Op::Rope { .. } => "rope".to_owned(),
            Op::Attend { window: None, .. } => "attention".to_owned(),
            Op::Attend { window: Some(window), .. } => format!("attention window {window}"),
            Op::Gate { .. } => "gate".to_owned(),
            Op::Activate { .. } => "activation".to_owned(),
            Op::Add { .. } => "add".to_owned(),
            Op::Scale { .. } => "scale".to_owned(),
            Op::Softcap { .. } => "softcap".to_owned(),
            Op::Route { .. } => "choice of experts".to_owned(),
            Op::ExpertLinear { projections, .. } => {
                let firsts = projections.iter().filter_map(|p| p.experts.first().copied());
                format!("experts {}", self.weights_label(firsts))
            }
            Op::Combine { .. } => "sum of experts".to_owned(),
            Op::Select { .. } => "choice of rows".to_owned(),
        }
    }

    /// Roles and formats, each once: `q+k+v Q4_K+Q6_K`.
    fn weights_label(&self, weights: impl Iterator<Item = Rows>) -> String {
        let (mut roles, mut formats): (Vec<String>, Vec<Format>) = (Vec::new(), Vec::new());
        for weight in weights.map(|rows| self.weight_of(rows.weight)) {
            let role = role(&weight.name);
            if !roles.contains(&role) {
                roles.push(role);
            }
            if !formats.contains(&weight.format) {
                formats.push(weight.format);
            }
        }
        let formats: Vec<&str> = formats.into_iter().map(Format::name).collect();
        format!("{} {}", roles.join("+"), formats.join("+"))
    }
}

/// What a tensor does, from its name: `q` of `blk.3.attn_q.weight`.
fn role(name: &str) -> String {
    // A LoRA adapter's names carry that of the matrix that it changes, of which there are too many to tell apart.
    if name.ends_with(".lora_a") || name.ends_with(".lora_b") {
        return "LoRA".to_owned();
    }
    let parts: Vec<&str> = name.split('.').collect();
    let parts = match parts.as_slice() {
        ["blk", number, rest @ ..] if number.bytes().all(|b| b.is_ascii_digit()) => rest,
        all => all,
    };
    let parts = match parts {
        [rest @ .., "weight"] => rest,
        all => all,
    };
    let role = parts.join(".");
    match role.as_str() {
        // A model without a matrix of its own for logits takes its embedding.
        "output" | "token_embd" => "logits".to_owned(),
        "attn_output" => "attention output".to_owned(),
        _ => {
            let short = role.strip_prefix("attn_").or_else(|| role.strip_prefix("ffn_")).unwrap_or(&role);
            short.strip_suffix("_exps").unwrap_or(short).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(steps: &[(&str, u64)]) -> Profile {
        let step = |(label, ms): &(&str, u64)| StepProfile {
            label: (*label).to_owned(),
            calls: 2,
            time: Duration::from_millis(*ms),
            cost: Cost { weight_bytes: 5, ..Cost::default() },
        };
        Profile { steps: steps.iter().map(step).collect(), counting: Duration::ZERO }
    }

    #[test]
    fn steps_of_a_kind_add_up_to_the_whole() {
        let all = profile(&[("a", 1), ("b", 2), ("a", 4)]);
        let kinds = all.by_kind();
        let shown: Vec<_> =
            kinds.iter().map(|k| (k.label.as_str(), k.calls, k.time.as_millis(), k.cost.bytes())).collect();
        assert_eq!(shown, [("a", 4, 5, 10), ("b", 2, 2, 5)]);
        assert_eq!((all.step_time(), all.cost().bytes()), (Duration::from_millis(7), 15));
    }

    #[test]
    fn the_fastest_time_of_each_step_is_kept() {
        let mut fastest = profile(&[("a", 1), ("b", 9)]);
        fastest.keep_fastest(&profile(&[("a", 3), ("b", 2)]));
        assert_eq!(fastest, profile(&[("a", 1), ("b", 2)]));
    }

    #[test]
    fn roles_are_the_words_of_the_field() {
        for (name, wanted) in [
            ("blk.12.attn_q.weight", "q"),
            ("blk.0.attn_output.weight", "attention output"),
            ("blk.0.ffn_gate.weight", "gate"),
            ("blk.0.ffn_down_exps.weight", "down"),
            ("blk.0.ffn_gate_inp.weight", "gate_inp"),
            ("output.weight", "logits"),
            ("token_embd.weight", "logits"),
            ("blk.0.attn_q.weight.lora_a", "LoRA"),
            ("odd", "odd"),
        ] {
            assert_eq!(role(name), wanted, "{name}");
        }
    }
}
