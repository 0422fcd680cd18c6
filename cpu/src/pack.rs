//! Weights as the SIMD kernels read them: groups of rows, so that a vector's lanes are output rows.
//!
//! A group of R rows holds, for each block, the R half-precision scales (and minima) side by side; then, 64-byte aligned,
//! for each block the integer sub-block factors in pairs and the quants as 32-bit words, word `w` of row `r` at
//! `w * R + r`. A word holds four weights' worth of one bit plane:
//!
//! | plane | words for 32 weights | content |
//! |---|---|---|
//! | 4 bits | 4 | byte `i` of word `j`: weight `4j + i` in the low, weight `16 + 4j + i` in the high nibble |
//! | 3rd or 5th bit | 1 | bit `s` of byte `i`: weight `4s + i` |
//! | 1st and 2nd, or 5th and 6th bit | 2 | bits `2t, 2t + 1` of byte `i` of word `j`: weight `16j + 4t + i` |
//! | 8 bits | 8 | byte `i` of word `j`: weight `4j + i`, plus 128 |
//!
//! All planes are unsigned; a format's offset (4, 8, 16, 32, 128) is taken off through the activation's sums. IQ4_NL, IQ4_XS and
//! MXFP4 keep their codes, which the kernel looks up, and MXFP4 its scale as bfloat16. The packed
//! weights are as large as the file's, but for the last group's padding and for 4 bytes more in a Q4_K or Q5_K block.

use llamay_formats::{Format, iq4_xs, mxfp4, q2_k, q3_k, q4_k};

use crate::memory::AlignedBytes;

/// How one format is taken apart.
pub(crate) struct PackFormat {
    /// Half-precision numbers of a block: the scale, and for some formats the minimum.
    pub(crate) scales: usize,
    /// Pairs of integer factors of a block.
    pub(crate) pairs: usize,
    /// 32-bit words of a block.
    pub(crate) words: usize,
    /// Packs a group of so many rows.
    pack: fn(usize, &mut Group<'_>),
}

/// A block taken apart.
struct Block {
    scales: [u16; 2],
    pairs: [[u8; 2]; 16],
    words: [u32; 48],
}

/// The rows of one group, and where their parts go.
struct Group<'a> {
    rows: &'a [u8],
    row_bytes: usize,
    scales: &'a mut [u8],
    quants: &'a mut [u8],
}

/// The packing of a format from its scales, pairs and words, and a function that takes a block apart.
///
/// A macro and not a function that takes a function, since the compiler leaves that one uninlined, with the lengths of its
/// slices unknown.
macro_rules! packing {
    ($format:ident, $scales:literal, $pairs:literal, $words:literal, $split:ident) => {{
        /// Packs a group of at most `LANES` rows, the same block of all rows before the next, so that the result is
        /// written in order.
        fn pack<const LANES: usize>(group: &mut Group<'_>) {
            let mut rows: [&[[u8; Format::$format.block_bytes()]]; LANES] = [&[]; LANES];
            let mut n_rows = 0;
            for (to, row) in rows.iter_mut().zip(group.rows.chunks_exact(group.row_bytes)) {
                *to = row.as_chunks().0;
                n_rows += 1;
            }
            let mut block = Block { scales: [0; 2], pairs: [[0; 2]; 16], words: [0; 48] };
            let scales = group.scales.chunks_exact_mut($scales * 2 * LANES);
            let quants = group.quants.chunks_exact_mut((2 * $pairs + 4 * $words) * LANES);
            for (b, (scales, quants)) in scales.zip(quants).enumerate() {
                let (pairs, words) = quants.split_at_mut(2 * $pairs * LANES);
                let (scales, pairs) = (lanes_of::<2, LANES>(scales), lanes_of::<2, LANES>(pairs));
                let words = lanes_of::<4, LANES>(words);
                for (r, row) in rows[..n_rows].iter().enumerate() {
                    $split(&row[b], &mut block);
                    for (to, scale) in scales.iter_mut().zip(&block.scales) {
                        to[r] = scale.to_ne_bytes();
                    }
                    for (to, pair) in pairs.iter_mut().zip(&block.pairs) {
                        to[r] = *pair;
                    }
                    for (to, word) in words.iter_mut().zip(&block.words) {
                        to[r] = word.to_le_bytes();
                    }
                }
            }
        }
        PackFormat {
            scales: $scales,
            pairs: $pairs,
            words: $words,
            pack: |lanes, group| match lanes {
                4 => pack::<4>(group),
                8 => pack::<8>(group),
                16 => pack::<16>(group),
                _ => unreachable!("vectors have 4, 8 or 16 lanes"),
            },
        }
    }};
}

/// Elements of `N` bytes, a vector of them in each.
#[inline(always)]
fn lanes_of<const N: usize, const LANES: usize>(bytes: &mut [u8]) -> &mut [[[u8; N]; LANES]] {
    bytes.as_chunks_mut().0.as_chunks_mut().0
}

impl PackFormat {
    /// The packing of a format, if kernels for it read packed rows.
    pub(crate) fn of(format: Format) -> Option<PackFormat> {
        Some(match format {
            Format::Q4_0 => packing!(Q4_0, 1, 0, 4, split_q4_0),
            Format::Q4_1 => packing!(Q4_1, 2, 0, 4, split_q4_1),
            Format::Q5_0 => packing!(Q5_0, 1, 0, 5, split_q5_0),
            Format::Q5_1 => packing!(Q5_1, 2, 0, 5, split_q5_1),
            Format::Q8_0 => packing!(Q8_0, 1, 0, 8, split_q8_0),
            Format::IQ4_NL => packing!(IQ4_NL, 1, 0, 4, split_q4_0),
            Format::IQ4_XS => packing!(IQ4_XS, 1, 4, 32, split_iq4_xs),
            Format::MXFP4 => packing!(MXFP4, 1, 0, 4, split_mxfp4),
            Format::Q2_K => packing!(Q2_K, 2, 16, 16, split_q2_k),
            Format::Q3_K => packing!(Q3_K, 1, 8, 24, split_q3_k),
            Format::Q4_K => packing!(Q4_K, 2, 8, 32, split_q4_k),
            Format::Q5_K => packing!(Q5_K, 2, 8, 40, split_q5_k),
            Format::Q6_K => packing!(Q6_K, 1, 8, 48, split_q6_k),
            _ => return None,
        })
    }
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let Some(word) = bytes[at..].first_chunk() else { unreachable!("a block holds its words") };
    u32::from_le_bytes(*word)
}

/// The four words of a 4-bit plane that the file already has in this order.
#[inline(always)]
fn nibbles(bytes: &[u8], words: &mut [u32]) {
    for (j, w) in words.iter_mut().enumerate().take(4) {
        *w = u32_at(bytes, 4 * j);
    }
}

/// The fifth bits, of which bit `k` of `high` belongs to weight `k`.
///
/// Bit `4s + i` goes to `8i + s`: the five bits of its number rotate by two, which is two inverse perfect shuffles
/// (Warren, "Hacker's Delight", 7-2).
#[inline(always)]
fn fifth_bits(high: u32) -> u32 {
    unshuffle(unshuffle(high))
}

/// Even bits to the lower half, odd bits to the upper.
#[inline(always)]
fn unshuffle(x: u32) -> u32 {
    let swap = |x: u32, mask: u32, by: u32| {
        let t = (x ^ (x >> by)) & mask;
        x ^ t ^ (t << by)
    };
    let x = swap(x, 0x2222_2222, 1);
    let x = swap(x, 0x0c0c_0c0c, 2);
    let x = swap(x, 0x00f0_00f0, 4);
    swap(x, 0x0000_ff00, 8)
}

#[inline(always)]
fn split_q4_0(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 0);
    nibbles(&block[2..], &mut out.words);
}

#[inline(always)]
fn split_q4_1(block: &[u8], out: &mut Block) {
    out.scales = [u16_at(block, 0), u16_at(block, 2)];
    nibbles(&block[4..], &mut out.words);
}

#[inline(always)]
fn split_q5_0(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 0);
    out.words[0] = fifth_bits(u32_at(block, 2));
    nibbles(&block[6..], &mut out.words[1..]);
}

#[inline(always)]
fn split_q5_1(block: &[u8], out: &mut Block) {
    out.scales = [u16_at(block, 0), u16_at(block, 2)];
    out.words[0] = fifth_bits(u32_at(block, 4));
    nibbles(&block[8..], &mut out.words[1..]);
}

#[inline(always)]
fn split_q8_0(block: &[u8], out: &mut Block) {
    out.scales[0] = u16_at(block, 0);
    let (words, _) = block[2..34].as_chunks::<4>();
    for (to, word) in out.words.iter_mut().zip(words) {
        *to = u32::from_le_bytes(*word) ^ 0x8080_8080;
    }
}

#[inline(always)]
fn split_iq4_xs(block: &[u8], out: &mut Block) {
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

/// The scale as bfloat16, which holds every power of two that a product takes.
#[inline(always)]
fn split_mxfp4(block: &[u8], out: &mut Block) {
    out.scales[0] = (mxfp4::dot_scale(block[0]).to_bits() >> 16) as u16;
    nibbles(&block[1..], &mut out.words);
}

const LOW: u32 = 0x0f0f_0f0f;

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
    out.scales = [u16_at(block, 0), u16_at(block, 2)];
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
fn split_q2_k(block: &[u8], out: &mut Block) {
    out.scales = [u16_at(block, 80), u16_at(block, 82)];
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
fn split_q3_k(block: &[u8], out: &mut Block) {
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
fn split_q4_k(block: &[u8], out: &mut Block) {
    k_factors(block, out);
    for sub in 0..8 {
        nibbles_of_32(&block[16 + 32 * (sub / 2)..], sub % 2 == 1, &mut out.words[4 * sub..]);
    }
}

#[inline(always)]
fn split_q5_k(block: &[u8], out: &mut Block) {
    k_factors(block, out);
    let bits = bit_planes(&block[16..]);
    for sub in 0..8 {
        let words = &mut out.words[5 * sub..];
        words[0] = bits[sub];
        nibbles_of_32(&block[48 + 32 * (sub / 2)..], sub % 2 == 1, &mut words[1..]);
    }
}

#[inline(always)]
fn split_q6_k(block: &[u8], out: &mut Block) {
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

/// Where a group's parts lie.
struct Sizes {
    quants_at: usize,
    block_bytes: usize,
    group_bytes: usize,
}

impl Sizes {
    fn of(f: &PackFormat, n_blocks: usize, lanes: usize) -> Sizes {
        let quants_at = (n_blocks * f.scales * 2 * lanes).next_multiple_of(64);
        let block_bytes = (f.pairs * 2 + f.words * 4) * lanes;
        let group_bytes = (quants_at + n_blocks * block_bytes).next_multiple_of(64);
        Sizes { quants_at, block_bytes, group_bytes }
    }
}

/// A weight matrix in packed groups.
pub(crate) struct PackedMatrix {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    /// Rows of a group.
    pub(crate) lanes: usize,
    pub(crate) group_bytes: usize,
    /// Where a group's quants begin.
    pub(crate) quants_at: usize,
    /// Bytes of one block's factors and quants, over all rows of a group.
    pub(crate) block_bytes: usize,
    data: AlignedBytes,
}

impl PackedMatrix {
    /// Bytes of a packed matrix of `rows` rows of `k` weights; `None` for a format that is not packed, or on overflow.
    pub(crate) fn bytes(format: Format, rows: usize, k: usize, lanes: usize) -> Option<usize> {
        let Sizes { group_bytes, .. } = Sizes::of(&PackFormat::of(format)?, k / format.block_len(), lanes);
        rows.div_ceil(lanes).checked_mul(group_bytes)
    }

    /// A matrix in `data`, which holds at least [`PackedMatrix::bytes`].
    ///
    /// # Panics
    /// If the format is not a packed one.
    pub(crate) fn new(
        format: Format,
        rows: usize,
        k: usize,
        lanes: usize,
        data: AlignedBytes,
    ) -> PackedMatrix {
        let f = PackFormat::of(format).expect("the caller asked PackedMatrix::bytes");
        let Sizes { quants_at, block_bytes, group_bytes } = Sizes::of(&f, k / format.block_len(), lanes);
        PackedMatrix { format, rows, lanes, group_bytes, quants_at, block_bytes, data }
    }

    /// The memory that the matrix was in.
    pub(crate) fn into_data(self) -> AlignedBytes {
        self.data
    }

    /// Groups of the matrix; the last may have fewer rows, and zeros in their place.
    pub(crate) fn n_groups(&self) -> usize {
        self.rows.div_ceil(self.lanes)
    }

    /// The first byte of the group.
    pub(crate) fn group(&self, g: usize) -> *const u8 {
        debug_assert!(g < self.n_groups());
        self.data.as_ptr().wrapping_add(g * self.group_bytes)
    }

    /// The matrix's groups, each to be filled by [`pack_group`].
    pub(crate) fn groups_mut(&mut self) -> std::slice::ChunksExactMut<'_, u8> {
        self.data.as_mut_slice().chunks_exact_mut(self.group_bytes)
    }
}

/// Packs the rows of one group; `rows` holds at most `lanes` rows of the file. The places of rows that a last group lacks
/// become zeros.
pub(crate) fn pack_group(format: Format, k: usize, lanes: usize, rows: &[u8], out: &mut [u8]) {
    let f = PackFormat::of(format).expect("the matrix is packed");
    let n_blocks = k / format.block_len();
    let row_bytes = n_blocks * format.block_bytes();
    let Sizes { quants_at, block_bytes, .. } = Sizes::of(&f, n_blocks, lanes);
    if rows.len() < lanes * row_bytes {
        out.fill(0);
    }
    let (scales, quants) = out.split_at_mut(quants_at);
    let scales = &mut scales[..n_blocks * f.scales * 2 * lanes];
    let quants = &mut quants[..n_blocks * block_bytes];
    (f.pack)(lanes, &mut Group { rows, row_bytes, scales, quants });
}
