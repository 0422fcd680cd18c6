//! Every kernel of every instruction set that this machine has gives the portable kernel's bits.

use llamay_formats::{Activation, Format, QuantizedRow};
use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs, Scoring};

use super::*;
use crate::memory::AlignedBytes;
use crate::pack::{PackFormat, pack_group};

mod attention;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

const NONLINEARITIES: [Nonlinearity; 6] = [
    Nonlinearity::Silu,
    Nonlinearity::GeluTanh,
    Nonlinearity::Gelu,
    Nonlinearity::Relu,
    Nonlinearity::ReluSquared,
    Nonlinearity::Sigmoid,
];

/// How the bytes of test weights are chosen.
#[derive(Clone, Copy, Debug)]
enum Fill {
    Random,
    Ones,
    Zeros,
    /// The top bit of each byte alone: -128 where a weight is a signed byte.
    Tops,
}

/// Rows of a format with any quants and factors, and finite scales.
fn weights(random: &mut Random, format: Format, rows: usize, k: usize, fill: Fill) -> Vec<u8> {
    let n = rows * format.row_bytes(k).expect("k is whole blocks");
    let mut bytes: Vec<u8> = (0..n)
        .map(|_| match fill {
            Fill::Random => random.bits() as u8,
            Fill::Ones => 0xff,
            Fill::Zeros => 0,
            Fill::Tops => 0x80,
        })
        .collect();
    let halves: &[usize] = match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 | Format::IQ4_NL | Format::IQ4_XS => &[0],
        Format::IQ1_S | Format::IQ2_XXS | Format::IQ2_XS | Format::IQ2_S => &[0],
        Format::IQ3_XXS | Format::IQ3_S | Format::Q1_0 => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q6_K => &[208],
        Format::TQ1_0 => &[52],
        Format::TQ2_0 => &[64],
        _ => &[],
    };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        for at in halves {
            let half =
                half::f16::from_f32(random.float() * if matches!(fill, Fill::Ones) { 6e4 } else { 0.1 });
            block[*at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
    }
    match format {
        // The scale's bits are the top nibbles of four words; the sign and a part of the exponent are in the last.
        Format::IQ1_M => bytes.chunks_exact_mut(56).for_each(|b| b[55] = b[55] & 0x8f | 0x20),
        Format::F16 => bytes.chunks_exact_mut(2).for_each(|b| {
            b.copy_from_slice(&half::f16::from_f32(random.float()).to_le_bytes());
        }),
        Format::BF16 => bytes.chunks_exact_mut(2).for_each(|b| {
            b.copy_from_slice(&half::bf16::from_f32(random.float()).to_le_bytes());
        }),
        Format::F32 => {
            bytes.chunks_exact_mut(4).for_each(|b| b.copy_from_slice(&random.float().to_le_bytes()))
        }
        _ => {}
    }
    bytes
}

/// Activations with a spread of magnitudes, whole blocks of zeros, and blocks at the bound of what counts as zero.
fn activations(random: &mut Random, k: usize, cols: usize) -> Vec<f32> {
    let mut x = random.floats(k * cols);
    for (i, block) in x.chunks_mut(32).enumerate() {
        let factor = match i % 7 {
            3 => 0.0,
            4 => 1e-30,
            5 => 1e4,
            _ => 1.0,
        };
        block.iter_mut().for_each(|v| *v *= factor);
    }
    x
}

/// The kernels of this machine; of the portable set alone where `LLAMAY_BACKEND` asks for that.
pub(crate) fn isas() -> impl Iterator<Item = Kernels> {
    let portable = std::env::var("LLAMAY_BACKEND").is_ok_and(|backend| backend == "portable");
    Isa::available().into_iter().filter(move |isa| !portable || *isa == Isa::Portable).map(Kernels::of)
}

/// The kernel's `[cols][rows]` product.
fn packed_product(
    kernels: &Kernels,
    format: Format,
    bytes: &[u8],
    rows: usize,
    k: usize,
    x: &[f32],
) -> Vec<f32> {
    let lanes = kernels.isa.group_rows();
    let size = PackedMatrix::bytes(format, rows, k, lanes).expect("a packed format");
    let data = AlignedBytes::zeroed(size).expect("a small matrix");
    let mut packed = PackedMatrix::new(format, rows, k, lanes, data);
    let row_bytes = format.row_bytes(k).expect("whole blocks");
    for (group, rows) in packed.groups_mut().zip(bytes.chunks(lanes * row_bytes)) {
        pack_group(format, k, lanes, rows, group);
    }
    let layout = ActLayout::new(format.activation(), k);
    let n_cols = x.len() / k;
    let mut records = vec![0u32; n_cols * layout.words];
    for (x, record) in x.chunks_exact(k).zip(records.chunks_exact_mut(layout.words)) {
        // SAFETY: the instruction set is available.
        unsafe { (kernels.elementwise.record)(x, &layout, record) };
    }
    // One float more on each side shows writes out of bounds.
    let mut out = vec![f32::NAN; n_cols * rows + 2];
    let args = MatArgs {
        weights: &packed,
        groups: 0..packed.n_groups(),
        layout: &layout,
        x: &records,
        n_cols,
        out: out[1..].as_mut_ptr(),
        first_row: 0,
        out_stride: rows,
    };
    let kernel = kernels.matmul(format).expect("a packed format");
    // SAFETY: the instruction set is available, and all buffers have the sizes that the arguments say.
    unsafe { kernel(&args) };
    assert!(out[0].is_nan() && out[n_cols * rows + 1].is_nan(), "{format}: a write out of bounds");
    out[1..=n_cols * rows].to_vec()
}

pub(crate) fn assert_same_bits(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{what}: element {i}: {a} and {b}");
    }
}

#[test]
fn packed_products_equal_the_reference_dot() {
    let mut random = Random(1);
    for kernels in isas() {
        for &format in Format::ALL.iter().filter(|f| kernels.matmul(**f).is_some()) {
            assert!(PackFormat::of(format).is_some(), "{format} has a kernel, so it has a packing");
            let block = format.block_len();
            // Every number of blocks up to two spans' worth, and rows and columns around the tile's.
            for n_blocks in (1..=17).chain([25, 64]) {
                let k = n_blocks * block;
                for (rows, cols, fill) in [
                    (1, 1, Fill::Random),
                    (19, 9, Fill::Random),
                    (16, 4, Fill::Ones),
                    (8, 3, Fill::Zeros),
                    (9, 6, Fill::Tops),
                    (33, 17, Fill::Random),
                ] {
                    if n_blocks > 9 && rows > 19 {
                        continue;
                    }
                    let w = weights(&mut random, format, rows, k, fill);
                    let mut x = activations(&mut random, k, cols);
                    if !matches!(fill, Fill::Random) {
                        // Quants of 127 or -127: of one sign, for the largest sums, or mixed.
                        let negative = |i: usize| [false, true, i.is_multiple_of(3)][i / k % 3];
                        x.iter_mut().enumerate().for_each(|(i, v)| *v = if negative(i) { -1.0 } else { 1.0 });
                    }
                    let got = packed_product(&kernels, format, &w, rows, k, &x);
                    let row_bytes = format.row_bytes(k).expect("whole blocks");
                    let want: Vec<f32> = x
                        .chunks_exact(k)
                        .flat_map(|x| {
                            let x = QuantizedRow::new(format.activation(), x);
                            w.chunks_exact(row_bytes).map(move |w| format.dot(w, &x)).collect::<Vec<_>>()
                        })
                        .collect();
                    assert_same_bits(
                        &got,
                        &want,
                        &format!("{format} on {}: {rows} rows, {cols} columns, k {k}", kernels.isa.name()),
                    );
                }
            }
        }
    }
}

#[test]
fn all_columns_of_several_panels_are_computed() {
    let mut random = Random(2);
    // A code book's panel shares what is expanded of it, here in spans of two blocks and a last one of one.
    for (format, k) in [(Format::Q4_0, 64), (Format::IQ3_S, 9 * 256)] {
        for kernels in isas().filter(|k| k.isa != Isa::Portable) {
            let (rows, cols) = (24, 2 * PANEL + 5);
            let w = weights(&mut random, format, rows, k, Fill::Random);
            let x = activations(&mut random, k, cols);
            let all = packed_product(&kernels, format, &w, rows, k, &x);
            for (x, column) in x.chunks_exact(k).zip(all.chunks_exact(rows)) {
                let alone = packed_product(&kernels, format, &w, rows, k, x);
                assert_same_bits(&alone, column, "one column alone");
            }
        }
    }
}

#[test]
fn float_products_equal_the_reference_dot() {
    let mut random = Random(3);
    for kernels in isas() {
        let Some(kernel) = kernels.float else { continue };
        for format in [Format::F32, Format::F16, Format::BF16] {
            let ends_of_vectors = (1..=33).chain([64, 100]).flat_map(|k| [(k, 1, 1), (k, 5, 3), (k, 9, 13)]);
            let columns = (1..=12).map(|cols| (576, 19, cols));
            // Past the ends of a kernel's blocks: elements of a row, rows and columns.
            let blocks = [(512, 5, 4), (520, 70, 5), (1029, 33, 4), (1029, 5, 250)];
            for (k, rows, cols) in ends_of_vectors.chain(columns).chain(blocks) {
                let w = weights(&mut random, format, rows, k, Fill::Random);
                let x = random.floats(k * cols);
                let records: Vec<u32> = x.iter().map(|v| v.to_bits()).collect();
                let mut out = vec![f32::NAN; rows * cols];
                let args = FloatArgs {
                    format,
                    weights: &w,
                    k,
                    rows: 0..rows,
                    x: &records,
                    n_cols: cols,
                    out: out.as_mut_ptr(),
                    first_row: 0,
                    out_stride: rows,
                };
                // SAFETY: the instruction set is available, and the buffers have these sizes.
                unsafe { kernel(&args) };
                let size = format.block_bytes() * k;
                let want: Vec<f32> = x
                    .chunks_exact(k)
                    .flat_map(|x| w.chunks_exact(size).map(move |w| format.dot_f32(w, x)).collect::<Vec<_>>())
                    .collect();
                let name = kernels.isa.name();
                assert_same_bits(&out, &want, &format!("{format} on {name}: {rows} x {k}, {cols} columns"));
            }
        }
    }
}

#[test]
fn records_hold_the_reference_quantisation() {
    let mut random = Random(4);
    for kernels in isas() {
        for kind in [Activation::I8x32, Activation::I8x256] {
            let k = 5 * 256;
            let mut x = activations(&mut random, k, 1);
            // Halves, to meet ties: an amplitude of 127 makes the scale 1.
            x[..256].iter_mut().enumerate().for_each(|(i, v)| *v = i as f32 / 2.0 - 63.5);
            x[0] = 127.0;
            x[300] = f32::NAN;
            x[600] = f32::INFINITY;
            let layout = ActLayout::new(kind, k);
            let mut record = vec![0u32; layout.words];
            // SAFETY: the instruction set is available.
            unsafe { (kernels.elementwise.record)(&x, &layout, &mut record) };
            let want = QuantizedRow::new(kind, &x);
            let bytes: &[u8] = bytemuck::cast_slice(&record);
            let (n, size, at) = match kind {
                Activation::I8x256 => (256, block256::BYTES, block256::SCALE),
                _ => (32, block32::BYTES, block32::SCALE),
            };
            let blocks: Vec<&[u8]> = bytes.chunks_exact(size).collect();
            let scale = |b: &[u8]| f32::from_ne_bytes(b[at..at + 4].try_into().expect("four bytes"));
            let scales: Vec<f32> = blocks.iter().map(|b| scale(b)).collect();
            assert_same_bits(&scales, want.scales(), "scales");
            for (b, (block, want)) in blocks.iter().zip(want.quants().chunks_exact(n)).enumerate() {
                if scales[b].is_finite() {
                    let quants: &[i8] = bytemuck::cast_slice(&block[..n]);
                    assert_eq!(quants, want, "block {b} on {}", kernels.isa.name());
                }
            }
        }
    }
}

#[test]
fn row_kernels_equal_the_portable_ones() {
    let mut random = Random(5);
    let portable = elementwise::portable();
    for kernels in isas() {
        let e = kernels.elementwise;
        for n in [1, 2, 7, 8, 9, 31, 64, 100, 576] {
            let (x, y, w) = (random.floats(4 * n), random.floats(4 * n), random.floats(n));
            let mut out = [vec![0.0; 4 * n], vec![0.0; 4 * n]];
            // SAFETY: the instruction sets are available.
            unsafe {
                let none: &[f32] = &[];
                for kind in [NormKind::Rms, NormKind::Layer] {
                    // Shared, one for each part, none.
                    for (weight, bias) in
                        [(&w[..], none), (&w, &w), (&x, none), (&x, &y), (none, none), (none, &w)]
                    {
                        let norm = Norm { kind, len: n, weight, bias, eps: 1e-5 };
                        (e.norm)(&norm, &x, &mut out[0]);
                        (portable.norm)(&norm, &x, &mut out[1]);
                        assert_same_bits(&out[0], &out[1], "norm");
                    }
                }
                let wide: Vec<f32> = x.iter().map(|v| v * 30.0).collect();
                for f in NONLINEARITIES.map(Gating::Product).into_iter().chain([Gating::ClippedSwiglu]) {
                    (e.gate)(&wide, &y, f, &mut out[0]);
                    (portable.gate)(&wide, &y, f, &mut out[1]);
                    assert_same_bits(&out[0], &out[1], "gate");
                }
                for f in NONLINEARITIES {
                    out = [wide.clone(), wide.clone()];
                    (e.activate)(&mut out[0], f);
                    (portable.activate)(&mut out[1], f);
                    assert_same_bits(&out[0], &out[1], "activate");
                }
                out = [wide.clone(), wide.clone()];
                for (e, out) in [e, portable].iter().zip(&mut out) {
                    (e.softcap)(out, 15.0);
                    (e.scale)(out, 0.3);
                    (e.add_scaled)(out, &y, -1.7);
                }
                assert_same_bits(&out[0], &out[1], "softcap, scale, add_scaled");
                let mut sums = [vec![0.0; n], vec![0.0; n]];
                (e.combine)(&x, &[0.3, -1.0, 0.0, 2.5], &mut sums[0]);
                (portable.combine)(&x, &[0.3, -1.0, 0.0, 2.5], &mut sums[1]);
                assert_same_bits(&sums[0], &sums[1], "combine");
                out = [x.clone(), x.clone()];
                (e.add)(&mut out[0], &y);
                (portable.add)(&mut out[1], &y);
                assert_same_bits(&out[0], &out[1], "add");
                let frequencies: Vec<f32> = w.iter().map(|v| v.abs()).collect();
                let mut angles = vec![vec![0.0; n]; 4];
                let [c0, s0, c1, s1] = &mut angles[..] else { unreachable!("four") };
                (e.angles)(131_071.0, &frequencies, 1.0, c0, s0);
                (portable.angles)(131_071.0, &frequencies, 1.0, c1, s1);
                assert_same_bits(c0, c1, "cosines");
                assert_same_bits(s0, s1, "sines");
                for pairs in [RopePairs::Interleaved, RopePairs::Halves] {
                    // The rotated part is half of a head of 4n.
                    out = [x.clone(), x.clone()];
                    (e.rope)(&mut out[0], 4 * n, pairs, c0, s0);
                    (portable.rope)(&mut out[1], 4 * n, pairs, c0, s0);
                    assert_same_bits(&out[0], &out[1], "rope");
                    assert_same_bits(&out[0][2 * n..], &x[2 * n..], "the part behind the rotated one");
                }
            }
        }
    }
}

#[test]
fn routers_choose_the_best_and_of_equals_the_first() {
    let mut random = Random(8);
    let portable = elementwise::portable();
    for kernels in isas() {
        for n in [1, 3, 8, 60, 128] {
            // Few values, so that many scores are equal.
            let scores: Vec<f32> = random.floats(n).iter().map(|v| (v * 2.0).round() / 2.0).collect();
            let bias = random.floats(n);
            let n_used = n.min(6);
            for scoring in [Scoring::Softmax, Scoring::SoftmaxOfChosen, Scoring::Sigmoid] {
                for (bias, normalize) in [(&bias[..0], false), (&bias[..0], true), (&bias[..], true)] {
                    let router = Router { bias, scoring, normalize, scale: 1.5 };
                    let mut results = Vec::new();
                    for e in [kernels.elementwise, portable] {
                        let (mut chosen, mut weights) = (vec![0.0; n_used], vec![0.0; n_used]);
                        // SAFETY: the instruction sets are available.
                        unsafe { (e.route)(&router, &scores, &mut vec![0.0; n], &mut chosen, &mut weights) };
                        results.push([chosen, weights]);
                    }
                    assert_same_bits(&results[0][0], &results[1][0], "chosen");
                    assert_same_bits(&results[0][1], &results[1][1], "weights");
                    let chosen: Vec<usize> = results[0][0].iter().map(|e| *e as usize).collect();
                    let weights = &results[0][1];
                    assert!(!normalize || (weights.iter().sum::<f32>() - 1.5).abs() < 1e-5);
                    if bias.is_empty() {
                        let mut order: Vec<usize> = (0..n).collect();
                        order.sort_by(|a, b| scores[*b].partial_cmp(&scores[*a]).expect("numbers"));
                        assert_eq!(chosen, order[..n_used], "the sort is stable, so equals stay in order");
                    }
                }
            }
        }
    }
}
