//! The plan: what an architecture writes and a backend executes.

use llamay_formats::Format;

use crate::{Index, KvId, KvLayer, Op, RopeId, SlotId, WeightId};

/// An activation buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// The field's name for it, such as `ffn_norm`.
    pub name: &'static str,
    /// Floats a token.
    pub width: usize,
}

/// A weight that the plan reads, by its tensor's name in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// The tensor's name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// The tensor's type.
    pub format: Format,
    /// Rows of the matrix, of all experts together; 1 for a vector.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
}

impl Weight {
    /// Bytes of the weight in the file.
    pub fn bytes(&self) -> usize {
        self.rows * self.format.row_bytes(self.cols).unwrap_or(0)
    }
}

/// Which two elements of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairs {
    /// Elements `2i` and `2i + 1`, as in the original paper and llama GGUF files.
    Interleaved,
    /// Elements `i` and `i + n_rot / 2`, as in GPT-NeoX, Gemma and Qwen.
    Halves,
}

/// A rotary embedding: element pair `i` turns by `position * frequencies[i]` radians.
///
/// Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// One frequency a pair; twice their number is the rotated part of a head, and the rest stays as it is.
    pub frequencies: Vec<f32>,
    /// The pairing.
    pub pairs: RopePairs,
    /// The factor of every sine and cosine; 1 but for YaRN-like scalings. Models whose attention sharpens with the
    /// distance from the start have several: the first for positions below `magnitude_span`, the next for as many
    /// behind them, the last for all the rest.
    pub magnitudes: Vec<f32>,
    /// Positions that share a magnitude; positive.
    pub magnitude_span: u32,
}

impl Rope {
    /// The factor of sines and cosines at a position.
    pub fn magnitude(&self, position: u32) -> f32 {
        let at = (position / self.magnitude_span.max(1)) as usize;
        self.magnitudes.get(at).or(self.magnitudes.last()).copied().unwrap_or(1.0)
    }
}

/// One step and the layer that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The layer's number; `None` before the first and behind the last layer.
    pub layer: Option<u32>,
    /// What is done.
    pub op: Op,
}

/// A whole forward pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// `general.architecture` of the file.
    pub architecture: String,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Activation buffers.
    pub slots: Vec<Slot>,
    /// Weights, each once, however many steps read it.
    pub weights: Vec<Weight>,
    /// Rotary tables.
    pub ropes: Vec<Rope>,
    /// The cache's layers.
    pub kv: Vec<KvLayer>,
    /// Where the logits end up: `[n_vocab]`, a row for each selected token.
    pub logits: SlotId,
    /// Entries of the vocabulary.
    pub n_vocab: usize,
    /// Layers of the model.
    pub n_layer: u32,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Positions the model was trained for.
    pub n_ctx_train: u32,
}

impl Default for SlotId {
    fn default() -> Self {
        SlotId(u16::MAX)
    }
}

impl Plan {
    /// Adds a slot.
    pub fn slot(&mut self, name: &'static str, width: usize) -> SlotId {
        self.slots.push(Slot { name, width });
        SlotId(u16::try_from(self.slots.len() - 1).expect("a plan has a few dozen slots"))
    }

    /// Adds a weight, or finds the one of the same name.
    pub fn weight(&mut self, weight: Weight) -> WeightId {
        let at = self.weights.iter().position(|w| w.name == weight.name).unwrap_or_else(|| {
            self.weights.push(weight);
            self.weights.len() - 1
        });
        WeightId(u32::try_from(at).expect("a plan has some thousand weights"))
    }

    /// Adds a rotary table, or finds an equal one.
    pub fn rope(&mut self, rope: Rope) -> RopeId {
        let at = self.ropes.iter().position(|r| *r == rope).unwrap_or_else(|| {
            self.ropes.push(rope);
            self.ropes.len() - 1
        });
        RopeId(u16::try_from(at).expect("a plan has a few rotary tables"))
    }

    /// Adds a cache layer.
    pub fn kv_layer(&mut self, layer: KvLayer) -> KvId {
        self.kv.push(layer);
        KvId(u16::try_from(self.kv.len() - 1).expect("a plan has at most some hundred layers"))
    }

    /// Adds a step.
    pub fn push(&mut self, layer: Option<u32>, op: Op) {
        self.steps.push(Step { layer, op });
    }

    /// Moves the selection of rows to the front of the steps that need no other tokens: behind the last attention, where it
    /// keeps every slot that is read later. What remains of the last layer is then computed for the wanted rows alone.
    pub fn select_early(&mut self) {
        let Some(at) = self.steps.iter().position(|s| matches!(s.op, Op::Select { .. })) else { return };
        let of_all_tokens = |step: &Step| matches!(step.op, Op::Attend { .. } | Op::Embed { .. });
        let Some(last) = self.steps[..at].iter().rposition(of_all_tokens) else { return };
        self.steps.remove(at);
        let (mut live, mut written) = (Vec::new(), Vec::new());
        for step in &self.steps[last + 1..] {
            for x in step.op.inputs() {
                if !written.contains(&x) && !live.contains(&x) {
                    live.push(x);
                }
            }
            written.extend(step.op.outputs());
        }
        let layer = self.steps[last].layer;
        self.steps.insert(last + 1, Step { layer, op: Op::Select { slots: live } });
    }

    /// The slot with this id.
    pub fn slot_of(&self, id: SlotId) -> &Slot {
        &self.slots[usize::from(id.0)]
    }

    /// The weight with this id.
    pub fn weight_of(&self, id: WeightId) -> &Weight {
        &self.weights[id.0 as usize]
    }

    /// The formats of a step's weights, in the order of [`Op::weights`].
    pub fn formats_of(&self, op: &Op) -> Vec<Format> {
        op.weights().into_iter().map(|w| self.weight_of(w).format).collect()
    }

    /// Rows that a step runs over, of a batch of `n_tokens` of which `n_logits` want logits.
    pub fn rows_before(&self, step: usize, n_tokens: usize, n_logits: usize) -> usize {
        let selected = self.steps[..step].iter().any(|s| matches!(s.op, Op::Select { .. }));
        if selected { n_logits } else { n_tokens }
    }

    /// Positions beyond which the plan cannot run: the rows of the least table of learned positions.
    pub fn n_ctx_max(&self) -> Option<usize> {
        let tables = self.steps.iter().filter_map(|step| match step.op {
            Op::Embed { weight, index: Index::Position, .. } => Some(self.weight_of(weight).rows),
            _ => None,
        });
        tables.min()
    }

    /// Bytes of all weights in the file.
    pub fn weight_bytes(&self) -> usize {
        self.weights.iter().map(Weight::bytes).sum()
    }

    /// Where a step is, for errors: `blk.3 linear (attn_q)`.
    pub fn describe_step(&self, step: usize) -> String {
        let Step { layer, op } = &self.steps[step];
        let place = layer.map_or("model".to_owned(), |l| format!("blk.{l}"));
        let out = op.outputs().first().map_or("", |s| self.slot_of(*s).name);
        format!("{place} {} ({out})", op.name())
    }
}
