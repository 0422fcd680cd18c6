//! The fields of each block format that are wider than a byte, for files in the other byte order.
//!
//! A big-endian file holds blocks as the incumbent's code on a big-endian host reads them: whatever that code loads
//! as a 16- or 32-bit number is swapped, whatever it loads byte by byte is not. For the types that the `gguf` Python
//! package converts (F32, F16, BF16, Q4_0, Q8_0, Q4_K, Q6_K, MXFP4, NVFP4) this is what its converter does; for the
//! others it follows the block structs of `ggml-common.h` and the decoders beside them. So the high bits of Q5_0 and
//! Q5_1, declared as four bytes, are one `u32`, since both the encoder and the decoder copy them from and to one.

use llamay_formats::Format;

/// `count` numbers of `width` bytes each, from byte `at` of a block on, `step` bytes from one to the next.
struct Numbers {
    at: usize,
    width: usize,
    count: usize,
    step: usize,
}

const fn u16s(at: usize, count: usize) -> Numbers {
    Numbers { at, width: 2, count, step: 2 }
}

const fn u32s(at: usize, count: usize) -> Numbers {
    Numbers { at, width: 4, count, step: 4 }
}

const fn u64s(at: usize, count: usize) -> Numbers {
    Numbers { at, width: 8, count, step: 8 }
}

/// What is wider than a byte in a block of this format.
fn wide_fields(format: Format) -> &'static [Numbers] {
    match format {
        Format::I8 | Format::MXFP4 | Format::NVFP4 => &[],
        Format::F16 | Format::BF16 | Format::I16 => const { &[u16s(0, 1)] },
        Format::F32 | Format::I32 => const { &[u32s(0, 1)] },
        Format::F64 | Format::I64 => const { &[u64s(0, 1)] },
        // d, then bytes.
        Format::Q4_0 | Format::Q8_0 | Format::IQ4_NL | Format::Q1_0 => const { &[u16s(0, 1)] },
        Format::IQ2_S | Format::IQ3_S => const { &[u16s(0, 1)] },
        // d and m or dmin, then bytes.
        Format::Q4_1 | Format::Q8_1 | Format::Q4_K | Format::Q5_K => const { &[u16s(0, 2)] },
        // d, qh.
        Format::Q5_0 => const { &[u16s(0, 1), u32s(2, 1)] },
        // d, m, qh.
        Format::Q5_1 => const { &[u16s(0, 2), u32s(4, 1)] },
        // scales, qs, d, dmin.
        Format::Q2_K => const { &[u16s(80, 2)] },
        // hmask, qs, scales, d.
        Format::Q3_K => const { &[u16s(108, 1)] },
        // ql, qh, scales, d.
        Format::Q6_K => const { &[u16s(208, 1)] },
        // d, qs, sums of 16.
        Format::Q8_K => const { &[u32s(0, 1), u16s(260, 16)] },
        // d, then for each 32 weights four index bytes and one word of signs and scale.
        Format::IQ2_XXS => const { &[u16s(0, 1), Numbers { at: 6, width: 4, count: 8, step: 8 }] },
        // d, qs, scales.
        Format::IQ2_XS => const { &[u16s(0, 1 + 32)] },
        // d, indices, words of signs and scale.
        Format::IQ3_XXS => const { &[u16s(0, 1), u32s(66, 8)] },
        // d, qs, qh.
        Format::IQ1_S => const { &[u16s(0, 1), u16s(34, 8)] },
        // qs, qh, scales that hold d in their top nibbles.
        Format::IQ1_M => const { &[u16s(48, 4)] },
        // d, scales_h, scales_l, qs.
        Format::IQ4_XS => const { &[u16s(0, 2)] },
        // qs, qh, d.
        Format::TQ1_0 => const { &[u16s(52, 1)] },
        // qs, d.
        Format::TQ2_0 => const { &[u16s(64, 1)] },
    }
}

/// Turns whole blocks from one byte order into the other, in place.
pub(crate) fn swap(format: Format, blocks: &mut [u8]) {
    let fields = wide_fields(format);
    for block in blocks.chunks_exact_mut(format.block_bytes()) {
        for field in fields {
            for i in 0..field.count {
                block[field.at + i * field.step..][..field.width].reverse();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_lies_in_its_block_and_apart_from_the_others() {
        for &format in Format::ALL {
            let mut end = 0;
            for field in wide_fields(format) {
                assert!(field.at >= end, "{format}: byte {}", field.at);
                end = field.at + field.step * (field.count - 1) + field.width;
            }
            assert!(end <= format.block_bytes(), "{format}");
        }
    }

    #[test]
    fn swapping_twice_changes_nothing() {
        for &format in Format::ALL {
            let blocks: Vec<u8> = (0..3 * format.block_bytes()).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut swapped = blocks.clone();
            swap(format, &mut swapped);
            assert_eq!(swapped == blocks, wide_fields(format).is_empty(), "{format}");
            swap(format, &mut swapped);
            assert_eq!(swapped, blocks, "{format}");
        }
    }

    #[test]
    fn a_q4_k_block_swaps_its_two_scales_and_nothing_else() {
        let mut block: Vec<u8> = (0..144).map(|i| i as u8).collect();
        swap(Format::Q4_K, &mut block);
        assert_eq!(block[..4], [1, 0, 3, 2]);
        assert!(block[4..].iter().enumerate().all(|(i, &b)| b as usize == i + 4));
    }
}
