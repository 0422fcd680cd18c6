//! Arrays: views into the file, with a table of positions where the elements differ in length.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use crate::cursor::{Cursor, Field, reserve};
use crate::from_value::FromValue;
use crate::{Endian, Error, MAX_DEPTH, Value, ValueType};

/// Where an array lies in the file; what the parser keeps of it.
#[derive(Debug)]
pub(crate) struct ArrayNode {
    kind: ValueType,
    len: usize,
    items: Items,
}

#[derive(Debug)]
enum Items {
    /// Elements of one size, from this byte on.
    Fixed(usize),
    /// The byte at which each string's length word lies.
    Strings(Box<[usize]>),
    Arrays(Box<[ArrayNode]>),
}

/// The bytes of an empty string, and of an empty array.
const LEAST_STRING_BYTES: usize = 8;
const LEAST_ARRAY_BYTES: usize = 4 + 8;

impl ArrayNode {
    /// Parses and checks an array whose element type comes next. `depth` counts the arrays around it.
    pub(crate) fn parse(c: &mut Cursor<'_>, field: Field<'_>, depth: usize) -> Result<ArrayNode, Error> {
        if depth >= MAX_DEPTH {
            return Err(c.error(c.at(), field, format!("arrays are nested more than {MAX_DEPTH} deep")));
        }
        let kind = parse_kind(c, &format_args!("{field}: element type"))?;
        let (len, items) = match (kind, kind.fixed_bytes()) {
            (_, Some(size)) => Items::fixed(c, field, kind, size)?,
            (ValueType::Array, None) => Items::arrays(c, field, depth)?,
            (_, None) => Items::strings(c, field)?,
        };
        Ok(ArrayNode { kind, len, items })
    }
}

/// Each parses the number of elements and the elements, and gives both.
impl Items {
    fn fixed(
        c: &mut Cursor<'_>,
        field: Field<'_>,
        kind: ValueType,
        size: usize,
    ) -> Result<(usize, Items), Error> {
        let len = c.count(size, &format_args!("{field}: number of elements"))?;
        let at = c.at();
        // The product is in range: `count` has found room for it.
        let bytes = c.take(len * size, field)?;
        if kind == ValueType::Bool
            && let Some(i) = bytes.iter().position(|&b| b > 1)
        {
            return Err(c.error(at + i, &format_args!("{field}[{i}]"), not_a_bool(bytes[i])));
        }
        Ok((len, Items::Fixed(at)))
    }

    fn strings(c: &mut Cursor<'_>, field: Field<'_>) -> Result<(usize, Items), Error> {
        let len = c.items(LEAST_STRING_BYTES, &format_args!("{field}: number of elements"))?;
        let mut starts = reserve(len);
        for i in 0..len {
            starts.push(c.at());
            c.string(&format_args!("{field}[{i}]"))?;
        }
        Ok((len, Items::Strings(starts.into())))
    }

    fn arrays(c: &mut Cursor<'_>, field: Field<'_>, depth: usize) -> Result<(usize, Items), Error> {
        let len = c.items(LEAST_ARRAY_BYTES, &format_args!("{field}: number of elements"))?;
        let mut arrays = reserve(len);
        for i in 0..len {
            arrays.push(ArrayNode::parse(c, &format_args!("{field}[{i}]"), depth + 1)?);
        }
        Ok((len, Items::Arrays(arrays.into())))
    }
}

pub(crate) fn parse_kind(c: &mut Cursor<'_>, field: Field<'_>) -> Result<ValueType, Error> {
    let at = c.at();
    let id = c.u32(field)?;
    ValueType::from_id(id)
        .ok_or_else(|| c.error(at, field, format!("{id} is not a metadata type (they go from 0 to 12)")))
}

pub(crate) fn not_a_bool(byte: u8) -> String {
    format!("a bool is 0 or 1, not {byte}")
}

/// The scalar of this type at byte `at`. `None` for arrays, and past the end of `bytes`.
pub(crate) fn read_value<'a>(
    bytes: &'a [u8],
    endian: Endian,
    kind: ValueType,
    at: usize,
) -> Option<Value<'a>> {
    fn number<const N: usize>(bytes: &[u8], endian: Endian, at: usize) -> Option<[u8; N]> {
        bytes.get(at..)?.first_chunk::<N>().map(|b| endian.order(*b))
    }
    macro_rules! read {
        ($type:ty) => {
            <$type>::from_le_bytes(number(bytes, endian, at)?)
        };
    }
    Some(match kind {
        ValueType::U8 => Value::U8(read!(u8)),
        ValueType::I8 => Value::I8(read!(i8)),
        ValueType::U16 => Value::U16(read!(u16)),
        ValueType::I16 => Value::I16(read!(i16)),
        ValueType::U32 => Value::U32(read!(u32)),
        ValueType::I32 => Value::I32(read!(i32)),
        ValueType::F32 => Value::F32(read!(f32)),
        ValueType::U64 => Value::U64(read!(u64)),
        ValueType::I64 => Value::I64(read!(i64)),
        ValueType::F64 => Value::F64(read!(f64)),
        ValueType::Bool => Value::Bool(read!(u8) != 0),
        ValueType::Str => Value::Str({
            let len = usize::try_from(read!(u64)).ok()?;
            // Checked when the file was opened. A file that another process has changed since then reads as an empty
            // string, never as invalid UTF-8.
            std::str::from_utf8(bytes.get(at + 8..)?.get(..len)?).unwrap_or_default()
        }),
        ValueType::Array => return None,
    })
}

/// An array in the metadata: a cheap view with random access.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) endian: Endian,
    pub(crate) node: &'a ArrayNode,
}

impl<'a> Array<'a> {
    /// The type of the elements.
    pub fn kind(&self) -> ValueType {
        self.node.kind
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.node.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.node.len == 0
    }

    /// Element `i`, in constant time; `None` past the end.
    pub fn get(&self, i: usize) -> Option<Value<'a>> {
        if i >= self.node.len {
            return None;
        }
        let at = match &self.node.items {
            Items::Arrays(nodes) => return Some(Value::Array(Array { node: nodes.get(i)?, ..*self })),
            Items::Strings(starts) => *starts.get(i)?,
            Items::Fixed(at) => at + i * self.node.kind.fixed_bytes()?,
        };
        read_value(self.bytes, self.endian, self.node.kind, at)
    }

    /// The elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'a>> + use<'a> {
        let array = *self;
        // Every index is in range; the fallback only keeps the iterator's length honest.
        (0..self.len()).map(move |i| array.get(i).unwrap_or(Value::U8(0)))
    }

    /// The elements as `T`, or what the array is instead, for a message.
    pub(crate) fn typed<T: FromValue<'a>>(self) -> Result<TypedArray<'a, T>, String> {
        let sample = match self.node.kind {
            ValueType::Str => Some(Value::Str("")),
            kind => read_value(&[0; 8], Endian::Little, kind, 0),
        };
        if sample.and_then(T::from_value).is_none() {
            return Err(Value::Array(self).describe());
        }
        if sample.is_some_and(|s| s.integer().is_some())
            && let Some((i, value)) = self.iter().enumerate().find(|(_, v)| T::from_value(*v).is_none())
        {
            return Err(format!("an array in which element {i} is {}", value.describe()));
        }
        Ok(TypedArray { array: self, element: PhantomData })
    }
}

impl PartialEq for Array<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// The first elements, and how many there are if that is more.
impl fmt::Display for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 6;
        f.write_str("[")?;
        for (i, value) in self.iter().take(MOST).enumerate() {
            write!(f, "{}{value}", if i > 0 { ", " } else { "" })?;
        }
        if self.len() > MOST {
            write!(f, ", … {} in all", self.len())?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {} {self}", self.len(), self.kind())
    }
}

/// An array whose elements have all been found to fit `T`.
pub struct TypedArray<'a, T> {
    array: Array<'a>,
    element: PhantomData<T>,
}

/// An array of strings, such as a vocabulary. No string is copied.
pub type StrArray<'a> = TypedArray<'a, &'a str>;

impl<'a, T: FromValue<'a>> TypedArray<'a, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.array.len()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.array.is_empty()
    }

    /// Element `i`, in constant time; `None` past the end.
    pub fn get(&self, i: usize) -> Option<T> {
        // The fallback is only reached when the file is changed while mapped: see `Gguf::open`.
        self.array.get(i).map(|v| T::from_value(v).unwrap_or_default())
    }

    /// The elements in order.
    pub fn iter(&self) -> Iter<'a, T> {
        Iter { array: *self, range: 0..self.len() }
    }

    /// The elements, copied out.
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().collect()
    }
}

impl<T> Clone for TypedArray<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TypedArray<'_, T> {}

impl<T> fmt::Debug for TypedArray<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.array.fmt(f)
    }
}

impl<'a, T: FromValue<'a>> IntoIterator for TypedArray<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T: FromValue<'a>> IntoIterator for &TypedArray<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The elements of a [`TypedArray`].
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    array: TypedArray<'a, T>,
    range: Range<usize>,
}

impl<'a, T: FromValue<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.array.get(self.range.next()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl<'a, T: FromValue<'a>> DoubleEndedIterator for Iter<'a, T> {
    fn next_back(&mut self) -> Option<T> {
        self.array.get(self.range.next_back()?)
    }
}

impl<'a, T: FromValue<'a>> ExactSizeIterator for Iter<'a, T> {}
