//! Making files.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use llamay_formats::Format;

use crate::cursor::Quoted;
use crate::encode::{Encode, Encoder};
use crate::{DEFAULT_ALIGNMENT, Endian, Error, MAGIC, MAX_DIMS, Metadata, byteswap, tensor};

/// Makes a GGUF file: set keys, add tensors, then write it.
///
/// Tensors given with their data ([`tensor`](Writer::tensor)) are written by [`to_vec`](Writer::to_vec) or
/// [`write_to`](Writer::write_to). To write a model that does not fit in memory, [`declare`](Writer::declare) the
/// tensors and hand over their data piece by piece to the [`Body`] that [`begin`](Writer::begin) gives:
///
/// ```
/// # use llamay_formats::Format;
/// # use llamay_gguf::{Gguf, Writer};
/// let mut writer = Writer::default();
/// writer.set("general.name", "two rows").declare("x", &[32, 2], Format::Q8_0);
///
/// let mut file = Vec::new();
/// let mut body = writer.begin(&mut file)?;
/// for _row in 0..2 {
///     body.write(&[0; 34])?;
/// }
/// body.finish()?;
/// assert_eq!(Gguf::from_bytes(file)?.tensors().len(), 1);
/// # Ok::<(), llamay_gguf::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    version: u32,
    endian: Endian,
    alignment: u64,
    keys: Vec<(String, Encoded)>,
    key_index: HashMap<String, usize>,
    tensors: Vec<Declared>,
}

/// A value's type and bytes.
#[derive(Debug)]
struct Encoded {
    kind: u32,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Declared {
    name: String,
    dims: Vec<u64>,
    format: Format,
    /// Little-endian, on every host.
    data: Option<Vec<u8>>,
}

impl Default for Writer {
    /// Version 3, little-endian, with the default alignment.
    fn default() -> Writer {
        Writer::new(3, Endian::Little, DEFAULT_ALIGNMENT)
    }
}

impl Writer {
    /// An empty model. `general.alignment` is set if the alignment is not the default one. What cannot be written, such
    /// as version 1, is an error when it comes to writing.
    pub fn new(version: u32, endian: Endian, alignment: u64) -> Writer {
        let mut writer = Writer {
            version,
            endian,
            alignment,
            keys: Vec::new(),
            key_index: HashMap::new(),
            tensors: Vec::new(),
        };
        if alignment != DEFAULT_ALIGNMENT {
            writer.insert("general.alignment", &u32::try_from(alignment).unwrap_or(0));
        }
        writer
    }

    /// Sets a key; a key that is there already gets the new value in its old place. The alignment cannot be changed
    /// this way: `general.alignment` always says what was given to [`new`](Writer::new).
    pub fn set(&mut self, key: &str, value: impl Encode) -> &mut Self {
        if key != "general.alignment" {
            self.insert(key, &value);
        }
        self
    }

    fn insert(&mut self, key: &str, value: &impl Encode) {
        let mut encoder = Encoder::new(self.endian);
        value.encode(&mut encoder);
        let value = Encoded { kind: value.kind().id(), bytes: encoder.bytes };
        match self.key_index.get(key) {
            Some(&i) => self.keys[i].1 = value,
            None => {
                self.key_index.insert(key.to_owned(), self.keys.len());
                self.keys.push((key.to_owned(), value));
            }
        }
    }

    /// Sets every key of another model, except those that describe its file: the alignment and the split.
    pub fn set_all(&mut self, metadata: &Metadata) -> &mut Self {
        for (key, value) in metadata.iter().filter(|(key, _)| !key.starts_with("split.")) {
            self.set(key, value);
        }
        self
    }

    /// Adds a tensor with its data, in little-endian byte order whatever the file's. `dims[0]` is the row length.
    pub fn tensor(&mut self, name: &str, dims: &[u64], format: Format, data: Vec<u8>) -> &mut Self {
        self.tensors.push(Declared { name: name.to_owned(), dims: dims.to_vec(), format, data: Some(data) });
        self
    }

    /// Adds a tensor of `f32` with its data.
    pub fn tensor_f32(&mut self, name: &str, dims: &[u64], data: &[f32]) -> &mut Self {
        self.tensor(name, dims, Format::F32, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// Adds a tensor whose data will be handed to [`Body::write`].
    pub fn declare(&mut self, name: &str, dims: &[u64], format: Format) -> &mut Self {
        self.tensors.push(Declared { name: name.to_owned(), dims: dims.to_vec(), format, data: None });
        self
    }

    /// The file, in memory. Every tensor must have been given with its data.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut file = Vec::new();
        self.write_to(&mut file)?;
        Ok(file)
    }

    /// Writes the file. Every tensor must have been given with its data.
    pub fn write_to(&self, out: impl Write) -> Result<(), Error> {
        let mut body = self.begin(out)?;
        for tensor in &self.tensors {
            match &tensor.data {
                Some(data) if data.len() as u64 == tensor.n_bytes()? => body.write(data)?,
                Some(data) => {
                    let needed = tensor.n_bytes()?;
                    return Err(tensor.error(format!("{} bytes of data, but it takes {needed}", data.len())));
                }
                None => return Err(tensor.error("no data was given".into())),
            }
        }
        body.finish()
    }

    /// Creates a file and writes it there.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let file = std::fs::File::create(path).map_err(|e| Error::io(path, "cannot be created", e))?;
        self.write_to(io::BufWriter::new(file)).map_err(|e| match e {
            Error::Io { what, error, .. } => Error::Io { path: path.to_owned(), what, error },
            other => other,
        })
    }

    /// Writes everything that comes before the data of the tensors, and returns what takes that data.
    pub fn begin<W: Write>(&self, out: W) -> Result<Body<'_, W>, Error> {
        let head = self.head()?;
        let mut body = Body { writer: self, out, next: 0, written: 0, pending: 0 };
        body.put(&head)?;
        body.enter(0)?;
        Ok(body)
    }

    /// Header, keys, table of tensors, and the padding after it.
    fn head(&self) -> Result<Vec<u8>, Error> {
        if !matches!(self.version, 2 | 3) {
            return Err(Error::Version { path: PathBuf::from("(new file)"), version: self.version });
        }
        if !self.alignment.is_power_of_two() || u32::try_from(self.alignment).is_err() {
            return Err(Error::Write(format!(
                "the alignment, {}, is not a power of two of at most 2³¹",
                self.alignment
            )));
        }
        let mut e = Encoder::new(self.endian);
        e.bytes.extend_from_slice(&MAGIC);
        e.number(self.version.to_le_bytes());
        e.number((self.tensors.len() as u64).to_le_bytes());
        e.number((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            e.string(key);
            e.number(value.kind.to_le_bytes());
            e.bytes.extend_from_slice(&value.bytes);
        }
        let mut offset = 0u64;
        let mut names = std::collections::HashSet::new();
        for tensor in &self.tensors {
            if !names.insert(&tensor.name) {
                return Err(tensor.error("there is another of this name".into()));
            }
            e.string(&tensor.name);
            e.number((tensor.dims.len() as u32).to_le_bytes());
            for dim in &tensor.dims {
                e.number(dim.to_le_bytes());
            }
            e.number((tensor.format as u32).to_le_bytes());
            e.number(offset.to_le_bytes());
            offset = offset
                .checked_add(tensor.n_bytes()?)
                .and_then(|end| end.checked_next_multiple_of(self.alignment))
                .ok_or_else(|| tensor.error("the file would be larger than any".into()))?;
        }
        let padding = padding(e.bytes.len() as u64, self.alignment);
        e.bytes.resize(e.bytes.len() + padding, 0);
        Ok(e.bytes)
    }
}

/// Zero bytes needed after `at` to reach the alignment.
fn padding(at: u64, alignment: u64) -> usize {
    ((alignment - at % alignment) % alignment) as usize
}

impl Declared {
    fn n_bytes(&self) -> Result<u64, Error> {
        if self.dims.len() > MAX_DIMS {
            return Err(self.error(format!("{} dimensions are more than {MAX_DIMS}", self.dims.len())));
        }
        tensor::n_bytes(self.format, &self.dims).map_err(|problem| self.error(problem))
    }

    fn error(&self, problem: String) -> Error {
        Error::Write(format!("tensor {}: {problem}", Quoted(&self.name)))
    }
}

/// Takes the data of the declared tensors, in the order of their declaration; see [`Writer`].
#[derive(Debug)]
pub struct Body<'w, W> {
    writer: &'w Writer,
    out: W,
    /// The tensor that is being written.
    next: usize,
    /// Bytes written to the file.
    written: u64,
    /// Bytes still missing from the tensor.
    pending: u64,
}

impl<W: Write> Body<'_, W> {
    /// The name of the tensor that the next bytes belong to; `None` when all are complete.
    pub fn current(&self) -> Option<&str> {
        self.writer.tensors.get(self.next).map(|t| t.name.as_str())
    }

    /// Appends whole blocks, in little-endian byte order, to the current tensor. When it is complete, the next one
    /// becomes current. Data that goes past the end of the tensor is an error.
    pub fn write(&mut self, blocks: &[u8]) -> Result<(), Error> {
        if blocks.is_empty() {
            return Ok(());
        }
        let Some(tensor) = self.writer.tensors.get(self.next) else {
            return Err(Error::Write("all tensors are complete, but more data came".into()));
        };
        let block_bytes = tensor.format.block_bytes();
        if !blocks.len().is_multiple_of(block_bytes) {
            let problem =
                format!("{} bytes are not whole {} blocks of {block_bytes}", blocks.len(), tensor.format);
            return Err(tensor.error(problem));
        }
        let Some(pending) = self.pending.checked_sub(blocks.len() as u64) else {
            let problem = format!("{} bytes came, but only {} are missing", blocks.len(), self.pending);
            return Err(tensor.error(problem));
        };
        match self.writer.endian {
            Endian::Little => self.put(blocks)?,
            Endian::Big => {
                let mut swapped = blocks.to_vec();
                byteswap::swap(tensor.format, &mut swapped);
                self.put(&swapped)?;
            }
        }
        self.pending = pending;
        if pending == 0 { self.enter(self.next + 1) } else { Ok(()) }
    }

    /// Flushes the file, after making sure that every tensor is complete.
    pub fn finish(mut self) -> Result<(), Error> {
        if let Some(tensor) = self.writer.tensors.get(self.next) {
            return Err(tensor.error(format!("{} bytes of data are missing", self.pending)));
        }
        self.out.flush().map_err(write_error)
    }

    /// Pads the file and turns to tensor `i`, or to the first after it that has data.
    fn enter(&mut self, i: usize) -> Result<(), Error> {
        self.next = i;
        let padding = padding(self.written, self.writer.alignment);
        io::copy(&mut io::Read::take(io::repeat(0), padding as u64), &mut self.out).map_err(write_error)?;
        self.written += padding as u64;
        while let Some(tensor) = self.writer.tensors.get(self.next) {
            self.pending = tensor.n_bytes()?;
            if self.pending > 0 {
                break;
            }
            self.next += 1;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.out.write_all(bytes).map_err(write_error)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

fn write_error(error: io::Error) -> Error {
    Error::io(Path::new("(new file)"), "cannot be written", error)
}
