//! What a forward call brings to the device, in one buffer that the host writes: tokens, page tables, embeddings.

use std::ops::Range;
use std::sync::Arc;

use llamay_plan::{Batch, ExecError, Index, KV_PAGE, NO_PAGE, Op, Plan, WeightSource};

use crate::kv::KvCache;
use crate::memory::Use;
use crate::slots::Scratch;
use crate::{DeviceError, Gpu};

/// The shape of a batch: everything that the recorded commands depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Inputs {
    n_tokens: usize,
    n_logits: usize,
    n_tables: usize,
    /// Pages of the longest sequence, rounded up to a power of two.
    pages: usize,
}

impl Inputs {
    pub(crate) fn of(batch: &Batch<'_>, n_groups: usize) -> Inputs {
        let longest = batch.tokens.iter().map(|t| t.position).max();
        Inputs {
            n_tokens: batch.tokens.len(),
            n_logits: batch.n_logits(),
            n_tables: batch.tables.len() * n_groups,
            pages: longest.map_or(0, |p| (p as usize / KV_PAGE + 1).next_power_of_two()),
        }
    }

    pub(crate) fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Pages that a token may see, or some more.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    pub(crate) fn n_logits(&self) -> usize {
        self.n_logits
    }
}

/// Addresses of a batch's parts.
pub(crate) struct Addresses {
    /// Position and sequence of each token.
    pub(crate) tokens: u64,
    /// Numbers of the rows that want logits.
    pub(crate) selected: u64,
    /// For each sequence and group the first of its pages.
    pub(crate) starts: u64,
    /// Addresses of pages.
    pub(crate) pages: u64,
}

/// The buffer, and how the plan's parts lie in it.
pub(crate) struct InputBuffer {
    buffer: Scratch,
    /// Embedding steps and the widths of their rows.
    embeds: Vec<(usize, usize)>,
    n_ropes: usize,
    /// The shape of the batch at hand, and where its parts begin, in bytes.
    shape: Inputs,
    at: Offsets,
}

#[derive(Clone, Debug, Default)]
struct Offsets {
    magnitudes: usize,
    selected: usize,
    embeds: Vec<usize>,
    starts: usize,
    pages: usize,
}

impl InputBuffer {
    /// For the steps of the plan that are the device's.
    pub(crate) fn new(plan: &Plan, mine: impl Fn(usize) -> bool) -> InputBuffer {
        let width = |step: &Op| match step {
            Op::Embed { out, .. } => Some(plan.slot_of(*out).width),
            _ => None,
        };
        let steps = plan.steps.iter().enumerate().filter(|(i, _)| mine(*i));
        InputBuffer {
            buffer: Scratch::default(),
            embeds: steps.filter_map(|(i, s)| Some((i, width(&s.op)?))).collect(),
            n_ropes: plan.ropes.len(),
            shape: Inputs::default(),
            at: Offsets::default(),
        }
    }

    pub(crate) fn buffer(&self) -> Option<&crate::Buffer> {
        self.buffer.buffer()
    }

    /// Where the rows of an embedding step begin in the buffer.
    pub(crate) fn embed(&self, step: usize) -> u64 {
        let at = self.embeds.iter().position(|e| e.0 == step);
        at.map_or(0, |i| self.at.embeds[i] as u64)
    }

    pub(crate) fn addresses(&self) -> Addresses {
        let base = self.buffer.address();
        Addresses {
            tokens: base,
            selected: base + self.at.selected as u64,
            starts: base + self.at.starts as u64,
            pages: base + self.at.pages as u64,
        }
    }

    /// Address of the magnitudes of a rotary table, one a token.
    pub(crate) fn magnitudes(&self, rope: usize, n_tokens: usize) -> u64 {
        self.buffer.address() + (self.at.magnitudes + rope * n_tokens * 4) as u64
    }

    /// Where everything is for a shape; pages come last, so that their number moves nothing.
    fn lay_out(&self, shape: &Inputs) -> Offsets {
        let mut end = 8 * shape.n_tokens;
        let mut room = |bytes: usize| {
            let at = end.next_multiple_of(16);
            end = at + bytes;
            at
        };
        Offsets {
            magnitudes: room(4 * self.n_ropes * shape.n_tokens),
            selected: room(4 * shape.n_logits),
            embeds: self.embeds.iter().map(|(_, width)| room(4 * width * shape.n_tokens)).collect(),
            starts: room(4 * shape.n_tables),
            pages: room(0),
        }
    }

    /// Makes room for a batch; true if the buffer moved.
    pub(crate) fn reserve(
        &mut self,
        gpu: &Gpu,
        shape: &Inputs,
        batch: &Batch<'_>,
    ) -> Result<bool, DeviceError> {
        if self.shape != *shape {
            (self.shape, self.at) = (*shape, self.lay_out(shape));
        }
        let pages: usize = batch.tables.iter().flatten().map(|t| t.len()).sum();
        let bytes = self.at.pages + 8 * pages;
        if self.buffer.buffer().is_some_and(|b| b.size() >= bytes as u64) {
            return Ok(false);
        }
        // Sequences grow by a page at a time: room for some more.
        self.buffer.reserve(gpu, bytes + bytes / 4 + 4096, Use::ToDevice)
    }

    /// Writes a batch, with the rows of the embedding steps that are to run.
    pub(crate) fn write(
        &mut self,
        plan: &Plan,
        source: &Arc<dyn WeightSource>,
        cache: &KvCache,
        batch: &Batch<'_>,
        steps: Range<usize>,
    ) -> Result<(), ExecError> {
        let at = &self.at;
        let Some(buffer) = self.buffer.buffer_mut() else { return Ok(()) };
        let size = buffer.size() as usize;
        let Some(bytes) = buffer.mapped(0, size) else {
            return Err(ExecError::OutOfMemory {
                what: "memory that the host can write",
                bytes: size as u64,
            });
        };
        let put = |bytes: &mut [u8], at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        for (i, token) in batch.tokens.iter().enumerate() {
            put(bytes, 8 * i, token.position);
            put(bytes, 8 * i + 4, token.sequence);
        }
        for (r, rope) in plan.ropes.iter().enumerate() {
            for (i, token) in batch.tokens.iter().enumerate() {
                let magnitude = rope.magnitude(token.position).to_bits();
                put(bytes, at.magnitudes + 4 * (r * batch.tokens.len() + i), magnitude);
            }
        }
        let wanted = batch.tokens.iter().enumerate().filter(|(_, t)| t.wants_logits);
        for (to, (i, _)) in wanted.enumerate() {
            put(bytes, at.selected + 4 * to, i as u32);
        }
        let mut n_pages = 0;
        for (i, (group, table)) in batch.tables.iter().flat_map(|t| t.iter().enumerate()).enumerate() {
            put(bytes, at.starts + 4 * i, n_pages);
            for page in *table {
                let address = if *page == NO_PAGE { 0 } else { cache.address(group, *page) };
                let to = at.pages + 8 * n_pages as usize;
                bytes[to..to + 8].copy_from_slice(&address.to_ne_bytes());
                n_pages += 1;
            }
        }
        for ((step, width), at) in self.embeds.iter().zip(&at.embeds).filter(|((i, _), _)| steps.contains(i))
        {
            let Op::Embed { weight, index, out: _, scale } = &plan.steps[*step].op else { continue };
            let rows = &mut bytes[*at..*at + 4 * width * batch.tokens.len()];
            embed(plan, source, batch, *weight, *index, *scale, bytemuck::cast_slice_mut(rows))?;
        }
        Ok(())
    }
}

/// Rows of a table, decoded: the device has no use for the rest of it.
fn embed(
    plan: &Plan,
    source: &Arc<dyn WeightSource>,
    batch: &Batch<'_>,
    id: llamay_plan::WeightId,
    index: Index,
    scale: f32,
    out: &mut [f32],
) -> Result<(), ExecError> {
    let weight = plan.weight_of(id);
    let error = |why: String| ExecError::Weight { name: weight.name.clone(), why };
    let table = source.bytes(id).map_err(error)?;
    let size = weight.format.row_bytes(weight.cols).unwrap_or(0);
    for (token, out) in batch.tokens.iter().zip(out.chunks_exact_mut(weight.cols)) {
        let row = match index {
            Index::Token => token.token,
            Index::Position => token.position,
        } as usize;
        let bytes = table.get(row * size..(row + 1) * size);
        let bytes = bytes.ok_or_else(|| error(format!("it has no row {row}")))?;
        weight.format.decode(bytes, out);
        if scale != 1.0 {
            out.iter_mut().for_each(|v| *v *= scale);
        }
    }
    Ok(())
}
