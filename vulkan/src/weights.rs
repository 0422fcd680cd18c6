//! Weights on the device: packed by rows in groups of eight, as `pack` lays them out.

use std::sync::Arc;

use llamay_formats::Format;
use llamay_plan::{ExecError, Plan, Rows, WeightId, WeightSource};

use crate::memory::Use;
use crate::pack::Layout;
use crate::{Buffer, DeviceError, Gpu};

/// Bytes that are packed on all threads before they go to the device.
const STAGE: usize = 16 << 20;

/// Some rows of a matrix, in a buffer of their own: planes of whole words and of what is left of each block.
pub(crate) struct Part {
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
    pub(crate) w: u64,
    pub(crate) rest: u64,
    _buffer: Buffer,
}

/// A matrix on the device.
pub(crate) struct Matrix {
    pub(crate) format: Format,
    pub(crate) layout: Layout,
    pub(crate) parts: Vec<Part>,
}

/// Versions of a matrix for each expert, one behind the other.
pub(crate) struct Stack {
    pub(crate) format: Format,
    pub(crate) layout: Layout,
    /// Words from one expert to the next, in both planes.
    pub(crate) expert_w: usize,
    pub(crate) expert_rest: usize,
    pub(crate) part: Part,
}

/// Reads a plan's weights and brings them to a device.
pub(crate) struct Loader<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) plan: &'a Plan,
    pub(crate) source: &'a Arc<dyn WeightSource>,
    threads: usize,
    stage: Vec<u32>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(gpu: &'a Gpu, plan: &'a Plan, source: &'a Arc<dyn WeightSource>) -> Loader<'a> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Loader { gpu, plan, source, threads, stage: Vec::new() }
    }

    fn weight_error(&self, id: WeightId, why: String) -> ExecError {
        ExecError::Weight { name: self.plan.weight_of(id).name.clone(), why }
    }

    fn exec(&self, e: DeviceError) -> ExecError {
        e.exec(self.gpu.name())
    }

    /// A weight's values as floats, on the device; `None` for none.
    pub(crate) fn vector(&self, id: Option<WeightId>) -> Result<Option<Buffer>, ExecError> {
        let Some(id) = id else { return Ok(None) };
        let values = self.values(id, None)?;
        Ok(Some(self.gpu.upload(&values).map_err(|e| self.exec(e))?))
    }

    /// A weight's values, or those of the elements `first..first + n`.
    pub(crate) fn values(&self, id: WeightId, part: Option<(usize, usize)>) -> Result<Vec<f32>, ExecError> {
        let weight = self.plan.weight_of(id);
        let bytes = self.source.bytes(id).map_err(|why| self.weight_error(id, why))?;
        let mut values = vec![0.0; weight.rows * weight.cols];
        weight.format.decode(&bytes, &mut values);
        Ok(match part {
            Some((first, n)) => values[first..first + n].to_vec(),
            None => values,
        })
    }

    /// Some rows of a weight as a matrix, in as many buffers as the device's limits ask for.
    pub(crate) fn matrix(&mut self, part: Rows, rows: usize) -> Result<Matrix, ExecError> {
        let weight = self.plan.weight_of(part.weight);
        let layout = Layout::new(weight.format, weight.cols);
        let physical = &self.gpu.inner.physical;
        let group_bytes = 4 * (layout.group_words() + layout.group_rest()) as u64;
        let fits = (physical.max_allocation.min(MAX_BUFFER) - 256) / group_bytes.max(1);
        let groups = fits.min(u64::from(physical.max_groups[0])).max(1) as usize;
        let mut parts = Vec::new();
        for first in (0..rows).step_by(8 * groups) {
            let n = (rows - first).min(8 * groups);
            parts.push(self.part(
                &layout,
                &[Rows { first_row: part.first_row + first, ..part }],
                n,
                first,
            )?);
        }
        Ok(Matrix { format: weight.format, layout, parts })
    }

    /// The rows of each expert, all in one buffer.
    pub(crate) fn stack(&mut self, experts: &[Rows], rows: usize) -> Result<Stack, ExecError> {
        let weight = self.plan.weight_of(experts[0].weight);
        let layout = Layout::new(weight.format, weight.cols);
        let part = self.part(&layout, experts, rows, 0)?;
        let groups = rows.div_ceil(8);
        Ok(Stack {
            format: weight.format,
            expert_w: groups * layout.group_words(),
            expert_rest: groups * layout.group_rest(),
            layout,
            part,
        })
    }

    /// One buffer with the rows of several matrices of the same shape.
    fn part(
        &mut self,
        layout: &Layout,
        matrices: &[Rows],
        rows: usize,
        first_row: usize,
    ) -> Result<Part, ExecError> {
        let groups = rows.div_ceil(8) * matrices.len();
        let words = (4 * groups * layout.group_words()) as u64;
        let rest = (4 * groups * layout.group_rest()) as u64;
        let rest_at = words.next_multiple_of(256);
        let made = self.gpu.buffer("weights", rest_at + rest, Use::Device);
        let mut buffer = made.map_err(|e| self.exec(e))?;
        let (mut words_at, mut rest_to) = (0, rest_at);
        for rows_of in matrices {
            self.pack(layout, *rows_of, rows, &mut buffer, &mut words_at, &mut rest_to)?;
        }
        let (w, rest) = (buffer.address(), buffer.address() + rest_at);
        Ok(Part { first_row, rows, w, rest, _buffer: buffer })
    }

    /// Packs one matrix's rows and brings them to their places in the planes.
    fn pack(
        &mut self,
        layout: &Layout,
        part: Rows,
        rows: usize,
        buffer: &mut Buffer,
        words_at: &mut u64,
        rest_at: &mut u64,
    ) -> Result<(), ExecError> {
        let id = part.weight;
        let weight = self.plan.weight_of(id);
        let row_bytes = weight.format.row_bytes(weight.cols).unwrap_or(0);
        let bytes = self.source.bytes(id).map_err(|why| self.weight_error(id, why))?;
        let range = part.first_row * row_bytes..(part.first_row + rows) * row_bytes;
        let bytes = bytes.get(range.clone()).ok_or_else(|| {
            self.weight_error(id, format!("it has no rows up to {}", part.first_row + rows))
        })?;
        let (group_words, group_rest) = (layout.group_words(), layout.group_rest());
        let group_bytes = 8 * row_bytes;
        let per_stage = (STAGE / (4 * (group_words + group_rest)).max(1)).max(1);
        let mut stage = std::mem::take(&mut self.stage);
        let mut done = Ok(());
        for (i, chunk) in bytes.chunks(per_stage * group_bytes).enumerate() {
            let groups = chunk.len().div_ceil(group_bytes);
            stage.clear();
            stage.resize(groups * (group_words + group_rest), 0);
            let (words, rest) = stage.split_at_mut(groups * group_words);
            pack_groups(layout, chunk, group_bytes, words, rest, self.threads);
            let bytes_of = |plane: &[u32]| -> u64 { 4 * plane.len() as u64 };
            done = write_words(buffer, *words_at, words).and_then(|()| write_words(buffer, *rest_at, rest));
            *words_at += bytes_of(words);
            *rest_at += bytes_of(rest);
            let at = range.start + i * per_stage * group_bytes;
            self.source.release(id, at..at + chunk.len());
            if done.is_err() {
                break;
            }
        }
        self.stage = stage;
        done.map_err(|e| self.exec(e))
    }
}

/// Bytes of a buffer of weights, at the most: kernels number its words with 31 bits.
const MAX_BUFFER: u64 = 4 << 30;

fn write_words(buffer: &mut Buffer, at: u64, words: &[u32]) -> Result<(), DeviceError> {
    // The device reads little-endian words, as the host has them wherever a GPU is found.
    buffer.write(at, bytemuck::cast_slice(words))
}

/// Packs groups of eight rows on some threads.
fn pack_groups(
    layout: &Layout,
    bytes: &[u8],
    group_bytes: usize,
    words: &mut [u32],
    rest: &mut [u32],
    threads: usize,
) {
    let (group_words, group_rest) = (layout.group_words(), layout.group_rest());
    let groups = bytes.len().div_ceil(group_bytes);
    let each = groups.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let mut rest = rest;
        for (bytes, words) in bytes.chunks(each * group_bytes).zip(words.chunks_mut(each * group_words)) {
            let (mut mine, others) = rest.split_at_mut((each * group_rest).min(rest.len()));
            rest = others;
            scope.spawn(move || {
                for (rows, words) in bytes.chunks(group_bytes).zip(words.chunks_mut(group_words)) {
                    let (rest, others) = mine.split_at_mut(group_rest);
                    mine = others;
                    layout.pack_group(rows, words, rest);
                }
            });
        }
    });
}
