//! Seeded weights: a function of the tensor's name and the element's index, the same in `tools/reference/weights.py`.
//!
//! Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014), for SplitMix64.

use super::table::{Tensor, in_layer};

/// Half the range of a matrix's elements. Their standard deviation of 0.08 keeps logits from being so flat that faults
/// drown in them.
const MATRIX_AMPLITUDE: f32 = 0.14;
const NORM_AMPLITUDE: f32 = 0.3;
const BIAS_AMPLITUDE: f32 = 0.2;
/// Scores then differ clearly between experts, and the first does not take all.
const ROUTER_AMPLITUDE: f32 = 0.2;
/// About as far as scores spread, so that sinks take a part that differs between heads.
const SINK_AMPLITUDE: f32 = 1.0;

/// What each step of SplitMix64 adds.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Random numbers that start from a name.
pub(crate) struct Random(u64);

impl Random {
    /// Starts from the FNV-1a hash of `name`.
    pub(crate) fn new(name: &str) -> Random {
        Random(
            name.bytes()
                .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)),
        )
    }

    /// Leaves out the first `n` numbers.
    fn skip(self, n: usize) -> Random {
        Random(self.0.wrapping_add(STEP.wrapping_mul(n as u64)))
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A multiple of 2⁻²³ from [-1, 1): exact in single precision.
    fn next_unit(&mut self) -> f32 {
        ((self.next_u64() >> 40) as i32 - (1 << 23)) as f32 / (1 << 23) as f32
    }
}

/// The elements of the tensor that is called `name`.
pub(super) fn weight(name: &str, tensor: &Tensor) -> Vec<f32> {
    match tensor {
        Tensor::Own(dims) => elements(name, 0, dims.iter().product()),
        Tensor::Of { parts, .. } => {
            let layer = name.split('.').nth(1).unwrap_or_default();
            parts.iter().flat_map(|(of, first, len)| elements(&in_layer(of, layer), *first, *len)).collect()
        }
    }
}

/// `len` elements from the element `first` on of the weight that `name` seeds.
fn elements(name: &str, first: usize, len: usize) -> Vec<f32> {
    let mut random = Random::new(name).skip(first);
    let (middle, amplitude) = distribution(name);
    (0..len).map(|_| middle + random.next_unit() * amplitude).collect()
}

/// The middle and half the range of a tensor's elements.
fn distribution(name: &str) -> (f32, f32) {
    match name {
        _ if name.ends_with("_norm.weight") => (1.0, NORM_AMPLITUDE),
        _ if name.ends_with(".bias") => (0.0, BIAS_AMPLITUDE),
        _ if name.ends_with(".ffn_gate_inp.weight") => (0.0, ROUTER_AMPLITUDE),
        _ if name.ends_with(".attn_sinks.weight") => (0.0, SINK_AMPLITUDE),
        _ => (0.0, MATRIX_AMPLITUDE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_python_twin() {
        // weights.bits("blk.0.attn_q.weight", 2) and weights.tensor("output_norm.weight", 2)
        let mut random = Random::new("blk.0.attn_q.weight");
        assert_eq!([random.next_u64(), random.next_u64()], [15094336526852450909, 11832732579017152081]);
        assert_eq!(elements("output_norm.weight", 0, 2), [1.074_372_2, 1.289_491_8]);
    }

    #[test]
    fn parts_are_runs_of_what_they_are_part_of() {
        let whole = weight("blk.1.ffn_up_exps.weight", &Tensor::Own(vec![4, 2, 3]));
        let parts = vec![("blk.*.ffn_up_exps.weight", 8, 8)];
        assert_eq!(weight("blk.1.ffn_up.1.weight", &Tensor::Of { dims: vec![4, 2], parts }), whole[8..16]);
    }
}
