//! Which values may be read as which Rust type.

use crate::Value;

/// A Rust type that the typed getters of [`Metadata`](crate::Metadata) give.
///
/// Converters disagree about the width and sign of small numbers, so an integer of any type is accepted where it is in
/// range, and a float where an integer was written; nothing else is converted.
pub trait FromValue<'a>: Copy + Default {
    /// The type with an article, for messages: `an unsigned 32-bit integer`.
    const WANTED: &'static str;
    /// An array of them, for messages.
    const WANTED_ARRAY: &'static str;

    /// The value as this type, if it is one.
    fn from_value(value: Value<'a>) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty, $wanted:literal, $array:literal;)*) => {$(
        impl FromValue<'_> for $type {
            const WANTED: &'static str = $wanted;
            const WANTED_ARRAY: &'static str = $array;

            fn from_value(value: Value<'_>) -> Option<$type> {
                value.integer()?.try_into().ok()
            }
        }
    )*};
}

integers! {
    u32, "an integer from 0 to 4294967295", "an array of integers from 0 to 4294967295";
    i32, "a signed 32-bit integer", "an array of signed 32-bit integers";
    u64, "an unsigned integer", "an array of unsigned integers";
    i64, "a signed 64-bit integer", "an array of signed 64-bit integers";
}

macro_rules! floats {
    ($($type:ty;)*) => {$(
        impl FromValue<'_> for $type {
            const WANTED: &'static str = "a number";
            const WANTED_ARRAY: &'static str = "an array of numbers";

            fn from_value(value: Value<'_>) -> Option<$type> {
                Some(match value {
                    Value::F32(v) => v as $type,
                    Value::F64(v) => v as $type,
                    other => other.integer()? as $type,
                })
            }
        }
    )*};
}

floats! {
    f32;
    f64;
}

impl FromValue<'_> for bool {
    const WANTED: &'static str = "a bool";
    const WANTED_ARRAY: &'static str = "an array of bools";

    fn from_value(value: Value<'_>) -> Option<bool> {
        match value {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const WANTED: &'static str = "a string";
    const WANTED_ARRAY: &'static str = "an array of strings";

    fn from_value(value: Value<'a>) -> Option<&'a str> {
        match value {
            Value::Str(v) => Some(v),
            _ => None,
        }
    }
}
