//! The closed set of steps. A backend executes these and knows nothing of architectures.

/// An activation buffer: one row of [`Slot::width`](crate::Slot) floats for each token of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u16);

/// A weight of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// A rotary table of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RopeId(pub u16);

/// A layer's keys and values in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KvId(pub u16);

/// A non-linearity of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nonlinearity {
    /// `x * sigmoid(x)`.
    Silu,
    /// The tanh form of GELU: `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
    GeluTanh,
    /// GELU itself: `0.5 x (1 + erf(x / sqrt(2)))`.
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    ReluSquared,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
}

/// How the two halves of a gated feed-forward layer become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gating {
    /// `f(gate) * up`.
    Product(Nonlinearity),
    /// gpt-oss: `g sigmoid(1.702 g) * (u + 1)`, with `g = min(gate, 7)` and `u` the nearest to `up` in -7..=7.
    ClippedSwiglu,
}

impl Gating {
    /// The factor of the sigmoid's argument in [`Gating::ClippedSwiglu`].
    pub const CLIPPED_ALPHA: f32 = 1.702;
    /// The bound of [`Gating::ClippedSwiglu`].
    pub const CLIPPED_LIMIT: f32 = 7.0;
}

/// Which statistics a norm removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// `x / sqrt(mean(x^2) + eps)`.
    ///
    /// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
    Rms,
    /// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)`.
    ///
    /// Source: Ba, Kiros and Hinton, "Layer Normalization" (2016).
    Layer,
}

/// What a row of an [`Op::Embed`] belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// The token.
    Token,
    /// The token's position: a learned position embedding.
    Position,
}

/// How the scores of a router become the weights of the chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scoring {
    /// The softmax over all experts.
    Softmax,
    /// The softmax over the chosen experts alone.
    SoftmaxOfChosen,
    /// Each score's sigmoid.
    Sigmoid,
}

/// Rows of a weight, from `first_row` on; as many as its reader needs. Fused tensors are several such parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// The matrix, or for a vector its elements as the rows.
    pub weight: WeightId,
    /// The first row.
    pub first_row: usize,
}

/// One weight matrix of an [`Op::Linear`] step.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// `out.width` rows of `x.width` elements.
    pub weight: Rows,
    /// `out.width` elements, added to the product.
    pub bias: Option<Rows>,
    /// Where the product goes.
    pub out: SlotId,
}

/// One weight matrix of an [`Op::ExpertLinear`] step, in a version for each expert.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertProjection {
    /// For each expert `out.width / n_used` rows.
    pub experts: Vec<Rows>,
    /// For each expert, the row of a matrix `[n_expert, out.width / n_used]` that is added to the product.
    pub bias: Option<WeightId>,
    /// Where the products go: one part for each chosen expert, in the order of choice.
    pub out: SlotId,
}

/// One step of the forward pass, over every token of the batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `out = table[index] * scale`.
    Embed {
        /// The table, `[n_vocab, out.width]` or `[positions, out.width]`.
        weight: WeightId,
        /// What selects the row.
        index: Index,
        /// The embedding.
        out: SlotId,
        /// The factor of every element; 1 for most models.
        scale: f32,
    },
    /// Norm of each of `heads` equal parts of a row: `out = norm(x) * weight + bias`.
    Norm {
        /// The row that is normalised; may be `out`.
        x: SlotId,
        /// Which norm.
        kind: NormKind,
        /// A vector of `[x.width / heads]`, shared by the parts, or a matrix `[heads, x.width / heads]` with a row for
        /// each; ones if there is none.
        weight: Option<WeightId>,
        /// As `weight`; zeros if there is none.
        bias: Option<WeightId>,
        /// Added to the mean of squares.
        eps: f32,
        /// Parts that are normalised each for itself: 1 for a whole row, the number of heads for QK norm.
        heads: usize,
        /// The normalised row.
        out: SlotId,
    },
    /// Matrix products that share their input, so that it is quantised once.
    Linear {
        /// The shared input.
        x: SlotId,
        /// The matrices and their outputs.
        projections: Vec<Projection>,
    },
    /// Rotates each head of `x` in place by its token's position.
    Rope {
        /// `[heads * head_dim]`.
        x: SlotId,
        /// Heads in a row.
        heads: usize,
        /// Elements of a head.
        head_dim: usize,
        /// The frequencies and the pairing.
        rope: RopeId,
    },
    /// Writes `k` and `v` to the cache, then causal attention of `q` over it.
    Attend {
        /// `[heads * head_dim]`.
        q: SlotId,
        /// `[heads_kv * head_dim]`.
        k: SlotId,
        /// `[heads_kv * head_dim]`.
        v: SlotId,
        /// `[heads * head_dim]`.
        out: SlotId,
        /// The cache layer; it knows `heads_kv` and `head_dim`.
        kv: KvId,
        /// Query heads; a multiple of the cache layer's `heads_kv`.
        heads: usize,
        /// The factor of every score.
        scale: f32,
        /// A token sees itself and `window - 1` tokens before it; `None` sees all.
        window: Option<u32>,
        /// `score = cap * tanh(score / cap)` before the softmax.
        softcap: Option<f32>,
        /// A score for each query head, `[heads]`, that takes part in the softmax and has no value: attention that can
        /// go nowhere. Source: Xiao et al., "Efficient Streaming Language Models with Attention Sinks" (2023).
        sinks: Option<WeightId>,
    },
    /// `out = f(gate, up)`.
    Gate {
        /// The input of the non-linearity.
        gate: SlotId,
        /// Its factor.
        up: SlotId,
        /// The product; may be `gate` or `up`.
        out: SlotId,
        /// How they are joined.
        f: Gating,
    },
    /// `out = f(x)`.
    Activate {
        /// The input.
        x: SlotId,
        /// The non-linearity.
        f: Nonlinearity,
        /// The output; may be `x`.
        out: SlotId,
    },
    /// `out = x + scale * y`.
    Add {
        /// The first summand.
        x: SlotId,
        /// The second summand.
        y: SlotId,
        /// The factor of `y`; 1 for most models.
        scale: f32,
        /// The sum; may be `x` or `y`.
        out: SlotId,
    },
    /// `out = x * scale`.
    Scale {
        /// The input.
        x: SlotId,
        /// The factor.
        scale: f32,
        /// The output; may be `x`.
        out: SlotId,
    },
    /// `out = cap * tanh(x / cap)`.
    Softcap {
        /// The input.
        x: SlotId,
        /// The bound of the output; positive.
        cap: f32,
        /// The output; may be `x`.
        out: SlotId,
    },
    /// Chooses the `chosen.width` experts of the greatest scores; of equal ones those with the lower number.
    Route {
        /// A score for each expert.
        x: SlotId,
        /// A vector `[x.width]`, added to the scores (behind the sigmoid) for the choice alone.
        bias: Option<WeightId>,
        /// How scores become weights.
        scoring: Scoring,
        /// Whether the weights are divided by their sum.
        normalize: bool,
        /// The factor of every weight.
        scale: f32,
        /// Numbers of the experts, the best first; whole numbers, since slots hold floats.
        chosen: SlotId,
        /// The weight of each.
        weights: SlotId,
    },
    /// Matrix products with the chosen experts' weights.
    ExpertLinear {
        /// One row for all chosen experts, or `n_used` rows, one for each.
        x: SlotId,
        /// Elements of an expert's row: `x.width`, or `x.width / n_used`.
        cols: usize,
        /// Numbers of the experts, as [`Op::Route`] wrote them; its width is `n_used`.
        chosen: SlotId,
        /// The matrices and their outputs.
        projections: Vec<ExpertProjection>,
    },
    /// `out = sum of weights[i] * x[i]` over the `weights.width` equal parts of `x`, from the first on.
    Combine {
        /// `[weights.width * out.width]`.
        x: SlotId,
        /// A factor for each part.
        weights: SlotId,
        /// The sum.
        out: SlotId,
    },
    /// Keeps the rows of the tokens that want logits, in batch order. Later steps run over those rows alone.
    Select {
        /// A row for each token, and then for each that wants logits: everything that later steps read.
        slots: Vec<SlotId>,
    },
}

impl Op {
    /// The step's name, as placement lines and errors print it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::Norm { .. } => "norm",
            Op::Linear { .. } => "linear",
            Op::Rope { .. } => "rope",
            Op::Attend { .. } => "attend",
            Op::Gate { .. } => "gate",
            Op::Activate { .. } => "activate",
            Op::Add { .. } => "add",
            Op::Scale { .. } => "scale",
            Op::Softcap { .. } => "softcap",
            Op::Route { .. } => "route",
            Op::ExpertLinear { .. } => "expert_linear",
            Op::Combine { .. } => "combine",
            Op::Select { .. } => "select",
        }
    }

    /// The weights that the step reads, in the order of its fields; a weight of which it reads several parts, once.
    pub fn weights(&self) -> Vec<WeightId> {
        let mut weights: Vec<WeightId> = match self {
            Op::Embed { weight, index: _, out: _, scale: _ } => vec![*weight],
            Op::Norm { x: _, kind: _, weight, bias, eps: _, heads: _, out: _ } => {
                weight.iter().chain(bias).copied().collect()
            }
            Op::Linear { x: _, projections } => projections
                .iter()
                .flat_map(|p| std::iter::once(p.weight.weight).chain(p.bias.map(|b| b.weight)))
                .collect(),
            Op::ExpertLinear { x: _, cols: _, chosen: _, projections } => {
                projections.iter().flat_map(|p| p.experts.iter().map(|e| e.weight).chain(p.bias)).collect()
            }
            Op::Attend { sinks, .. } => sinks.iter().copied().collect(),
            Op::Route { bias, .. } => bias.iter().copied().collect(),
            Op::Rope { .. }
            | Op::Gate { .. }
            | Op::Activate { .. }
            | Op::Add { .. }
            | Op::Scale { .. }
            | Op::Softcap { .. }
            | Op::Combine { .. }
            | Op::Select { .. } => vec![],
        };
        let mut seen = std::collections::HashSet::new();
        weights.retain(|w| seen.insert(*w));
        weights
    }

    /// The slots that the step reads.
    pub fn inputs(&self) -> Vec<SlotId> {
        match self {
            Op::Embed { .. } => vec![],
            Op::Norm { x, .. }
            | Op::Linear { x, .. }
            | Op::Rope { x, .. }
            | Op::Activate { x, .. }
            | Op::Scale { x, .. }
            | Op::Softcap { x, .. }
            | Op::Route { x, .. } => vec![*x],
            Op::Attend { q, k, v, .. } => vec![*q, *k, *v],
            Op::Gate { gate, up, .. } => vec![*gate, *up],
            Op::Add { x, y, .. } => vec![*x, *y],
            Op::ExpertLinear { x, chosen, .. } => vec![*x, *chosen],
            Op::Combine { x, weights, .. } => vec![*x, *weights],
            Op::Select { slots } => slots.clone(),
        }
    }

    /// The slots that the step writes.
    pub fn outputs(&self) -> Vec<SlotId> {
        match self {
            Op::Embed { out, .. }
            | Op::Norm { out, .. }
            | Op::Attend { out, .. }
            | Op::Gate { out, .. }
            | Op::Activate { out, .. }
            | Op::Add { out, .. }
            | Op::Scale { out, .. }
            | Op::Softcap { out, .. }
            | Op::Combine { out, .. } => vec![*out],
            Op::Linear { projections, .. } => projections.iter().map(|p| p.out).collect(),
            Op::ExpertLinear { projections, .. } => projections.iter().map(|p| p.out).collect(),
            Op::Rope { x, .. } => vec![*x],
            Op::Route { chosen, weights, .. } => vec![*chosen, *weights],
            Op::Select { slots } => slots.clone(),
        }
    }
}
