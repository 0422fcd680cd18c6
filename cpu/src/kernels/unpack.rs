//! From packed planes to one unsigned byte a weight (the planes are drawn in `pack.rs`).

use super::simd::Simd;

/// Bits of a weight, which name the planes of its format. One plane of bits, which become 0 and 16.
pub(crate) const BITS_1: u32 = 1;
/// Two words of bit pairs.
pub(crate) const BITS_2: u32 = 2;
/// Two words of lower bit pairs behind one plane of third bits.
pub(crate) const BITS_3: u32 = 3;
/// One 4-bit plane.
pub(crate) const BITS_4: u32 = 4;
/// One 4-bit plane behind one plane of fifth bits.
pub(crate) const BITS_5: u32 = 5;
/// One 4-bit plane behind two words of upper bit pairs.
pub(crate) const BITS_6: u32 = 6;
/// Whole bytes.
pub(crate) const BITS_8: u32 = 8;

/// Words that 32 weights of `bits` bits take in a packed row.
pub(crate) const fn words32(bits: u32) -> usize {
    bits as usize
}

/// The 32 weights of each row: byte `i` of a lane of vector `s` is weight `4s + i`.
///
/// # Safety
/// `words32(bits) * 4 * LANES` bytes are readable at `p`.
#[inline(always)]
pub(crate) unsafe fn unpack32<S: Simd>(s: S, bits: u32, p: *const u8) -> [S::I; 8] {
    // A macro, since a closure that is not inlined loses the target features.
    macro_rules! word {
        ($w:expr) => {
            // SAFETY: the number is below `words32(bits)`.
            unsafe { s.i_load(p.add($w * 4 * S::LANES)) }
        };
    }
    if bits == BITS_8 {
        return [word!(0), word!(1), word!(2), word!(3), word!(4), word!(5), word!(6), word!(7)];
    }
    if bits == BITS_1 {
        return bits_to_16(s, word!(0));
    }
    if bits == BITS_2 || bits == BITS_3 {
        let m = s.i_splat(0x0303_0303);
        let pairs = |w: S::I| {
            [
                s.i_and(w, m),
                s.i_and(s.i_shr::<2>(w), m),
                s.i_and(s.i_shr::<4>(w), m),
                s.i_and(s.i_shr::<6>(w), m),
            ]
        };
        let first = words32(bits) - 2;
        let ([a, b, c, d], [e, f, g, h]) = (pairs(word!(first)), pairs(word!(first + 1)));
        let q = [a, b, c, d, e, f, g, h];
        if bits == BITS_2 {
            return q;
        }
        let (h, m) = (word!(0), s.i_splat(0x0404_0404));
        let or = |q, v| s.i_or(q, s.i_and(v, m));
        return [
            or(q[0], s.i_shl::<2>(h)),
            or(q[1], s.i_shl::<1>(h)),
            or(q[2], h),
            or(q[3], s.i_shr::<1>(h)),
            or(q[4], s.i_shr::<2>(h)),
            or(q[5], s.i_shr::<3>(h)),
            or(q[6], s.i_shr::<4>(h)),
            or(q[7], s.i_shr::<5>(h)),
        ];
    }
    let extra = words32(bits) - 4;
    let low = s.i_splat(0x0f0f_0f0f);
    let n = [word!(extra), word!(extra + 1), word!(extra + 2), word!(extra + 3)];
    let hi = |v| s.i_and(s.i_shr::<4>(v), low);
    let q = [
        s.i_and(n[0], low),
        s.i_and(n[1], low),
        s.i_and(n[2], low),
        s.i_and(n[3], low),
        hi(n[0]),
        hi(n[1]),
        hi(n[2]),
        hi(n[3]),
    ];
    match bits {
        BITS_5 => {
            let h = bits_to_16(s, word!(0));
            [
                s.i_or(q[0], h[0]),
                s.i_or(q[1], h[1]),
                s.i_or(q[2], h[2]),
                s.i_or(q[3], h[3]),
                s.i_or(q[4], h[4]),
                s.i_or(q[5], h[5]),
                s.i_or(q[6], h[6]),
                s.i_or(q[7], h[7]),
            ]
        }
        BITS_6 => {
            let (h, g, m) = (word!(0), word!(1), s.i_splat(0x3030_3030));
            let or = |q, v| s.i_or(q, s.i_and(v, m));
            [
                or(q[0], s.i_shl::<4>(h)),
                or(q[1], s.i_shl::<2>(h)),
                or(q[2], h),
                or(q[3], s.i_shr::<2>(h)),
                or(q[4], s.i_shl::<4>(g)),
                or(q[5], s.i_shl::<2>(g)),
                or(q[6], g),
                or(q[7], s.i_shr::<2>(g)),
            ]
        }
        _ => q,
    }
}

/// The plane of single bits as bytes 0 and 16.
#[inline(always)]
fn bits_to_16<S: Simd>(s: S, h: S::I) -> [S::I; 8] {
    let m = s.i_splat(0x1010_1010);
    [
        s.i_and(s.i_shl::<4>(h), m),
        s.i_and(s.i_shl::<3>(h), m),
        s.i_and(s.i_shl::<2>(h), m),
        s.i_and(s.i_shl::<1>(h), m),
        s.i_and(h, m),
        s.i_and(s.i_shr::<1>(h), m),
        s.i_and(s.i_shr::<2>(h), m),
        s.i_and(s.i_shr::<3>(h), m),
    ]
}
