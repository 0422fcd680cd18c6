//! Blocks of 32 weights: Q4_0 to Q8_0, IQ4_NL, MXFP4.

use llamay_formats::mxfp4;

use super::{Block, fifth_bits, nibbles, u16_at, u32_at};

#[inline(always)]
pub(super) fn q4_0(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 0);
    nibbles(&block[2..], &mut out.words);
}

#[inline(always)]
pub(super) fn q4_1(block: &[u8], out: &mut Block) {
    out.scales = [u16_at(block, 0), u16_at(block, 2)];
    nibbles(&block[4..], &mut out.words);
}

#[inline(always)]
pub(super) fn q5_0(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 0);
    out.words[0] = fifth_bits(u32_at(block, 2));
    nibbles(&block[6..], &mut out.words[1..]);
}

#[inline(always)]
pub(super) fn q5_1(block: &[u8], out: &mut Block) {
    out.scales = [u16_at(block, 0), u16_at(block, 2)];
    out.words[0] = fifth_bits(u32_at(block, 4));
    nibbles(&block[8..], &mut out.words[1..]);
}

#[inline(always)]
pub(super) fn q8_0(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 0);
    let (words, _) = block[2..34].as_chunks::<4>();
    for (to, word) in out.words.iter_mut().zip(words) {
        *to = u32::from_le_bytes(*word) ^ 0x8080_8080;
    }
}

/// The scale as bfloat16, which holds every power of two that a product takes.
#[inline(always)]
pub(super) fn mxfp4(block: &[u8], out: &mut Block) {
    out.scales[0] = (mxfp4::dot_scale(block[0]).to_bits() >> 16) as u16;
    nibbles(&block[1..], &mut out.words);
}
