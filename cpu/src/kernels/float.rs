//! The matrix product over rows of F32, F16 or BF16, as the file has them: lanes are elements `i mod 8` of a row.

use llamay_formats::{Format, tree8};

use super::FloatArgs;
use super::simd::Simd;

/// Rows of a tile: with 3 columns 12 accumulators, enough to hide a fused multiply-add's latency of 4 at 2 a cycle.
const ROWS: usize = 4;

/// All columns of `args`, `COLS` at a time.
///
/// # Safety
/// As for [`super::FloatFn`]; `S` has 8 lanes.
#[inline(always)]
pub(crate) unsafe fn matmul<S: Simd, const COLS: usize>(s: S, args: &FloatArgs<'_>) {
    const { assert!(S::LANES == 8, "the contract's partial sums are eight") };
    // SAFETY: rows and columns lie within `args`.
    unsafe {
        let mut row = args.rows.start;
        while row < args.rows.end {
            let rows = (args.rows.end - row).min(ROWS);
            let mut col = 0;
            while col < args.n_cols {
                let cols = if args.n_cols - col >= COLS { COLS } else { 1 };
                match (rows == ROWS, cols == COLS) {
                    (true, true) => tile::<S, ROWS, COLS>(s, args, row, col),
                    (true, false) => tile::<S, ROWS, 1>(s, args, row, col),
                    (false, _) => {
                        for r in row..row + rows {
                            for c in col..col + cols {
                                tile::<S, 1, 1>(s, args, r, c);
                            }
                        }
                    }
                }
                col += cols;
            }
            row += rows;
        }
    }
}

/// `R` rows times `C` columns.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const C: usize>(s: S, args: &FloatArgs<'_>, row: usize, col: usize) {
    let size = args.format.block_bytes();
    let row_bytes = args.k * size;
    let whole = args.k & !7;
    // SAFETY: `weights` holds the rows, `x` the columns, and `out` is writable at them.
    unsafe {
        let w: [*const u8; R] = std::array::from_fn(|r| args.weights.as_ptr().add((row + r) * row_bytes));
        let x: [*const f32; C] = std::array::from_fn(|c| args.x.as_ptr().add((col + c) * args.k).cast());
        let mut acc = [[s.f_splat(0.0); C]; R];
        let mut i = 0;
        while i < whole {
            let xs: [S::F; C] = std::array::from_fn(|c| s.f_load(x[c].add(i)));
            for r in 0..R {
                let at = w[r].add(i * size);
                let w = match args.format {
                    Format::F16 => s.f_load_f16(at.cast()),
                    Format::BF16 => s.f_load_bf16(at.cast()),
                    _ => s.f_load(at.cast()),
                };
                for c in 0..C {
                    acc[r][c] = s.f_fma(w, xs[c], acc[r][c]);
                }
            }
            i += 8;
        }
        for r in 0..R {
            for c in 0..C {
                let mut partial = [0.0f32; 8];
                s.f_store(partial.as_mut_ptr(), acc[r][c]);
                for i in whole..args.k {
                    let mut w1 = [0.0f32];
                    args.format.decode(std::slice::from_raw_parts(w[r].add(i * size), size), &mut w1);
                    partial[i - whole] = w1[0].mul_add(*x[c].add(i), partial[i - whole]);
                }
                *args.out.add((col + c) * args.out_stride + row + r - args.first_row) = tree8(partial);
            }
        }
    }
}
