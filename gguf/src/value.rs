//! Metadata values and their types.

use std::fmt;

use crate::array::Array;
use crate::cursor::Quoted;

macro_rules! value_types {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal, $bytes:expr;)*) => {
        /// The type of a metadata value, numbered as in the file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum ValueType { $($(#[$doc])* $variant = $id,)* }

        impl ValueType {
            /// Every type, in the order of their numbers.
            pub const ALL: &'static [ValueType] = &[$(ValueType::$variant),*];

            /// The type with this number in a file.
            pub const fn from_id(id: u32) -> Option<ValueType> {
                match id { $($id => Some(ValueType::$variant),)* _ => None }
            }

            /// The number in a file.
            pub const fn id(self) -> u32 {
                self as u32
            }

            /// The name, such as `u32`.
            pub const fn name(self) -> &'static str {
                match self { $(ValueType::$variant => $name,)* }
            }

            /// Bytes of one value; `None` for strings and arrays, which say their own length.
            pub const fn fixed_bytes(self) -> Option<usize> {
                match self { $(ValueType::$variant => $bytes,)* }
            }
        }
    };
}

value_types! {
    /// Unsigned byte.
    U8 = 0, "u8", Some(1);
    /// Signed byte.
    I8 = 1, "i8", Some(1);
    /// Unsigned 16-bit integer.
    U16 = 2, "u16", Some(2);
    /// Signed 16-bit integer.
    I16 = 3, "i16", Some(2);
    /// Unsigned 32-bit integer.
    U32 = 4, "u32", Some(4);
    /// Signed 32-bit integer.
    I32 = 5, "i32", Some(4);
    /// Single precision.
    F32 = 6, "f32", Some(4);
    /// One byte, 0 or 1.
    Bool = 7, "bool", Some(1);
    /// UTF-8 text.
    Str = 8, "string", None;
    /// Values of one type.
    Array = 9, "array", None;
    /// Unsigned 64-bit integer.
    U64 = 10, "u64", Some(8);
    /// Signed 64-bit integer.
    I64 = 11, "i64", Some(8);
    /// Double precision.
    F64 = 12, "f64", Some(8);
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One metadata value; strings and arrays are views into the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Unsigned byte.
    U8(u8),
    /// Signed byte.
    I8(i8),
    /// Unsigned 16-bit integer.
    U16(u16),
    /// Signed 16-bit integer.
    I16(i16),
    /// Unsigned 32-bit integer.
    U32(u32),
    /// Signed 32-bit integer.
    I32(i32),
    /// Single precision.
    F32(f32),
    /// Truth value.
    Bool(bool),
    /// Text.
    Str(&'a str),
    /// Values of one type.
    Array(Array<'a>),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// Signed 64-bit integer.
    I64(i64),
    /// Double precision.
    F64(f64),
}

impl Value<'_> {
    /// The type of the value.
    pub fn kind(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::Str(_) => ValueType::Str,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value as an integer of any width, if it is one.
    pub(crate) fn integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            Value::F32(_) | Value::F64(_) | Value::Bool(_) | Value::Str(_) | Value::Array(_) => return None,
        })
    }

    /// What the value is, for a message: `a u32 (7)`, `an array of 5 strings`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Array(a) => format!("an array of {} × {}", a.len(), a.kind()),
            Value::Str(s) => format!("a string ({})", Quoted(s)),
            other => format!("{} ({other})", crate::error::article(self.kind())),
        }
    }
}

/// Numbers that would be a line of digits get an exponent.
fn float(size: f64, v: impl fmt::Display + fmt::LowerExp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if size == 0.0 || (1e-6..1e16).contains(&size.abs()) {
        fmt::Display::fmt(&v, f)
    } else {
        fmt::LowerExp::fmt(&v, f)
    }
}

/// The value as a person would write it; long strings and arrays are cut.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::F32(v) => float(v.into(), v, f),
            Value::Bool(v) => v.fmt(f),
            Value::Str(v) => Quoted(v).fmt(f),
            Value::Array(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F64(v) => float(v, v, f),
        }
    }
}
