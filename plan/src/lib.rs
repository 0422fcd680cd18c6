//! The forward pass as data.
//!
//! An architecture writes a [`Plan`], a flat list of steps over activation slots; a [`Backend`] says which steps it runs
//! and executes them; [`Placement`] decides, once, which step runs where.

mod backend;
mod batch;
mod cost;
mod kv;
mod op;
mod placement;
mod plan;
mod profile;

pub use backend::{Backend, ExecError, Executor, LoadOptions, Progress, Refusal, StepChange, WeightSource};
pub use batch::{Batch, BatchToken, KV_BLOCK, KV_PAGE, KvType, PageId, Run};
pub use cost::{Bound, Ceilings, Cost, CostModel};
pub use kv::{KV_ROLLBACK, KvGroup, KvLayer, NO_PAGE};
pub use llamay_formats::Format;
pub use op::{
    ExpertProjection, Gating, Index, KvId, Nonlinearity, NormKind, Op, Projection, RopeId, Rows, Scoring,
    SlotId, WeightId,
};
pub use placement::{Fall, Placement, Tier, Unplaced};
pub use plan::{Plan, Rope, RopePairs, Slot, Step, Weight};
pub use profile::{Profile, Profiler, StepProfile};
