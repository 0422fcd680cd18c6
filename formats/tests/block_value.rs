//! The int8 dot product of a block against its decoded weights, in float64.

use std::path::Path;

use llamay_formats::{Activation, BlockFormat, Format, QuantizedRow};
use llamay_formats::{
    iq1_m::IQ1_M, iq1_s::IQ1_S, iq2_s::IQ2_S, iq2_xs::IQ2_XS, iq2_xxs::IQ2_XXS, iq3_s::IQ3_S,
    iq3_xxs::IQ3_XXS, iq4_nl::IQ4_NL, iq4_xs::IQ4_XS, mxfp4, mxfp4::MXFP4, nvfp4::NVFP4, q1_0::Q1_0,
    tq1_0::TQ1_0, tq2_0::TQ2_0,
};

/// Evaluates `$check::<F>()` for every format whose decoded weights are exact multiples of the block's scale.
macro_rules! each {
    ($check:ident) => {
        $check::<IQ1_M>();
        $check::<IQ1_S>();
        $check::<IQ2_S>();
        $check::<IQ2_XS>();
        $check::<IQ2_XXS>();
        $check::<IQ3_S>();
        $check::<IQ3_XXS>();
        $check::<IQ4_NL>();
        $check::<IQ4_XS>();
        $check::<MXFP4>();
        $check::<NVFP4>();
        $check::<Q1_0>();
        $check::<TQ1_0>();
        $check::<TQ2_0>();
    };
}

/// A small generator of bytes (SplitMix64).
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56) as u8
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// Random blocks whose weights are finite, and the golden ones, some of which have all bytes alike.
fn blocks<F: BlockFormat>() -> Vec<Vec<u8>> {
    let mut bytes = Bytes(F::FORMAT as u64);
    let mut blocks: Vec<Vec<u8>> = (0..200).map(|_| bytes.take(F::BLOCK_BYTES)).collect();
    let golden = format!("tests/golden/decode/{}.bin", F::FORMAT.name().to_lowercase());
    if let Ok(golden) = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(golden)) {
        let n = golden.len() / (F::BLOCK_BYTES + 4 * F::BLOCK_LEN);
        blocks.extend(golden.chunks(F::BLOCK_BYTES).take(n).map(<[u8]>::to_vec));
    }
    blocks.retain(|block| decode::<F>(block).iter().all(|w| w.is_finite()));
    assert!(blocks.len() > 100);
    blocks
}

fn decode<F: BlockFormat>(block: &[u8]) -> Vec<f32> {
    let mut weights = vec![0.0; F::BLOCK_LEN];
    F::decode(block, &mut weights);
    weights
}

/// Rows of `len` elements: random, all at either end, alternating.
fn activations(kind: Activation, len: usize, seed: u64) -> Vec<QuantizedRow> {
    let mut bytes = Bytes(seed);
    let random: Vec<f32> = (0..len).map(|_| f32::from(bytes.next() as i8)).collect();
    let alternating = (0..len).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    [random, vec![3.0; len], vec![-0.5; len], alternating]
        .iter()
        .map(|x| QuantizedRow::new(kind, x))
        .collect()
}

/// True where the format's dot product sees the block as zero, by its stated rule.
fn counts_as_zero<F: BlockFormat>(block: &[u8]) -> bool {
    F::FORMAT == Format::MXFP4 && block[0] < mxfp4::MIN_DOT_EXPONENT
}

#[test]
fn a_unit_value_is_the_exact_dot_product_rounded_twice_at_most() {
    fn check<F: BlockFormat>() {
        let len = F::BLOCK_LEN.max(F::FORMAT.activation().block_len());
        for (seed, block) in blocks::<F>().iter().enumerate() {
            let weights = decode::<F>(block);
            for x in activations(F::FORMAT.activation(), len, seed as u64) {
                for unit in 0..F::BLOCK_LEN / F::UNIT_LEN {
                    let part = x.block(unit * F::UNIT_LEN, F::UNIT_LEN);
                    let weights = &weights[unit * F::UNIT_LEN..][..F::UNIT_LEN];
                    let products =
                        weights.iter().zip(part.quants).map(|(&w, &a)| f64::from(w) * f64::from(a));
                    let exact = if counts_as_zero::<F>(block) { 0.0 } else { products.sum::<f64>() };
                    let value = f64::from(F::unit_value(block, unit, part));
                    // The integer sum and its product with the scale each round to 24 bits. Beyond float32 is infinite.
                    let fits = exact.abs() <= f64::from(f32::MAX);
                    assert!(
                        (value - exact).abs() <= exact.abs() * 2f64.powi(-23) || !fits && value.is_infinite(),
                        "{}, unit {unit}: {value:e}, not {exact:e}, for {block:?}",
                        F::FORMAT
                    );
                }
            }
        }
    }
    each!(check);
}

#[test]
fn a_row_of_blocks_sums_to_the_dot_product_of_its_weights() {
    fn check<F: BlockFormat>() {
        let blocks: Vec<_> = blocks::<F>()
            .into_iter()
            .filter(|b| !counts_as_zero::<F>(b) && decode::<F>(b).iter().all(|w| w.abs() < 1e9))
            .collect();
        for n in [1, 2, 7, 8, 9, 17, 64] {
            let row: Vec<u8> = blocks.iter().cycle().take(n).flatten().copied().collect();
            let mut weights = vec![0.0; n * F::BLOCK_LEN];
            F::FORMAT.decode(&row, &mut weights);
            for x in activations(F::FORMAT.activation(), n * F::BLOCK_LEN, n as u64) {
                let (mut exact, mut magnitude) = (0.0, 0.0);
                for (i, (&w, &a)) in weights.iter().zip(x.quants()).enumerate() {
                    let product = f64::from(w) * f64::from(a) * f64::from(x.scale_at(i));
                    exact += product;
                    magnitude += product.abs();
                }
                let dot = f64::from(F::FORMAT.dot(&row, &x));
                assert!(
                    (dot - exact).abs() <= 1e-5 * magnitude,
                    "{}, {n} blocks: {dot}, not {exact}",
                    F::FORMAT
                );
            }
        }
    }
    each!(check);
}

#[test]
fn a_block_value_is_the_sum_of_its_units() {
    fn check<F: BlockFormat>() {
        let len = F::BLOCK_LEN.max(F::FORMAT.activation().block_len());
        for block in blocks::<F>() {
            for x in activations(F::FORMAT.activation(), len, 1) {
                let x = x.block(0, F::BLOCK_LEN);
                let units = x.parts(F::UNIT_LEN).enumerate().map(|(i, part)| F::unit_value(&block, i, part));
                assert_eq!(F::block_value(&block, x), units.fold(0.0, |sum, t| sum + t), "{}", F::FORMAT);
            }
        }
    }
    each!(check);
}

#[test]
fn the_smallest_mxfp4_scales_lead_to_no_subnormal_product() {
    let least = llamay_formats::block_scale(llamay_formats::MIN_AMAX);
    assert!((least * mxfp4::dot_scale(mxfp4::MIN_DOT_EXPONENT)).is_normal());
    assert!(!(least * mxfp4::half_scale(mxfp4::MIN_DOT_EXPONENT - 1)).is_normal());
}
