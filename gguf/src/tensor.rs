//! The table of tensors.

use std::collections::HashMap;
use std::fmt;

use llamay_formats::Format;

use crate::cursor::{Cursor, Field, Named, reserve};
use crate::{Error, MAX_DIMS};

/// The least bytes of one entry of the table: an empty name and no dimensions.
pub(crate) const LEAST_ENTRY_BYTES: usize = 8 + 4 + 4 + 8;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// A format that can be decoded.
    Known(Format),
    /// A number that no format here has. The file is readable; this tensor is not.
    Unknown(u32),
}

impl TensorType {
    /// The type with this number in a file.
    pub fn from_id(id: u32) -> TensorType {
        Format::from_id(id).map_or(TensorType::Unknown(id), TensorType::Known)
    }

    /// The number in a file.
    pub fn id(self) -> u32 {
        match self {
            TensorType::Known(format) => format as u32,
            TensorType::Unknown(id) => id,
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorType::Known(format) => format.fmt(f),
            TensorType::Unknown(id) => write!(f, "type {id}{}", retired(*id)),
        }
    }
}

/// The name of a type that was withdrawn from the format, in brackets; else nothing.
pub(crate) fn retired(id: u32) -> &'static str {
    match id {
        4 => " (Q4_2, withdrawn)",
        5 => " (Q4_3, withdrawn)",
        31 => " (Q4_0_4_4, withdrawn; use Q4_0)",
        32 => " (Q4_0_4_8, withdrawn; use Q4_0)",
        33 => " (Q4_0_8_8, withdrawn; use Q4_0)",
        36 => " (IQ4_NL_4_4, withdrawn; use IQ4_NL)",
        37 => " (IQ4_NL_4_8, withdrawn; use IQ4_NL)",
        38 => " (IQ4_NL_8_8, withdrawn; use IQ4_NL)",
        _ => "",
    }
}

/// One tensor: its name, shape and type, and where its data lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Elements along each dimension, the fastest first: `dims[0]` is the row length. At most [`MAX_DIMS`]; none for
    /// a single element.
    pub dims: Vec<u64>,
    /// The type of the elements.
    pub kind: TensorType,
    pub(crate) part: usize,
    pub(crate) start: u64,
    n_elements: u64,
    n_bytes: Option<u64>,
}

impl TensorInfo {
    /// Number of elements, the product of the dimensions.
    pub fn n_elements(&self) -> u64 {
        self.n_elements
    }

    /// Bytes of data; `None` if the type is unknown.
    pub fn n_bytes(&self) -> Option<u64> {
        self.n_bytes
    }

    /// The format of the elements, or an error that names the tensor if it is unknown.
    pub fn format(&self) -> Result<Format, Error> {
        match self.kind {
            TensorType::Known(format) => Ok(format),
            TensorType::Unknown(id) => Err(Error::UnknownTensorType { tensor: self.name.clone(), id }),
        }
    }

    /// Elements of one row: the first dimension.
    pub fn row_len(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all dimensions but the first.
    pub fn n_rows(&self) -> u64 {
        // In range: this divides `n_elements` unless that is 0.
        self.dims.iter().skip(1).fold(1, |n, d| n.saturating_mul(*d))
    }

    /// Which part of a split model holds the data, from 0.
    pub fn part(&self) -> usize {
        self.part
    }

    /// Where the data starts, in bytes from the start of its file.
    pub fn offset(&self) -> u64 {
        self.start
    }
}

/// Number of elements of a tensor with these dimensions; `None` past 2⁶³ − 1, the format's limit.
pub(crate) fn n_elements(dims: &[u64]) -> Option<u64> {
    let n = dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?;
    i64::try_from(n).ok().map(|_| n)
}

/// Bytes of a tensor in this format, or what is wrong with its shape.
pub(crate) fn n_bytes(format: Format, dims: &[u64]) -> Result<u64, String> {
    let row_len = dims.first().copied().unwrap_or(1);
    let block_len = format.block_len() as u64;
    if !row_len.is_multiple_of(block_len) {
        return Err(format!(
            "a row of {row_len} elements is not a whole number of {format} blocks of {block_len}"
        ));
    }
    n_elements(dims)
        .and_then(|n| (n / block_len).checked_mul(format.block_bytes() as u64))
        .ok_or_else(|| "their product is more than any file can hold".into())
}

/// An entry of the table before the start of the data is known.
pub(crate) struct Entry {
    info: TensorInfo,
    /// Where the offset field lies in the file, for messages.
    offset_at: usize,
}

/// Parses `n` entries at the cursor.
pub(crate) fn parse(c: &mut Cursor<'_>, n: usize, part: usize) -> Result<Vec<Entry>, Error> {
    let mut entries = reserve(n);
    let mut seen = HashMap::new();
    for i in 0..n {
        let at = c.at();
        let name = c.string(&format_args!("tensor {i}: name"))?;
        let field = Named { what: "tensor", index: i, name };
        if let Some(first) = seen.insert(name, i) {
            return Err(c.error(at, &field, format!("the same name is there already, as tensor {first}")));
        }
        entries.push(Entry::parse(c, name, &field, part)?);
    }
    Ok(entries)
}

impl Entry {
    fn parse(c: &mut Cursor<'_>, name: &str, field: Field<'_>, part: usize) -> Result<Entry, Error> {
        let at = c.at();
        let n_dims = c.u32(&format_args!("{field}: number of dimensions"))? as usize;
        if n_dims > MAX_DIMS {
            let problem = format!("{n_dims} is more than {MAX_DIMS}");
            return Err(c.error(at, &format_args!("{field}: number of dimensions"), problem));
        }
        let dims_at = c.at();
        let mut dims = Vec::with_capacity(n_dims);
        for i in 0..n_dims {
            dims.push(c.u64(&format_args!("{field}: dimension {i}"))?);
        }
        let kind = TensorType::from_id(c.u32(&format_args!("{field}: type"))?);
        let dims_field = format_args!("{field}: dimensions {dims:?}").to_string();
        let n_elements = n_elements(&dims)
            .ok_or_else(|| c.error(dims_at, &dims_field, "their product is more than any file can hold"))?;
        let n_bytes = match kind {
            TensorType::Known(format) => {
                Some(n_bytes(format, &dims).map_err(|problem| c.error(dims_at, &dims_field, problem))?)
            }
            TensorType::Unknown(_) => None,
        };
        let offset_at = c.at();
        let start = c.u64(&format_args!("{field}: offset"))?;
        let info = TensorInfo { name: name.to_owned(), dims, kind, part, start, n_elements, n_bytes };
        Ok(Entry { info, offset_at })
    }
}

/// Turns offsets from the start of the data into offsets from the start of the file, each checked to lie aligned,
/// inside the file, and apart from the others.
pub(crate) fn place(
    c: &Cursor<'_>,
    mut entries: Vec<Entry>,
    data_start: u64,
    alignment: u64,
) -> Result<Vec<TensorInfo>, Error> {
    let file_bytes = (c.at() + c.remaining()) as u64;
    for (i, Entry { info, offset_at }) in entries.iter_mut().enumerate() {
        let fail = |info: &TensorInfo, problem: String| {
            let field = Named { what: "tensor", index: i, name: &info.name };
            Err(c.error(*offset_at, &format_args!("{field}: offset"), problem))
        };
        let offset = info.start;
        if !offset.is_multiple_of(alignment) {
            return fail(info, format!("{offset} is not a multiple of the alignment, {alignment}"));
        }
        let end = data_start.checked_add(offset).and_then(|s| s.checked_add(info.n_bytes.unwrap_or(0)));
        match end {
            Some(end) if end <= file_bytes || info.n_bytes == Some(0) => info.start = data_start + offset,
            Some(end) => {
                return fail(
                    info,
                    format!(
                        "the data would end at byte {end}, but the file ends at byte {file_bytes}; it may be cut short"
                    ),
                );
            }
            None => return fail(info, format!("{offset} is beyond any file")),
        }
    }
    reject_overlaps(c, &entries)?;
    Ok(entries.into_iter().map(|e| e.info).collect())
}

/// Tensors that share bytes would let a small file claim any amount of weights.
fn reject_overlaps(c: &Cursor<'_>, entries: &[Entry]) -> Result<(), Error> {
    let mut order: Vec<usize> =
        (0..entries.len()).filter(|&i| entries[i].info.n_bytes.is_some_and(|n| n > 0)).collect();
    order.sort_by_key(|&i| entries[i].info.start);
    for pair in order.windows(2) {
        let (before, after) = (&entries[pair[0]].info, &entries[pair[1]].info);
        if before.start + before.n_bytes.unwrap_or(0) > after.start {
            let field = Named { what: "tensor", index: pair[1], name: &after.name };
            let other = Named { what: "tensor", index: pair[0], name: &before.name };
            let problem = format!("the data overlaps that of {other}");
            return Err(c.error(entries[pair[1]].offset_at, &format_args!("{field}: offset"), problem));
        }
    }
    Ok(())
}
