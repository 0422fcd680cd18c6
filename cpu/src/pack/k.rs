//! Blocks of 256 weights in planes: Q2_K to Q6_K, IQ4_XS, and the ternary formats, which become 2-bit planes both.

use llamay_formats::{iq4_xs, q2_k, q3_k, q4_k};

use super::{Block, LOW, nibbles, u16_at, u32_at};

/// The 4-bit plane of 32 weights that stand in the low or the high nibbles of 32 bytes.
#[inline(always)]
fn nibbles_of_32(bytes: &[u8], high: bool, words: &mut [u32]) {
    for (j, word) in words.iter_mut().enumerate().take(4) {
        let (a, b) = (u32_at(bytes, 4 * j), u32_at(bytes, 4 * j + 16));
        *word = if high { (a >> 4) & LOW | b & !LOW } else { a & LOW | (b & LOW) << 4 };
    }
}

/// The sub-block scales and minima of Q4_K and Q5_K, in pairs: four of scales, four of minima.
#[inline(always)]
fn k_factors(block: &[u8], out: &mut Block) {
    out.scales[..2].copy_from_slice(&[u16_at(block, 0), u16_at(block, 2)]);
    let (scales, mins) = q4_k::unpack_scales(&block[4..16]);
    for p in 0..4 {
        out.pairs[p] = [scales[2 * p], scales[2 * p + 1]];
        out.pairs[4 + p] = [mins[2 * p], mins[2 * p + 1]];
    }
}

/// The planes of bit pairs of four sub-blocks, of which sub-block `t` has its pairs at `2t` of 32 bytes: a transposition of
/// 4 x 4 pairs within each byte of four words, as halves of halves (Warren, "Hacker's Delight", 7-3).
#[inline(always)]
fn pair_planes(bytes: &[u8]) -> [[u32; 2]; 4] {
    let mut planes = [[0; 2]; 4];
    for j in 0..2 {
        let mut w = [0; 4];
        for (t, w) in w.iter_mut().enumerate() {
            *w = u32_at(bytes, 16 * j + 4 * t);
        }
        exchange(&mut w, 2, 4, 0x0f0f_0f0f);
        exchange(&mut w, 1, 2, 0x3333_3333);
        for (plane, w) in planes.iter_mut().zip(w) {
            plane[j] = w;
        }
    }
    planes
}

/// The planes of single bits of eight sub-blocks, of which sub-block `t` has its bits at `t` of 32 bytes: as
/// [`pair_planes`], of 8 x 8 bits.
#[inline(always)]
fn bit_planes(bytes: &[u8]) -> [u32; 8] {
    let mut w = [0; 8];
    for (s, w) in w.iter_mut().enumerate() {
        *w = u32_at(bytes, 4 * s);
    }
    exchange(&mut w, 4, 4, 0x0f0f_0f0f);
    exchange(&mut w, 2, 2, 0x3333_3333);
    exchange(&mut w, 1, 1, 0x5555_5555);
    w
}

/// Exchanges the upper bits of each word whose number lacks `distance` with the lower ones of the word that far behind;
/// `low` are the lower ones, `by` below their partners.
#[inline(always)]
fn exchange<const N: usize>(w: &mut [u32; N], distance: usize, by: u32, low: u32) {
    for i in 0..N {
        if i & distance == 0 {
            let t = ((w[i] >> by) ^ w[i + distance]) & low;
            w[i] ^= t << by;
            w[i + distance] ^= t;
        }
    }
}

#[inline(always)]
pub(super) fn q2_k(block: &[u8], out: &mut Block) {
    out.scales[..2].copy_from_slice(&[u16_at(block, 80), u16_at(block, 82)]);
    let (scales, mins) = q2_k::unpack_scales(&block[..16]);
    for p in 0..8 {
        out.pairs[p] = [scales[2 * p], scales[2 * p + 1]];
        out.pairs[8 + p] = [mins[2 * p], mins[2 * p + 1]];
    }
    for half in 0..2 {
        for (quarter, plane) in pair_planes(&block[16 + 32 * half..]).into_iter().enumerate() {
            let words = &mut out.words[8 * half + 2 * quarter..];
            [words[0], words[1]] = plane;
        }
    }
}

#[inline(always)]
pub(super) fn q3_k(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 108);
    let scales = q3_k::unpack_scales(&block[96..108]);
    for p in 0..8 {
        out.pairs[p] = [scales[2 * p] as u8, scales[2 * p + 1] as u8];
    }
    let bits = bit_planes(block);
    for half in 0..2 {
        for (quarter, [first, second]) in pair_planes(&block[32 + 32 * half..]).into_iter().enumerate() {
            let sub = 4 * half + quarter;
            let words = &mut out.words[3 * sub..];
            [words[0], words[1], words[2]] = [bits[sub], first, second];
        }
    }
}

#[inline(always)]
pub(super) fn q4_k(block: &[u8], out: &mut Block) {
    k_factors(block, out);
    for sub in 0..8 {
        nibbles_of_32(&block[16 + 32 * (sub / 2)..], sub % 2 == 1, &mut out.words[4 * sub..]);
    }
}

#[inline(always)]
pub(super) fn q5_k(block: &[u8], out: &mut Block) {
    k_factors(block, out);
    let bits = bit_planes(&block[16..]);
    for sub in 0..8 {
        let words = &mut out.words[5 * sub..];
        words[0] = bits[sub];
        nibbles_of_32(&block[48 + 32 * (sub / 2)..], sub % 2 == 1, &mut words[1..]);
    }
}

#[inline(always)]
pub(super) fn q6_k(block: &[u8], out: &mut Block) {
    let (low, rest) = block.split_at(128);
    let (high, factors) = rest.split_at(64);
    out.scales[0] = u16_at(factors, 16);
    for p in 0..8 {
        out.pairs[p] = [factors[2 * p], factors[2 * p + 1]];
    }
    // Each half of 128 weights: quarters 0 and 1 in the low nibbles of two runs of 32 bytes, 2 and 3 in the high ones;
    // quarter `t` has its upper bits at `2t` of the half's 32 high bytes.
    let pairs = [pair_planes(high), pair_planes(&high[32..])];
    for sub in 0..8 {
        let (half, quarter) = (sub / 4, sub % 4);
        let words = &mut out.words[6 * sub..];
        [words[0], words[1]] = pairs[half][quarter];
        nibbles_of_32(&low[64 * half + 32 * (quarter % 2)..], quarter >= 2, &mut words[2..]);
    }
}

#[inline(always)]
pub(super) fn iq4_xs(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 0);
    let scales = iq4_xs::unpack_scales(block);
    for p in 0..4 {
        out.pairs[p] = [scales[2 * p] as u8, scales[2 * p + 1] as u8];
    }
    // The file has the codes of each 32 weights as the plane has them.
    for (codes, words) in block[8..136].chunks_exact(16).zip(out.words.chunks_exact_mut(4)) {
        nibbles(codes, words);
    }
}

/// The next digit of three of each of four bytes, which become the fractions that are left.
#[inline(always)]
fn next_digits(bytes: &mut [u32; 2]) -> u32 {
    // Even and odd bytes in 16 bits each, so that the digit is what three times the fraction carries into the upper 8.
    let carried = bytes.map(|b| 3 * b);
    *bytes = carried.map(|c| c & 0x00ff_00ff);
    carried[0] >> 8 & 0x0003_0003 | carried[1] & 0x0300_0300
}

/// Digits of three, five of which share a byte in the file, get two bits each.
#[inline(always)]
pub(super) fn tq1_0(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 52);
    out.words[..16].fill(0);
    // Four bytes hold four weights in a row for each digit. A digit of the first 32 bytes is a sub-block of two words; one
    // of the next 16 a word; one of the last four a part of the last word.
    for n in 0..13 {
        let word = u32_at(block, 4 * n);
        let mut bytes = [word & 0x00ff_00ff, word >> 8 & 0x00ff_00ff];
        let (first, step, digits, pair) = match n {
            0..8 => (n / 4, 2, 5, n % 4),
            8..12 => (10, 1, 5, n % 4),
            _ => (15, 0, 4, 0),
        };
        for digit in 0..digits {
            let pair = if step == 0 { digit } else { pair };
            out.words[first + step * digit] |= next_digits(&mut bytes) << (2 * pair);
        }
    }
}

#[inline(always)]
pub(super) fn tq2_0(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 64);
    for half in 0..2 {
        for (quarter, plane) in pair_planes(&block[32 * half..]).into_iter().enumerate() {
            let words = &mut out.words[8 * half + 2 * quarter..];
            [words[0], words[1]] = plane;
        }
    }
}
