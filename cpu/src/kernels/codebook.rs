//! The matrix product over the code-book formats, IQ1_S to IQ3_S.
//!
//! A stretch of a group's blocks is expanded to bytes and 16-bit factors, as `superblock.rs` reads them, and then meets
//! all columns of a panel, so that a book is looked into once for all of them. `pack/codebook.rs` draws the packed block.

use std::mem::MaybeUninit;

use llamay_formats::{SPANS, grids, span_len};

use super::simd::Simd;
use super::superblock::{SuperKind, advance};
use super::unpack::BITS_8;
use super::{MatArgs, PANEL, prefetch_ahead, tree_f};

/// What sets one of these formats apart, beside what [`SuperKind`] says of its expanded blocks.
pub(crate) trait CodeBook: SuperKind {
    /// Eight weights an entry, in nibbles: weight `i` in the low nibble of byte `i`, weight `4 + i` in the high one. Or
    /// four weights an entry, in the low nibbles.
    const BOOK: &'static [u32];
    /// Entries that eight weights take: 1 or 2.
    const ENTRIES: usize;
    /// Bits of an entry's number beyond eight: 0, 1, 2 or 4.
    const UPPER_BITS: u32;
    /// Whether each weight has a sign, which goes to bit 3 of its nibble.
    const SIGNS: bool;
    /// The weights that nibbles stand for, with the offset.
    const WEIGHTS: [u8; 16];
    /// Words of the packed block that hold the factors: two for runs of 16, one for runs of 32.
    const FACTOR_WORDS: usize = 32 / Self::RUN;
}

/// Blocks of a stretch: on 512 bits, where a block expands to 4.5 KiB, 18 KiB of L1; half as much on 256.
const STRETCH: usize = 4;
/// The most bytes of an expanded block: 8 vectors of factors and 64 of weights, at 512 bits.
const EXPANDED_BYTES: usize = (8 + 64) * 64;

/// Expanded blocks, one behind another.
#[repr(align(64))]
struct Expanded(MaybeUninit<[u8; STRETCH * EXPANDED_BYTES]>);

/// All columns of `args`, `COLS` at a time.
///
/// # Safety
/// As for [`super::MatFn`].
#[inline(always)]
pub(crate) unsafe fn matmul<S: Simd, K: CodeBook, const COLS: usize>(s: S, args: &MatArgs<'_>) {
    let n_blocks = args.layout.n_blocks;
    let span = span_len(n_blocks);
    let mut expanded = Expanded(MaybeUninit::uninit());
    let expanded: *mut u8 = expanded.0.as_mut_ptr().cast();
    // Each column's spans.
    let mut sums = [MaybeUninit::<[S::F; SPANS]>::uninit(); PANEL];
    for panel in (0..args.n_cols).step_by(PANEL) {
        let n_cols = (args.n_cols - panel).min(PANEL);
        for group in args.groups.clone() {
            for sums in &mut sums[..n_cols] {
                sums.write([s.f_splat(0.0); SPANS]);
            }
            let sums: *mut [S::F; SPANS] = sums.as_mut_ptr().cast();
            for i in 0..SPANS {
                let end = ((i + 1) * span).min(n_blocks);
                let mut first = i * span;
                while first < end {
                    let stretch = Stretch { group, panel, first, n: (end - first).min(STRETCH), span: i };
                    // SAFETY: the stretch lies within `args`, and `expanded` and `sums` have room for it; the rest is
                    // passed on to the caller.
                    unsafe {
                        expand_stretch::<S, K>(s, args, &stretch, expanded);
                        let mut col = 0;
                        while col + COLS <= n_cols {
                            stretch_product::<S, K, COLS>(s, args, &stretch, expanded, col, sums);
                            col += COLS;
                        }
                        while col < n_cols {
                            stretch_product::<S, K, 1>(s, args, &stretch, expanded, col, sums);
                            col += 1;
                        }
                    }
                    first += stretch.n;
                }
            }
            for col in 0..n_cols {
                // SAFETY: the column's sums were written above; the rest is passed on to the caller.
                unsafe { args.store(s, group, panel + col, tree_f(s, *sums.add(col))) };
            }
        }
    }
}

/// Some blocks of a group that belong to one span, beside a panel of columns.
struct Stretch {
    group: usize,
    /// The panel's first column.
    panel: usize,
    /// The first block.
    first: usize,
    n: usize,
    span: usize,
}

/// Bytes of an expanded block.
const fn expanded_bytes<S: Simd, K: SuperKind>() -> usize {
    (K::PAIRS + 64) * 4 * S::LANES
}

/// # Safety
/// The stretch lies within the weights, and `to` has room for [`STRETCH`] blocks.
#[inline(always)]
unsafe fn expand_stretch<S: Simd, K: CodeBook>(s: S, args: &MatArgs<'_>, stretch: &Stretch, to: *mut u8) {
    let block_bytes = args.weights.block_bytes;
    // SAFETY: passed on to the caller.
    unsafe {
        let quants = args.weights.group(stretch.group).add(args.weights.quants_at);
        for i in 0..stretch.n {
            let block = quants.add((stretch.first + i) * block_bytes);
            if args.n_cols == 1 {
                prefetch_ahead(s, block, block_bytes);
            }
            expand::<S, K>(s, block, to.add(i * const { expanded_bytes::<S, K>() }));
        }
    }
}

/// Adds a stretch to the span's sums of `C` columns from `col` of the panel.
///
/// # Safety
/// The stretch and the columns lie within `args`, and `expanded` holds the stretch's blocks.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn stretch_product<S: Simd, K: CodeBook, const C: usize>(
    s: S,
    args: &MatArgs<'_>,
    stretch: &Stretch,
    expanded: *const u8,
    col: usize,
    sums: *mut [S::F; SPANS],
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let scales = args.weights.group(stretch.group).cast::<u16>();
        let mut x = [std::ptr::null(); C];
        let mut acc = [s.f_splat(0.0); C];
        for c in 0..C {
            x[c] = args.record(stretch.panel + col + c);
            acc[c] = (*sums.add(col + c))[stretch.span];
        }
        for i in 0..stretch.n {
            let b = stretch.first + i;
            let block = expanded.add(i * const { expanded_bytes::<S, K>() });
            advance::<S, K, C>(s, scales.add(b * S::LANES), block, &x, b, &mut acc);
        }
        for c in 0..C {
            (*sums.add(col + c))[stretch.span] = acc[c];
        }
    }
}

/// Expands a packed block: vectors of factor pairs, then for each 32 weights eight vectors of bytes. Plain loops, since
/// an iterator's closure that is not inlined would lose the target features.
///
/// # Safety
/// The packed block is whole, and `to` has room for its factors and weights.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn expand<S: Simd, K: CodeBook>(s: S, block: *const u8, to: *mut u8) {
    const { assert!(K::BOOK.len() == 256 << K::UPPER_BITS, "every number is an entry's") };
    let vector = 4 * S::LANES;
    // SAFETY: the block's words are read once each, in their order; every number is below the book's length.
    unsafe {
        let weights = to.add(K::PAIRS * vector);
        let mut factors = [s.i_load(block), s.i_load(block.add((K::FACTOR_WORDS - 1) * vector))];
        let upper_words = block.add(K::FACTOR_WORDS * vector);
        let mut next = upper_words.add(K::ENTRIES * K::UPPER_BITS as usize * vector);
        let mut upper = s.i_splat(0);
        for half in 0..4 {
            for i in 0..K::FACTOR_WORDS {
                // 2 * f + 1 in each 16 bits.
                let pair = s.i_shl::<1>(s.i_and(factors[i], s.i_splat(0x000f_000f)));
                let pair = s.i_or(pair, s.i_splat(0x0001_0001));
                s.i_store(to.add((half * K::FACTOR_WORDS + i) * vector), pair);
                factors[i] = s.i_shr::<4>(factors[i]);
            }
            for odd in 0..2 {
                let sub = 2 * half + odd;
                let mut codes = [s.i_splat(0); 4];
                for entry in 0..K::ENTRIES {
                    let bit = (K::ENTRIES * sub + entry) * K::UPPER_BITS as usize;
                    upper = match K::UPPER_BITS {
                        0 => upper,
                        _ if bit.is_multiple_of(8) => s.i_load(upper_words.add(bit / 8 * vector)),
                        1 => s.i_shr::<1>(upper),
                        2 => s.i_shr::<2>(upper),
                        _ => s.i_shr::<4>(upper),
                    };
                    let numbers = entry_numbers(s, s.i_load(next), upper, K::UPPER_BITS);
                    next = next.add(vector);
                    for g in 0..4 {
                        let found = s.gather(K::BOOK, numbers[g]);
                        codes[g] = if entry == 0 { found } else { s.i_or(codes[g], s.i_shl::<4>(found)) };
                    }
                }
                if K::SIGNS {
                    let signs = s.i_load(next);
                    next = next.add(vector);
                    let top = s.i_splat(0x8888_8888_u32 as i32);
                    codes[0] = s.i_or(codes[0], s.i_and(s.i_shl::<3>(signs), top));
                    codes[1] = s.i_or(codes[1], s.i_and(s.i_shl::<2>(signs), top));
                    codes[2] = s.i_or(codes[2], s.i_and(s.i_shl::<1>(signs), top));
                    codes[3] = s.i_or(codes[3], s.i_and(signs, top));
                }
                let nibble = s.i_splat(0x0f0f_0f0f);
                for g in 0..4 {
                    let to = weights.add((8 * sub + 2 * g) * vector);
                    let (low, high) = (s.i_and(codes[g], nibble), s.i_and(s.i_shr::<4>(codes[g]), nibble));
                    s.i_store(to, s.lookup(&K::WEIGHTS, low));
                    s.i_store(to.add(vector), s.lookup(&K::WEIGHTS, high));
                }
            }
        }
    }
}

/// Four numbers from their lower bytes and from the lowest bits of the bytes of `upper`.
#[inline(always)]
fn entry_numbers<S: Simd>(s: S, lower: S::I, upper: S::I, upper_bits: u32) -> [S::I; 4] {
    let byte = s.i_splat(0xff);
    let lower = [
        s.i_and(lower, byte),
        s.i_and(s.i_shr::<8>(lower), byte),
        s.i_and(s.i_shr::<16>(lower), byte),
        s.i_shr::<24>(lower),
    ];
    if upper_bits == 0 {
        return lower;
    }
    let mask = s.i_splat(((1 << upper_bits) - 1) << 8);
    [
        s.i_or(lower[0], s.i_and(s.i_shl::<8>(upper), mask)),
        s.i_or(lower[1], s.i_and(upper, mask)),
        s.i_or(lower[2], s.i_and(s.i_shr::<8>(upper), mask)),
        s.i_or(lower[3], s.i_and(s.i_shr::<16>(upper), mask)),
    ]
}

/// One line a format: name, book, entries of eight weights, upper bits, signs, weights; then run, offset and scale, as
/// [`SuperKind`] has them.
macro_rules! books {
    ($(
        $name:ident: $book:ident, $entries:literal, $upper:literal, $signs:literal, $weights:expr;
        $run:literal, $offset:literal, $scale:literal;
    )*) => {
        $(
            pub(crate) struct $name;
            impl SuperKind for $name {
                const BITS: u32 = BITS_8;
                const MAX: i32 = 2 * $offset;
                const RUN: usize = $run;
                const MIN: bool = false;
                const OFFSET: i32 = $offset;
                const SCALE: f32 = $scale;
                const WIDE_FACTORS: bool = true;
            }
            impl CodeBook for $name {
                const BOOK: &'static [u32] = &$book;
                const ENTRIES: usize = $entries;
                const UPPER_BITS: u32 = $upper;
                const SIGNS: bool = $signs;
                const WEIGHTS: [u8; 16] = $weights;
            }
        )*
    };
}

books! {
    Iq2Xxs: IQ2_XXS, 1, 0, true, with_signs(&grids::IQ2_MAGNITUDES, 43); 32, 43, 0.125;
    Iq2Xs: IQ2_XS, 1, 1, true, with_signs(&grids::IQ2_MAGNITUDES, 43); 16, 43, 0.125;
    Iq2S: IQ2_S, 1, 2, true, with_signs(&grids::IQ2_MAGNITUDES, 43); 16, 43, 0.125;
    Iq3Xxs: IQ3_XXS, 2, 0, true, with_signs(&grids::IQ3_XXS_MAGNITUDES, 62); 32, 62, 0.25;
    Iq3S: IQ3_S, 2, 1, true, with_signs(&grids::IQ3_S_MAGNITUDES, 15); 32, 15, 1.0;
    Iq1S: IQ1, 1, 4, false, SHIFTED_TERNARY; 32, 9, 0.125;
    Iq1M: IQ1, 1, 4, false, SHIFTED_TERNARY; 16, 9, 0.125;
}

static IQ2_XXS: [u32; 256] = eights(&grids::IQ2_XXS_GRID, &grids::IQ2_MAGNITUDES);
static IQ2_XS: [u32; 512] = eights(&grids::IQ2_XS_GRID, &grids::IQ2_MAGNITUDES);
static IQ2_S: [u32; 1024] = eights(&grids::IQ2_S_GRID, &grids::IQ2_MAGNITUDES);
static IQ3_XXS: [u32; 256] = fours(&grids::IQ3_XXS_GRID, &grids::IQ3_XXS_MAGNITUDES);
static IQ3_S: [u32; 512] = fours(&grids::IQ3_S_GRID, &grids::IQ3_S_MAGNITUDES);
/// The ternary book twice: weights shifted up, then weights shifted down, which bit 3 of each nibble says.
static IQ1: [u32; 4096] = {
    let mut book = [0; 4096];
    let mut at = 0;
    while at < 4096 {
        let mut i = 0;
        while i < 8 {
            let down = (at / 2048) as u32;
            let code = (grids::IQ1_GRID[at % 2048][i] + 1) as u32 | down << 3;
            book[at] |= code << nibble_shift(i);
            i += 1;
        }
        at += 1;
    }
    book
};

/// Where a word of nibbles holds weight `i` of eight.
const fn nibble_shift(i: usize) -> usize {
    8 * (i % 4) + 4 * (i / 4)
}

/// The number of a magnitude among the format's.
const fn code_of(magnitude: u8, magnitudes: &[u8]) -> u32 {
    let mut code = 0;
    while magnitudes[code] != magnitude {
        code += 1;
    }
    code as u32
}

const fn eights<const N: usize>(grid: &[[u8; 8]; N], magnitudes: &[u8]) -> [u32; N] {
    let mut book = [0; N];
    let mut at = 0;
    while at < 8 * N {
        book[at / 8] |= code_of(grid[at / 8][at % 8], magnitudes) << nibble_shift(at % 8);
        at += 1;
    }
    book
}

const fn fours<const N: usize>(grid: &[[u8; 4]; N], magnitudes: &[u8]) -> [u32; N] {
    let mut book = [0; N];
    let mut at = 0;
    while at < 4 * N {
        book[at / 4] |= code_of(grid[at / 4][at % 4], magnitudes) << nibble_shift(at % 4);
        at += 1;
    }
    book
}

/// The magnitudes and, from 8 on, their negatives, plus `offset`.
const fn with_signs(magnitudes: &[u8], offset: u8) -> [u8; 16] {
    let mut weights = [0; 16];
    let mut i = 0;
    while i < magnitudes.len() {
        weights[i] = offset + magnitudes[i];
        weights[8 + i] = offset - magnitudes[i];
        i += 1;
    }
    weights
}

/// -1, 0 and 1 in eighths, shifted by one of them up, or from 8 on down, plus 9.
const SHIFTED_TERNARY: [u8; 16] = [2, 10, 18, 0, 0, 0, 0, 0, 0, 8, 16, 0, 0, 0, 0, 0];
