//! What a backend answers and how its loaded half is driven.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use llamay_formats::Format;

use crate::{Batch, KvType, Op, PageId, Plan, Profile, SlotId, WeightId};

/// Why a backend does not run a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The backend has no kernel for the step.
    Op(&'static str),
    /// The backend runs the step, but not over a weight of this format.
    Format(&'static str, Format),
    /// The device lacks something that the kernel needs.
    Device(&'static str, String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Op(op) => write!(f, "no {op} kernel"),
            Refusal::Format(op, format) => write!(f, "no {format} {op} kernel"),
            Refusal::Device(op, why) => write!(f, "{op}: {why}"),
        }
    }
}

/// Where weights come from: a file's map, or memory in tests.
pub trait WeightSource: Send + Sync {
    /// The weight's bytes, row after row, little-endian.
    fn bytes(&self, weight: WeightId) -> Result<Cow<'_, [u8]>, String>;

    /// Says that these bytes of the weight will not be read again soon, so that their pages can go.
    fn release(&self, weight: WeightId, bytes: std::ops::Range<usize>);

    /// Says that these bytes of the weight will be read soon, so that they can be on their way from the disk. A source
    /// that has them in memory has nothing to do.
    fn prefetch(&self, weight: WeightId, bytes: std::ops::Range<usize>) {
        let _ = (weight, bytes);
    }
}

/// Reports the bytes of weights loaded so far, out of all.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How to load a plan.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Read weights from their source as they are used, and keep no copy of them, for a model larger than memory.
    pub no_repack: bool,
    /// Which steps this device is to run, one flag a step; `None` for all. Of the others it needs neither weights nor cache.
    pub steps: Option<Arc<[bool]>>,
}

impl LoadOptions {
    /// Whether the step is this device's.
    pub fn has(&self, step: usize) -> bool {
        self.steps.as_ref().is_none_or(|steps| steps.get(step) == Some(&true))
    }
}

/// A compute device, before anything is loaded to it.
pub trait Backend: Send + Sync {
    /// A short name, such as `cpu` or `vulkan:0`.
    fn name(&self) -> String;

    /// One line for people: the device, its kernels, its threads.
    fn describe(&self) -> String;

    /// Whether the step runs here with weights of these formats (in the order of [`Op::weights`]).
    ///
    /// Implementations match every variant and every field by name, so that a new one does not compile until it is
    /// implemented or refused.
    fn supports(&self, op: &Op, formats: &[Format]) -> Result<(), Refusal>;

    /// As [`Backend::supports`], for a step of a plan, whose slots have sizes that a device may not take.
    fn supports_in(&self, plan: &Plan, op: &Op) -> Result<(), Refusal> {
        self.supports(op, &plan.formats_of(op))
    }

    /// Bytes the device has free for weights and cache, where that is known.
    fn free_memory(&self) -> Option<u64>;

    /// Loads the plan's weights.
    fn load(
        &self,
        plan: Arc<Plan>,
        weights: Arc<dyn WeightSource>,
        options: LoadOptions,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Executor>, ExecError>;
}

/// How a step of a loaded plan runs from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepChange {
    /// As the plan has it, or as it was last scaled.
    Run,
    /// Not at all: its outputs stay as they are.
    Skip,
    /// With this factor. Only for [`Op::Add`].
    Scale(f32),
}

/// A plan with its weights on a device.
pub trait Executor: Send {
    /// Runs the batch and puts the logits of the tokens that want them into `logits`, row after row of `n_vocab`.
    ///
    /// The batch is valid: tokens are in the vocabulary and positions have pages that were reserved.
    fn forward(&mut self, batch: Batch<'_>, logits: &mut Vec<f32>) -> Result<(), ExecError>;

    /// Runs some of the plan's steps over the batch, for a plan that several devices share: all before them have run, here
    /// or elsewhere, and what they wrote and these read is in this device's slots.
    fn run(&mut self, batch: Batch<'_>, steps: Range<usize>) -> Result<(), ExecError>;

    /// The first `rows` rows of a slot.
    fn read_slot(&mut self, slot: SlotId, rows: usize, values: &mut Vec<f32>) -> Result<(), ExecError>;

    /// Writes the first rows of a slot; `values` is a whole number of rows.
    fn write_slot(&mut self, slot: SlotId, values: &[f32]) -> Result<(), ExecError>;

    /// Makes sure that pages `0..n` exist in the cache layers of a group, which is an index of [`Plan::kv_groups`]; their
    /// old content stays.
    fn reserve_pages(&mut self, group: usize, n: usize) -> Result<(), ExecError>;

    /// Copies a page in every layer of a group.
    fn copy_page(&mut self, group: usize, from: PageId, to: PageId);

    /// Changes steps, by their index in the plan, for all forward calls to come. Nothing is computed anew: what is in the
    /// cache stays.
    ///
    /// The plan stays valid whichever steps are skipped: whoever asks has made sure that their outputs have no other reader
    /// or are written by another step too.
    fn change_steps(&mut self, changes: &[(usize, StepChange)]) -> Result<(), ExecError>;

    /// Begins to time and count every step of the forward calls to come, or ends it; what was gathered goes either way. A
    /// device that cannot time its steps does nothing.
    fn profile(&mut self, _on: bool) {}

    /// What was gathered since profiling began or this was last asked; empty where nothing is.
    fn take_profile(&mut self) -> Profile {
        Profile::default()
    }
}

/// What goes wrong while loading or running.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A weight could not be read.
    #[error("weight {name}: {why}")]
    Weight {
        /// The tensor's name.
        name: String,
        /// The reader's sentence.
        why: String,
    },
    /// Memory for something could not be had.
    #[error("out of memory: {what} needs {bytes} bytes")]
    OutOfMemory {
        /// What was to be allocated.
        what: &'static str,
        /// Its size.
        bytes: u64,
    },
    /// The device stopped answering, or answered that it cannot go on; what it held is gone.
    #[error("{device} is lost: {why}")]
    DeviceLost {
        /// The device's name.
        device: String,
        /// What it was asked, and its answer.
        why: String,
    },
    /// A step gave NaN or infinity.
    #[error("{step} gave a value that is not finite for token {token} of the batch")]
    NotFinite {
        /// The first such step, as [`Plan::describe_step`] names it.
        step: String,
        /// Row of the value.
        token: usize,
    },
}
