//! Rust values as metadata bytes.

use crate::{Array, Endian, Value, ValueType};

/// Collects the bytes of metadata in a file's byte order.
#[derive(Debug)]
pub struct Encoder {
    pub(crate) bytes: Vec<u8>,
    endian: Endian,
}

impl Encoder {
    pub(crate) fn new(endian: Endian) -> Encoder {
        Encoder { bytes: Vec::new(), endian }
    }

    /// Appends one number, given as its little-endian bytes.
    pub fn number<const N: usize>(&mut self, little_endian: [u8; N]) {
        self.bytes.extend_from_slice(&self.endian.order(little_endian));
    }

    /// Appends a string: its length and its bytes.
    pub fn string(&mut self, text: &str) {
        self.number((text.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends what comes before the elements of an array: their type and number.
    pub fn array_header(&mut self, kind: ValueType, len: usize) {
        self.number(kind.id().to_le_bytes());
        self.number((len as u64).to_le_bytes());
    }
}

/// What can be the value of a metadata key: Rust's numbers, `bool`, strings, slices and vectors of these, and values
/// read from another file.
pub trait Encode {
    /// The type to declare in the file.
    fn kind(&self) -> ValueType;
    /// Appends the value, without its type.
    fn encode(&self, out: &mut Encoder);
}

/// A value whose type is known without looking at one, so that it can be an array's element.
pub trait Element: Encode {
    /// The type to declare in the file.
    const KIND: ValueType;
}

macro_rules! numbers {
    ($($type:ty = $kind:ident;)*) => {$(
        impl Element for $type {
            const KIND: ValueType = ValueType::$kind;
        }

        impl Encode for $type {
            fn kind(&self) -> ValueType {
                Self::KIND
            }

            fn encode(&self, out: &mut Encoder) {
                out.number(self.to_le_bytes());
            }
        }
    )*};
}

numbers! {
    u8 = U8;
    i8 = I8;
    u16 = U16;
    i16 = I16;
    u32 = U32;
    i32 = I32;
    f32 = F32;
    u64 = U64;
    i64 = I64;
    f64 = F64;
}

impl Element for bool {
    const KIND: ValueType = ValueType::Bool;
}

impl Encode for bool {
    fn kind(&self) -> ValueType {
        Self::KIND
    }

    fn encode(&self, out: &mut Encoder) {
        out.number([u8::from(*self)]);
    }
}

impl Element for str {
    const KIND: ValueType = ValueType::Str;
}

impl Encode for str {
    fn kind(&self) -> ValueType {
        Self::KIND
    }

    fn encode(&self, out: &mut Encoder) {
        out.string(self);
    }
}

impl Element for String {
    const KIND: ValueType = ValueType::Str;
}

impl Encode for String {
    fn kind(&self) -> ValueType {
        Self::KIND
    }

    fn encode(&self, out: &mut Encoder) {
        out.string(self);
    }
}

impl<T: Element> Element for [T] {
    const KIND: ValueType = ValueType::Array;
}

impl<T: Element> Encode for [T] {
    fn kind(&self) -> ValueType {
        Self::KIND
    }

    fn encode(&self, out: &mut Encoder) {
        out.array_header(T::KIND, self.len());
        for element in self {
            element.encode(out);
        }
    }
}

impl<T: Element> Element for Vec<T> {
    const KIND: ValueType = ValueType::Array;
}

impl<T: Element> Encode for Vec<T> {
    fn kind(&self) -> ValueType {
        Self::KIND
    }

    fn encode(&self, out: &mut Encoder) {
        self.as_slice().encode(out);
    }
}

impl<T: Element, const N: usize> Element for [T; N] {
    const KIND: ValueType = ValueType::Array;
}

impl<T: Element, const N: usize> Encode for [T; N] {
    fn kind(&self) -> ValueType {
        Self::KIND
    }

    fn encode(&self, out: &mut Encoder) {
        self.as_slice().encode(out);
    }
}

impl<T: Element + ?Sized> Element for &T {
    const KIND: ValueType = T::KIND;
}

impl<T: Encode + ?Sized> Encode for &T {
    fn kind(&self) -> ValueType {
        (**self).kind()
    }

    fn encode(&self, out: &mut Encoder) {
        (**self).encode(out);
    }
}

impl Encode for Array<'_> {
    fn kind(&self) -> ValueType {
        ValueType::Array
    }

    fn encode(&self, out: &mut Encoder) {
        out.array_header(Array::kind(self), self.len());
        for element in self.iter() {
            element.encode(out);
        }
    }
}

impl Encode for Value<'_> {
    fn kind(&self) -> ValueType {
        Value::kind(self)
    }

    fn encode(&self, out: &mut Encoder) {
        match self {
            Value::U8(v) => v.encode(out),
            Value::I8(v) => v.encode(out),
            Value::U16(v) => v.encode(out),
            Value::I16(v) => v.encode(out),
            Value::U32(v) => v.encode(out),
            Value::I32(v) => v.encode(out),
            Value::F32(v) => v.encode(out),
            Value::Bool(v) => v.encode(out),
            Value::Str(v) => v.encode(out),
            Value::Array(v) => v.encode(out),
            Value::U64(v) => v.encode(out),
            Value::I64(v) => v.encode(out),
            Value::F64(v) => v.encode(out),
        }
    }
}
