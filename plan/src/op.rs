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

/// The non-linearity of a gated feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nonlinearity {
    /// `x * sigmoid(x)`.
    Silu,
    /// The tanh form of GELU: `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
    GeluTanh,
}

/// One weight matrix of a [`Op::Linear`] step.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// A matrix of `[out.width, x.width]`.
    pub weight: WeightId,
    /// A vector of `[out.width]`, added to the product.
    pub bias: Option<WeightId>,
    /// Where the product goes.
    pub out: SlotId,
}

/// One step of the forward pass, over every token of the batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `out = table[token] * scale`.
    Embed {
        /// The table, `[n_vocab, out.width]`.
        weight: WeightId,
        /// The embedding.
        out: SlotId,
        /// The factor of every element; 1 for most models.
        scale: f32,
    },
    /// Root-mean-square norm of each of `heads` equal parts of a row: `out = (x / sqrt(mean(x^2) + eps)) * weight`.
    ///
    /// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
    RmsNorm {
        /// The row that is normalised; may be `out`.
        x: SlotId,
        /// A vector of `[x.width / heads]`, shared by the parts.
        weight: WeightId,
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
    },
    /// `out = f(gate) * up`.
    Gate {
        /// The input of the non-linearity.
        gate: SlotId,
        /// Its factor.
        up: SlotId,
        /// The product; may be `gate` or `up`.
        out: SlotId,
        /// The non-linearity.
        f: Nonlinearity,
    },
    /// `out = x + y`.
    Add {
        /// The first summand.
        x: SlotId,
        /// The second summand.
        y: SlotId,
        /// The sum; may be `x` or `y`.
        out: SlotId,
    },
    /// Keeps the rows of the tokens that want logits, in batch order. Later steps run over those rows alone.
    Select {
        /// A row for each token.
        x: SlotId,
        /// A row for each token that wants logits.
        out: SlotId,
    },
}

impl Op {
    /// The step's name, as placement lines and errors print it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::RmsNorm { .. } => "rms_norm",
            Op::Linear { .. } => "linear",
            Op::Rope { .. } => "rope",
            Op::Attend { .. } => "attend",
            Op::Gate { .. } => "gate",
            Op::Add { .. } => "add",
            Op::Select { .. } => "select",
        }
    }

    /// The weights that the step reads, in the order of its fields.
    pub fn weights(&self) -> Vec<WeightId> {
        match self {
            Op::Embed { weight, out: _, scale: _ } => vec![*weight],
            Op::RmsNorm { x: _, weight, eps: _, heads: _, out: _ } => vec![*weight],
            Op::Linear { x: _, projections } => {
                projections.iter().flat_map(|p| std::iter::once(p.weight).chain(p.bias)).collect()
            }
            Op::Rope { .. } | Op::Attend { .. } | Op::Gate { .. } | Op::Add { .. } | Op::Select { .. } => {
                vec![]
            }
        }
    }

    /// The slots that the step reads.
    pub fn inputs(&self) -> Vec<SlotId> {
        match self {
            Op::Embed { .. } => vec![],
            Op::RmsNorm { x, .. } | Op::Linear { x, .. } | Op::Rope { x, .. } | Op::Select { x, .. } => {
                vec![*x]
            }
            Op::Attend { q, k, v, .. } => vec![*q, *k, *v],
            Op::Gate { gate, up, .. } => vec![*gate, *up],
            Op::Add { x, y, .. } => vec![*x, *y],
        }
    }

    /// The slots that the step writes.
    pub fn outputs(&self) -> Vec<SlotId> {
        match self {
            Op::Embed { out, .. }
            | Op::RmsNorm { out, .. }
            | Op::Attend { out, .. }
            | Op::Gate { out, .. }
            | Op::Add { out, .. }
            | Op::Select { out, .. } => vec![*out],
            Op::Linear { projections, .. } => projections.iter().map(|p| p.out).collect(),
            Op::Rope { x, .. } => vec![*x],
        }
    }
}
