//! A bounds-checked position in the file: nothing is read except through it, and each read names its field.

use std::fmt::{self, Display};
use std::path::Path;

use crate::{Endian, Error, MAX_ITEMS};

/// The name of a field, formatted only when an error needs it.
pub(crate) type Field<'f> = &'f dyn Display;

#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
    pub(crate) endian: Endian,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], path: &'a Path) -> Cursor<'a> {
        Cursor { bytes, at: 0, path, endian: Endian::Little }
    }

    /// The position, in bytes from the start of the file.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn error(&self, at: usize, field: Field<'_>, problem: impl Into<String>) -> Error {
        Error::Malformed {
            path: self.path.to_owned(),
            field: field.to_string(),
            offset: at as u64,
            problem: problem.into(),
        }
    }

    pub(crate) fn take(&mut self, n: usize, field: Field<'_>) -> Result<&'a [u8], Error> {
        match self.bytes[self.at..].get(..n) {
            Some(taken) => {
                self.at += n;
                Ok(taken)
            }
            None => Err(self.error(
                self.at,
                field,
                format!(
                    "it takes {n} bytes, but only {} are left; the file may be cut short",
                    self.remaining()
                ),
            )),
        }
    }

    /// The bytes of one number, in little-endian order.
    pub(crate) fn number<const N: usize>(&mut self, field: Field<'_>) -> Result<[u8; N], Error> {
        let mut number = [0; N];
        number.copy_from_slice(self.take(N, field)?);
        Ok(self.endian.order(number))
    }

    pub(crate) fn u32(&mut self, field: Field<'_>) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.number(field)?))
    }

    pub(crate) fn u64(&mut self, field: Field<'_>) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.number(field)?))
    }

    /// A `u64` count of things that take at least `least` bytes each in the rest of the file.
    pub(crate) fn count(&mut self, least: usize, field: Field<'_>) -> Result<usize, Error> {
        let at = self.at;
        let count = self.u64(field)?;
        let most = self.remaining() / least;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => {
                let left = self.remaining();
                let room = if least == 1 { String::new() } else { format!(", enough for {most}") };
                let problem =
                    format!("{count} is too much: only {left} bytes follow{room}; the file may be cut short");
                Err(self.error(at, field, problem))
            }
        }
    }

    /// A [`count`](Cursor::count) of things that each take memory of their own.
    pub(crate) fn items(&mut self, least: usize, field: Field<'_>) -> Result<usize, Error> {
        let at = self.at;
        let count = self.count(least, field)?;
        if count > MAX_ITEMS {
            return Err(self.error(
                at,
                field,
                format!("{count} is more than {MAX_ITEMS}, the most that is read"),
            ));
        }
        Ok(count)
    }

    pub(crate) fn string(&mut self, field: Field<'_>) -> Result<&'a str, Error> {
        let len = self.count(1, &format_args!("{field}: length"))?;
        let at = self.at;
        let bytes = self.take(len, field)?;
        std::str::from_utf8(bytes).map_err(|e| {
            self.error(at, field, format!("the text is not UTF-8, from its byte {} on", e.valid_up_to()))
        })
    }
}

/// `key 3 "general.name"`: the numbered name of an entry, escaped and cut to a printable length.
pub(crate) struct Named<'a> {
    pub(crate) what: &'static str,
    pub(crate) index: usize,
    pub(crate) name: &'a str,
}

impl Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.what, self.index, Quoted(self.name))
    }
}

/// A string in quotes, escaped, and cut where it would fill the screen.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 80;
        match self.0.char_indices().nth(MOST) {
            Some((cut, _)) => write!(f, "{:?}…", &self.0[..cut]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// Room for `n` things, or for as many as take 4 MiB: the count has not been proven yet. That is the table of positions
/// of half a million strings, so a vocabulary's is made in one go.
pub(crate) fn reserve<T>(n: usize) -> Vec<T> {
    Vec::with_capacity(n.min((4 << 20) / size_of::<T>().max(1)))
}
