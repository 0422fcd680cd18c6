//! One file: header, metadata, table of tensors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::source::Source;
use crate::{DEFAULT_ALIGNMENT, Endian, Error, MAGIC, Metadata, TensorInfo, metadata, sniff, tensor};

#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) source: Arc<Source>,
    pub(crate) version: u32,
    pub(crate) endian: Endian,
    pub(crate) alignment: u64,
}

/// Parses a file that is part number `number` of its model, from 0.
pub(crate) fn parse(
    path: &Path,
    source: Source,
    number: usize,
) -> Result<(Part, Metadata, Vec<TensorInfo>), Error> {
    let source = Arc::new(source);
    let bytes = source.bytes();
    if !bytes.starts_with(&MAGIC) {
        return Err(Error::NotGguf { path: path.to_owned(), looks_like: sniff::looks_like(bytes) });
    }
    let mut c = Cursor::new(bytes, path);
    c.take(MAGIC.len(), &"magic")?;
    let version = parse_version(&mut c, path)?;
    let n_tensors = c.items(tensor::LEAST_ENTRY_BYTES, &"number of tensors")?;
    let n_keys = c.items(metadata::LEAST_ENTRY_BYTES, &"number of keys")?;

    let metadata = Metadata::parse(&mut c, n_keys, source.clone(), path)?;
    let entries = tensor::parse(&mut c, n_tensors, number)?;

    let alignment = metadata.u64("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() {
        let at = metadata.offset("general.alignment").unwrap_or_default();
        return Err(c.error(at, &"key \"general.alignment\"", format!("{alignment} is not a power of two")));
    }
    let data_start = (c.at() as u64).checked_next_multiple_of(alignment).ok_or_else(|| {
        c.error(c.at(), &"tensor data", format!("aligned to {alignment} it would start beyond any file"))
    })?;
    let tensors = tensor::place(&c, entries, data_start, alignment)?;

    let endian = c.endian;
    Ok((Part { path: path.to_owned(), source, version, endian, alignment }, metadata, tensors))
}

/// The version, and by it the byte order: a small number has its low half empty when read the wrong way round.
fn parse_version(c: &mut Cursor<'_>, path: &Path) -> Result<u32, Error> {
    let at = c.at();
    let little = c.u32(&"version")?;
    let version = if little != 0 && little & 0xffff == 0 {
        c.endian = Endian::Big;
        little.swap_bytes()
    } else {
        little
    };
    match version {
        2 | 3 => Ok(version),
        0 => Err(c.error(at, &"version", "0 is not a version")),
        _ => Err(Error::Version { path: path.to_owned(), version }),
    }
}
