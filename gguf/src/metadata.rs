//! The key-value section.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::array::{Array, ArrayNode, StrArray, TypedArray, not_a_bool, parse_kind, read_value};
use crate::cursor::{Cursor, Field, Named, reserve};
use crate::from_value::FromValue;
use crate::source::Source;
use crate::{Endian, Error, Value, ValueType};

/// The least bytes of one entry: an empty key, a type, and a one-byte value.
pub(crate) const LEAST_ENTRY_BYTES: usize = 8 + 4 + 1;

/// The metadata of a model: keys in file order, looked up by hash. Values stay in the file until asked for.
///
/// A typed getter gives `Ok(None)` for an absent key and an [`Error::WrongType`] for a value of another type; its
/// `need_` twin gives [`Error::MissingKey`] for an absent key.
#[derive(Debug)]
pub struct Metadata {
    source: Arc<Source>,
    path: PathBuf,
    endian: Endian,
    entries: Vec<(Box<str>, Node)>,
    index: HashMap<Box<str>, usize>,
}

#[derive(Debug)]
enum Node {
    /// A number, bool or string, and where it starts.
    Scalar(ValueType, usize),
    Array(ArrayNode),
}

impl Metadata {
    /// Parses `n` entries at the cursor, which runs over the bytes of `source`.
    pub(crate) fn parse(
        c: &mut Cursor<'_>,
        n: usize,
        source: Arc<Source>,
        path: &Path,
    ) -> Result<Self, Error> {
        let mut entries = reserve(n);
        let mut index = HashMap::new();
        for i in 0..n {
            let at = c.at();
            let key = c.string(&format_args!("key {i}"))?;
            let field = Named { what: "key", index: i, name: key };
            if let Some(first) = index.insert(Box::from(key), i) {
                return Err(c.error(at, &field, format!("the same key is there already, as key {first}")));
            }
            let kind = parse_kind(c, &format_args!("{field}: type"))?;
            entries.push((Box::from(key), Node::parse(c, kind, &field)?));
        }
        Ok(Metadata { source, path: path.to_owned(), endian: c.endian, entries, index })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True if the key is present.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// The value of a key, whatever its type.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.value(&self.entries.get(*self.index.get(key)?)?.1)
    }

    /// Keys and values, in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.entries.iter().filter_map(|(key, node)| Some((&**key, self.value(node)?)))
    }

    /// The array at a key, whatever the type of its elements.
    pub fn array(&self, key: &str) -> Result<Option<Array<'_>>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(other) => Err(Error::wrong_type(&self.path, key, other.describe(), "an array")),
        }
    }

    /// The value of a key as `T`; the named getters below are this.
    pub fn scalar<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match T::from_value(value) {
            Some(wanted) => Ok(Some(wanted)),
            None => Err(Error::wrong_type(&self.path, key, value.describe(), T::WANTED)),
        }
    }

    /// The array at a key as elements of `T`, all of which have been checked to fit.
    pub fn typed_array<'a, T: FromValue<'a>>(
        &'a self,
        key: &str,
    ) -> Result<Option<TypedArray<'a, T>>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => match array.typed() {
                Ok(typed) => Ok(Some(typed)),
                Err(found) => Err(Error::wrong_type(&self.path, key, found, T::WANTED_ARRAY)),
            },
            Some(other) => Err(Error::wrong_type(&self.path, key, other.describe(), T::WANTED_ARRAY)),
        }
    }

    /// Where the number or string at a key starts in the file, for messages.
    pub(crate) fn offset(&self, key: &str) -> Option<usize> {
        match self.entries.get(*self.index.get(key)?)?.1 {
            Node::Scalar(_, at) => Some(at),
            Node::Array(_) => None,
        }
    }

    fn need<T>(&self, key: &str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| Error::MissingKey { path: self.path.clone(), key: key.to_owned() })
    }

    fn value<'a>(&'a self, node: &'a Node) -> Option<Value<'a>> {
        let bytes = self.source.bytes();
        match node {
            Node::Scalar(kind, at) => read_value(bytes, self.endian, *kind, *at),
            Node::Array(node) => Some(Value::Array(Array { bytes, endian: self.endian, node })),
        }
    }
}

impl Node {
    fn parse(c: &mut Cursor<'_>, kind: ValueType, field: Field<'_>) -> Result<Node, Error> {
        let at = c.at();
        match (kind, kind.fixed_bytes()) {
            (ValueType::Array, _) => return Ok(Node::Array(ArrayNode::parse(c, field, 0)?)),
            (_, Some(size)) => {
                let bytes = c.take(size, field)?;
                if kind == ValueType::Bool && bytes[0] > 1 {
                    return Err(c.error(at, field, not_a_bool(bytes[0])));
                }
            }
            (_, None) => drop(c.string(field)?),
        }
        Ok(Node::Scalar(kind, at))
    }
}

macro_rules! getters {
    ($($get:ident, $need:ident, $via:ident, $type:ty, $what:literal;)*) => {
        impl Metadata {
            $(
                #[doc = concat!("The key's value as ", $what, ", or `None` if the key is absent.")]
                pub fn $get(&self, key: &str) -> Result<Option<$type>, Error> {
                    self.$via(key)
                }

                #[doc = concat!("The key's value as ", $what, "; the key has to be present.")]
                pub fn $need(&self, key: &str) -> Result<$type, Error> {
                    self.need(key, self.$via(key)?)
                }
            )*
        }
    };
}

getters! {
    u32, need_u32, scalar, u32, "a `u32`, from an integer of any type";
    i32, need_i32, scalar, i32, "an `i32`, from an integer of any type";
    u64, need_u64, scalar, u64, "a `u64`, from an integer of any type";
    i64, need_i64, scalar, i64, "an `i64`, from an integer of any type";
    f32, need_f32, scalar, f32, "an `f32`, from a number of any type";
    f64, need_f64, scalar, f64, "an `f64`, from a number of any type";
    bool, need_bool, scalar, bool, "a `bool`";
    str, need_str, scalar, &str, "a string";
    strings, need_strings, typed_array, StrArray<'_>, "an array of strings";
    f32s, need_f32s, typed_array, TypedArray<'_, f32>, "an array of `f32`, from numbers of any type";
    u32s, need_u32s, typed_array, TypedArray<'_, u32>, "an array of `u32`, from integers of any type";
    i32s, need_i32s, typed_array, TypedArray<'_, i32>, "an array of `i32`, from integers of any type";
    bools, need_bools, typed_array, TypedArray<'_, bool>, "an array of `bool`";
}
