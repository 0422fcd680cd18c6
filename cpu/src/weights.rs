//! Weights on the CPU: packed at load where the instruction set has a kernel for the format, else as the file has them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use llamay_formats::Format;
use llamay_plan::{ExecError, ExpertProjection, Op, Plan, Rows, WeightId, WeightSource};

use crate::kernels::Kernels;
use crate::memory::Arena;
use crate::pack::{PackedMatrix, pack_group};
use crate::pool::Pool;
use crate::stream::StreamedMatrix;

/// Bytes of a large matrix that are packed in one task. The file's pages go behind each, so that the pages of all tasks
/// under way are a trifle beside the weights; letting go of fewer at once costs more than it saves, since every core has
/// to hear of it.
const PACK_CHUNK: usize = 2 << 20;
/// The least that is worth a task of its own.
const LEAST_CHUNK: usize = 1 << 16;

/// Bytes of a matrix that are asked for before its step: some milliseconds' worth of a fast disk. Of a larger one the rest
/// is read as the system's own read-ahead sees fit, lest it push out what comes before it.
const PREFETCH_MOST: usize = 32 << 20;

/// What there was no memory for, and what helps.
const NO_ROOM: &str = "packing the weights (with --no-repack they are read from the file as they are used)";

/// A matrix, ready for its kernel.
pub(crate) enum Matrix {
    /// Groups of rows in planes.
    Packed(PackedMatrix),
    /// Rows as in the file, packed anew for each product.
    Streamed(StreamedMatrix),
    /// Rows as in the file.
    Raw(RawMatrix),
}

/// Rows as in the file, in the file's map where that is possible.
pub(crate) struct RawMatrix {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) k: usize,
    id: WeightId,
    /// Of the weight's bytes.
    range: Range<usize>,
    source: Arc<dyn WeightSource>,
    /// The bytes, where the source gives no lasting view of them (a file of the other byte order).
    owned: Option<Vec<u8>>,
}

/// Where some rows of a weight are in its bytes.
fn byte_range(plan: &Plan, part: Rows, rows: usize) -> Range<usize> {
    let weight = plan.weight_of(part.weight);
    let row = weight.format.row_bytes(weight.cols).unwrap_or(0);
    part.first_row * row..(part.first_row + rows) * row
}

fn weight_error(plan: &Plan, id: WeightId, why: String) -> ExecError {
    ExecError::Weight { name: plan.weight_of(id).name.clone(), why }
}

impl RawMatrix {
    /// A view of some of the weight's rows.
    pub(crate) fn new(
        plan: &Plan,
        part: Rows,
        rows: usize,
        source: &Arc<dyn WeightSource>,
    ) -> Result<RawMatrix, ExecError> {
        let id = part.weight;
        let weight = plan.weight_of(id);
        let range = byte_range(plan, part, rows);
        let owned = match source.bytes(id).map_err(|why| weight_error(plan, id, why))? {
            Cow::Borrowed(_) => None,
            Cow::Owned(bytes) => Some(bytes[range.clone()].to_vec()),
        };
        Ok(RawMatrix {
            format: weight.format,
            rows,
            k: weight.cols,
            id,
            range,
            source: Arc::clone(source),
            owned,
        })
    }

    /// All rows.
    pub(crate) fn bytes(&self) -> Result<Cow<'_, [u8]>, String> {
        let range = self.range.clone();
        match &self.owned {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => Ok(match self.source.bytes(self.id)? {
                Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[range]),
                Cow::Owned(bytes) => Cow::Owned(bytes[range].to_vec()),
            }),
        }
    }

    /// Asks for the rows, or as many as are worth asking for at once.
    fn prefetch(&self) {
        if self.owned.is_none() {
            let Range { start, end } = self.range;
            self.source.prefetch(self.id, start..end.min(start + PREFETCH_MOST));
        }
    }

    /// Decodes one row.
    pub(crate) fn decode_row(&self, row: usize, out: &mut [f32]) -> Result<(), String> {
        let size = self.format.row_bytes(self.k).unwrap_or(0);
        let bytes = self.bytes()?;
        let row = bytes.get(row * size..(row + 1) * size).ok_or_else(|| format!("it has no row {row}"))?;
        self.format.decode(row, out);
        Ok(())
    }
}

impl Matrix {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Matrix::Packed(m) => m.rows,
            Matrix::Streamed(m) => m.raw.rows,
            Matrix::Raw(m) => m.rows,
        }
    }

    pub(crate) fn format(&self) -> Format {
        match self {
            Matrix::Packed(m) => m.format,
            Matrix::Streamed(m) => m.raw.format,
            Matrix::Raw(m) => m.format,
        }
    }

    /// Rows that a task cannot split.
    pub(crate) fn unit_rows(&self) -> usize {
        match self {
            Matrix::Packed(m) => m.lanes,
            Matrix::Streamed(m) => m.lanes,
            Matrix::Raw(_) => 8,
        }
    }

    /// Asks for rows that are in the file.
    pub(crate) fn prefetch(&self) {
        match self {
            Matrix::Packed(_) => {}
            Matrix::Streamed(StreamedMatrix { raw, .. }) | Matrix::Raw(raw) => raw.prefetch(),
        }
    }
}

/// What loading needs beside the names of weights.
pub(crate) struct Loader<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) source: &'a Arc<dyn WeightSource>,
    pub(crate) kernels: &'a Kernels,
    pub(crate) pool: &'a Pool,
    /// Whether weights stay in the file.
    streams: bool,
    /// Room for all packed matrices.
    arena: Arena,
}

impl<'a> Loader<'a> {
    /// A loader with room for the plan's packed matrices, unless it `streams` them.
    pub(crate) fn new(
        plan: &'a Plan,
        source: &'a Arc<dyn WeightSource>,
        kernels: &'a Kernels,
        pool: &'a Pool,
        streams: bool,
    ) -> Result<Loader<'a>, ExecError> {
        let mut total = 0usize;
        for (part, rows) in plan.steps.iter().flat_map(|step| matrices(plan, &step.op)).filter(|_| !streams) {
            total += packed_bytes(plan, part, rows, kernels).unwrap_or(0);
        }
        let arena = Arena::new(total).ok_or(ExecError::OutOfMemory { what: NO_ROOM, bytes: total as u64 })?;
        Ok(Loader { plan, source, kernels, pool, streams, arena })
    }

    /// Some rows of a weight as a matrix, packed on all threads where the kernels read packed rows of its format.
    pub(crate) fn matrix(&mut self, part: Rows, rows: usize) -> Result<Matrix, ExecError> {
        let Some(size) = packed_bytes(self.plan, part, rows, self.kernels) else {
            return RawMatrix::new(self.plan, part, rows, self.source).map(Matrix::Raw);
        };
        let lanes = self.kernels.isa.group_rows();
        if self.streams {
            let raw = RawMatrix::new(self.plan, part, rows, self.source)?;
            return Ok(Matrix::Streamed(StreamedMatrix { raw, lanes }));
        }
        let id = part.weight;
        let weight = self.plan.weight_of(id);
        let data =
            self.arena.take(size).ok_or(ExecError::OutOfMemory { what: NO_ROOM, bytes: size as u64 })?;
        let mut packed = PackedMatrix::new(weight.format, rows, weight.cols, lanes, data);
        let bytes = self.source.bytes(id).map_err(|why| weight_error(self.plan, id, why))?;
        let range = byte_range(self.plan, part, rows);
        let bytes = &bytes[range.clone()];
        let group_rows_bytes = lanes * weight.format.row_bytes(weight.cols).unwrap_or(0);
        let share = bytes.len().div_ceil(4 * self.pool.threads());
        let chunk = share.clamp(LEAST_CHUNK, PACK_CHUNK);
        let groups_per_task = (chunk / group_rows_bytes.max(1)).max(1);
        let mut groups: Vec<&mut [u8]> = packed.groups_mut().collect();
        let tasks: Vec<Mutex<&mut [&mut [u8]]>> =
            groups.chunks_mut(groups_per_task).map(Mutex::new).collect();
        self.pool.run(tasks.len(), &|task, _| {
            let mut groups = tasks[task].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let first = task * groups_per_task * group_rows_bytes;
            for (i, group) in groups.iter_mut().enumerate() {
                let from = first + i * group_rows_bytes;
                let rows = &bytes[from..(from + group_rows_bytes).min(bytes.len())];
                pack_group(weight.format, weight.cols, lanes, rows, group);
            }
            if chunk == PACK_CHUNK {
                let end = (first + groups.len() * group_rows_bytes).min(bytes.len());
                self.source.release(id, range.start + first..range.start + end);
            }
        });
        drop(tasks);
        drop(groups);
        // All of a small matrix, and of a large one the pages that two tasks shared.
        self.source.release(id, range);
        Ok(Matrix::Packed(packed))
    }

    /// Some elements of a vector, decoded.
    pub(crate) fn elements(&self, part: Rows, len: usize) -> Result<Vec<f32>, ExecError> {
        Ok(self.vector(part.weight)?[part.first_row..][..len].to_vec())
    }

    /// A vector, or a small matrix, of any format, decoded; nothing where there is none.
    pub(crate) fn optional_vector(&self, id: Option<WeightId>) -> Result<Vec<f32>, ExecError> {
        id.map_or(Ok(Vec::new()), |id| self.vector(id))
    }

    /// A vector, or a small matrix, of any format, decoded.
    pub(crate) fn vector(&self, id: WeightId) -> Result<Vec<f32>, ExecError> {
        let weight = self.plan.weight_of(id);
        let bytes = self.source.bytes(id).map_err(|why| weight_error(self.plan, id, why))?;
        let mut out = vec![0.0; weight.rows * weight.cols];
        weight.format.decode(&bytes, &mut out);
        Ok(out)
    }
}

/// The parts of weights that a step multiplies with, and the rows of each.
fn matrices(plan: &Plan, op: &Op) -> Vec<(Rows, usize)> {
    let width = |slot| plan.slot_of(slot).width;
    match op {
        Op::Linear { projections, .. } => projections.iter().map(|p| (p.weight, width(p.out))).collect(),
        Op::ExpertLinear { chosen, projections, .. } => {
            let of_one = |p: &ExpertProjection| width(p.out) / width(*chosen);
            projections.iter().flat_map(|p| p.experts.iter().map(move |e| (*e, of_one(p)))).collect()
        }
        _ => vec![],
    }
}

/// Bytes of the packed form of some rows; `None` where their kernel reads rows as the file has them.
fn packed_bytes(plan: &Plan, part: Rows, rows: usize, kernels: &Kernels) -> Option<usize> {
    let weight = plan.weight_of(part.weight);
    kernels.matmul(weight.format)?;
    PackedMatrix::bytes(weight.format, rows, weight.cols, kernels.isa.group_rows())
}
