//! From a [`Format`] known at run time to the file that implements it.

use crate::encode::{encode_blocks, encode_plain};
use crate::plain::{self, PlainFormat};
use crate::*;

/// Evaluates `$plain` or `$block` with `$F` naming the type that implements the format: one line a format.
macro_rules! with_format {
    ($format:expr, plain $P:ident => $plain:expr, block $F:ident => $block:expr) => {{
        macro_rules! plain {
            ($implementation:ty) => {{
                type $P = $implementation;
                $plain
            }};
        }
        macro_rules! block {
            ($implementation:ty) => {{
                type $F = $implementation;
                $block
            }};
        }
        match $format {
            Format::F32 => plain!(plain::F32),
            Format::F16 => plain!(plain::F16),
            Format::BF16 => plain!(plain::BF16),
            Format::F64 => plain!(plain::F64),
            Format::I8 => plain!(plain::I8),
            Format::I16 => plain!(plain::I16),
            Format::I32 => plain!(plain::I32),
            Format::I64 => plain!(plain::I64),
            Format::Q4_0 => block!(q4_0::Q4_0),
            Format::Q4_1 => block!(q4_1::Q4_1),
            Format::Q5_0 => block!(q5_0::Q5_0),
            Format::Q5_1 => block!(q5_1::Q5_1),
            Format::Q8_0 => block!(q8_0::Q8_0),
            Format::Q8_1 => block!(q8_1::Q8_1),
            Format::Q2_K => block!(q2_k::Q2_K),
            Format::Q3_K => block!(q3_k::Q3_K),
            Format::Q4_K => block!(q4_k::Q4_K),
            Format::Q5_K => block!(q5_k::Q5_K),
            Format::Q6_K => block!(q6_k::Q6_K),
            Format::Q8_K => block!(q8_k::Q8_K),
            Format::IQ2_XXS => block!(iq2_xxs::IQ2_XXS),
            Format::IQ2_XS => block!(iq2_xs::IQ2_XS),
            Format::IQ3_XXS => block!(iq3_xxs::IQ3_XXS),
            Format::IQ1_S => block!(iq1_s::IQ1_S),
            Format::IQ4_NL => block!(iq4_nl::IQ4_NL),
            Format::IQ3_S => block!(iq3_s::IQ3_S),
            Format::IQ2_S => block!(iq2_s::IQ2_S),
            Format::IQ4_XS => block!(iq4_xs::IQ4_XS),
            Format::IQ1_M => block!(iq1_m::IQ1_M),
            Format::TQ1_0 => block!(tq1_0::TQ1_0),
            Format::TQ2_0 => block!(tq2_0::TQ2_0),
            Format::MXFP4 => block!(mxfp4::MXFP4),
            Format::NVFP4 => block!(nvfp4::NVFP4),
            Format::Q1_0 => block!(q1_0::Q1_0),
        }
    }};
}

fn decode_blocks<F: BlockFormat>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytes.chunks_exact(F::BLOCK_BYTES).zip(out.chunks_exact_mut(F::BLOCK_LEN)) {
        F::decode(block, out);
    }
}

fn decode_plain<P: PlainFormat>(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.chunks_exact(P::BYTES).zip(out) {
        *out = P::to_f32(bytes);
    }
}

impl Format {
    /// Panics unless `bytes` hold exactly `len` elements.
    #[track_caller]
    fn check_len(self, bytes: usize, len: usize) {
        assert!(
            self.row_bytes(len) == Some(bytes),
            "{bytes} bytes of {self} for {len} elements (blocks of {} bytes and {} elements)",
            self.block_bytes(),
            self.block_len()
        );
    }

    /// Decodes one row or several that lie one after another, to `out.len()` weights.
    ///
    /// # Panics
    /// If `bytes` is not exactly [`row_bytes`](Format::row_bytes) of `out.len()`.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        self.check_len(bytes.len(), out.len());
        with_format!(self, plain P => decode_plain::<P>(bytes, out), block F => decode_blocks::<F>(bytes, out))
    }

    /// Dot product of a weight row with an activation row of the kind that [`activation`](Format::activation) names:
    /// the reference that every kernel reproduces bit by bit.
    ///
    /// # Panics
    /// If the format is plain, or the rows' lengths or the kind do not match.
    pub fn dot(self, row: &[u8], x: &QuantizedRow) -> f32 {
        self.check_len(row.len(), x.len());
        assert!(self.activation() == x.kind(), "{self} meets {:?}, not {:?}", self.activation(), x.kind());
        with_format!(
            self,
            plain P => panic!("{} meets float activations", P::FORMAT),
            block F => dot_blocks::<F>(row, x)
        )
    }

    /// Dot product of a row of a plain format with a row of floats.
    ///
    /// # Panics
    /// If the format has blocks, or the lengths do not match.
    pub fn dot_f32(self, row: &[u8], x: &[f32]) -> f32 {
        self.check_len(row.len(), x.len());
        with_format!(
            self,
            plain P => dot_floats(row.chunks_exact(P::BYTES).map(P::to_f32), x),
            block F => panic!("{} meets int8 activations", F::FORMAT)
        )
    }

    /// Encodes one row or several that lie one after another.
    ///
    /// `importance` weighs the squared error of each column: one number, not negative, for each element of one row.
    /// Formats that leave no choice ignore it.
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`] where [`can_encode`](Format::can_encode) is false; otherwise the first weight that
    /// is not finite or that the format cannot hold. `out` is then unspecified.
    ///
    /// # Panics
    /// If `out` is not exactly [`row_bytes`](Format::row_bytes) of `src.len()`, or `src` is no whole number of rows of
    /// `importance`, or a row is no whole number of blocks.
    pub fn encode(self, src: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> Result<(), EncodeError> {
        self.check_len(out.len(), src.len());
        if let Some(row) = importance {
            let whole = |n: usize, of: usize| of != 0 && n.is_multiple_of(of);
            assert!(
                src.is_empty() || whole(src.len(), row.len()) && whole(row.len(), self.block_len()),
                "importance of {} columns for {} weights of {self}",
                row.len(),
                src.len()
            );
        }
        with_format!(
            self,
            plain P => encode_plain::<P>(src, out),
            block F => encode_blocks::<F>(src, importance, out)
        )
    }

    /// True where [`encode`](Format::encode) can write the format.
    pub fn can_encode(self) -> bool {
        with_format!(self, plain P => P::ENCODER.is_some(), block F => F::ENCODER.is_some())
    }
}
