//! Blocks of the code-book formats, IQ1_S to IQ3_S, in words that the kernel takes apart for all rows at once.
//!
//! In this order:
//!
//! - 1 or 2 words of 4-bit factors, as the file has them (they stand for `2 f + 1`). Of runs of 32, those of sub-blocks 0, 2,
//!   4, 6 are in the low half and those of 1, 3, 5, 7 in the high one. Runs of 16 have a word for the even sub-blocks and one
//!   for the odd ones, with their first runs in the low half and their second in the high one.
//! - 0 to 4 words of the upper bits of the entries' numbers: byte `g` has those of byte `g` of each word of lower bits, in
//!   order, lowest first.
//! - For each 32 weights, 1 or 2 words of the lower 8 bits of four numbers: byte `g` for group `g` of eight weights. Where an
//!   entry has four weights, one word is for the groups' first entries, one for their second. Behind them a word of signs,
//!   where the format has them: bit `4 n + g` belongs to nibble `n` of group `g`, and weight `i` has nibble
//!   `2 (i % 4) + i / 4`.

use llamay_formats::grids::EVEN_SIGNS;

use super::{Block, u16_at, u32_at};

/// Factors of a block's runs, 8 or 16 of them, as packed.
#[inline(always)]
fn put_factors(factors: impl ExactSizeIterator<Item = u8>, words: &mut [u32]) {
    let n_words = factors.len() / 8;
    words[..n_words].fill(0);
    for (i, factor) in factors.enumerate() {
        // Two for each half word in turn.
        let (pair, high) = (i / 2, i % 2);
        words[pair % n_words] |= u32::from(factor) << (4 * (pair / n_words) + 16 * high);
    }
}

/// The numbers of all entries, `entries` for each group of eight weights, behind the factors: `upper_bits` of each in the
/// first words, then the lower eight, in the first words of every `stride`.
#[inline(always)]
fn put_numbers(
    words: &mut [u32],
    entries: usize,
    upper_bits: usize,
    stride: usize,
    number: impl Fn(usize) -> u16,
) {
    let (upper, words) = words.split_at_mut(entries * upper_bits);
    upper.fill(0);
    for (sub, words) in words.chunks_exact_mut(stride).enumerate().take(8) {
        for (entry, word) in words.iter_mut().enumerate().take(entries) {
            *word = 0;
            let bit = (entries * sub + entry) * upper_bits;
            for g in 0..4 {
                let number = u32::from(number(entries * (4 * sub + g) + entry));
                *word |= (number & 255) << (8 * g);
                if let Some(upper) = upper.get_mut(bit / 8) {
                    *upper |= number >> 8 << (8 * g + bit % 8);
                }
            }
        }
    }
}

/// The signs of all groups of eight weights, bit `i` for weight `i`, in the last word of every `stride`.
#[inline(always)]
fn put_signs(words: &mut [u32], stride: usize, signs: impl Fn(usize) -> u8) {
    for (sub, words) in words.chunks_exact_mut(stride).enumerate().take(8) {
        words[stride - 1] =
            (0..4).fold(0, |word, g| word | SIGN_NIBBLES[usize::from(signs(4 * sub + g))] << g);
    }
}

/// Eight signs as the lowest bits of the nibbles of their weights.
static SIGN_NIBBLES: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 8 * 256 {
        let (signs, i) = (at / 8, at % 8);
        table[signs] |= (signs as u32 >> i & 1) << (8 * (i % 4) + 4 * (i / 4));
        at += 1;
    }
    table
};

/// The signs that seven bits of `word`, from bit `at`, stand for.
#[inline(always)]
fn even_signs(word: u32, at: usize) -> u8 {
    EVEN_SIGNS[(word >> at) as usize & 127]
}

/// Field `i` of a string of `bits`-bit fields, lowest bits first, none of which crosses a byte.
#[inline(always)]
fn field(bytes: &[u8], bits: usize, i: usize) -> u8 {
    bytes[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1)
}

/// The block with its size, so that what is read of it needs no check.
#[inline(always)]
fn sized<const N: usize>(block: &[u8]) -> &[u8; N] {
    let Some(block) = block.first_chunk() else { unreachable!("a block is whole") };
    block
}

#[inline(always)]
pub(super) fn iq2_xxs(block: &[u8], out: &mut Block) {
    let block = sized::<66>(block);
    out.scales[0] = u16_at(block, 0);
    let signs = |sub: usize| u32_at(block, 6 + 8 * sub);
    put_factors((0..8).map(|sub| (signs(sub) >> 28) as u8), &mut out.words);
    put_numbers(&mut out.words[1..], 1, 0, 2, |i| block[2 + 8 * (i / 4) + i % 4].into());
    put_signs(&mut out.words[1..], 2, |group| even_signs(signs(group / 4), 7 * (group % 4)));
}

#[inline(always)]
pub(super) fn iq2_xs(block: &[u8], out: &mut Block) {
    let block = sized::<74>(block);
    out.scales[0] = u16_at(block, 0);
    let code = |group: usize| u16_at(block, 2 + 2 * group);
    put_factors((0..16).map(|i| field(&block[66..74], 4, i)), &mut out.words);
    put_numbers(&mut out.words[2..], 1, 1, 2, |i| code(i) & 511);
    put_signs(&mut out.words[3..], 2, |group| even_signs(code(group).into(), 9));
}

#[inline(always)]
pub(super) fn iq2_s(block: &[u8], out: &mut Block) {
    let block = sized::<82>(block);
    out.scales[0] = u16_at(block, 0);
    put_factors((0..16).map(|i| field(&block[74..82], 4, i)), &mut out.words);
    put_numbers(&mut out.words[2..], 1, 2, 2, |i| {
        u16::from(block[2 + i]) | u16::from(field(&block[66..74], 2, i)) << 8
    });
    put_signs(&mut out.words[4..], 2, |group| block[34 + group]);
}

#[inline(always)]
pub(super) fn iq3_xxs(block: &[u8], out: &mut Block) {
    let block = sized::<98>(block);
    out.scales[0] = u16_at(block, 0);
    let signs = |sub: usize| u32_at(block, 66 + 4 * sub);
    put_factors((0..8).map(|sub| (signs(sub) >> 28) as u8), &mut out.words);
    put_numbers(&mut out.words[1..], 2, 0, 3, |i| block[2 + i].into());
    put_signs(&mut out.words[1..], 3, |group| even_signs(signs(group / 4), 7 * (group % 4)));
}

#[inline(always)]
pub(super) fn iq3_s(block: &[u8], out: &mut Block) {
    let block = sized::<110>(block);
    out.scales[0] = u16_at(block, 0);
    put_factors((0..8).map(|sub| field(&block[106..110], 4, sub)), &mut out.words);
    put_numbers(&mut out.words[1..], 2, 1, 3, |i| {
        u16::from(block[2 + i]) | u16::from(field(&block[66..74], 1, i)) << 8
    });
    put_signs(&mut out.words[3..], 3, |group| block[74 + group]);
}

/// An entry's number gets a fourth upper bit, which says that the group is shifted down.
#[inline(always)]
pub(super) fn iq1_s(block: &[u8], out: &mut Block) {
    let block = sized::<50>(block);
    out.scales[0] = u16_at(block, 0);
    let word = |sub: usize| u16_at(block, 34 + 2 * sub);
    put_factors((0..8).map(|sub| (word(sub) >> 12 & 7) as u8), &mut out.words);
    put_numbers(&mut out.words[1..], 1, 4, 1, |i| {
        let word = word(i / 4);
        u16::from(block[2 + i]) | (word >> (3 * (i % 4)) & 7 | word >> 15 << 3) << 8
    });
}

/// As IQ1_S, but the file has the fourth bit.
#[inline(always)]
pub(super) fn iq1_m(block: &[u8], out: &mut Block) {
    let block = sized::<56>(block);
    let word = |i: usize| u16_at(block, 48 + 2 * i);
    out.scales[0] = (0..4).rev().fold(0, |bits, i| bits << 4 | word(i) >> 12);
    put_factors((0..16).map(|i| (word(i / 4) >> (3 * (i % 4)) & 7) as u8), &mut out.words);
    put_numbers(&mut out.words[2..], 1, 4, 1, |i| {
        u16::from(block[i]) | u16::from(field(&block[32..48], 4, i)) << 8
    });
}
