//! A device for tests: another one, with something before each of its calls.

use std::ops::Range;

use llamay_plan::{Batch, ExecError, Executor, PageId, SlotId, StepChange};

/// A call that may fail.
pub(crate) enum Call {
    /// A forward call, or part of one, of so many tokens.
    Forward(usize),
    /// Pages, or a change of steps.
    Other,
}

/// What happens before a call: an error, which the caller gets, or nothing.
type Before = Box<dyn FnMut(Call) -> Result<(), ExecError> + Send>;

/// An executor that asks before it does anything.
pub(crate) struct Wrapped {
    inner: Box<dyn Executor>,
    before: Before,
}

impl Wrapped {
    /// Puts itself around an executor.
    pub(crate) fn around(
        executor: &mut Box<dyn Executor>,
        before: impl FnMut(Call) -> Result<(), ExecError> + Send + 'static,
    ) {
        let inner = std::mem::replace(executor, Box::new(Nobody));
        *executor = Box::new(Wrapped { inner, before: Box::new(before) });
    }
}

impl Executor for Wrapped {
    fn forward(&mut self, batch: Batch<'_>, logits: &mut Vec<f32>) -> Result<(), ExecError> {
        (self.before)(Call::Forward(batch.tokens.len()))?;
        self.inner.forward(batch, logits)
    }

    fn run(&mut self, batch: Batch<'_>, steps: Range<usize>) -> Result<(), ExecError> {
        (self.before)(Call::Forward(batch.tokens.len()))?;
        self.inner.run(batch, steps)
    }

    fn read_slot(&mut self, slot: SlotId, rows: usize, values: &mut Vec<f32>) -> Result<(), ExecError> {
        self.inner.read_slot(slot, rows, values)
    }

    fn write_slot(&mut self, slot: SlotId, values: &[f32]) -> Result<(), ExecError> {
        self.inner.write_slot(slot, values)
    }

    fn reserve_pages(&mut self, group: usize, n: usize) -> Result<(), ExecError> {
        (self.before)(Call::Other)?;
        self.inner.reserve_pages(group, n)
    }

    fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        self.inner.copy_page(group, from, to);
    }

    fn change_steps(&mut self, changes: &[(usize, StepChange)]) -> Result<(), ExecError> {
        (self.before)(Call::Other)?;
        self.inner.change_steps(changes)
    }
}

/// An executor without layers, to which every call succeeds.
pub(crate) struct Nobody;

impl Executor for Nobody {
    fn forward(&mut self, _: Batch<'_>, _: &mut Vec<f32>) -> Result<(), ExecError> {
        Ok(())
    }

    fn run(&mut self, _: Batch<'_>, _: Range<usize>) -> Result<(), ExecError> {
        Ok(())
    }

    fn read_slot(&mut self, _: SlotId, _: usize, _: &mut Vec<f32>) -> Result<(), ExecError> {
        Ok(())
    }

    fn write_slot(&mut self, _: SlotId, _: &[f32]) -> Result<(), ExecError> {
        Ok(())
    }

    fn reserve_pages(&mut self, _: usize, _: usize) -> Result<(), ExecError> {
        Ok(())
    }

    fn copy_page(&mut self, _: usize, _: PageId, _: PageId) {}

    fn change_steps(&mut self, _: &[(usize, StepChange)]) -> Result<(), ExecError> {
        Ok(())
    }
}
