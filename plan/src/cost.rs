//! What a step has to do at the least: the bytes that it moves and its multiply-adds, counted from the plan and the batch.
//!
//! These are the numbers of a roofline (Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance
//! Model for Multicore Architectures", 2009). They do not depend on how a backend runs the step, so that backends compare.

use std::ops::AddAssign;

use llamay_formats::{Activation, Format};

use crate::{Batch, ExpertProjection, KvLayer, KvType, Op, Plan, Projection, SlotId, WeightId};

/// Bytes of an element of a slot, and of a norm's, bias' or sink's vector, which are held as floats.
const FLOAT: u64 = 4;

/// The work of a step, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of weights, each read once, however many tokens share it.
    pub weight_bytes: u64,
    /// Bytes of the KV cache: new positions written, and each position that somebody sees read once a sequence.
    pub cache_bytes: u64,
    /// Bytes of the slots that are read and written.
    pub activation_bytes: u64,
    /// Multiply-adds of weights of a block format with activations in bytes.
    pub int8_macs: u64,
    /// Multiply-adds of float weights, of attention (scores and values) and of combining experts; and one for each
    /// element that an elementwise step writes, since bytes bind it whatever it computes.
    pub f32_macs: u64,
}

impl Cost {
    /// All bytes that are moved.
    pub const fn bytes(&self) -> u64 {
        self.weight_bytes + self.cache_bytes + self.activation_bytes
    }

    /// All multiply-adds.
    pub const fn macs(&self) -> u64 {
        self.int8_macs + self.f32_macs
    }

    /// Multiply-adds a byte; 0 for a step that moves nothing.
    pub fn intensity(&self) -> f64 {
        if self.bytes() == 0 { 0.0 } else { self.macs() as f64 / self.bytes() as f64 }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.weight_bytes += other.weight_bytes;
        self.cache_bytes += other.cache_bytes;
        self.activation_bytes += other.activation_bytes;
        self.int8_macs += other.int8_macs;
        self.f32_macs += other.f32_macs;
    }
}

/// What the bytes depend on beside plan and batch.
#[derive(Clone, Copy)]
pub struct CostModel<'a> {
    /// Element type of the cache.
    pub kv: KvType,
    /// Bytes that a block of a format takes in the device's memory; [`Format::block_bytes`] where weights stay as the file
    /// has them.
    pub block_bytes: &'a dyn Fn(Format) -> usize,
}

impl CostModel<'_> {
    /// The cost of one step over the first `rows` rows of its slots.
    ///
    /// `experts` are the numbers of the experts that some row chose, each once; only [`Op::ExpertLinear`] reads them. An
    /// [`Op::Select`] writes a row for each token that wants logits.
    pub fn step(&self, plan: &Plan, op: &Op, rows: usize, batch: &Batch<'_>, experts: &[usize]) -> Cost {
        let n = rows as u64;
        let width = |slot: SlotId| plan.slot_of(slot).width as u64;
        let slots = |ids: &[SlotId]| n * FLOAT * ids.iter().map(|s| width(*s)).sum::<u64>();
        let elementwise = |ids: &[SlotId], out: SlotId| Cost {
            activation_bytes: slots(ids),
            f32_macs: n * width(out),
            ..Cost::default()
        };
        match op {
            Op::Embed { weight, index: _, out, scale: _ } => {
                let table = plan.weight_of(*weight);
                Cost {
                    weight_bytes: n * self.row_bytes(table.format, table.cols),
                    ..elementwise(&[*out], *out)
                }
            }
            Op::Norm { x, kind: _, weight, bias, eps: _, heads: _, out } => Cost {
                weight_bytes: weight.iter().chain(bias).map(|w| vector_bytes(plan, *w)).sum(),
                ..elementwise(&[*x, *out], *out)
            },
            Op::Linear { x, projections } => {
                let mut cost = Cost { activation_bytes: slots(&[*x]), ..Cost::default() };
                for p in projections {
                    cost += self.projection(plan, p, n);
                }
                cost
            }
            Op::Rope { x, heads, head_dim: _, rope } => {
                let turned = 2 * plan.ropes[usize::from(rope.0)].frequencies.len() * heads;
                let turned = n * turned as u64;
                Cost { activation_bytes: 2 * FLOAT * turned, f32_macs: turned, ..elementwise(&[], *x) }
            }
            Op::Attend { q, k, v, out, kv, heads, scale: _, window, softcap: _, sinks } => {
                let layer = &plan.kv[usize::from(kv.0)];
                Cost {
                    weight_bytes: sinks.map_or(0, |w| vector_bytes(plan, w)),
                    activation_bytes: slots(&[*q, *k, *v, *out]),
                    ..self.attention(layer, *heads, *window, batch)
                }
            }
            Op::Gate { gate, up, out, f: _ } => elementwise(&[*gate, *up, *out], *out),
            Op::Activate { x, f: _, out }
            | Op::Scale { x, scale: _, out }
            | Op::Softcap { x, cap: _, out } => elementwise(&[*x, *out], *out),
            Op::Add { x, y, scale: _, out } => elementwise(&[*x, *y, *out], *out),
            Op::Route { x, bias, scoring: _, normalize: _, scale: _, chosen, weights } => Cost {
                weight_bytes: bias.map_or(0, |w| vector_bytes(plan, w)),
                ..elementwise(&[*x, *chosen, *weights], *x)
            },
            Op::ExpertLinear { x, cols, chosen, projections } => {
                let mut cost = Cost { activation_bytes: slots(&[*x, *chosen]), ..Cost::default() };
                let n_used = width(*chosen);
                for p in projections {
                    cost += self.expert_projection(plan, p, *cols, n_used, n, experts);
                }
                cost
            }
            Op::Combine { x, weights, out } => Cost {
                activation_bytes: slots(&[*x, *weights, *out]),
                f32_macs: n * width(*x),
                ..Cost::default()
            },
            // A kept row is read and written.
            Op::Select { slots } => {
                let kept = batch.n_logits() as u64;
                let bytes = slots.iter().map(|x| 2 * kept * FLOAT * width(*x)).sum();
                Cost { activation_bytes: bytes, ..Cost::default() }
            }
        }
    }

    /// Bytes of a row of `cols` weights.
    fn row_bytes(&self, format: Format, cols: usize) -> u64 {
        (cols / format.block_len() * (self.block_bytes)(format)) as u64
    }

    fn projection(&self, plan: &Plan, p: &Projection, n: u64) -> Cost {
        let (weight, rows) = (plan.weight_of(p.weight.weight), plan.slot_of(p.out).width as u64);
        let mut cost = products(weight.format, n * rows * weight.cols as u64);
        cost.weight_bytes = rows * self.row_bytes(weight.format, weight.cols);
        cost.weight_bytes += p.bias.map_or(0, |_| FLOAT * rows);
        cost.activation_bytes = n * FLOAT * rows;
        cost
    }

    fn expert_projection(
        &self,
        plan: &Plan,
        p: &ExpertProjection,
        cols: usize,
        n_used: u64,
        n: u64,
        experts: &[usize],
    ) -> Cost {
        let width = plan.slot_of(p.out).width as u64;
        let rows = width / n_used.max(1);
        let format = |expert: usize| p.experts.get(expert).map(|e| plan.weight_of(e.weight).format);
        // All experts of a layer have one format in every file there is.
        let mut cost = format(0).map_or(Cost::default(), |f| products(f, n * width * cols as u64));
        for format in experts.iter().filter_map(|e| format(*e)) {
            cost.weight_bytes += rows * self.row_bytes(format, cols);
            cost.weight_bytes += p.bias.map_or(0, |_| FLOAT * rows);
        }
        cost.activation_bytes = n * FLOAT * width;
        cost
    }

    /// Products with the cache, and the bytes of it.
    fn attention(&self, layer: &KvLayer, heads: usize, window: Option<u32>, batch: &Batch<'_>) -> Cost {
        let seen = |position: usize| (position + 1).min(window.map_or(usize::MAX, |w| w as usize)) as u64;
        let position_bytes = layer.bytes_per_token(self.kv) as u64;
        let pairs: u64 = batch.tokens.iter().map(|t| seen(t.position as usize)).sum();
        let mut positions = batch.tokens.len() as u64;
        for run in batch.runs() {
            // What the first token sees, and the run's other tokens.
            positions += seen(run.start) + run.tokens.len() as u64 - 1;
        }
        Cost {
            cache_bytes: positions * position_bytes,
            f32_macs: 2 * pairs * (heads * layer.head_dim) as u64,
            ..Cost::default()
        }
    }
}

/// Multiply-adds of a matrix of this format.
fn products(format: Format, macs: u64) -> Cost {
    match format.activation() {
        Activation::F32 => Cost { f32_macs: macs, ..Cost::default() },
        Activation::I8x32 | Activation::I8x256 => Cost { int8_macs: macs, ..Cost::default() },
    }
}

/// Bytes of a vector, or a small matrix, that is held as floats.
fn vector_bytes(plan: &Plan, id: WeightId) -> u64 {
    let weight = plan.weight_of(id);
    FLOAT * (weight.rows * weight.cols) as u64
}

/// What a device can do at the most, as measured on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Bytes a second read over and over from `read_set` bytes, about as many as the weights: those of a small model stay in
    /// a large cache from one token to the next.
    pub read: f64,
    /// The bytes that [`Ceilings::read`] was measured over.
    pub read_set: u64,
    /// Bytes a second read from memory, over more bytes than caches hold.
    pub memory: f64,
    /// Multiply-adds of bytes a second.
    pub int8_macs: f64,
    /// Multiply-adds of floats a second.
    pub f32_macs: f64,
}

/// The ceiling that binds a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Reading.
    Read,
    /// Multiply-adds of bytes.
    Int8,
    /// Multiply-adds of floats.
    F32,
}

impl Bound {
    /// The name that tables use.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::Read => "read",
            Bound::Int8 => "int8",
            Bound::F32 => "f32",
        }
    }
}

impl Ceilings {
    /// The least seconds that the work can take, if reading and computing overlap wholly, and what it then waits for.
    pub fn least_seconds(&self, cost: &Cost) -> (f64, Bound) {
        let read = cost.bytes() as f64 / self.read;
        let int8 = cost.int8_macs as f64 / self.int8_macs;
        let f32 = cost.f32_macs as f64 / self.f32_macs;
        if read >= int8 + f32 {
            (read, Bound::Read)
        } else {
            (int8 + f32, if int8 >= f32 { Bound::Int8 } else { Bound::F32 })
        }
    }
}
