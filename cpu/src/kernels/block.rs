//! The matrix product over packed formats that take a step of the float chain each 32 weights: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
//! Q1_0, whose scale covers four such runs, and with codes that a table turns into weights, IQ4_NL, MXFP4, and NVFP4, which
//! takes a step each 16.

use super::simd::Simd;
use super::unpack::{BITS_1, BITS_4, BITS_5, BITS_8, unpack32};
use super::{MatArgs, Spans, Tile, block32, matmul_by_tiles, opaque};
use llamay_formats::{SPANS, iq4_nl, mxfp4, span_len};

/// What sets one of these formats apart.
pub(crate) trait BlockKind {
    /// Bits of a weight.
    const BITS: u32;
    /// The largest unsigned weight.
    const MAX: i32;
    /// Which of the record's negative multiples takes the offset off: 0 for 8, 1 for 16, 2 for 128.
    const OFFSET: Option<usize>;
    /// Whether a block has a minimum.
    const MIN: bool;
    /// What the codes stand for, with the offset; `None` where they are the weights.
    const TABLE: Option<&[u8; 16]> = None;
    /// Whether scales are bfloat16, for their range; else they are half-precision.
    const BF16_SCALE: bool = false;
    /// Runs of 32 in a block of the file; spans begin with a block.
    const RUNS: usize = 1;
    /// Runs that share a scale.
    const RUNS_OF_SCALE: usize = 1;
    /// Weights of a step: 32, or 16 with a scale for each half of a run.
    const STEP: usize = 32;
    /// Power of two that goes with the scale.
    const SCALE: f32 = 1.0;
}

macro_rules! kinds {
    ($($name:ident: $bits:expr, $max:literal, $offset:expr, $min:literal;)*) => {
        $(
            pub(crate) struct $name;
            impl BlockKind for $name {
                const BITS: u32 = $bits;
                const MAX: i32 = $max;
                const OFFSET: Option<usize> = $offset;
                const MIN: bool = $min;
            }
        )*
    };
}

kinds! {
    Q4_0: BITS_4, 15, Some(0), false;
    Q4_1: BITS_4, 15, None, true;
    Q5_0: BITS_5, 31, Some(1), false;
    Q5_1: BITS_5, 31, None, true;
    Q8_0: BITS_8, 255, Some(2), false;
}

pub(crate) struct Iq4Nl;

impl BlockKind for Iq4Nl {
    const BITS: u32 = BITS_4;
    const MAX: i32 = 113 + 128;
    const OFFSET: Option<usize> = Some(2);
    const MIN: bool = false;
    const TABLE: Option<&[u8; 16]> = Some(&unsigned(&iq4_nl::IQ4_VALUES, i8::MIN));
}

pub(crate) struct Mxfp4;

impl BlockKind for Mxfp4 {
    const BITS: u32 = BITS_4;
    const MAX: i32 = 12 + 16;
    const OFFSET: Option<usize> = Some(1);
    const MIN: bool = false;
    const TABLE: Option<&[u8; 16]> = Some(&unsigned(&mxfp4::E2M1_DOUBLED, 16));
    const BF16_SCALE: bool = true;
}

/// Bits, as weights 0 and 16 with an offset of 8: eight times -1 and 1.
pub(crate) struct Q1_0;

impl BlockKind for Q1_0 {
    const BITS: u32 = BITS_1;
    const MAX: i32 = 16;
    const OFFSET: Option<usize> = Some(0);
    const MIN: bool = false;
    const RUNS: usize = 4;
    const RUNS_OF_SCALE: usize = 4;
    const SCALE: f32 = 0.125;
}

/// The records have no sums of 16 activations, so the product takes them itself.
pub(crate) struct Nvfp4;

impl BlockKind for Nvfp4 {
    const BITS: u32 = BITS_4;
    const MAX: i32 = 12 + 12;
    const OFFSET: Option<usize> = None;
    const MIN: bool = false;
    const TABLE: Option<&[u8; 16]> = Some(&unsigned(&mxfp4::E2M1_DOUBLED, 12));
    const RUNS: usize = 2;
    const STEP: usize = 16;
}

/// A table of signed weights with an offset that makes them unsigned.
pub(crate) const fn unsigned(table: &[i8; 16], offset: i8) -> [u8; 16] {
    let mut out = [0; 16];
    let mut i = 0;
    while i < 16 {
        out[i] = table[i].wrapping_add(offset) as u8;
        i += 1;
    }
    out
}

matmul_by_tiles!(BlockKind);

/// A kind's table with the weights' offset taken off. For constants: a call in a kernel is not always inlined.
pub(crate) const fn less(table: Option<&[u8; 16]>, offset: u8) -> Option<[u8; 16]> {
    let Some(table) = table else { return None };
    let mut out = *table;
    let mut i = 0;
    while i < 16 {
        out[i] = out[i].wrapping_sub(offset);
        i += 1;
    }
    Some(out)
}

/// One group of rows times `C` columns.
#[inline(always)]
pub(super) unsafe fn tile_product<S: Simd, K: BlockKind, const C: usize>(
    s: S,
    args: &MatArgs<'_>,
    tile: Tile,
) {
    let lanes = S::LANES;
    let n_scales = 1 + usize::from(K::MIN || K::STEP == 16);
    let words = const { K::BITS as usize };
    // An offset of 128 that the weights come without.
    let signed_128 = S::SIGNED && matches!(K::OFFSET, Some(2));
    let block_bytes = words * 4 * lanes;
    let n_blocks = args.layout.n_blocks;
    let span = span_len(n_blocks / K::RUNS) * K::RUNS;
    // SAFETY: the group has `n_blocks` blocks of scales and quants, and each record as many blocks of 32.
    unsafe {
        let scales = args.weights.group(tile.group).cast::<u16>();
        let quants = args.weights.group(tile.group).add(args.weights.quants_at);
        let mut x: [*const u8; C] = std::array::from_fn(|c| args.record(tile.col + c));
        let mut spans = Spans::<S, C>::new(s);
        let mut sums = [s.f_splat(0.0); C];
        for i in 0..SPANS {
            let mut acc = [s.f_splat(0.0); C];
            for b in i * span..((i + 1) * span).min(n_blocks) {
                let scales = scales.add(b / K::RUNS_OF_SCALE * n_scales * lanes);
                let mut d = if K::BF16_SCALE { s.f_load_bf16(scales) } else { s.f_load_f16(scales) };
                if K::SCALE != 1.0 {
                    d = s.f_mul(d, s.f_splat(K::SCALE));
                }
                if C == 1 {
                    super::prefetch_ahead(s, quants.add(b * block_bytes), block_bytes);
                }
                let mut q = unpack32::<S>(s, K::BITS, quants.add(b * block_bytes));
                let table = if signed_128 { const { &less(K::TABLE, 128) }.as_ref() } else { K::TABLE };
                if let Some(table) = table {
                    for q in &mut q {
                        *q = s.lookup(table, *q);
                    }
                } else if signed_128 {
                    for q in &mut q {
                        *q = s.without_128(*q);
                    }
                }
                for x in &mut x {
                    *x = opaque(*x);
                }
                if K::STEP == 16 {
                    let second = s.f_load_f16(scales.add(lanes));
                    for c in 0..C {
                        let x = x[c];
                        let a = x.cast();
                        let scale = s.f_splat(*x.add(block32::SCALE).cast::<f32>());
                        let t = s.f_mul(d, s.f_from_i(dot16_less_12::<S, 0>(s, &q, K::MAX, a)));
                        acc[c] = s.f_fma(scale, t, acc[c]);
                        let t = s.f_mul(second, s.f_from_i(dot16_less_12::<S, 4>(s, &q, K::MAX, a.add(16))));
                        acc[c] = s.f_fma(scale, t, acc[c]);
                    }
                    for x in &mut x {
                        *x = x.add(block32::BYTES);
                    }
                    continue;
                }
                for c in 0..C {
                    let x = x[c];
                    let init = match K::OFFSET {
                        Some(which) if !signed_128 => {
                            s.i_splat(*x.add(block32::NEGATIVES).cast::<i32>().add(which))
                        }
                        _ => s.i_splat(0),
                    };
                    let isum = s.f_from_i(s.dot32(&q, K::MAX, x.cast(), init));
                    let t = if K::MIN {
                        let m = s.f_load_f16(scales.add(lanes));
                        let sum = s.f_splat(*x.add(block32::SUM).cast::<f32>());
                        s.f_fma(d, isum, s.f_mul(m, sum))
                    } else {
                        s.f_mul(d, isum)
                    };
                    let scale = s.f_splat(*x.add(block32::SCALE).cast::<f32>());
                    acc[c] = s.f_fma(scale, t, acc[c]);
                }
                for x in &mut x {
                    *x = x.add(block32::BYTES);
                }
            }
            sums = spans.add(s, i, acc);
        }
        args.store_sums(s, tile, &sums);
    }
}

/// Each row's dot product of the 16 weights from vector `FIRST`, which have an offset of 12, with 16 activations.
///
/// # Safety
/// 16 bytes are readable at `a`.
#[inline(always)]
unsafe fn dot16_less_12<S: Simd, const FIRST: usize>(s: S, q: &[S::I; 8], max: i32, a: *const i8) -> S::I {
    let one = s.scale_low(s.i_splat(1 << 16 | 1));
    let twelves = [s.i_splat(0x0c0c_0c0c); 8];
    // SAFETY: passed on to the caller.
    unsafe {
        let offset = s.dot_scaled::<0, 4>(&twelves, 12, a, one, s.i_splat(0));
        s.i_sub(s.dot_scaled::<FIRST, 4>(q, max, a, one, s.i_splat(0)), offset)
    }
}
