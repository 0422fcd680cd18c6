//! Every GGUF tensor type: layout, decoding, encoding and the reference dot product.
//!
//! One file a block format; the types without blocks share [`plain`]. All bytes are little-endian, on every host.
//! [`Format`] is the closed list and its methods ([`Format::decode`], [`Format::dot`], [`Format::encode`], …) reach
//! the right file.
//!
//! ```
//! use llamay_formats::{Format, QuantizedRow};
//!
//! let weights: Vec<f32> = (0..256).map(|i| (i as f32 - 100.0) / 64.0).collect();
//! let mut row = vec![0; Format::Q4_K.row_bytes(256).unwrap()];
//! Format::Q4_K.encode(&weights, None, &mut row)?;
//!
//! let x = QuantizedRow::new(Format::Q4_K.activation(), &[0.5; 256]);
//! let exact: f32 = weights.iter().map(|w| w * 0.5).sum();
//! assert!((Format::Q4_K.dot(&row, &x) - exact).abs() < 0.02 * exact);
//! # Ok::<(), llamay_formats::EncodeError>(())
//! ```
//!
//! # Adding a format
//!
//! 1. Add its line to the list in `format.rs`: number, name, block length, block bytes, and the [`Activation`] its
//!    rows meet. Every exhaustive match in the workspace now fails to compile until the format is dealt with.
//! 2. Write `src/<name>.rs`: a unit struct that implements [`BlockFormat`]. Start with the layout in bytes; unpack the
//!    quants in one function that `decode`, `block_value` and the SIMD repacking share ([`planes`] holds the bit work).
//! 3. Add its line in `dispatch.rs`.
//! 4. Add a golden vector from a decoder nobody here wrote, and run the tests: they walk [`Format::ALL`].
//!
//! `block_value` fixes the format's arithmetic for every backend: integers exact, then one float product, or one fused
//! multiply-add where the format has a minimum.
#![deny(missing_docs)]
// Formats keep the names that everybody knows them by.
#![allow(non_camel_case_types)]

mod activation;
mod codes;
mod dispatch;
mod dot;
mod encode;
mod fit;
mod format;
pub mod grids;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nvfp4;
pub mod plain;
pub mod planes;
pub mod q1_0;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod q8_1;
pub mod q8_k;
pub mod tq1_0;
pub mod tq2_0;

pub use activation::{MIN_AMAX, QuantizedBlock, QuantizedRow, ROUND_MAGIC, SUM_LEN, block_scale, round_even};
pub use codes::{CODE_SUB_LEN, Codes};
pub use dot::{SPANS, dot_blocks, dot_floats, span_len, tree8};
pub use encode::EncodeError;
pub use format::{Activation, Format};

/// One block format: what a file of this crate implements.
pub trait BlockFormat {
    /// Which format this is.
    const FORMAT: Format;
    /// Elements in one block.
    const BLOCK_LEN: usize = Self::FORMAT.block_len();
    /// Bytes of one block.
    const BLOCK_BYTES: usize = Self::FORMAT.block_bytes();
    /// Elements of one step of the float chain, a divisor of the block: the whole block, except where a float scale,
    /// the weight's own (NVFP4) or the activation's (Q1_0), covers less than that.
    const UNIT_LEN: usize = Self::BLOCK_LEN;
    /// The encoder, for formats that have one.
    const ENCODER: Option<BlockEncoder> = None;

    /// Decodes one block of [`Self::BLOCK_BYTES`] into [`Self::BLOCK_LEN`] weights.
    fn decode(block: &[u8], out: &mut [f32]);

    /// The block's dot product with `x`, before the activation's scale: one exact integer sum times the weight scale,
    /// plus, for formats with a minimum, the exact sum that goes with it:
    /// `d * isum`, or `fma(d, isum, m * msum)`.
    ///
    /// A format of several units returns the sum of their values, left to right; its dot takes the units one by one.
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32;

    /// As [`Self::block_value`], for the elements `unit * UNIT_LEN..(unit + 1) * UNIT_LEN` alone; `x` holds just these.
    fn unit_value(block: &[u8], unit: usize, x: QuantizedBlock<'_>) -> f32 {
        debug_assert_eq!(
            (unit, Self::UNIT_LEN),
            (0, Self::BLOCK_LEN),
            "a format of several units gives its own"
        );
        Self::block_value(block, x)
    }
}

/// Encodes one block: finite weights, the importance of each of them (any non-negative numbers; all equal if absent),
/// and the block's bytes to write.
pub type BlockEncoder = fn(src: &[f32], importance: Option<&[f32]>, out: &mut [u8]);

/// `[f(0), f(1), …]`. [`std::array::from_fn`] and `map` stay calls in builds that matter here, with a call an element.
#[inline(always)]
fn array<T: Copy + Default, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut all = [T::default(); N];
    for (i, element) in all.iter_mut().enumerate() {
        *element = f(i);
    }
    all
}

/// The half-precision number at byte `at`; in integers, since asking the CPU for a conversion of its own is a call a number.
#[inline(always)]
fn f16_at(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32_const()
}

/// The 16-bit word at byte `at`.
#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The 32-bit word at byte `at`.
#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes `value`, rounded to half precision, at byte `at`.
fn put_f16(bytes: &mut [u8], at: usize, value: f32) {
    bytes[at..at + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
}

/// Exact dot product of two runs of signed bytes.
#[inline(always)]
fn dot_i8(q: &[i8], a: &[i8]) -> i32 {
    // A length that the caller knows as a constant is one for the loop, which is unrolled then.
    q.iter().zip(&a[..q.len()]).map(|(&q, &a)| i32::from(q) * i32::from(a)).sum()
}
