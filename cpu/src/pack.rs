//! Weights as the SIMD kernels read them: groups of rows, so that a vector's lanes are output rows.
//!
//! A group of R rows holds, for each block, the R half-precision scales (and minima) side by side; then, 64-byte aligned,
//! for each block the integer sub-block factors in pairs and the quants as 32-bit words, word `w` of row `r` at
//! `w * R + r`. A word holds four weights' worth of one bit plane:
//!
//! | plane | words for 32 weights | content |
//! |---|---|---|
//! | 4 bits | 4 | byte `i` of word `j`: weight `4j + i` in the low, weight `16 + 4j + i` in the high nibble |
//! | 1st, 3rd or 5th bit | 1 | bit `s` of byte `i`: weight `4s + i` |
//! | 1st and 2nd, or 5th and 6th bit | 2 | bits `2t, 2t + 1` of byte `i` of word `j`: weight `16j + 4t + i` |
//! | 8 bits | 8 | byte `i` of word `j`: weight `4j + i`, plus 128 |
//!
//! All planes are unsigned; a format's offset (1 to 128) is taken off through the activation's sums. IQ4_NL, IQ4_XS,
//! MXFP4 and NVFP4 keep their codes, which the kernel looks up, and MXFP4 its scale as bfloat16. The code-book formats keep the
//! numbers of their entries (`pack/codebook.rs`). But for the last group's padding, the packed weights are as large as the
//! file's, or larger by this much:
//!
//! | format | bytes of 256 weights | why |
//! |---|---|---|
//! | Q4_K, Q5_K | + 4 | factors and minima as bytes |
//! | IQ2_XXS, IQ2_XS, IQ3_XXS | + 4 | the eighth sign of a group, which the file leaves to parity |
//! | IQ1_S | + 4 | a shift for each group, as in IQ1_M |
//! | IQ1_M | + 2 | factors of four bits |
//! | NVFP4 | + 16 | scales of half precision |
//! | TQ1_0 | + 12 | 2-bit planes: a third digit of three fits no plane |

mod codebook;
mod k;
mod legacy;

use llamay_formats::Format;

use crate::memory::AlignedBytes;

/// How one format is taken apart.
pub(crate) struct PackFormat {
    /// Half-precision numbers of a block: the scale, and for some formats the minimum, or several scales.
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
    scales: [u16; 4],
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
    ($format:ident, $scales:literal, $pairs:literal, $words:literal, $split:path) => {{
        /// Packs a group of at most `LANES` rows, the same block of all rows before the next, so that the result is
        /// written in order.
        fn pack<const LANES: usize>(group: &mut Group<'_>) {
            let mut rows: [&[[u8; Format::$format.block_bytes()]]; LANES] = [&[]; LANES];
            let mut n_rows = 0;
            for (to, row) in rows.iter_mut().zip(group.rows.chunks_exact(group.row_bytes)) {
                *to = row.as_chunks().0;
                n_rows += 1;
            }
            let mut block = Block { scales: [0; 4], pairs: [[0; 2]; 16], words: [0; 48] };
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
                8 => pack::<8>(group),
                16 => pack::<16>(group),
                _ => unreachable!("vectors have 8 or 16 lanes"),
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
            Format::Q4_0 => packing!(Q4_0, 1, 0, 4, legacy::q4_0),
            Format::Q4_1 => packing!(Q4_1, 2, 0, 4, legacy::q4_1),
            Format::Q5_0 => packing!(Q5_0, 1, 0, 5, legacy::q5_0),
            Format::Q5_1 => packing!(Q5_1, 2, 0, 5, legacy::q5_1),
            Format::Q8_0 => packing!(Q8_0, 1, 0, 8, legacy::q8_0),
            Format::IQ4_NL => packing!(IQ4_NL, 1, 0, 4, legacy::q4_0),
            Format::MXFP4 => packing!(MXFP4, 1, 0, 4, legacy::mxfp4),
            Format::NVFP4 => packing!(NVFP4, 4, 0, 8, legacy::nvfp4),
            Format::Q1_0 => packing!(Q1_0, 1, 0, 4, legacy::q1_0),
            Format::IQ4_XS => packing!(IQ4_XS, 1, 4, 32, k::iq4_xs),
            Format::Q2_K => packing!(Q2_K, 2, 16, 16, k::q2_k),
            Format::Q3_K => packing!(Q3_K, 1, 8, 24, k::q3_k),
            Format::Q4_K => packing!(Q4_K, 2, 8, 32, k::q4_k),
            Format::Q5_K => packing!(Q5_K, 2, 8, 40, k::q5_k),
            Format::Q6_K => packing!(Q6_K, 1, 8, 48, k::q6_k),
            Format::TQ1_0 => packing!(TQ1_0, 1, 0, 16, k::tq1_0),
            Format::TQ2_0 => packing!(TQ2_0, 1, 0, 16, k::tq2_0),
            Format::IQ1_S => packing!(IQ1_S, 1, 0, 13, codebook::iq1_s),
            Format::IQ1_M => packing!(IQ1_M, 1, 0, 14, codebook::iq1_m),
            Format::IQ2_XXS => packing!(IQ2_XXS, 1, 0, 17, codebook::iq2_xxs),
            Format::IQ2_XS => packing!(IQ2_XS, 1, 0, 19, codebook::iq2_xs),
            Format::IQ2_S => packing!(IQ2_S, 1, 0, 20, codebook::iq2_s),
            Format::IQ3_XXS => packing!(IQ3_XXS, 1, 0, 25, codebook::iq3_xxs),
            Format::IQ3_S => packing!(IQ3_S, 1, 0, 27, codebook::iq3_s),
            _ => return None,
        })
    }

    /// Bytes of a block of one row.
    pub(crate) const fn block_bytes(&self) -> usize {
        2 * self.scales + 2 * self.pairs + 4 * self.words
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

/// The low nibbles of a word.
const LOW: u32 = 0x0f0f_0f0f;

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
