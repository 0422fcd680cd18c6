//! Bit fields in planes: how most formats pack quants that are narrower than a byte.
//!
//! A run of `plane` bytes holds its lowest fields as one run of `plane` values, the next higher fields as the next run,
//! and so on. Q4_0 has planes of 16 with two fields a byte, Q2_K planes of 32 with four, the high bits of Q5_K planes of
//! 32 with eight; a plain little-endian bit string is a plane of 1.

/// Unpacks the `BITS`-wide fields of `bytes` into `out`, `8 / BITS` of them a byte.
#[inline(always)]
pub fn unpack<const BITS: usize>(bytes: &[u8], plane: usize, out: &mut [i8]) {
    let mask = (1u8 << BITS) - 1;
    for (bytes, out) in bytes.chunks_exact(plane).zip(out.chunks_exact_mut(plane * 8 / BITS)) {
        for (field, out) in out.chunks_exact_mut(plane).enumerate() {
            for (byte, out) in bytes.iter().zip(out) {
                *out = ((byte >> (field * BITS)) & mask) as i8;
            }
        }
    }
}

/// Packs the low `BITS` bits of each of `values` into `out`: the inverse of [`unpack`].
pub fn pack<const BITS: usize>(values: &[u8], plane: usize, out: &mut [u8]) {
    let mask = (1u8 << BITS) - 1;
    out.fill(0);
    for (values, out) in values.chunks_exact(plane * 8 / BITS).zip(out.chunks_exact_mut(plane)) {
        for (field, values) in values.chunks_exact(plane).enumerate() {
            for (value, out) in values.iter().zip(&mut *out) {
                *out |= (value & mask) << (field * BITS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<const BITS: usize>(plane: usize) {
        let bytes: Vec<u8> = (0..128u32).map(|i| (i * 151 + 7) as u8).collect();
        let mut values = vec![0i8; bytes.len() * 8 / BITS];
        unpack::<BITS>(&bytes, plane, &mut values);
        let values: Vec<u8> = values.iter().map(|&v| v as u8).collect();
        let mut packed = vec![0xffu8; bytes.len()];
        pack::<BITS>(&values, plane, &mut packed);
        assert_eq!(packed, bytes, "{BITS} bits in planes of {plane}");
    }

    #[test]
    fn packing_inverts_unpacking() {
        for plane in [1, 16, 32, 64] {
            round_trip::<1>(plane);
            round_trip::<2>(plane);
            round_trip::<4>(plane);
        }
    }

    #[test]
    fn fields_go_from_low_to_high_plane_by_plane() {
        let mut out = [0i8; 8];
        unpack::<2>(&[0b11_10_01_00, 0b00_01_10_11], 2, &mut out);
        assert_eq!(out, [0, 3, 1, 2, 2, 1, 3, 0]);
    }
}
