//! Weights of a generated model in any format, including those that nobody here can write.

use llamay_formats::{EncodeError, Format};

use super::weights::Random;

/// Root mean squares that a block of random bytes has to decode to: about those of the seeded weights.
const RMS: std::ops::RangeInclusive<f64> = 0.02..=0.2;

/// Distinct random blocks in a tensor. To find one takes a hundred tries and more.
const N_RANDOM_BLOCKS: usize = 32;

/// The tensor's bytes: `values` encoded, or random blocks of about their size. `None` if rows of `cols` are no whole
/// blocks.
pub(super) fn encode(
    name: &str,
    format: Format,
    cols: usize,
    values: &[f32],
) -> Result<Option<Vec<u8>>, EncodeError> {
    let Some(n_bytes) = format.row_bytes(values.len()).filter(|_| format.row_bytes(cols).is_some()) else {
        return Ok(None);
    };
    let mut bytes = vec![0; n_bytes];
    if has_quick_encoder(format) {
        format.encode(values, None, &mut bytes)?;
    } else {
        let mut random = Random::new(&format!("{name} {format}"));
        let blocks: Vec<_> = (0..N_RANDOM_BLOCKS).map(|_| random_block(format, &mut random)).collect();
        for block in bytes.chunks_exact_mut(format.block_bytes()) {
            block.copy_from_slice(&blocks[random.next_u64() as usize % N_RANDOM_BLOCKS]);
        }
    }
    Ok(Some(bytes))
}

/// The encoders of the IQ4 formats try every scale, which is too slow for tests.
fn has_quick_encoder(format: Format) -> bool {
    format.can_encode() && !matches!(format, Format::IQ4_NL | Format::IQ4_XS)
}

/// Draws blocks until one decodes to finite weights of a sensible size. Every bit pattern is a valid block, and a few
/// percent of all scales are sensible.
fn random_block(format: Format, random: &mut Random) -> Vec<u8> {
    let mut block = vec![0; format.block_bytes()];
    let mut decoded = vec![0.0; format.block_len()];
    loop {
        block.fill_with(|| random.next_u64() as u8);
        format.decode(&block, &mut decoded);
        let squares: f64 = decoded.iter().map(|w| f64::from(*w) * f64::from(*w)).sum();
        if RMS.contains(&(squares / decoded.len() as f64).sqrt()) {
            return block;
        }
    }
}
