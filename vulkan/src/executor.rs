//! Runs a plan's steps on the device: commands are recorded once for each shape of a batch and replayed.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use llamay_formats::Format;
use llamay_plan::{
    Batch, ExecError, Executor, LoadOptions, Op, PageId, Plan, Progress, SlotId, StepChange, WeightSource,
};

use crate::device::Commands;
use crate::inputs::{InputBuffer, Inputs};
use crate::kernels;
use crate::kv::KvCache;
use crate::memory::Use;
use crate::pack;
use crate::record::{Recorder, Touched, record_words};
use crate::slots::{Scratch, Slots};
use crate::weights::{Loader, Matrix, Stack};
use crate::{Buffer, DeviceError, Gpu};

/// Shapes whose commands are kept; a shape more and all are recorded anew.
const SHAPES: usize = 64;

/// One matrix of a linear step.
pub(crate) struct Projection {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Buffer>,
    pub(crate) out: SlotId,
}

/// One matrix of an expert step, in a version for each expert.
pub(crate) struct ExpertStack {
    pub(crate) stack: Stack,
    pub(crate) bias: Option<Buffer>,
    pub(crate) out: SlotId,
}

/// A step's weights on the device.
pub(crate) enum Loaded {
    /// The number of parts that have a weight each, or 1, or 0 without any.
    Norm {
        weight: Option<Buffer>,
        bias: Option<Buffer>,
        weight_parts: u32,
    },
    /// Sinks, or the bias of a router.
    Vector(Option<Buffer>),
    Linear(Vec<Projection>),
    Experts(Vec<ExpertStack>),
    Nothing,
}

/// What recorded commands depend on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    inputs: Inputs,
    steps: Range<usize>,
}

/// A plan with its weights on a device.
pub struct VulkanExecutor {
    pub(crate) gpu: Gpu,
    pub(crate) plan: Arc<Plan>,
    source: Arc<dyn WeightSource>,
    pub(crate) steps: Vec<Loaded>,
    skipped: Vec<bool>,
    pub(crate) slots: Slots,
    pub(crate) cache: KvCache,
    pub(crate) inputs: InputBuffer,
    /// Quantised activations in blocks of 32 and of 256.
    acts: [Scratch; 2],
    /// Rows that are selected.
    pub(crate) rows: Scratch,
    /// Pages of attention that are not merged yet.
    pub(crate) tiles: Scratch,
    /// Code books.
    pub(crate) grids: HashMap<Format, Buffer>,
    /// For each rotary table its frequencies, and for the batch at hand cosines and sines.
    ropes: Vec<(Buffer, Scratch)>,
    /// Where the host reads logits.
    logits: Scratch,
    /// Tokens, and those that want logits, for which there is room.
    room: (usize, usize),
    /// Rows of a launch for each token, at the most: the experts that it chooses.
    rows_a_token: usize,
    recorded: HashMap<Key, Commands>,
}

impl VulkanExecutor {
    /// Loads a plan's weights.
    pub(crate) fn load(
        gpu: &Gpu,
        plan: Arc<Plan>,
        source: Arc<dyn WeightSource>,
        options: &LoadOptions,
        progress: Progress<'_>,
    ) -> Result<VulkanExecutor, ExecError> {
        let exec = |e: DeviceError| e.exec(gpu.name());
        let total = plan.weight_bytes() as u64;
        let mut done = 0;
        let mut loader = Loader::new(gpu, &plan, &source);
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (i, step) in plan.steps.iter().enumerate() {
            steps.push(if options.has(i) { load_step(&mut loader, &step.op)? } else { Loaded::Nothing });
            done += step.op.weights().iter().map(|w| plan.weight_of(*w).bytes() as u64).sum::<u64>();
            progress(done.min(total), total);
        }
        let mut grids = HashMap::new();
        let mine = plan.steps.iter().enumerate().filter(|(i, _)| options.has(*i));
        for weight in mine.flat_map(|(_, s)| s.op.weights()).map(|w| plan.weight_of(w)) {
            if let Some(words) = pack::grid(weight.format).filter(|_| !grids.contains_key(&weight.format)) {
                grids.insert(weight.format, gpu.upload(&words).map_err(exec)?);
            }
        }
        let ropes: Result<Vec<_>, _> = plan
            .ropes
            .iter()
            .map(|rope| Ok((gpu.upload(&rope.frequencies).map_err(exec)?, Scratch::default())))
            .collect();
        let used = plan.kv_used(|step| options.has(step));
        Ok(VulkanExecutor {
            slots: Slots::new(&plan),
            cache: KvCache::new(&plan, options.kv, |layer| used[layer]),
            inputs: InputBuffer::new(&plan, |step| options.has(step)),
            skipped: vec![false; steps.len()],
            steps,
            acts: [Scratch::default(), Scratch::default()],
            rows: Scratch::default(),
            tiles: Scratch::default(),
            grids,
            ropes: ropes?,
            logits: Scratch::default(),
            room: (0, 0),
            rows_a_token: plan.steps.iter().map(|s| rows_a_token(&plan, &s.op)).max().unwrap_or(1),
            recorded: HashMap::new(),
            gpu: gpu.clone(),
            plan,
            source,
        })
    }

    /// The activations in blocks of this length.
    pub(crate) fn acts(&self, block: u32) -> &Scratch {
        &self.acts[usize::from(block != 32)]
    }

    /// Where a rotary table's cosines and sines of the batch are.
    pub(crate) fn angle_addresses(&self, rope: usize, n_tokens: usize) -> (u64, u64) {
        let base = self.ropes[rope].1.address();
        (base, base + (4 * n_tokens * self.plan.ropes[rope].frequencies.len()) as u64)
    }

    fn exec(&self, e: DeviceError) -> ExecError {
        e.exec(self.gpu.name())
    }

    /// Makes room for a batch; commands that know an address that moved are forgotten.
    fn reserve(&mut self, batch: &Batch<'_>, inputs: &Inputs) -> Result<(), DeviceError> {
        let mut moved = self.inputs.reserve(&self.gpu, inputs, batch)?;
        let n_tokens = inputs.n_tokens();
        moved |= self.reserve_tiles(inputs)?;
        if !moved && n_tokens <= self.room.0 && inputs.n_logits() <= self.room.1 {
            return Ok(());
        }
        let gpu = &self.gpu;
        // Until all is there again: a failure leaves some without.
        let room = std::mem::take(&mut self.room);
        for (rope, (_, angles)) in self.plan.ropes.iter().zip(&mut self.ropes) {
            moved |= angles.reserve(gpu, 8 * n_tokens * rope.frequencies.len(), Use::Device)?;
        }
        let mut n = n_tokens;
        for step in &self.plan.steps {
            for out in step.op.outputs() {
                moved |= self.slots.reserve(gpu, out, n)?;
            }
            match &step.op {
                Op::Linear { x, .. } => moved |= reserve_acts(gpu, &mut self.acts, self.slots.width(*x), n)?,
                Op::ExpertLinear { x, cols, .. } => {
                    let rows = n * self.slots.width(*x) / cols;
                    moved |= reserve_acts(gpu, &mut self.acts, *cols, rows)?;
                }
                Op::Select { slots } => {
                    let widest = slots.iter().map(|s| self.slots.width(*s)).max().unwrap_or(0);
                    moved |= self.rows.reserve(gpu, 4 * widest * inputs.n_logits(), Use::Device)?;
                    n = inputs.n_logits();
                }
                _ => {}
            }
        }
        let logits = 4 * self.slots.width(self.plan.logits) * inputs.n_logits();
        moved |= self.logits.reserve(gpu, logits, Use::FromDevice)?;
        self.room = (room.0.max(n_tokens), room.1.max(inputs.n_logits()));
        if moved {
            self.recorded.clear();
        }
        Ok(())
    }

    /// Makes room for attention whose pages are shared out; true if it moved.
    fn reserve_tiles(&mut self, inputs: &Inputs) -> Result<bool, DeviceError> {
        let mut most = 0;
        // Attention stands before the selection of rows, since later tokens need all keys.
        let rows = inputs.n_tokens();
        for step in &self.plan.steps {
            if let Op::Attend { kv, heads, .. } = &step.op {
                let layer = usize::from(kv.0);
                let pages = self.pages_shared(inputs, layer, *heads, rows);
                most = most.max(rows * heads * pages * (self.plan.kv[layer].head_dim + 2));
            }
        }
        if most == 0 { Ok(false) } else { self.tiles.reserve(&self.gpu, 4 * most, Use::Device) }
    }

    /// Records the steps for batches of a shape.
    fn record_steps(&self, inputs: &Inputs, steps: Range<usize>) -> Result<Commands, DeviceError> {
        let mut commands = Commands::new(&self.gpu)?;
        commands.begin()?;
        let mut to = Recorder::new(commands);
        let plan = Arc::clone(&self.plan);
        self.record_angles(&mut to, inputs)?;
        let mut n = plan.rows_before(steps.start, inputs.n_tokens(), inputs.n_logits());
        for (i, step) in plan.steps.iter().enumerate().take(steps.end).skip(steps.start) {
            if n == 0 {
                break;
            }
            if !self.skipped[i] {
                self.record(&mut to, i, &step.op, inputs, &mut n)?;
            }
        }
        let bytes = 4 * self.slots.width(plan.logits) * inputs.n_logits();
        if steps.end == plan.steps.len() && bytes > 0 {
            to.order(&[Touched::Slot(plan.logits)], &[]);
            if let (Some(from), Some(logits)) = (self.slots.buffer(plan.logits), self.logits.buffer()) {
                to.commands.copy((from.handle, 0), (logits.handle, 0), bytes as u64);
            }
        }
        to.commands.end()?;
        Ok(to.commands)
    }

    /// Records the angles of all tokens for each rotary table.
    fn record_angles(&self, to: &mut Recorder, inputs: &Inputs) -> Result<(), DeviceError> {
        let n_tokens = inputs.n_tokens();
        for (i, (frequencies, _)) in self.ropes.iter().enumerate() {
            let half = self.plan.ropes[i].frequencies.len();
            let (cos, sin) = self.angle_addresses(i, n_tokens);
            let push = kernels::Angles {
                tokens: self.inputs.addresses().tokens,
                frequencies: frequencies.address(),
                magnitudes: self.inputs.magnitudes(i, n_tokens),
                cos,
                sin,
                half_: half as u32,
                rows: n_tokens as u32,
            };
            to.order(&[], &[Touched::Angles(i)]);
            let kernel = self.gpu.kernel("angles", &[])?;
            let groups = [half.div_ceil(64) as u32, n_tokens as u32, 1];
            to.commands.dispatch(kernel, bytemuck::bytes_of(&push), groups);
        }
        Ok(())
    }

    /// Runs some steps over the batch whose inputs were written.
    fn run_steps(&mut self, inputs: &Inputs, steps: Range<usize>) -> Result<(), DeviceError> {
        let key = Key { inputs: *inputs, steps };
        if !self.recorded.contains_key(&key) {
            if self.recorded.len() >= SHAPES {
                self.recorded.clear();
            }
            let commands = self.record_steps(inputs, key.steps.clone())?;
            self.recorded.insert(key.clone(), commands);
        }
        match self.recorded.get_mut(&key) {
            Some(commands) => commands.run(),
            None => Ok(()),
        }
    }

    /// Brings to the device what some steps need of a batch.
    fn begin(&mut self, batch: &Batch<'_>, steps: Range<usize>) -> Result<Inputs, ExecError> {
        // Most kernels have a launch's rows in one dimension.
        let most = self.gpu.inner.physical.max_groups[1] as usize / self.rows_a_token;
        if batch.tokens.len() > most {
            let bytes = 4 * batch.tokens.len() as u64;
            return Err(ExecError::OutOfMemory {
                what: "a batch of more tokens than the device launches",
                bytes,
            });
        }
        let inputs = Inputs::of(batch, self.cache.n_groups());
        self.reserve(batch, &inputs).map_err(|e| self.exec(e))?;
        self.inputs.write(&self.plan, &self.source, &self.cache, batch, steps)?;
        Ok(inputs)
    }

    /// Runs step by step, to find the first that gives a value that is not finite.
    fn find_not_finite(&mut self, batch: &Batch<'_>) -> Result<(), ExecError> {
        let plan = Arc::clone(&self.plan);
        let inputs = self.begin(batch, 0..plan.steps.len())?;
        for (i, step) in plan.steps.iter().enumerate() {
            self.run_steps(&inputs, i..i + 1).map_err(|e| self.exec(e))?;
            let n = plan.rows_before(i + 1, inputs.n_tokens(), inputs.n_logits());
            for out in step.op.outputs().into_iter().filter(|_| !self.skipped[i]) {
                let mut values = Vec::new();
                self.read_rows(out, n, &mut values)?;
                if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                    let token = at / self.slots.width(out);
                    return Err(ExecError::NotFinite { step: plan.describe_step(i), token });
                }
            }
        }
        Ok(())
    }

    /// The first `n` rows of a slot.
    fn read_rows(&self, slot: SlotId, n: usize, values: &mut Vec<f32>) -> Result<(), ExecError> {
        values.resize(n * self.slots.width(slot), 0.0);
        match self.slots.buffer(slot) {
            Some(buffer) => buffer.read(0, bytemuck::cast_slice_mut(values)).map_err(|e| self.exec(e)),
            None => Ok(()),
        }
    }
}

/// Makes room for rows of `k` quantised elements of either kind.
fn reserve_acts(gpu: &Gpu, acts: &mut [Scratch; 2], k: usize, rows: usize) -> Result<bool, DeviceError> {
    let mut moved = false;
    for (acts, block) in acts.iter_mut().zip([32, 256]) {
        if k.is_multiple_of(block as usize) {
            moved |= acts.reserve(gpu, 4 * record_words(k, block) * rows, Use::Device)?;
        }
    }
    Ok(moved)
}

/// Rows that a step's launch has for each token.
fn rows_a_token(plan: &Plan, op: &Op) -> usize {
    match op {
        Op::ExpertLinear { chosen, .. } => plan.slot_of(*chosen).width.max(1),
        _ => 1,
    }
}

fn load_step(loader: &mut Loader<'_>, op: &Op) -> Result<Loaded, ExecError> {
    let plan = loader.plan;
    Ok(match op {
        Op::Norm { x, weight, bias, heads, .. } => {
            let len = plan.slot_of(*x).width / heads;
            let one = weight.or(*bias).map(|w| plan.weight_of(w));
            let weight_parts = one.map_or(0, |w| w.rows * w.cols / len) as u32;
            Loaded::Norm { weight: loader.vector(*weight)?, bias: loader.vector(*bias)?, weight_parts }
        }
        Op::Attend { sinks: optional, .. } | Op::Route { bias: optional, .. } => {
            Loaded::Vector(loader.vector(*optional)?)
        }
        Op::Linear { x: _, projections } => {
            let mut loaded = Vec::with_capacity(projections.len());
            for p in projections {
                let rows = plan.slot_of(p.out).width;
                let matrix = loader.matrix(p.weight, rows)?;
                let bias = match p.bias {
                    Some(bias) => {
                        let values = loader.values(bias.weight, Some((bias.first_row, rows)))?;
                        Some(loader.gpu.upload(&values).map_err(|e| e.exec(loader.gpu.name()))?)
                    }
                    None => None,
                };
                loaded.push(Projection { matrix, bias, out: p.out });
            }
            Loaded::Linear(loaded)
        }
        Op::ExpertLinear { x: _, cols: _, chosen, projections } => {
            let n_used = plan.slot_of(*chosen).width;
            let mut loaded = Vec::with_capacity(projections.len());
            for p in projections {
                let stack = loader.stack(&p.experts, plan.slot_of(p.out).width / n_used)?;
                loaded.push(ExpertStack { stack, bias: loader.vector(p.bias)?, out: p.out });
            }
            Loaded::Experts(loaded)
        }
        // Embedding rows are decoded on the host: the device has no use for the rest of the table.
        Op::Embed { .. }
        | Op::Rope { .. }
        | Op::Gate { .. }
        | Op::Activate { .. }
        | Op::Add { .. }
        | Op::Scale { .. }
        | Op::Softcap { .. }
        | Op::Combine { .. }
        | Op::Select { .. } => Loaded::Nothing,
    })
}

impl Executor for VulkanExecutor {
    fn forward(&mut self, batch: Batch<'_>, logits: &mut Vec<f32>) -> Result<(), ExecError> {
        let all = 0..self.plan.steps.len();
        let inputs = self.begin(&batch, all.clone())?;
        self.run_steps(&inputs, all).map_err(|e| self.exec(e))?;
        logits.resize(self.slots.width(self.plan.logits) * inputs.n_logits(), 0.0);
        if let Some(buffer) = self.logits.buffer() {
            buffer.read(0, bytemuck::cast_slice_mut(logits)).map_err(|e| self.exec(e))?;
        }
        // The sum of `v * 0` is 0 unless a value is not finite; then the steps run again to find the culprit.
        if logits.iter().fold(0.0f32, |sum, v| sum + v * 0.0) != 0.0 {
            self.find_not_finite(&batch)?;
        }
        Ok(())
    }

    fn run(&mut self, batch: Batch<'_>, steps: Range<usize>) -> Result<(), ExecError> {
        let inputs = self.begin(&batch, steps.clone())?;
        self.run_steps(&inputs, steps).map_err(|e| self.exec(e))
    }

    fn read_slot(&mut self, slot: SlotId, rows: usize, values: &mut Vec<f32>) -> Result<(), ExecError> {
        self.read_rows(slot, rows, values)
    }

    fn write_slot(&mut self, slot: SlotId, values: &[f32]) -> Result<(), ExecError> {
        let rows = values.len() / self.slots.width(slot).max(1);
        if self.slots.reserve(&self.gpu, slot, rows).map_err(|e| self.exec(e))? {
            self.recorded.clear();
        }
        match self.slots.buffer_mut(slot) {
            Some(buffer) => {
                buffer.write(0, bytemuck::cast_slice(values)).map_err(|e| e.exec(self.gpu.name()))
            }
            None => Ok(()),
        }
    }

    fn reserve_pages(&mut self, group: usize, n: usize) -> Result<(), ExecError> {
        self.cache.reserve(&self.gpu, group, n).map_err(|e| self.exec(e))
    }

    fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        // A device that is lost here says so in the next forward call.
        let _ = self.cache.copy(&self.gpu, group, from, to);
    }

    fn change_steps(&mut self, changes: &[(usize, StepChange)]) -> Result<(), ExecError> {
        if changes.is_empty() {
            return Ok(());
        }
        // The plan may be shared with whoever loaded it, for whom it stays as it was.
        let plan = Arc::make_mut(&mut self.plan);
        for (i, change) in changes {
            self.skipped[*i] = *change == StepChange::Skip;
            if let (StepChange::Scale(to), Op::Add { scale, .. }) = (change, &mut plan.steps[*i].op) {
                *scale = *to;
            }
        }
        self.recorded.clear();
        Ok(())
    }
}
