//! Shared by the tests: seeded numbers and errors.
// Each test file uses some of it.
#![allow(dead_code, unreachable_pub)]

use llamay_formats::Format;

/// A small generator of random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }

    /// In -1..1.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Nearly normal, of deviation 1: a sum of twelve uniform numbers.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() * 0.5
    }

    pub fn normals(&mut self, n: usize, deviation: f32) -> Vec<f32> {
        (0..n).map(|_| self.normal() * deviation).collect()
    }
}

pub fn decode(format: Format, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / format.block_bytes() * format.block_len()];
    format.decode(bytes, &mut out);
    out
}

pub fn encode(format: Format, weights: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let mut out = vec![0xaa; format.row_bytes(weights.len()).unwrap()];
    format.encode(weights, importance, &mut out).unwrap_or_else(|e| panic!("{format}: {e}"));
    out
}

/// What is left of `weights` after encoding and decoding.
pub fn round_trip(format: Format, weights: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    decode(format, &encode(format, weights, importance))
}

/// Root of the mean squared error over that of the weights, each column counted by its `importance`.
pub fn error(weights: &[f32], decoded: &[f32], importance: &[f32]) -> f64 {
    let (mut off, mut all) = (0.0, 0.0);
    for (i, (&w, &d)) in weights.iter().zip(decoded).enumerate() {
        let importance = f64::from(importance[i % importance.len()]);
        off += importance * (f64::from(d) - f64::from(w)).powi(2);
        all += importance * f64::from(w).powi(2);
    }
    (off / all).sqrt()
}
