//! Q1_0: 128 signs and one scale; `w = d` where the bit is set, else `-d`.
//!
//! Layout (18 bytes): `d: f16`, then 16 bytes of bits, lowest first. An activation's scale covers 32 elements, so a
//! block is four units.

use crate::{BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, f16_at, planes, put_f16};

/// The Q1_0 block format.
#[derive(Debug)]
pub struct Q1_0;

/// The quants of `bytes`, eight a byte: -1 or 1.
#[inline(always)]
pub fn quants<const N: usize>(bytes: &[u8]) -> [i8; N] {
    let mut q = [0; N];
    planes::unpack::<1>(bytes, 1, &mut q);
    array(|i| 2 * q[i] - 1)
}

impl BlockFormat for Q1_0 {
    const FORMAT: Format = Format::Q1_0;
    const UNIT_LEN: usize = 32;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = f16_at(block, 0);
        for (out, q) in out.iter_mut().zip(quants::<128>(&block[2..18])) {
            *out = d * f32::from(q);
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        x.parts(Self::UNIT_LEN).enumerate().map(|(unit, x)| Self::unit_value(block, unit, x)).sum()
    }

    #[inline(always)]
    fn unit_value(block: &[u8], unit: usize, x: QuantizedBlock<'_>) -> f32 {
        let bytes = &block[2 + 4 * unit..6 + 4 * unit];
        f16_at(block, 0) * dot_i8(&quants::<32>(bytes), x.quants) as f32
    }
}

/// The mean magnitude is the scale of least squared error.
fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let d = src.iter().map(|x| x.abs()).sum::<f32>() / src.len() as f32;
    let bits: Vec<u8> = src.iter().map(|&x| u8::from(x >= 0.0)).collect();
    put_f16(out, 0, d);
    planes::pack::<1>(&bits, 1, &mut out[2..18]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_bit_is_plus_lowest_bit_first() {
        let mut block = [0u8; 18];
        put_f16(&mut block, 0, 0.5);
        block[2] = 0b0000_0101;
        block[17] = 0b1000_0000;
        let mut w = [0.0; 128];
        Q1_0::decode(&block, &mut w);
        let plus: Vec<usize> = (0..128).filter(|&i| w[i] == 0.5).collect();
        assert_eq!(plus, [0, 2, 127]);
        assert!(w.iter().all(|w| w.abs() == 0.5));
        let mut again = [0; 18];
        encode(&w, None, &mut again);
        assert_eq!(again, block);
    }
}
