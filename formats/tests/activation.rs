//! Quantised activations.

mod support;

use llamay_formats::{Activation, MIN_AMAX, QuantizedRow, SUM_LEN, round_even};
use proptest::prelude::*;
use support::Random;

const KINDS: [Activation; 2] = [Activation::I8x32, Activation::I8x256];

#[test]
fn the_largest_magnitude_becomes_127_of_its_sign() {
    for kind in KINDS {
        let mut random = Random(1);
        for round in 0..100 {
            let scale = 2f32.powi(round - 50);
            let mut x = random.normals(kind.block_len(), scale);
            let sign = if round % 2 == 0 { 1.0 } else { -1.0 };
            x[round as usize % 32] = sign * 20.0 * scale;
            let row = QuantizedRow::new(kind, &x);
            assert_eq!(row.quants()[round as usize % 32], sign as i8 * 127);
            assert!(row.quants().iter().all(|&q| q > -128));
        }
    }
}

#[test]
fn a_block_below_the_least_magnitude_is_zero_and_one_at_it_is_not() {
    for kind in KINDS {
        let len = kind.block_len();
        for (amax, zero) in
            [(0.0, true), (f32::from_bits(1), true), (MIN_AMAX * 0.999, true), (MIN_AMAX, false)]
        {
            let row = QuantizedRow::new(kind, &vec![-amax; len]);
            assert_eq!(row.scales()[0] == 0.0, zero, "{amax:e}");
            assert!(row.quants().iter().all(|&q| q == if zero { 0 } else { -127 }), "{amax:e}");
            assert!(zero || row.scales()[0].is_normal());
        }
    }
}

#[test]
fn a_zero_block_leaves_its_neighbours_alone() {
    for kind in KINDS {
        let len = kind.block_len();
        let x = Random(2).normals(3 * len, 1.0);
        let mut holed = x.clone();
        holed[len..2 * len].fill(0.0);
        let (whole, holed) = (QuantizedRow::new(kind, &x), QuantizedRow::new(kind, &holed));
        for at in [0, 2 * len] {
            assert_eq!(whole.block(at, len).quants, holed.block(at, len).quants);
            assert_eq!(whole.scale_at(at), holed.scale_at(at));
        }
        assert_eq!(holed.scale_at(len), 0.0);
    }
}

#[test]
fn a_nan_or_infinite_activation_is_not_lost() {
    for kind in KINDS {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1.0; kind.block_len()];
            x[7] = bad;
            assert!(!QuantizedRow::new(kind, &x).scales()[0].is_finite());
        }
    }
}

#[test]
fn rounding_is_to_nearest_with_ties_to_even() {
    for i in -2000..2000 {
        let x = i as f32 / 8.0;
        assert_eq!(round_even(x), x.round_ties_even(), "{x}");
    }
}

proptest! {
    #[test]
    fn quants_are_the_nearest_and_sums_are_theirs(seed: u64, blocks in 0usize..5, exponent in -60i32..60) {
        for kind in KINDS {
            let len = kind.block_len();
            let x = Random(seed).normals(blocks * len, 2f32.powi(exponent));
            let row = QuantizedRow::new(kind, &x);
            prop_assert_eq!((row.len(), row.scales().len()), (x.len(), blocks));
            for (i, (&x, &q)) in x.iter().zip(row.quants()).enumerate() {
                let steps = f64::from(x) / f64::from(row.scale_at(i));
                prop_assert!((steps - f64::from(q)).abs() <= 0.5001, "{} steps became {}", steps, q);
            }
            for (quants, &sum) in row.quants().chunks(SUM_LEN).zip(row.sums()) {
                prop_assert_eq!(quants.iter().map(|&q| i16::from(q)).sum::<i16>(), sum);
            }
            prop_assert_eq!(row.sums().len(), x.len() / SUM_LEN);
        }
    }
}
