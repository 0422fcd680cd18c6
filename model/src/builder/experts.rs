//! Mixtures of experts: a router, the chosen experts' feed-forward parts, their weighted sum.
//!
//! Source: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer" (2017).

use llamay_plan::{ExpertProjection, Gating, Nonlinearity, Op, Rows, Scoring, SlotId};

use super::Builder;
use crate::ModelError;
use crate::config::{Keys, MOST_FF_WIDTH, value_error};

const MOST_EXPERTS: u32 = 4096;

/// A model's mixtures of experts, which all of its layers share but for the weights.
#[derive(Clone, Copy)]
pub(crate) struct Mixture {
    pub(crate) n_expert: usize,
    pub(crate) n_used: usize,
    /// How the router's scores become weights.
    pub(crate) scoring: Scoring,
    /// Whether the weights of the chosen experts are made to sum up to 1.
    pub(crate) normalize: bool,
    /// The factor of every weight.
    pub(crate) scale: f32,
    /// How an expert's halves are joined.
    pub(crate) gating: Gating,
    slots: Slots,
}

#[derive(Clone, Copy)]
struct Slots {
    router: SlotId,
    chosen: SlotId,
    weights: SlotId,
    gate: SlotId,
    up: SlotId,
    down: SlotId,
}

/// The feed-forward part that every token visits beside those of its experts.
#[derive(Clone, Copy)]
pub(crate) struct SharedExpert {
    gate: SlotId,
    up: SlotId,
    down: SlotId,
    /// One number a token: how much of the part counts.
    share: SlotId,
    shared: SlotId,
}

impl Mixture {
    /// Reads `expert_count` and `expert_used_count`; the width of an expert is `expert_feed_forward_length`, or that of a
    /// dense layer where the file has no such key. The rest is as in Mixtral: a softmax, and weights that sum up to 1.
    pub(crate) fn read(keys: Keys<'_>, b: &mut Builder<'_>) -> Result<Mixture, ModelError> {
        let n_expert = keys.need_count("expert_count", 1..=MOST_EXPERTS)?;
        let n_used = keys.need_count("expert_used_count", 1..=MOST_EXPERTS)?;
        if n_used > n_expert {
            let wanted = format!("there are {n_expert} experts");
            return Err(value_error(keys, "expert_used_count", n_used, wanted));
        }
        let n_ff = keys.count("expert_feed_forward_length", 1..=MOST_FF_WIDTH)?;
        let n_ff = n_ff.map_or(b.config.n_ff, |n| n as usize);
        let n_embd = b.config.n_embd;
        Ok(Mixture {
            n_expert,
            n_used,
            scoring: Scoring::Softmax,
            normalize: true,
            scale: 1.0,
            gating: Gating::Product(Nonlinearity::Silu),
            slots: Slots {
                router: b.slot("ffn_gate_inp", n_expert),
                chosen: b.slot("ffn_moe_topk", n_used),
                weights: b.slot("ffn_moe_weights", n_used),
                gate: b.slot("ffn_moe_gate", n_used * n_ff),
                up: b.slot("ffn_moe_up", n_used * n_ff),
                down: b.slot("ffn_moe_down", n_used * n_embd),
            },
        })
    }
}

impl Builder<'_> {
    /// The mixture's feed-forward part of `x`, to `out`.
    ///
    /// The router is `ffn_gate_inp`, with `exp_probs_b` for the choice if the file has it. Experts are stacked in
    /// `ffn_gate_exps`, `ffn_up_exps` and `ffn_down_exps`, or one tensor each, as in early files.
    pub(crate) fn experts(&mut self, m: &Mixture, x: SlotId, out: SlotId) -> Result<(), ModelError> {
        let Slots { router, chosen, weights, gate, up, down } = m.slots;
        self.linear(x, &[("ffn_gate_inp", router)])?;
        let bias = self.tensors.optional_vector(&self.tensor_name("exp_probs_b", "bias"), m.n_expert)?;
        let bias = bias.map(|b| self.plan.weight(b));
        let Mixture { scoring, normalize, scale, .. } = *m;
        self.push(Op::Route { x: router, bias, scoring, normalize, scale, chosen, weights });

        let cols = self.plan.slot_of(x).width;
        let halves = if self.has("ffn_gate_up_exps", "weight") {
            self.expert_projections(m, cols, "ffn_gate_up", &[gate, up])?
        } else {
            let mut halves = self.expert_projections(m, cols, "ffn_gate", &[gate])?;
            halves.append(&mut self.expert_projections(m, cols, "ffn_up", &[up])?);
            halves
        };
        self.push(Op::ExpertLinear { x, cols, chosen, projections: halves });
        self.gate(gate, up, m.gating);
        let cols = self.plan.slot_of(gate).width / m.n_used;
        let projections = self.expert_projections(m, cols, "ffn_down", &[down])?;
        self.push(Op::ExpertLinear { x: gate, cols, chosen, projections });
        self.push(Op::Combine { x: down, weights, out });
        Ok(())
    }

    /// The projections to `outputs`, each expert's rows shared out to them in order.
    fn expert_projections(
        &mut self,
        m: &Mixture,
        cols: usize,
        stem: &str,
        outputs: &[SlotId],
    ) -> Result<Vec<ExpertProjection>, ModelError> {
        let widths: Vec<usize> = outputs.iter().map(|out| self.plan.slot_of(*out).width / m.n_used).collect();
        let rows = widths.iter().sum();
        let stacked = format!("{stem}_exps");
        let experts: Vec<Rows> = if self.has(&format!("{stem}.0"), "weight") {
            let expert = |e| {
                let name = self.tensor_name(&format!("{stem}.{e}"), "weight");
                let weight = self.tensors.matrix(&name, rows, cols)?;
                Ok(Rows { weight: self.plan.weight(weight), first_row: 0 })
            };
            (0..m.n_expert).map(expert).collect::<Result<_, ModelError>>()?
        } else {
            let name = self.tensor_name(&stacked, "weight");
            let weight = self.tensors.matrices(&name, m.n_expert, rows, cols)?;
            let weight = self.plan.weight(weight);
            (0..m.n_expert).map(|e| Rows { weight, first_row: e * rows }).collect()
        };
        let bias = match outputs {
            [_] if self.has(&stacked, "bias") => {
                Some(self.tensors.matrix(&self.tensor_name(&stacked, "bias"), m.n_expert, rows)?)
            }
            _ => None,
        };
        let bias = bias.map(|b| self.plan.weight(b));
        let mut first_row = 0;
        let part = |(out, width): (&SlotId, usize)| {
            let part = |e: &Rows| Rows { first_row: e.first_row + first_row, ..*e };
            let experts = experts.iter().map(part).collect();
            first_row += width;
            ExpertProjection { experts, bias, out: *out }
        };
        Ok(outputs.iter().zip(widths).map(part).collect())
    }

    /// The slots of a shared expert of this width.
    pub(crate) fn shared_expert_slots(&mut self, n_ff: usize) -> SharedExpert {
        let n_embd = self.config.n_embd;
        SharedExpert {
            gate: self.slot("ffn_gate_shexp", n_ff),
            up: self.slot("ffn_up_shexp", n_ff),
            down: self.slot("ffn_down_shexp", n_embd),
            share: self.slot("ffn_gate_inp_shexp", 1),
            shared: self.slot("ffn_shexp", n_embd),
        }
    }

    /// Adds the shared expert's feed-forward part of `x` to `out`, as much of it as the sigmoid of `ffn_gate_inp_shexp`
    /// says, or all of it in files without one.
    pub(crate) fn shared_expert(
        &mut self,
        s: SharedExpert,
        x: SlotId,
        gating: Gating,
        out: SlotId,
    ) -> Result<(), ModelError> {
        self.linear(x, &[("ffn_gate_shexp", s.gate), ("ffn_up_shexp", s.up)])?;
        self.gate(s.gate, s.up, gating);
        self.linear(s.gate, &[("ffn_down_shexp", s.down)])?;
        if !self.has("ffn_gate_inp_shexp", "weight") {
            self.add(out, s.down);
            return Ok(());
        }
        self.linear(x, &[("ffn_gate_inp_shexp", s.share)])?;
        self.push(Op::Activate { x: s.share, f: Nonlinearity::Sigmoid, out: s.share });
        self.push(Op::Combine { x: s.down, weights: s.share, out: s.shared });
        self.add(out, s.shared);
        Ok(())
    }
}
