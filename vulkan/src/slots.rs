//! Activations on the device: a buffer for each slot, with a row for each token.

use llamay_plan::{Plan, SlotId};

use crate::memory::Use;
use crate::{Buffer, DeviceError, Gpu};

/// The plan's slots. Each has room for the rows that a forward call so far has needed.
pub(crate) struct Slots {
    slots: Vec<Slot>,
}

struct Slot {
    width: usize,
    buffer: Option<Buffer>,
}

impl Slots {
    pub(crate) fn new(plan: &Plan) -> Slots {
        Slots { slots: plan.slots.iter().map(|s| Slot { width: s.width, buffer: None }).collect() }
    }

    pub(crate) fn width(&self, id: SlotId) -> usize {
        self.slots[usize::from(id.0)].width
    }

    /// The address of the first row; 0 for a slot without any.
    pub(crate) fn address(&self, id: SlotId) -> u64 {
        self.slots[usize::from(id.0)].buffer.as_ref().map_or(0, Buffer::address)
    }

    pub(crate) fn buffer(&self, id: SlotId) -> Option<&Buffer> {
        self.slots[usize::from(id.0)].buffer.as_ref()
    }

    pub(crate) fn buffer_mut(&mut self, id: SlotId) -> Option<&mut Buffer> {
        self.slots[usize::from(id.0)].buffer.as_mut()
    }

    /// Makes room for `rows` rows; true if the slot moved, without what was in it.
    pub(crate) fn reserve(&mut self, gpu: &Gpu, id: SlotId, rows: usize) -> Result<bool, DeviceError> {
        let slot = &mut self.slots[usize::from(id.0)];
        let bytes = (rows * slot.width * 4) as u64;
        if slot.buffer.as_ref().is_some_and(|b| b.size() >= bytes) {
            return Ok(false);
        }
        // Freed first, so that both need not fit.
        slot.buffer = None;
        slot.buffer = Some(gpu.buffer("activations", bytes, Use::Device)?);
        Ok(true)
    }
}

/// A buffer that grows, for what kernels hand to one another within a step.
#[derive(Default)]
pub(crate) struct Scratch(Option<Buffer>);

impl Scratch {
    pub(crate) fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, Buffer::address)
    }

    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        self.0.as_ref()
    }

    /// Makes room; true if the buffer moved.
    pub(crate) fn reserve(&mut self, gpu: &Gpu, bytes: usize, used: Use) -> Result<bool, DeviceError> {
        if self.0.as_ref().is_some_and(|b| b.size() >= bytes as u64) {
            return Ok(false);
        }
        self.0 = None;
        self.0 = Some(gpu.buffer("activations", bytes as u64, used)?);
        Ok(true)
    }

    pub(crate) fn buffer_mut(&mut self) -> Option<&mut Buffer> {
        self.0.as_mut()
    }
}
