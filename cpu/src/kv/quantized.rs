//! Blocks of a quantised cache: 32 elements of a head at one position, and their scale.

use half::f16;
use llamay_formats::{MIN_AMAX, block_scale, round_even};
use llamay_plan::{KV_BLOCK, KV_PAGE, KvType};

/// A block's scale, and its quants; an element is their product.
struct Block {
    scale: f16,
    quants: [i8; KV_BLOCK],
}

/// Quants of -127..=127: the largest magnitude is 127.
fn q8_0(x: &[f32; KV_BLOCK]) -> Block {
    // By bits, so that a NaN is the largest magnitude and is not lost.
    let amax = x.iter().fold(0, |m, v| (v.to_bits() & 0x7fff_ffff).max(m));
    let scale = block_scale(f32::from_bits(amax));
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    Block { scale: f16::from_f32(scale), quants: x.map(|v| round_even(v * inverse) as i8) }
}

/// Quants of -8..=7. The largest magnitude becomes -8, whichever its sign, since only that side has an eighth step; of two
/// equal ones the positive.
fn q4_0(x: &[f32; KV_BLOCK]) -> Block {
    let amax = f32::from_bits(x.iter().fold(0, |m, v| (v.to_bits() & 0x7fff_ffff).max(m)));
    let step = if amax < MIN_AMAX { 0.0 } else { amax * 0.125 };
    let scale = if x.contains(&amax) { -step } else { step };
    let inverse = if step > 0.0 { 1.0 / scale } else { 0.0 };
    let quant = |v: f32| {
        let q = round_even(v * inverse);
        (if q > 7.0 { 7.0 } else { q }) as i8
    };
    // A NaN is no element of its block, so the scale is +NaN.
    Block { scale: f16::from_f32(scale), quants: x.map(quant) }
}

/// The factors of a turned key and a turned query: together 1/32, each a power of two, so that they round nothing.
const KEY: f32 = 0.25;
const QUERY: f32 = 0.125;

/// Turns a block of 32 by a Walsh-Hadamard transform, times `factor`.
///
/// The product of two turned blocks is 32 times that of the blocks, but an element that is large beside the others, as some
/// models' keys have them, is spread over all, and no longer takes their precision (Ashkboos et al., "QuaRot", 2024).
fn turn(x: &mut [f32; KV_BLOCK], factor: f32) {
    let mut half = 1;
    while half < KV_BLOCK {
        for i in 0..KV_BLOCK {
            if i & half == 0 {
                (x[i], x[i + half]) = (x[i] + x[i + half], x[i] - x[i + half]);
            }
        }
        half *= 2;
    }
    for x in x {
        *x *= factor;
    }
}

/// A query as it meets quantised keys: filled up to whole blocks, and turned as they are. `turned` has the length of the
/// blocks.
pub(crate) fn turn_query(q: &[f32], turned: &mut [f32]) {
    turned.fill(0.0);
    turned[..q.len()].copy_from_slice(q);
    turned.as_chunks_mut().0.iter_mut().for_each(|block| turn(block, QUERY));
}

/// Bytes of the quants that a block has in a page, at all positions; scales follow behind the quants of all blocks.
pub(crate) const fn quant_bytes(kind: KvType) -> usize {
    KV_PAGE * (kind.head_bytes(KV_BLOCK) - 2)
}

/// Which of a head's rows is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    Key,
    Value,
}

/// Quantises a head's row and stores it at a position of the head's keys or values in a page.
pub(super) fn store(kind: KvType, part: &mut [u8], at: usize, row: &[f32], which: Row) {
    let put = if which == Row::Key { put_key } else { put_value };
    let n_blocks = row.len().div_ceil(KV_BLOCK);
    let (quants, scales) = part.split_at_mut(n_blocks * quant_bytes(kind));
    let scales: &mut [u16] = bytemuck::cast_slice_mut(scales);
    for (b, x) in row.chunks(KV_BLOCK).enumerate() {
        let mut padded = [0.0; KV_BLOCK];
        padded[..x.len()].copy_from_slice(x);
        if which == Row::Key {
            turn(&mut padded, KEY);
        }
        let place = Place { block: b, n_blocks, at };
        if kind == KvType::Q8_0 {
            let block = q8_0(&padded);
            scales[b * KV_PAGE + at] = block.scale.to_bits();
            put(quants, place, bytemuck::cast_slice(&block.quants));
        } else {
            let block = q4_0(&padded);
            scales[b * KV_PAGE + at] = block.scale.to_bits();
            let nibble = |q: i8| (q + 8) as u8;
            let pairs: [u8; KV_BLOCK / 2] = std::array::from_fn(|i| {
                nibble(block.quants[i]) | nibble(block.quants[i + KV_BLOCK / 2]) << 4
            });
            put(quants, place, &pairs);
        }
    }
}

/// Where a block is in a page.
struct Place {
    block: usize,
    n_blocks: usize,
    at: usize,
}

/// Keys, 32 signed bytes or 16 pairs of nibbles a block: four bytes of a position together, so that a lane of 32 bits holds four of its elements. Signed bytes get the
/// offset that makes them unsigned, as the kernels' dot products want them.
fn put_key(quants: &mut [u8], place: Place, bytes: &[u8]) {
    let offset = if bytes.len() == KV_BLOCK { 128 } else { 0 };
    let words = quants[place.block * bytes.len() * KV_PAGE..].chunks_exact_mut(4 * KV_PAGE);
    for (four, word) in bytes.chunks_exact(4).zip(words) {
        let to = &mut word[4 * place.at..];
        to.iter_mut().zip(four).for_each(|(to, q)| *to = q.wrapping_add(offset));
    }
}

/// Values: a position's bytes together.
fn put_value(quants: &mut [u8], place: Place, bytes: &[u8]) {
    let first = (place.at * place.n_blocks + place.block) * bytes.len();
    quants[first..first + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(f: impl Fn(usize) -> f32) -> [f32; KV_BLOCK] {
        std::array::from_fn(f)
    }

    fn worst(x: &[f32; KV_BLOCK], block: &Block) -> f32 {
        let scale = block.scale.to_f32();
        x.iter().zip(block.quants).map(|(x, q)| (x - scale * f32::from(q)).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn an_element_is_off_by_half_a_step_and_the_scale_s_rounding() {
        for magnitude in [1e-3, 1.0, 77.0, 3000.0] {
            let x = block(|i| ((i * 37 + 11) % 64) as f32 * magnitude / 64.0 - magnitude / 3.0);
            let amax = x.iter().fold(0.0, |m: f32, v| m.max(v.abs()));
            // Half-precision rounds the scale by up to 2^-11 of itself, or 2^-25 where it is subnormal.
            let (eight, four) = (q8_0(&x), q4_0(&x));
            assert!(worst(&x, &eight) <= amax / 127.0 * 0.5 + amax / 2048.0 + 127.0 / 33e6);
            // On the far side the last step is missing.
            assert!(worst(&x, &four) <= amax / 8.0 * 1.001 && eight.quants.iter().all(|q| *q > -128));
        }
    }

    #[test]
    fn turned_blocks_keep_their_product_and_spread_what_is_large() {
        let key = block(|i| if i == 3 { 300.0 } else { (i as f32 - 15.0) / 16.0 });
        let query = block(|i| ((i * 7) % 13) as f32 - 6.0);
        let (mut turned_key, mut turned_query) = (key, [0.0; KV_BLOCK]);
        turn(&mut turned_key, KEY);
        turn_query(&query, &mut turned_query);
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let (want, got) = (product(&key, &query), product(&turned_key, &turned_query));
        assert!((got - want).abs() < 1e-3, "{got} for {want}");
        let largest = turned_key.iter().fold(0.0, |m: f32, v| m.max(v.abs()));
        assert!(turned_key.iter().all(|v| v.abs() > largest / 2.0));
    }

    #[test]
    fn the_largest_magnitude_of_four_bits_has_either_sign() {
        for sign in [1.0, -1.0] {
            let x = block(|i| if i == 5 { 4.0 * sign } else { 0.5 });
            let quantized = q4_0(&x);
            assert_eq!(quantized.quants[5], -8);
            assert_eq!(quantized.scale.to_f32() * -8.0, x[5]);
        }
        assert_eq!(q4_0(&block(|i| if i % 2 == 0 { 8.0 } else { -8.0 })).scale.to_f32(), -1.0);
    }

    #[test]
    fn nothing_and_next_to_nothing_are_zero_and_nan_is_not_lost() {
        for x in [0.0, 1e-30] {
            let x = block(|_| x);
            assert!(q8_0(&x).scale.to_f32() == 0.0 && q4_0(&x).scale.to_f32() == 0.0);
        }
        let x = block(|i| if i == 31 { f32::NAN } else { 1.0 });
        assert!(q8_0(&x).scale.is_nan() && q4_0(&x).scale.is_nan());
        let x = block(|i| if i == 0 { f32::INFINITY } else { 1.0 });
        assert!(q8_0(&x).scale.is_infinite() && q4_0(&x).scale.is_infinite());
    }
}
