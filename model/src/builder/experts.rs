//! Mixtures of experts: a router, the chosen experts' feed-forward parts, their weighted sum.
//!
//! Source: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer" (2017).

use llamay_plan::{ExpertProjection, Gating, Nonlinearity, Op, Rows, Scoring, SlotId};

use super::{Builder, LayerSlots};
use crate::ModelError;
use crate::config::{Keys, MOST_FF_WIDTH, value_error};

const MOST_EXPERTS: u32 = 4096;
/// Far above any model's, and low enough that no row of all chosen experts' activations overflows 32 bits.
const MOST_USED: u32 = 256;
/// No factor of weights is larger.
const MOST_SCALE: f32 = 1e6;

/// What holds of an architecture's mixtures where its file does not say otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Usual {
    /// How the router's scores become weights; `expert_gating_func` wins.
    pub(crate) scoring: Scoring,
    /// Whether the weights of the chosen experts are made to sum up to 1; `expert_weights_norm` wins.
    pub(crate) normalize: bool,
    /// Whether files have to have `exp_probs_b`, a bias of the scores for the choice alone.
    pub(crate) choice_bias: bool,
    /// How an expert's halves are joined.
    pub(crate) gating: Gating,
    /// The width of an expert; `expert_feed_forward_length` wins.
    pub(crate) width: Width,
    /// The width of the shared expert; `expert_shared_feed_forward_length` and `expert_shared_count` win.
    pub(crate) shared: Option<Width>,
    /// Whether a gate, `ffn_gate_inp_shexp`, says how much of the shared expert counts.
    pub(crate) shared_gate: bool,
}

/// The width of experts in files that do not give it.
#[derive(Clone, Copy)]
pub(crate) enum Width {
    /// That of a dense layer.
    Dense,
    /// A part of that, so that the chosen experts together are as wide.
    DenseShare,
    /// That of one of the others, for a shared expert.
    Expert,
}

impl Width {
    fn resolve(self, n_ff: usize, n_used: usize, expert: usize) -> usize {
        match self {
            Width::Dense => n_ff,
            // At least one, so that the tensors' shapes are what is wrong.
            Width::DenseShare => (n_ff / n_used).max(1),
            Width::Expert => expert,
        }
    }
}

impl Usual {
    /// Mixtral. Source: Jiang et al., "Mixtral of Experts" (2024).
    pub(crate) const MIXTRAL: Usual = Usual {
        scoring: Scoring::Softmax,
        normalize: true,
        choice_bias: false,
        gating: Gating::Product(Nonlinearity::Silu),
        width: Width::Dense,
        shared: None,
        shared_gate: false,
    };
}

/// A model's mixtures of experts, which all of its layers share but for the weights.
#[derive(Clone, Copy)]
pub(crate) struct Mixture {
    n_expert: usize,
    n_used: usize,
    /// So many layers, the first ones, are dense instead.
    n_dense: u32,
    scoring: Scoring,
    normalize: bool,
    /// The factor of every weight.
    scale: f32,
    choice_bias: bool,
    gating: Gating,
    slots: Slots,
    shared: Option<SharedExpert>,
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
struct SharedExpert {
    gate: SlotId,
    up: SlotId,
    down: SlotId,
    share: Option<Share>,
}

/// How much of the shared expert counts.
#[derive(Clone, Copy)]
struct Share {
    /// One number a token.
    factor: SlotId,
    /// The shared expert's output times the factor.
    product: SlotId,
}

impl Mixture {
    /// Reads the keys `expert_*` and `leading_dense_block_count`. `Config::read` refuses those of features that it is not
    /// told about: dense layers, shared experts.
    pub(crate) fn read(keys: Keys<'_>, b: &mut Builder<'_>, usual: Usual) -> Result<Mixture, ModelError> {
        let n_expert = keys.need_count("expert_count", 1..=MOST_EXPERTS)?;
        let n_used = match keys.uniform("expert_used_count", b.config.n_layer, 1..=MOST_USED)? {
            Some(n_used) => n_used,
            None => keys.need_count("expert_used_count", 1..=MOST_USED)?,
        };
        if n_used > n_expert {
            let wanted = format!("the number of experts is {n_expert}");
            return Err(value_error(keys, "expert_used_count", n_used, wanted));
        }
        let width = keys.uniform("expert_feed_forward_length", b.config.n_layer, 1..=MOST_FF_WIDTH)?;
        let width = width.unwrap_or_else(|| usual.width.resolve(b.config.n_ff, n_used, b.config.n_ff));
        let shared_width = shared_width(keys, width)?
            .or(usual.shared.map(|shared| shared.resolve(b.config.n_ff, n_used, width)));
        // Files say 0 where there is no factor.
        let scale = keys.float("expert_weights_scale", 0.0..=MOST_SCALE)?.filter(|scale| *scale != 0.0);
        let scoring = scoring(keys)?.unwrap_or(usual.scoring);
        let n_embd = b.config.n_embd;
        Ok(Mixture {
            n_expert,
            n_used,
            n_dense: keys.count("leading_dense_block_count", 0..=u32::MAX)?.unwrap_or(0),
            scoring,
            // The softmax of the chosen sums up to 1 in any case.
            normalize: keys.flag("expert_weights_norm", usual.normalize)?
                && scoring != Scoring::SoftmaxOfChosen,
            scale: scale.unwrap_or(1.0),
            choice_bias: usual.choice_bias,
            gating: usual.gating,
            slots: Slots {
                router: b.slot("ffn_gate_inp", n_expert),
                chosen: b.slot("ffn_moe_topk", n_used),
                weights: b.slot("ffn_moe_weights", n_used),
                gate: b.slot("ffn_moe_gate", n_used * width),
                up: b.slot("ffn_moe_up", n_used * width),
                down: b.slot("ffn_moe_down", n_used * n_embd),
            },
            shared: (shared_width.filter(|width| *width > 0))
                .map(|width| SharedExpert::new(b, width, usual.shared_gate)),
        })
    }
}

/// The scoring that the file asks for, if it does.
fn scoring(keys: Keys<'_>) -> Result<Option<Scoring>, ModelError> {
    match keys.count("expert_gating_func", 0..=u32::MAX)? {
        None | Some(0) => Ok(None),
        Some(1) => Ok(Some(Scoring::Softmax)),
        Some(2) => Ok(Some(Scoring::Sigmoid)),
        Some(3) => Ok(Some(Scoring::SoftmaxOfChosen)),
        Some(other) => {
            let wanted = "it has to be 1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)".to_owned();
            Err(value_error(keys, "expert_gating_func", other, wanted))
        }
    }
}

/// The shared expert's width as the file gives it, 0 for none: by itself, or as a number of experts of `width`.
fn shared_width(keys: Keys<'_>, width: usize) -> Result<Option<usize>, ModelError> {
    if let Some(width) = keys.count("expert_shared_feed_forward_length", 0..=MOST_FF_WIDTH)? {
        return Ok(Some(width as usize));
    }
    let n_shared = keys.count("expert_shared_count", 0..=MOST_USED)?;
    Ok(n_shared.map(|n| n as usize * width))
}

impl SharedExpert {
    fn new(b: &mut Builder<'_>, width: usize, has_gate: bool) -> SharedExpert {
        let n_embd = b.config.n_embd;
        SharedExpert {
            gate: b.slot("ffn_gate_shexp", width),
            up: b.slot("ffn_up_shexp", width),
            down: b.slot("ffn_down_shexp", n_embd),
            share: has_gate.then(|| Share {
                factor: b.slot("ffn_gate_inp_shexp", 1),
                product: b.slot("ffn_shexp", n_embd),
            }),
        }
    }
}

impl Builder<'_> {
    /// This layer's feed-forward part, from `ffn_norm` to `ffn_down`: the mixture, with the shared expert if there is one,
    /// or in leading layers a dense part.
    pub(crate) fn mixture(&mut self, m: &Mixture, s: LayerSlots) -> Result<(), ModelError> {
        if self.layer.is_some_and(|layer| layer < m.n_dense) {
            return self.gated_ffn(s, m.gating);
        }
        self.experts(m, s.ffn_norm, s.ffn_down)?;
        match m.shared {
            Some(shared) => self.shared_expert(shared, m.gating, s.ffn_norm, s.ffn_down),
            None => Ok(()),
        }
    }

    /// The chosen experts' feed-forward parts of `x`, summed up in `out`.
    ///
    /// The router is `ffn_gate_inp`, with `exp_probs_b` for the choice if the file has it. Experts are stacked in
    /// `ffn_gate_exps`, `ffn_up_exps` and `ffn_down_exps`, or one tensor each, as in early files.
    fn experts(&mut self, m: &Mixture, x: SlotId, out: SlotId) -> Result<(), ModelError> {
        let Slots { router, chosen, weights, gate, up, down } = m.slots;
        self.linear(x, &[("ffn_gate_inp", router)])?;
        let bias = self.tensor_name("exp_probs_b", "bias");
        let bias = match m.choice_bias {
            true => Some(self.tensors.vector(&bias, m.n_expert)?),
            false => self.tensors.optional_vector(&bias, m.n_expert)?,
        };
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
        let has_own = |e| self.has(&format!("{stem}.{e}"), "weight");
        let experts: Vec<Rows> = if !self.has(&stacked, "weight") && (0..m.n_expert).any(has_own) {
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

    /// Adds the shared expert's feed-forward part of `x` to `out`, or as much of it as the sigmoid of its gate says.
    fn shared_expert(
        &mut self,
        s: SharedExpert,
        gating: Gating,
        x: SlotId,
        out: SlotId,
    ) -> Result<(), ModelError> {
        self.linear(x, &[("ffn_gate_shexp", s.gate), ("ffn_up_shexp", s.up)])?;
        self.gate(s.gate, s.up, gating);
        self.linear(s.gate, &[("ffn_down_shexp", s.down)])?;
        let part = match s.share {
            None => s.down,
            Some(Share { factor, product }) => {
                self.linear(x, &[("ffn_gate_inp_shexp", factor)])?;
                self.push(Op::Activate { x: factor, f: Nonlinearity::Sigmoid, out: factor });
                self.push(Op::Combine { x: s.down, weights: factor, out: product });
                product
            }
        };
        self.add(out, part);
        Ok(())
    }
}
