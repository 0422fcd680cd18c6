//! Products with rows that stay in the file: each thread packs some groups of them at a time into memory of its own and
//! multiplies from there, with the same kernels and to the same bits as from weights that were packed at load.
//!
//! Packing costs more than one column's product and little beside many columns'; docs/performance.md has both.

use std::cell::Cell;
use std::ops::Range;

use crate::acts::ActLayout;
use crate::kernels::{MatArgs, MatFn};
use crate::matmul::Output;
use crate::memory::AlignedBytes;
use crate::pack::{PackedMatrix, pack_group};
use crate::weights::RawMatrix;

/// Bytes of packed groups at a time for one column: half of a first-level cache, beside the file's rows and the column.
const FOR_ONE_COLUMN: usize = 16 << 10;
/// The same for many: with a panel of 128 columns of 2048 weights half of a second-level cache of 1 MiB. Each time, all
/// columns are read again.
const FOR_MANY_COLUMNS: usize = 256 << 10;

thread_local! {
    /// The thread's packed groups, taken out while they are in use.
    static SCRATCH: Cell<Option<AlignedBytes>> = const { Cell::new(None) };
}

/// Rows in the file, for a kernel that reads packed ones.
pub(crate) struct StreamedMatrix {
    pub(crate) raw: RawMatrix,
    /// Rows of a packed group.
    pub(crate) lanes: usize,
}

/// As [`crate::matmul::multiply`]; `rows` begins at a whole group.
///
/// # Errors
/// If the weights cannot be read, or there is no memory for a group of them.
///
/// # Safety
/// `kernel` is for the matrix's format and lanes, `x` holds `n` records of `layout`, and nobody else has these rows of the
/// output.
pub(crate) unsafe fn multiply(
    kernel: MatFn,
    matrix: &StreamedMatrix,
    rows: Range<usize>,
    layout: &ActLayout,
    x: &[u32],
    n: usize,
    out: Output,
) -> Result<(), String> {
    let StreamedMatrix { raw, lanes } = matrix;
    let row_bytes = raw.format.row_bytes(raw.k).ok_or("a row is no whole number of blocks")?;
    let group_bytes =
        PackedMatrix::bytes(raw.format, *lanes, raw.k, *lanes).ok_or("its rows are not packed")?;
    let n_groups = (if n == 1 { FOR_ONE_COLUMN } else { FOR_MANY_COLUMNS } / group_bytes).max(1);
    let bytes = raw.bytes()?;
    let mut scratch = scratch(n_groups.min(rows.len().div_ceil(*lanes)) * group_bytes)?;
    for first in rows.clone().step_by(n_groups * lanes) {
        let end = (first + n_groups * lanes).min(rows.end);
        let mut weights = PackedMatrix::new(raw.format, end - first, raw.k, *lanes, scratch);
        let groups = bytes[first * row_bytes..end * row_bytes].chunks(lanes * row_bytes);
        for (group, packed) in groups.zip(weights.groups_mut()) {
            pack_group(raw.format, raw.k, *lanes, group, packed);
        }
        let args = MatArgs {
            weights: &weights,
            groups: 0..weights.n_groups(),
            layout,
            x,
            n_cols: n,
            out: out.ptr.wrapping_add(first - out.first_row),
            first_row: 0,
            out_stride: out.stride,
        };
        // SAFETY: the groups are packed for the kernel; the rest is the caller's word.
        unsafe { kernel(&args) };
        scratch = weights.into_data();
    }
    SCRATCH.set(Some(scratch));
    Ok(())
}

/// The thread's memory for packed groups, at least `n` bytes of it.
fn scratch(n: usize) -> Result<AlignedBytes, String> {
    match SCRATCH.take() {
        Some(bytes) if bytes.len() >= n => Ok(bytes),
        _ => AlignedBytes::zeroed(n).ok_or_else(|| format!("out of memory: a group of rows needs {n} bytes")),
    }
}
