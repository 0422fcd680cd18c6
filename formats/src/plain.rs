//! The types without blocks: floats and integers, each element on its own.
//!
//! Their rows meet `f32` activations through [`dot_floats`](crate::dot_floats), each weight widened or rounded to `f32`
//! first.

use half::f16;

use crate::Format;

/// A tensor type whose elements stand alone.
pub trait PlainFormat {
    /// Which format this is.
    const FORMAT: Format;
    /// Bytes of one element.
    const BYTES: usize = Self::FORMAT.block_bytes();
    /// Writes one finite number, rounded to nearest, ties to even; absent for the integer types, which hold counts and
    /// indices rather than weights.
    const ENCODER: Option<fn(f32, &mut [u8])> = None;

    /// The element in `bytes`, rounded to nearest where `f32` cannot hold it.
    fn to_f32(bytes: &[u8]) -> f32;
}

macro_rules! plain {
    ($($name:ident, $bytes:literal: |$raw:ident| $to_f32:expr $(, |$value:ident| $encode:expr)?;)*) => {
        $(
            #[doc = concat!("Elements of type ", stringify!($name), ".")]
            #[derive(Debug)]
            pub struct $name;

            impl PlainFormat for $name {
                const FORMAT: Format = Format::$name;
                $(const ENCODER: Option<fn(f32, &mut [u8])> =
                    Some(|$value, out| out.copy_from_slice(&$encode.to_le_bytes()));)?

                #[inline(always)]
                fn to_f32(bytes: &[u8]) -> f32 {
                    let mut $raw = [0u8; $bytes];
                    $raw.copy_from_slice(bytes);
                    $to_f32
                }
            }
        )*
    };
}

plain! {
    F32, 4: |raw| f32::from_le_bytes(raw), |value| value;
    F64, 8: |raw| f64::from_le_bytes(raw) as f32, |value| f64::from(value);
    F16, 2: |raw| f16::from_le_bytes(raw).to_f32(), |value| f16::from_f32(value);
    BF16, 2: |raw| bf16_to_f32(u16::from_le_bytes(raw)), |value| bf16_from_f32(value);
    I8, 1: |raw| f32::from(i8::from_le_bytes(raw));
    I16, 2: |raw| f32::from(i16::from_le_bytes(raw));
    I32, 4: |raw| i32::from_le_bytes(raw) as f32;
    I64, 8: |raw| i64::from_le_bytes(raw) as f32;
}

/// The number whose upper half is `bits`.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16 number, ties to even; a NaN stays one and becomes quiet.
#[inline(always)]
pub fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}
