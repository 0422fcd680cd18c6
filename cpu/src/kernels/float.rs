//! The matrix product over rows of F32, F16 or BF16: lanes are elements `i mod 8` of a row, as the contract has it.
//!
//! One to three columns read the rows as they lie in the file. More read a copy: bands of rows in order of use and widened
//! to floats, made once a block for all columns, so that the inner loop is fused multiply-adds and loads alone.

use std::cell::Cell;
use std::ops::Range;

use llamay_formats::{Format, tree8};

use super::simd::Simd;
use super::{FloatArgs, opaque};

/// Rows of a tile of few columns: with 3 of them 12 accumulators, enough to hide a fused multiply-add's latency of 4 at 2 a
/// cycle.
const ROWS: usize = 4;
/// Columns from which a copy of the rows pays.
const MANY_COLUMNS: usize = 4;
/// Bytes of a row that decoding asks for ahead.
const AHEAD: usize = 2048;

/// Vectors of a band: rows that a tile computes at once, one a vector of 8 lanes and two a vector of 16.
const VECTORS: usize = 4;
/// Elements of a row at a time: a band of 8 rows (16 KiB) and 6 columns (12 KiB) stay in a first-level cache of 32 KiB.
const DEPTH: usize = 512;
/// Rows of a block: its copy is 64 KiB, and columns from a further cache come by once for all of them.
const BLOCK_ROWS: usize = 32;
/// Columns of a block, a whole number of tiles: the partial sums of 32 rows are 258 KiB, beside the copy a third of a
/// second-level cache of 1 MiB.
const BLOCK_COLS: usize = 258;

/// A cache line of floats.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

thread_local! {
    /// The thread's copy of rows and partial sums, taken out while they are in use.
    static SCRATCH: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// All columns of `args`; tiles of many columns have `COLS`, at most 6. `narrow` has 8 lanes, `s` 8 or 16.
///
/// # Safety
/// As for [`super::FloatFn`].
#[inline(always)]
pub(crate) unsafe fn matmul<N: Simd, S: Simd, const COLS: usize>(narrow: N, s: S, args: &FloatArgs<'_>) {
    const { assert!(N::LANES == 8 && S::LANES.is_multiple_of(8), "the contract's partial sums are eight") };
    const { assert!(COLS <= 6, "tiles are written out up to six columns") };
    // SAFETY: passed on to the caller.
    unsafe {
        match args.n_cols {
            0 => {}
            1 => few_columns::<N, 1>(narrow, args),
            2 => few_columns::<N, 2>(narrow, args),
            3 => few_columns::<N, 3>(narrow, args),
            MANY_COLUMNS.. => many_columns::<N, S, COLS>(narrow, s, args),
        }
    }
}

/// Eight elements of a row in the file as floats.
///
/// # Safety
/// They are readable at `p`; the format is F32, F16 or BF16.
#[inline(always)]
unsafe fn widened<N: Simd>(s: N, format: Format, p: *const u8) -> N::F {
    // SAFETY: passed on to the caller.
    unsafe {
        match format {
            Format::F16 => s.f_load_f16(p.cast()),
            Format::BF16 => s.f_load_bf16(p.cast()),
            _ => s.f_load(p.cast()),
        }
    }
}

/// Adds the products of the elements behind the last whole eight to a row's partial sums.
#[inline(always)]
fn add_tail(args: &FloatArgs<'_>, row: usize, col: usize, partial: &mut [f32; 8]) {
    let size = args.format.block_bytes();
    let whole = args.k & !7;
    for i in whole..args.k {
        let at = (row * args.k + i) * size;
        let mut w = [0.0f32];
        args.format.decode(&args.weights[at..at + size], &mut w);
        let x = f32::from_bits(args.x[col * args.k + i]);
        partial[i - whole] = w[0].mul_add(x, partial[i - whole]);
    }
}

/// # Safety
/// As for [`matmul`], with `C` columns.
#[inline(always)]
unsafe fn few_columns<N: Simd, const C: usize>(s: N, args: &FloatArgs<'_>) {
    let mut row = args.rows.start;
    // SAFETY: rows and columns lie within `args`.
    unsafe {
        while row + ROWS <= args.rows.end {
            tile::<N, ROWS, C>(s, args, row);
            row += ROWS;
        }
        while row < args.rows.end {
            tile::<N, 1, C>(s, args, row);
            row += 1;
        }
    }
}

/// `R` rows times `C` columns, from the file's rows.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // an iterator's closure that is not inlined has none of the features
unsafe fn tile<N: Simd, const R: usize, const C: usize>(s: N, args: &FloatArgs<'_>, row: usize) {
    let size = args.format.block_bytes();
    let row_bytes = args.k * size;
    // SAFETY: `weights` holds the rows, `x` the columns, and `out` is writable at them.
    unsafe {
        let w = args.weights.as_ptr().add(row * row_bytes);
        let x: *const f32 = args.x.as_ptr().cast();
        let mut acc = [[s.f_splat(0.0); C]; R];
        for i in (0..args.k & !7).step_by(8) {
            let mut xs = [s.f_splat(0.0); C];
            for c in 0..C {
                xs[c] = s.f_load(x.add(c * args.k + i));
            }
            // The same rows further on, or, where they end, the start of those that come next.
            let mut ahead = i * size + AHEAD;
            if ahead >= row_bytes {
                ahead += (R - 1) * row_bytes;
            }
            for r in 0..R {
                let w = w.add(r * row_bytes);
                s.prefetch(w.wrapping_add(ahead));
                let w = widened(s, args.format, w.add(i * size));
                for c in 0..C {
                    acc[r][c] = s.f_fma(w, xs[c], acc[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                let mut partial = [0.0f32; 8];
                s.f_store(partial.as_mut_ptr(), acc[r][c]);
                add_tail(args, row + r, c, &mut partial);
                *args.out.add(c * args.out_stride + row + r - args.first_row) = tree8(partial);
            }
        }
    }
}

/// # Safety
/// As for [`matmul`].
#[inline(always)]
unsafe fn many_columns<N: Simd, S: Simd, const COLS: usize>(narrow: N, s: S, args: &FloatArgs<'_>) {
    let mut scratch = SCRATCH.take();
    let floats = BLOCK_ROWS * (DEPTH + 8 * args.n_cols.min(BLOCK_COLS));
    scratch.resize(scratch.len().max(floats / 16), Line([0.0; 16]));
    let copy: *mut f32 = scratch.as_mut_ptr().cast();
    for row in args.rows.clone().step_by(BLOCK_ROWS) {
        for col in (0..args.n_cols).step_by(BLOCK_COLS) {
            let rows = row..args.rows.end.min(row + BLOCK_ROWS);
            let cols = col..args.n_cols.min(col + BLOCK_COLS);
            // SAFETY: rows and columns lie within `args`, and the scratch is as large as copy and sums of a block.
            unsafe {
                let sums = copy.add(BLOCK_ROWS * DEPTH);
                block::<N, S, COLS>(narrow, s, args, rows, cols, copy, sums);
            }
        }
    }
    SCRATCH.set(scratch);
}

/// A block of rows times a block of columns.
///
/// # Safety
/// They lie within `args`; [`DEPTH`] floats of each row, in whole bands, are writable at `copy`, and 8 of each row for each
/// column at `sums`.
#[inline(always)]
unsafe fn block<N: Simd, S: Simd, const COLS: usize>(
    narrow: N,
    s: S,
    args: &FloatArgs<'_>,
    rows: Range<usize>,
    cols: Range<usize>,
    copy: *mut f32,
    sums: *mut f32,
) {
    let n_band = VECTORS * S::LANES / 8;
    let bands = || rows.clone().step_by(n_band).map(|first| first..rows.end.min(first + n_band)).enumerate();
    let whole = args.k & !7;
    // Once even for rows without a whole eight.
    for from in (0..whole.max(1)).step_by(DEPTH) {
        let depth = from..whole.min(from + DEPTH);
        let band_floats = n_band * depth.len();
        for (i, band) in bands() {
            // SAFETY: the caller vouches for the rows and for room for whole bands.
            unsafe { copy_band::<N, S>(narrow, args, band, depth.clone(), copy.add(i * band_floats)) };
        }
        for col in cols.clone().step_by(COLS) {
            let n = (cols.end - col).min(COLS);
            for (i, band) in bands() {
                // SAFETY: the copy holds the band, `args` the columns, and the sums have room for both.
                unsafe {
                    let x = args.x.as_ptr().cast::<f32>().add(col * args.k + from);
                    let tile = Tile {
                        w: copy.add(i * band_floats),
                        x,
                        k: args.k,
                        steps: depth.len() / 8,
                        sums: sums.add((i * cols.len() + col - cols.start) * VECTORS * S::LANES),
                        first: from == 0,
                        // Two columns a band; one for which none are left asks for what is there.
                        ask: if 2 * i < COLS { x.wrapping_add((n + 2 * i) * args.k) } else { x },
                    };
                    match n {
                        6 => multiply::<S, 6>(s, &tile),
                        5 => multiply::<S, 5>(s, &tile),
                        4 => multiply::<S, 4>(s, &tile),
                        3 => multiply::<S, 3>(s, &tile),
                        2 => multiply::<S, 2>(s, &tile),
                        _ => multiply::<S, 1>(s, &tile),
                    }
                    // At once, so that results go to memory while the next tile is computed.
                    if depth.end == whole {
                        for c in 0..n {
                            finish::<S>(
                                s,
                                args,
                                band.clone(),
                                col + c,
                                tile.sums.add(c * VECTORS * S::LANES),
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Copies elements `from..from + depth` of some rows, widened, in the order in which [`multiply`] takes them: by eight
/// elements; of those the vectors of the band; of a vector of 16 lanes row `r`, then row `r + VECTORS`. Rows that the band
/// lacks are zeros.
///
/// # Safety
/// The rows lie within `args`, and a band of so many elements, a multiple of 8, is writable at `to`.
#[inline(always)]
unsafe fn copy_band<N: Simd, S: Simd>(
    s: N,
    args: &FloatArgs<'_>,
    rows: Range<usize>,
    depth: Range<usize>,
    to: *mut f32,
) {
    let size = args.format.block_bytes();
    let n_band = VECTORS * S::LANES / 8;
    for r in 0..n_band {
        let w = args.weights.as_ptr().wrapping_add(((rows.start + r) * args.k + depth.start) * size);
        for i in 0..depth.len() / 8 {
            // SAFETY: the caller vouches for both sides.
            unsafe {
                let eight = if r < rows.len() {
                    widened(s, args.format, w.add(8 * i * size))
                } else {
                    s.f_splat(0.0)
                };
                s.f_store(to.add(i * 8 * n_band + (r % VECTORS) * S::LANES + r / VECTORS * 8), eight);
            }
        }
    }
}

/// What a register tile, a band times some columns, reads and writes.
struct Tile {
    /// The band's copy, as [`copy_band`] has it.
    w: *const f32,
    /// The first column; the next are `k` floats further each.
    x: *const f32,
    k: usize,
    /// Elements of a row by eight.
    steps: usize,
    /// `VECTORS` vectors of partial sums for each column.
    sums: *mut f32,
    /// Whether the sums begin here, rather than go on.
    first: bool,
    /// Two columns of the next tile, to be asked for.
    ask: *const f32,
}

/// A band times `C` columns.
///
/// # Safety
/// What the tile says is readable and writable; what it asks for may be anywhere.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // an iterator's closure that is not inlined has none of the features
unsafe fn multiply<S: Simd, const C: usize>(s: S, tile: &Tile) {
    let Tile { mut w, x, k, steps, sums, first, ask } = *tile;
    // SAFETY: the caller vouches for the tile.
    unsafe {
        let mut acc = [[s.f_splat(0.0); VECTORS]; C];
        if !first {
            for c in 0..C {
                for r in 0..VECTORS {
                    acc[c][r] = s.f_load(sums.add((c * VECTORS + r) * S::LANES));
                }
            }
        }
        let mut columns = [x; C];
        for c in 0..C {
            columns[c] = opaque(x.add(c * k).cast()).cast();
        }
        let ask = [opaque(ask.cast()), opaque(ask.wrapping_add(k).cast())];
        let mut i = 0;
        while i < steps {
            // Two steps are a cache line of a column.
            s.prefetch(ask[0].wrapping_add(32 * i));
            s.prefetch(ask[1].wrapping_add(32 * i));
            add_eight(s, w, &columns, i, &mut acc);
            if i + 1 < steps {
                add_eight(s, w.add(VECTORS * S::LANES), &columns, i + 1, &mut acc);
            }
            w = w.wrapping_add(2 * VECTORS * S::LANES);
            i += 2;
        }
        for c in 0..C {
            for r in 0..VECTORS {
                s.f_store(sums.add((c * VECTORS + r) * S::LANES), acc[c][r]);
            }
        }
    }
}

/// The products of elements `8 * i..8 * i + 8`.
///
/// # Safety
/// They are readable at `columns`, and those of the band at `w`.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
unsafe fn add_eight<S: Simd, const C: usize>(
    s: S,
    w: *const f32,
    columns: &[*const f32; C],
    i: usize,
    acc: &mut [[S::F; VECTORS]; C],
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut xs = [s.f_splat(0.0); C];
        for c in 0..C {
            xs[c] = s.f_load_eight(columns[c].add(8 * i));
        }
        for r in 0..VECTORS {
            let row = s.f_load(w.add(r * S::LANES));
            for c in 0..C {
                acc[c][r] = s.f_fma(row, xs[c], acc[c][r]);
            }
        }
    }
}

/// The results of a band's `rows` for column `col`, from their partial sums.
///
/// # Safety
/// The rows, of which a band has room, and the column lie within `args`; `sums` holds the band's vectors.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // an iterator's closure that is not inlined has none of the features
unsafe fn finish<S: Simd>(s: S, args: &FloatArgs<'_>, rows: Range<usize>, col: usize, sums: *mut f32) {
    // SAFETY: the caller vouches for the sums, the rows and the column.
    unsafe {
        if !args.k.is_multiple_of(8) {
            for r in 0..rows.len() {
                let partial = sums.add((r % VECTORS) * S::LANES + r / VECTORS * 8);
                add_tail(args, rows.start + r, col, &mut *partial.cast());
            }
        }
        let mut v = [s.f_splat(0.0); VECTORS];
        for r in 0..VECTORS {
            v[r] = s.f_load(sums.add(r * S::LANES));
        }
        let out = args.out.add(col * args.out_stride + rows.start - args.first_row);
        if rows.len() == VECTORS * S::LANES / 8 {
            s.store_trees(v, out);
        } else {
            let mut results = [0.0f32; 8];
            s.store_trees(v, results.as_mut_ptr());
            out.copy_from_nonoverlapping(results.as_ptr(), rows.len());
        }
    }
}
