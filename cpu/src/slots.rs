//! The activation buffers of a plan: a row a token, as many rows as the largest batch so far had.

use llamay_plan::{Plan, SlotId};

use crate::pool::Pool;
use crate::rows::for_row_chunks;

/// All slots' buffers.
pub(crate) struct Slots {
    buffers: Vec<Vec<f32>>,
    widths: Vec<usize>,
}

impl Slots {
    /// Empty buffers for a plan's slots.
    pub(crate) fn new(plan: &Plan) -> Slots {
        Slots {
            buffers: vec![Vec::new(); plan.slots.len()],
            widths: plan.slots.iter().map(|s| s.width).collect(),
        }
    }

    /// Floats of a row.
    pub(crate) fn width(&self, slot: SlotId) -> usize {
        self.widths[usize::from(slot.0)]
    }

    /// Makes room for `n` rows.
    pub(crate) fn reserve(&mut self, slot: SlotId, n: usize) {
        let size = n * self.width(slot);
        let buffer = &mut self.buffers[usize::from(slot.0)];
        if buffer.len() < size {
            buffer.resize(size, 0.0);
        }
    }

    /// The first `n` rows.
    pub(crate) fn rows(&self, slot: SlotId, n: usize) -> &[f32] {
        &self.buffers[usize::from(slot.0)][..n * self.width(slot)]
    }

    /// The first `n` rows, to be written.
    pub(crate) fn rows_mut(&mut self, slot: SlotId, n: usize) -> &mut [f32] {
        let width = self.width(slot);
        &mut self.buffers[usize::from(slot.0)][..n * width]
    }

    /// Takes a buffer out, so that it can be written while others are read; [`Slots::put`] brings it back.
    pub(crate) fn take(&mut self, slot: SlotId) -> Vec<f32> {
        std::mem::take(&mut self.buffers[usize::from(slot.0)])
    }

    /// Brings a buffer back.
    pub(crate) fn put(&mut self, slot: SlotId, buffer: Vec<f32>) {
        self.buffers[usize::from(slot.0)] = buffer;
    }

    /// Copies the first `n` rows of `x` to `out`, unless they are the same slot.
    pub(crate) fn copy(&mut self, x: SlotId, out: SlotId, n: usize) {
        if x != out {
            let mut to = self.take(out);
            let from = self.rows(x, n);
            to[..from.len()].copy_from_slice(from);
            self.put(out, to);
        }
    }

    /// `out = f(x)`, where `f` changes some of the first `n` rows.
    pub(crate) fn in_place(
        &mut self,
        pool: &Pool,
        x: SlotId,
        out: SlotId,
        n: usize,
        f: &(dyn Fn(&mut [f32]) + Sync),
    ) {
        self.copy(x, out, n);
        let width = self.width(out);
        for_row_chunks(pool, n, width, self.rows_mut(out, n), &|_, rows: &mut [f32], _| f(rows));
    }
}
