//! The code books of the i-quants: points of a lattice, named by their number in a block.
//!
//! The books are part of the file format. They lie packed, two or four bits an element, in `grids/packed.rs` and are
//! expanded at compile time. Entries of the 2- and 3-bit books are magnitudes; signs travel apart ([`signed`]).

mod packed;

use crate::array;

/// The magnitudes of IQ2_XXS, IQ2_XS and IQ2_S, in eighths of a scale.
pub const IQ2_MAGNITUDES: [u8; 3] = [8, 25, 43];
/// The magnitudes of IQ3_XXS, in quarters of a scale.
pub const IQ3_XXS_MAGNITUDES: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
/// The magnitudes of IQ3_S.
pub const IQ3_S_MAGNITUDES: [u8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];

/// IQ2_XXS: 256 entries of 8 magnitudes from 8, 25, 43.
pub static IQ2_XXS_GRID: [[u8; 8]; 256] = magnitudes::<8, 256, 2>(&packed::IQ2_XXS, &IQ2_MAGNITUDES);
/// IQ2_XS: 512 entries of 8 magnitudes from 8, 25, 43.
pub static IQ2_XS_GRID: [[u8; 8]; 512] = magnitudes::<8, 512, 2>(&packed::IQ2_XS, &IQ2_MAGNITUDES);
/// IQ2_S: 1024 entries of 8 magnitudes from 8, 25, 43.
pub static IQ2_S_GRID: [[u8; 8]; 1024] = magnitudes::<8, 1024, 2>(&packed::IQ2_S, &IQ2_MAGNITUDES);
/// IQ3_XXS: 256 entries of 4 magnitudes from 4, 12, … 52, 62.
pub static IQ3_XXS_GRID: [[u8; 4]; 256] = magnitudes::<4, 256, 4>(&packed::IQ3_XXS, &IQ3_XXS_MAGNITUDES);
/// IQ3_S: 512 entries of 4 magnitudes, the odd numbers from 1 to 15.
pub static IQ3_S_GRID: [[u8; 4]; 512] = magnitudes::<4, 512, 4>(&packed::IQ3_S, &IQ3_S_MAGNITUDES);
/// IQ1_S and IQ1_M: 2048 entries of 8 weights from -1, 0, 1.
pub static IQ1_GRID: [[i8; 8]; 2048] = ternary(&packed::IQ1);

/// The 128 sign patterns of IQ2_XXS, IQ2_XS and IQ3_XXS, bit `i` set where weight `i` is negative: the seven bits of
/// the index, and an eighth that makes the number of negative weights even.
pub static EVEN_SIGNS: [u8; 128] = even_signs();

/// One group of eight magnitudes with the signs that `signs` gives, lowest bit first.
#[inline(always)]
pub fn signed(grid: [u8; 8], signs: u8) -> [i8; 8] {
    array(|i| if signs >> i & 1 == 0 { grid[i] as i8 } else { -(grid[i] as i8) })
}

/// Two groups of four as one of eight.
#[inline(always)]
pub fn pair(first: [u8; 4], second: [u8; 4]) -> [u8; 8] {
    array(|i| if i < 4 { first[i] } else { second[i - 4] })
}

const fn magnitudes<const LEN: usize, const N: usize, const BITS: usize>(
    packed: &[u16; N],
    values: &[u8],
) -> [[u8; LEN]; N] {
    let mut grid = [[0; LEN]; N];
    let mut at = 0;
    while at < N * LEN {
        let (entry, i) = (at / LEN, at % LEN);
        grid[entry][i] = values[(packed[entry] >> (BITS * i)) as usize & ((1 << BITS) - 1)];
        at += 1;
    }
    grid
}

const fn ternary<const N: usize>(packed: &[u16; N]) -> [[i8; 8]; N] {
    let mut grid = [[0; 8]; N];
    let mut at = 0;
    while at < N * 8 {
        grid[at / 8][at % 8] = (packed[at / 8] >> (2 * (at % 8)) & 3) as i8 - 1;
        at += 1;
    }
    grid
}

const fn even_signs() -> [u8; 128] {
    let mut signs = [0; 128];
    let mut i = 0;
    while i < 128u8 {
        signs[i as usize] = i | (i.count_ones() as u8 & 1) << 7;
        i += 1;
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_pattern_negates_an_even_number_of_weights() {
        for (i, signs) in EVEN_SIGNS.iter().enumerate() {
            assert_eq!(usize::from(signs & 127), i);
            assert_eq!(signs.count_ones() % 2, 0);
        }
    }

    #[test]
    fn signs_go_lowest_bit_first() {
        assert_eq!(signed([1, 2, 3, 4, 5, 6, 7, 8], 0b1000_0101), [-1, 2, -3, 4, 5, 6, 7, -8]);
    }
}
