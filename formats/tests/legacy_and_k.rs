//! Decoding and dot products of the legacy and K formats against their formulas in float64.

mod support;

use llamay_formats::{
    Format, QuantizedRow, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, q8_1, q8_k,
};
use support::{Random, decode};

const FORMATS: [Format; 12] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q8_1,
    Format::Q2_K,
    Format::Q3_K,
    Format::Q4_K,
    Format::Q5_K,
    Format::Q6_K,
    Format::Q8_K,
];

/// Where a block holds half-precision numbers.
fn f16_offsets(format: Format) -> &'static [usize] {
    match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q8_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q6_K => &[208],
        _ => &[],
    }
}

/// Makes the block's scales finite, below 2, and not too small for a normal float32.
fn tame(format: Format, block: &mut [u8]) {
    for &at in f16_offsets(format) {
        block[at + 1] &= 0xbf;
    }
    if format == Format::Q8_K {
        let d = f32::from_le_bytes([block[0], block[1], block[2], 0x3c]);
        block[..4].copy_from_slice(&d.to_le_bytes());
    }
}

/// Random blocks; blocks whose quants and scales are all zero bits, all one bits, or one repeated byte.
fn blocks(format: Format) -> Vec<Vec<u8>> {
    let mut random = Random(format as u64);
    let mut blocks: Vec<Vec<u8>> = (0..200).map(|_| random.bytes(format.block_bytes())).collect();
    for byte in [0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0, 0x55, 0xaa] {
        for _ in 0..4 {
            let mut block = vec![byte; format.block_bytes()];
            for &at in f16_offsets(format) {
                block[at..at + 2].copy_from_slice(&random.bytes(2));
            }
            blocks.push(block);
        }
    }
    for block in &mut blocks {
        tame(format, block);
    }
    blocks
}

fn f16(block: &[u8], at: usize) -> f64 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f64()
}

/// Each weight as an exact product and an exact offset; the weight is their sum.
fn exact(format: Format, block: &[u8]) -> Vec<(f64, f64)> {
    let scaled =
        |d: f64, q: &[i8]| -> Vec<(f64, f64)> { q.iter().map(|&q| (d * f64::from(q), 0.0)).collect() };
    let offset =
        |d: f64, m: f64, q: &[i8]| -> Vec<(f64, f64)> { q.iter().map(|&q| (d * f64::from(q), m)).collect() };
    let by_16 = |d: f64, scales: [i8; 16], q: [i8; 256]| -> Vec<(f64, f64)> {
        q.iter().enumerate().map(|(i, &q)| (d * f64::from(scales[i / 16]) * f64::from(q), 0.0)).collect()
    };
    let affine = |(d, dmin): (f32, f32), scales: &[u8], mins: &[u8], q: [i8; 256]| -> Vec<(f64, f64)> {
        let sub = |i: usize| i / (256 / scales.len());
        q.iter()
            .enumerate()
            .map(|(i, &q)| {
                let product = f64::from(d) * f64::from(scales[sub(i)]) * f64::from(q);
                (product, -f64::from(dmin) * f64::from(mins[sub(i)]))
            })
            .collect()
    };
    match format {
        Format::Q4_0 => scaled(f16(block, 0), &q4_0::quants(block)),
        Format::Q4_1 => offset(f16(block, 0), f16(block, 2), &q4_1::quants(block)),
        Format::Q5_0 => scaled(f16(block, 0), &q5_0::quants(block)),
        Format::Q5_1 => offset(f16(block, 0), f16(block, 2), &q5_1::quants(block)),
        Format::Q8_0 => scaled(f16(block, 0), &q8_0::quants(block)),
        Format::Q8_1 => scaled(f16(block, 0), &q8_1::quants(block)),
        Format::Q8_K => scaled(f64::from(q8_k::scale(block)), &q8_k::quants(block)),
        Format::Q3_K => by_16(f16(block, 108), q3_k::unpack_scales(&block[96..108]), q3_k::quants(block)),
        Format::Q6_K => by_16(f16(block, 208), q6_k::unpack_scales(&block[192..208]), q6_k::quants(block)),
        Format::Q2_K => {
            let (scales, mins) = q2_k::unpack_scales(&block[..16]);
            affine(q2_k::super_scales(block), &scales, &mins, q2_k::quants(block))
        }
        Format::Q4_K => {
            let (scales, mins) = q4_k::unpack_scales(&block[4..16]);
            affine(q4_k::super_scales(block), &scales, &mins, q4_k::quants(block))
        }
        Format::Q5_K => {
            let (scales, mins) = q5_k::unpack_scales(&block[4..16]);
            affine(q5_k::super_scales(block), &scales, &mins, q5_k::quants(block))
        }
        _ => unreachable!("{format} is not in the list"),
    }
}

/// Rows of `len`: random, all at one end, alternating, with an outlier, zero.
fn activations(format: Format, len: usize, seed: u64) -> Vec<QuantizedRow> {
    let mut random = Random(seed);
    let normal = random.normals(len, 3.0);
    let mut outlier = random.normals(len, 0.01);
    outlier[len / 3] = -50.0;
    let alternating = (0..len).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    [normal, outlier, alternating, vec![2.0; len], vec![-2.0; len], vec![0.0; len]]
        .iter()
        .map(|x| QuantizedRow::new(format.activation(), x))
        .collect()
}

#[test]
fn decoding_is_the_formula_rounded() {
    for format in FORMATS {
        for block in blocks(format) {
            for (i, (w, (product, offset))) in
                decode(format, &block).into_iter().zip(exact(format, &block)).enumerate()
            {
                let bound = 2f64.powi(-22) * (product.abs() + offset.abs());
                let off = (f64::from(w) - (product + offset)).abs();
                assert!(off <= bound, "{format}, weight {i}: {w:e}, not {:e}", product + offset);
            }
        }
    }
}

#[test]
fn a_block_value_rounds_exact_sums_a_few_times_only() {
    for format in FORMATS {
        for (seed, block) in blocks(format).iter().enumerate() {
            let weights = exact(format, block);
            for x in activations(format, format.block_len(), seed as u64) {
                let (mut product, mut offset) = (0.0, 0.0);
                for ((p, o), &a) in weights.iter().zip(x.quants()) {
                    product += p * f64::from(a);
                    offset += o * f64::from(a);
                }
                let scale = f64::from(x.scale_at(0));
                let dot = f64::from(format.dot(block, &x));
                let bound = 2f64.powi(-21) * scale * (product.abs() + offset.abs());
                let expected = scale * (product + offset);
                assert!(
                    (dot - expected).abs() <= bound,
                    "{format}: {dot:e}, not {expected:e}, for {block:?}"
                );
            }
        }
    }
}

#[test]
fn a_row_sums_to_the_dot_product_of_its_weights() {
    for format in FORMATS {
        let blocks = blocks(format);
        for n in [1, 2, 7, 8, 9, 16, 17, 63] {
            let row: Vec<u8> = blocks.iter().cycle().skip(n).take(n).flatten().copied().collect();
            let weights: Vec<(f64, f64)> =
                row.chunks(format.block_bytes()).flat_map(|block| exact(format, block)).collect();
            for x in activations(format, weights.len(), n as u64) {
                let (mut expected, mut magnitude) = (0.0, 0.0);
                for (i, ((p, o), &a)) in weights.iter().zip(x.quants()).enumerate() {
                    let a = f64::from(a) * f64::from(x.scale_at(i));
                    expected += (p + o) * a;
                    magnitude += (p.abs() + o.abs()) * a.abs();
                }
                let dot = f64::from(format.dot(&row, &x));
                assert!(
                    (dot - expected).abs() <= 1e-5 * magnitude,
                    "{format}, {n} blocks: {dot:e}, not {expected:e}"
                );
            }
        }
    }
}

/// The contract in the plainest words: equal spans, each summed from the left, added pairwise.
#[test]
fn a_row_is_eight_spans_summed_from_the_left() {
    for format in [Format::Q4_0, Format::Q4_1, Format::Q4_K, Format::Q6_K] {
        let blocks = blocks(format);
        for n in 1..=40 {
            let row: Vec<u8> = blocks.iter().cycle().skip(3 * n).take(n).flatten().copied().collect();
            let x = Random(n as u64).normals(n * format.block_len(), 1.0);
            let x = QuantizedRow::new(format.activation(), &x);
            // A block alone against activations of scale 1 is its value.
            let value = |i: usize| {
                let quants: Vec<f32> = x
                    .block(i * format.block_len(), format.block_len())
                    .quants
                    .iter()
                    .map(|&q| f32::from(q))
                    .collect();
                let unit = QuantizedRow::new(format.activation(), &quants);
                assert_eq!(unit.scales(), [1.0], "every block has a quant of 127");
                format.dot(&row[i * format.block_bytes()..][..format.block_bytes()], &unit)
            };
            let span = |s: usize| {
                let len = n.div_ceil(8);
                (s * len..((s + 1) * len).min(n)).fold(0.0f32, |acc, i| x.scales()[i].mul_add(value(i), acc))
            };
            let s: Vec<f32> = (0..8).map(span).collect();
            let expected = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
            assert_eq!(format.dot(&row, &x).to_bits(), expected.to_bits(), "{format}, {n} blocks");
        }
    }
}

#[test]
fn an_empty_row_has_the_dot_product_zero() {
    for format in FORMATS {
        let x = QuantizedRow::new(format.activation(), &[]);
        assert_eq!(format.dot(&[], &x).to_bits(), 0, "{format}");
    }
}
