//! Steps as kernels on the device: what is recorded once and replayed for every batch of the same shape.

use std::collections::HashSet;

use llamay_formats::Format;
use llamay_plan::{Gating, KV_PAGE, Nonlinearity, NormKind, Op, RopePairs, Scoring, SlotId};

use crate::device::Commands;
use crate::executor::{ExpertStack, Loaded, Projection, VulkanExecutor};
use crate::inputs::Inputs;
use crate::kernels::{self, elementwise};
use crate::pack::Layout;
use crate::{DeviceError, Kernel};

/// Columns of a workgroup of a matrix product, at the most.
pub(crate) const COLUMNS: usize = 8;

/// What a kernel touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Touched {
    Slot(SlotId),
    /// Quantised activations, by the length of their blocks.
    Acts(u32),
    /// Angles of a rotary table.
    Angles(usize),
    /// The cache of a layer.
    Cache(usize),
    /// Rows under way from one place of a slot to another.
    Rows,
    /// Pages of attention that are not merged yet.
    Tiles,
}

/// Commands under way, with barriers only where one kernel needs what another wrote.
pub(crate) struct Recorder {
    pub(crate) commands: Commands,
    written: HashSet<Touched>,
    read: HashSet<Touched>,
}

impl Recorder {
    pub(crate) fn new(commands: Commands) -> Recorder {
        Recorder { commands, written: HashSet::new(), read: HashSet::new() }
    }

    /// Waits, if need be, until these can be read and those written.
    pub(crate) fn order(&mut self, reads: &[Touched], writes: &[Touched]) {
        let wait = reads.iter().any(|r| self.written.contains(r))
            || writes.iter().any(|w| self.written.contains(w) || self.read.contains(w));
        if wait {
            self.commands.barrier();
            self.written.clear();
            self.read.clear();
        }
        self.read.extend(reads);
        self.written.extend(writes);
    }

    fn dispatch(&mut self, kernel: Kernel, push: &impl bytemuck::Pod, groups: [usize; 3]) {
        self.commands.dispatch(kernel, bytemuck::bytes_of(push), groups.map(|n| n as u32));
    }
}

/// The number of a non-linearity in the kernels.
fn number(f: Nonlinearity) -> u32 {
    match f {
        Nonlinearity::Silu => 0,
        Nonlinearity::GeluTanh => 1,
        Nonlinearity::Gelu => 2,
        Nonlinearity::Relu => 3,
        Nonlinearity::ReluSquared => 4,
        Nonlinearity::Sigmoid => 5,
    }
}

/// Tokens by heads up to which their pages are shared out.
const SHARED_TOKENS: usize = 128;

/// Elements that a workgroup of `elementwise.comp` takes, and workgroups at the most; it goes round for the rest.
const ELEMENTS: usize = 256;
const MOST_GROUPS: usize = 65_535;

impl VulkanExecutor {
    /// Records a step over `n` rows.
    pub(crate) fn record(
        &self,
        to: &mut Recorder,
        i: usize,
        op: &Op,
        inputs: &Inputs,
        n: &mut usize,
    ) -> Result<(), DeviceError> {
        use Touched::Slot;
        let rows = *n;
        let slots = &self.slots;
        let at = |slot: SlotId| slots.address(slot);
        match op {
            Op::Embed { weight: _, index: _, out, scale: _ } => {
                to.order(&[], &[Slot(*out)]);
                let bytes = (rows * slots.width(*out) * 4) as u64;
                if let (Some(slot), Some(from)) = (slots.buffer(*out), self.inputs.buffer()) {
                    to.commands.copy((from.handle, self.inputs.embed(i)), (slot.handle, 0), bytes);
                }
            }
            Op::Norm { x, kind, weight: _, bias: _, eps, heads, out } => {
                let Loaded::Norm { weight, bias, weight_parts } = &self.steps[i] else { return Ok(()) };
                let flag = |on: bool, flag| if on { flag } else { 0 };
                let push = kernels::Norm {
                    x: at(*x),
                    weight: weight.as_ref().map_or(0, |b| b.address()),
                    bias: bias.as_ref().map_or(0, |b| b.address()),
                    out: at(*out),
                    len: (slots.width(*x) / heads) as u32,
                    parts: *heads as u32,
                    rows: rows as u32,
                    flags: flag(*kind == NormKind::Layer, kernels::norm::LAYER)
                        | flag(weight.is_some(), kernels::norm::WEIGHT)
                        | flag(bias.is_some(), kernels::norm::BIAS),
                    weight_parts: *weight_parts,
                    eps: *eps,
                };
                to.order(&[Slot(*x)], &[Slot(*out)]);
                to.dispatch(self.gpu.kernel("norm", &[])?, &push, [*heads, rows, 1]);
            }
            Op::Linear { x, projections: _ } => {
                let Loaded::Linear(projections) = &self.steps[i] else { return Ok(()) };
                self.linear(to, projections, *x, rows)?;
            }
            Op::Rope { x, heads: _, head_dim, rope } => {
                let rope = usize::from(rope.0);
                let table = &self.plan.ropes[rope];
                let width = slots.width(*x);
                let half = table.frequencies.len();
                let (cos, sin) = self.angle_addresses(rope, inputs.n_tokens());
                let push = kernels::Rope {
                    x: at(*x),
                    cos,
                    sin,
                    width: width as u32,
                    head_dim: *head_dim as u32,
                    half_: half as u32,
                    rows: rows as u32,
                    interleaved: u32::from(table.pairs == RopePairs::Interleaved),
                    pad: 0,
                };
                to.order(&[Slot(*x), Touched::Angles(rope)], &[Slot(*x)]);
                let lanes = width / head_dim * half;
                to.dispatch(self.gpu.kernel("rope", &[])?, &push, [lanes.div_ceil(64), rows, 1]);
            }
            Op::Attend { q, k, v, out, kv, heads, scale, window, softcap, sinks: _ } => {
                let Loaded::Vector(sinks) = &self.steps[i] else { return Ok(()) };
                let layer = usize::from(kv.0);
                let shape = self.plan.kv[layer];
                let group = self.cache.group(layer);
                let kind = [crate::kv::kind_number(self.cache.kind)];
                let tables = self.inputs.addresses();
                let store = kernels::KvStore {
                    k: at(*k),
                    v: at(*v),
                    tokens: tables.tokens,
                    pages: tables.pages,
                    starts: tables.starts,
                    rows: rows as u32,
                    heads: shape.heads as u32,
                    head_dim: shape.head_dim as u32,
                    group: group as u32,
                    n_groups: self.cache.n_groups() as u32,
                    layer: self.cache.offset(layer) as u32,
                };
                to.order(&[Slot(*k), Slot(*v)], &[Touched::Cache(layer)]);
                to.dispatch(self.gpu.kernel("kv_store", &kind)?, &store, [shape.heads, rows, 1]);
                let push = kernels::Attention {
                    q: at(*q),
                    out: at(*out),
                    tokens: tables.tokens,
                    pages: tables.pages,
                    starts: tables.starts,
                    sinks: sinks.as_ref().map_or(0, |b| b.address()),
                    rows: rows as u32,
                    heads: *heads as u32,
                    heads_kv: shape.heads as u32,
                    head_dim: shape.head_dim as u32,
                    group: group as u32,
                    n_groups: self.cache.n_groups() as u32,
                    layer: self.cache.offset(layer) as u32,
                    window: window.unwrap_or(0),
                    scale: *scale,
                    softcap: softcap.unwrap_or(0.0),
                    flags: if sinks.is_some() { kernels::attention::SINKS } else { 0 },
                    max_pages: self.pages_shared(inputs, layer, *heads, rows) as u32,
                    scratch: self.tiles.address(),
                };
                if push.max_pages == 0 {
                    to.order(&[Slot(*q), Touched::Cache(layer)], &[Slot(*out)]);
                    to.dispatch(self.gpu.kernel("attention", &kind)?, &push, [*heads, rows, 1]);
                } else {
                    let merge = kernels::AttentionMerge {
                        scratch: push.scratch,
                        out: push.out,
                        tokens: push.tokens,
                        sinks: push.sinks,
                        heads: push.heads,
                        head_dim: push.head_dim,
                        window: push.window,
                        max_pages: push.max_pages,
                        flags: push.flags,
                        pad: 0,
                    };
                    let groups = [*heads, rows, push.max_pages as usize];
                    to.order(&[Slot(*q), Touched::Cache(layer)], &[Touched::Tiles]);
                    to.dispatch(self.gpu.kernel("attention_pages", &kind)?, &push, groups);
                    to.order(&[Touched::Tiles], &[Slot(*out)]);
                    to.dispatch(self.gpu.kernel("attention_merge", &[])?, &merge, [*heads, rows, 1]);
                }
            }
            Op::Gate { gate, up, out, f } => {
                let constants = match f {
                    Gating::Product(f) => [elementwise::GATE, number(*f)],
                    Gating::ClippedSwiglu => [elementwise::CLIPPED_SWIGLU, 0],
                };
                self.elementwise(to, constants, (*gate, Some(*up), *out), 1.0, rows)?;
            }
            Op::Activate { x, f, out } => {
                self.elementwise(to, [elementwise::ACTIVATE, number(*f)], (*x, None, *out), 1.0, rows)?;
            }
            Op::Add { x, y, scale, out } => {
                let op = if *scale == 1.0 { elementwise::ADD } else { elementwise::ADD_SCALED };
                self.elementwise(to, [op, 0], (*x, Some(*y), *out), *scale, rows)?;
            }
            Op::Scale { x, scale, out } => {
                self.elementwise(to, [elementwise::SCALE, 0], (*x, None, *out), *scale, rows)?;
            }
            Op::Softcap { x, cap, out } => {
                self.elementwise(to, [elementwise::SOFTCAP, 0], (*x, None, *out), *cap, rows)?;
            }
            Op::Route { x, bias: _, scoring, normalize, scale, chosen, weights } => {
                let Loaded::Vector(bias) = &self.steps[i] else { return Ok(()) };
                let flag = |on: bool, flag| if on { flag } else { 0 };
                let push = kernels::Route {
                    x: at(*x),
                    bias: bias.as_ref().map_or(0, |b| b.address()),
                    chosen: at(*chosen),
                    weights: at(*weights),
                    n_expert: slots.width(*x) as u32,
                    n_used: slots.width(*chosen) as u32,
                    rows: rows as u32,
                    flags: flag(bias.is_some(), kernels::route::BIAS)
                        | flag(*normalize, kernels::route::NORMALIZE),
                    scoring: match scoring {
                        Scoring::Softmax => 0,
                        Scoring::SoftmaxOfChosen => 1,
                        Scoring::Sigmoid => 2,
                    },
                    scale: *scale,
                };
                to.order(&[Slot(*x)], &[Slot(*chosen), Slot(*weights)]);
                to.dispatch(self.gpu.kernel("route", &[])?, &push, [rows, 1, 1]);
            }
            Op::ExpertLinear { x, cols, chosen, projections: _ } => {
                let Loaded::Experts(stacks) = &self.steps[i] else { return Ok(()) };
                self.experts(to, stacks, (*x, *cols), *chosen, rows)?;
            }
            Op::Combine { x, weights, out } => {
                let width = slots.width(*out);
                let push = kernels::Combine {
                    x: at(*x),
                    weights: at(*weights),
                    out: at(*out),
                    width: width as u32,
                    n_used: slots.width(*weights) as u32,
                    rows: rows as u32,
                    pad: 0,
                };
                to.order(&[Slot(*x), Slot(*weights)], &[Slot(*out)]);
                to.dispatch(self.gpu.kernel("combine", &[])?, &push, [width.div_ceil(64), rows, 1]);
            }
            Op::Select { slots: selected } => {
                if inputs.n_logits() < rows {
                    for slot in selected {
                        self.select(to, *slot, inputs)?;
                    }
                }
                *n = inputs.n_logits();
            }
        }
        Ok(())
    }

    /// How many pages of a token are shared out in a layer's attention; 0 where a workgroup walks them all, as where tokens
    /// and heads are enough to keep a device busy.
    pub(crate) fn pages_shared(&self, inputs: &Inputs, layer: usize, heads: usize, rows: usize) -> usize {
        let seen = self.plan.kv[layer].window.map_or(usize::MAX, |w| w as usize / KV_PAGE + 2);
        let pages = inputs.pages().min(seen);
        if pages > 4 && rows * heads <= SHARED_TOKENS { pages } else { 0 }
    }

    /// Records `out = f(x, y)`, element by element.
    fn elementwise(
        &self,
        to: &mut Recorder,
        constants: [u32; 2],
        (x, y, out): (SlotId, Option<SlotId>, SlotId),
        scale: f32,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let n = rows * self.slots.width(out);
        let y = y.unwrap_or(x);
        let push = kernels::Elementwise {
            x: self.slots.address(x),
            y: self.slots.address(y),
            out: self.slots.address(out),
            n: n as u32,
            scale,
        };
        to.order(&[Touched::Slot(x), Touched::Slot(y)], &[Touched::Slot(out)]);
        let kernel = self.gpu.kernel("elementwise", &constants)?;
        to.dispatch(kernel, &push, [n.div_ceil(ELEMENTS).min(MOST_GROUPS), 1, 1]);
        Ok(())
    }

    /// Records that the rows of tokens that want logits move to the front of a slot.
    fn select(&self, to: &mut Recorder, slot: SlotId, inputs: &Inputs) -> Result<(), DeviceError> {
        let (width, n) = (self.slots.width(slot), inputs.n_logits());
        let push = kernels::Gather {
            x: self.slots.address(slot),
            out: self.rows.address(),
            rows: self.inputs.addresses().selected,
            width: width as u32,
            n: n as u32,
        };
        if n == 0 {
            return Ok(());
        }
        to.order(&[Touched::Slot(slot)], &[Touched::Rows]);
        to.dispatch(self.gpu.kernel("gather", &[])?, &push, [width.div_ceil(64), n, 1]);
        to.order(&[Touched::Rows], &[Touched::Slot(slot)]);
        if let (Some(from), Some(slot)) = (self.rows.buffer(), self.slots.buffer(slot)) {
            to.commands.copy((from.handle, 0), (slot.handle, 0), (n * width * 4) as u64);
        }
        Ok(())
    }

    /// Records the quantisation of `rows` rows of `k` elements, once for each length of blocks that the matrices meet.
    fn quantize<'a>(
        &self,
        to: &mut Recorder,
        layouts: impl Iterator<Item = &'a Layout>,
        x: SlotId,
        k: usize,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let mut done = Vec::new();
        for block in layouts.filter_map(Layout::act_block) {
            if done.contains(&block) {
                continue;
            }
            done.push(block);
            let push = kernels::Quantize {
                x: self.slots.address(x),
                out: self.acts(block).address(),
                k: k as u32,
                rows: rows as u32,
                block,
                record: record_words(k, block) as u32,
            };
            to.order(&[Touched::Slot(x)], &[Touched::Acts(block)]);
            to.dispatch(self.gpu.kernel("quantize", &[])?, &push, [k.div_ceil(256), rows, 1]);
        }
        Ok(())
    }

    /// Where weights of a layout find their input of `k` elements, and words from one row of it to the next.
    fn input(&self, layout: &Layout, x: SlotId, k: usize) -> (u64, usize, Touched) {
        match layout.act_block() {
            Some(block) => (self.acts(block).address(), record_words(k, block), Touched::Acts(block)),
            None => (self.slots.address(x), k, Touched::Slot(x)),
        }
    }

    /// The kernel that multiplies weights of a layout with up to `columns` columns.
    fn matmul(&self, layout: &Layout, columns: usize) -> Result<Kernel, DeviceError> {
        self.gpu.kernel(&layout.kernel(self.gpu.inner.physical.integer_dot), &[columns as u32])
    }

    /// The code book of a format on the device; 0 where it has none.
    fn grid(&self, format: Format) -> u64 {
        self.grids.get(&format).map_or(0, |b| b.address())
    }

    /// Records a linear step.
    fn linear(
        &self,
        to: &mut Recorder,
        projections: &[Projection],
        x: SlotId,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let k = self.slots.width(x);
        self.quantize(to, projections.iter().map(|p| &p.matrix.layout), x, k, rows)?;
        let columns = rows.min(COLUMNS);
        // More columns than a launch can have go in several.
        let most = self.gpu.inner.physical.max_groups[1] as usize * columns;
        for Projection { matrix, bias, out } in projections {
            let (x_at, record, reads) = self.input(&matrix.layout, x, k);
            let (y_at, y_stride) = (self.slots.address(*out), self.slots.width(*out));
            to.order(&[reads], &[Touched::Slot(*out)]);
            for part in &matrix.parts {
                for first in (0..rows).step_by(most) {
                    let cols = (rows - first).min(most);
                    let push = kernels::Matmul {
                        w: part.w,
                        rest: part.rest,
                        x: x_at + 4 * (first * record) as u64,
                        y: y_at + 4 * (first * y_stride) as u64,
                        bias: bias.as_ref().map_or(0, |b| b.address() + 4 * part.first_row as u64),
                        grid: self.grid(matrix.format),
                        rows: part.rows as u32,
                        cols: cols as u32,
                        blocks: matrix.layout.blocks() as u32,
                        record: record as u32,
                        y_stride: y_stride as u32,
                        y_first: part.first_row as u32,
                        flags: if bias.is_some() { kernels::matmul::BIAS } else { 0 },
                        ..kernels::Matmul::default()
                    };
                    let groups = [part.rows.div_ceil(8), cols.div_ceil(columns), 1];
                    to.dispatch(self.matmul(&matrix.layout, columns)?, &push, groups);
                }
            }
        }
        Ok(())
    }

    /// Records an expert step over inputs of `k` elements.
    fn experts(
        &self,
        to: &mut Recorder,
        stacks: &[ExpertStack],
        (x, k): (SlotId, usize),
        chosen: SlotId,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let n_used = self.slots.width(chosen);
        let row_a_choice = self.slots.width(x) != k;
        let input_rows = if row_a_choice { rows * n_used } else { rows };
        self.quantize(to, stacks.iter().map(|s| &s.stack.layout), x, k, input_rows)?;
        for ExpertStack { stack, bias, out } in stacks {
            let (x_at, record, reads) = self.input(&stack.layout, x, k);
            let push = kernels::Matmul {
                w: stack.part.w,
                rest: stack.part.rest,
                x: x_at,
                y: self.slots.address(*out),
                bias: bias.as_ref().map_or(0, |b| b.address()),
                chosen: self.slots.address(chosen),
                grid: self.grid(stack.format),
                rows: stack.part.rows as u32,
                cols: (rows * n_used) as u32,
                blocks: stack.layout.blocks() as u32,
                record: record as u32,
                y_stride: stack.part.rows as u32,
                y_first: 0,
                flags: kernels::matmul::EXPERTS
                    | if bias.is_some() { kernels::matmul::BIAS } else { 0 }
                    | if row_a_choice { kernels::matmul::ROW_A_CHOICE } else { 0 },
                n_used: n_used as u32,
                expert_w: stack.expert_w as u32,
                expert_rest: stack.expert_rest as u32,
                bias_stride: stack.part.rows as u32,
                pad: 0,
            };
            to.order(&[reads, Touched::Slot(chosen)], &[Touched::Slot(*out)]);
            let groups = [stack.part.rows.div_ceil(8), rows * n_used, 1];
            to.dispatch(self.matmul(&stack.layout, 1)?, &push, groups);
        }
        Ok(())
    }
}

/// Words of a quantised row, as `shaders/quantize.comp` writes it: bytes, scales, sums of sixteen.
pub(crate) fn record_words(k: usize, block: u32) -> usize {
    k / 4 + k / block as usize + k / 16
}
