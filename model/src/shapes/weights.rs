//! Seeded weights: a function of the tensor's name and the element's index, the same in `tools/reference/weights.py`.
//!
//! Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014), for SplitMix64.

/// Half the range of a matrix's elements. Their standard deviation of 0.08 keeps logits from being so flat that faults
/// drown in them.
const MATRIX_AMPLITUDE: f32 = 0.14;
const NORM_AMPLITUDE: f32 = 0.3;
const BIAS_AMPLITUDE: f32 = 0.2;

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

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A multiple of 2⁻²³ from [-1, 1): exact in single precision.
    fn next_unit(&mut self) -> f32 {
        ((self.next_u64() >> 40) as i32 - (1 << 23)) as f32 / (1 << 23) as f32
    }
}

/// The elements of a weight by its GGUF name.
pub(crate) fn weight(name: &str, len: usize) -> Vec<f32> {
    let mut random = Random::new(name);
    let mut fill = |f: &dyn Fn(f32) -> f32| (0..len).map(|_| f(random.next_unit())).collect();
    match name {
        _ if name.ends_with("_norm.weight") => fill(&|u| 1.0 + u * NORM_AMPLITUDE),
        _ if name.ends_with(".bias") => fill(&|u| u * BIAS_AMPLITUDE),
        _ => fill(&|u| u * MATRIX_AMPLITUDE),
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
        assert_eq!(weight("output_norm.weight", 2), [1.074_372_2, 1.289_491_8]);
    }
}
