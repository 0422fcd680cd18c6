//! Super-blocks of 256 signed bytes under integer scales: what the i-quants and the ternary formats unpack to.
//!
//! Each of these formats stores its weights in some dense code, but all decode to `d * scale * quant` with small
//! integers. A format gives its `unpack`; decoding, the block's value, and a lossless repacking for a kernel follow from
//! [`Codes`].

use crate::{QuantizedBlock, dot_i8};

/// Weights that share one of [`Codes::scales`].
pub const CODE_SUB_LEN: usize = 16;

/// One unpacked super-block: weight `i` is `d * scales[i / 16] * quants[i]`, multiplied in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Codes {
    /// The super-block's scale, a power of two of the stored one where that makes the rest integers.
    pub d: f32,
    /// Integer scales, one for [`CODE_SUB_LEN`] weights.
    pub scales: [i8; 16],
    /// Integer weights.
    pub quants: [i8; 256],
}

impl Codes {
    /// Codes of scale `d` with every scale 1 and every weight 0.
    #[inline(always)]
    pub(crate) fn new(d: f32) -> Codes {
        Codes { d, scales: [1; 16], quants: [0; 256] }
    }

    /// Sets the scale of the weights `32 * at..32 * at + 32`.
    #[inline(always)]
    pub(crate) fn set_scale_32(&mut self, at: usize, scale: i8) {
        self.scales[2 * at] = scale;
        self.scales[2 * at + 1] = scale;
    }

    /// Sets the weights `8 * at..8 * at + 8`.
    #[inline(always)]
    pub(crate) fn set_group(&mut self, at: usize, weights: [i8; 8]) {
        self.quants[8 * at..8 * at + 8].copy_from_slice(&weights);
    }

    /// Decodes to 256 weights.
    #[inline(always)]
    pub fn decode(&self, out: &mut [f32]) {
        let subs = out.chunks_exact_mut(CODE_SUB_LEN).zip(self.quants.chunks_exact(CODE_SUB_LEN));
        for ((out, quants), scale) in subs.zip(self.scales) {
            let scale = self.d * f32::from(scale);
            for (out, &q) in out.iter_mut().zip(quants) {
                *out = scale * f32::from(q);
            }
        }
    }

    /// The block's value as [`block_value`](crate::BlockFormat::block_value) defines it.
    ///
    /// The integer sum fits whatever the bytes say: `256 * 128 * 128 * 127 < 2^30`.
    #[inline(always)]
    pub fn value(&self, x: QuantizedBlock<'_>) -> f32 {
        let subs = self.quants.chunks_exact(CODE_SUB_LEN).zip(x.quants.chunks_exact(CODE_SUB_LEN));
        let isum: i32 = subs.zip(self.scales).map(|((q, a), scale)| i32::from(scale) * dot_i8(q, a)).sum();
        self.d * isum as f32
    }
}
