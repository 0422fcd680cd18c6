//! An opened model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use crate::part::{self, Part};
use crate::source::Source;
use crate::tensor::TensorInfo;
use crate::{Endian, Error, Metadata, byteswap, split};

/// An opened model: one file or a set of split files, mapped into memory.
#[derive(Debug)]
pub struct Gguf {
    parts: Vec<Part>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl Gguf {
    /// Opens a model by mapping its file, and the other parts if it is split. Any part will do.
    ///
    /// Every count, length and offset is checked here, so that a damaged or hostile file is an error that names the
    /// field and never a panic.
    ///
    /// The file has to stay as it is while it is open, as with every memory map. If another process overwrites it, the
    /// data seen here changes under the borrower's hands; if another process truncates it, the operating system ends
    /// this one (`SIGBUS`) at the next access to the lost part. Replacing a model by renaming a new file over it is safe.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, Error> {
        let path = path.as_ref();
        let opened = part::parse(path, Source::open(path)?, 0)?;
        if split::count(&opened.1)? == 1 {
            return Gguf::join(vec![opened]);
        }
        let paths = split::siblings(path, &opened.1)?;
        split::all_present(path, &paths)?;
        let mut parts = Vec::with_capacity(paths.len());
        for (number, part_path) in paths.iter().enumerate() {
            let part = part::parse(part_path, Source::open(part_path)?, number)?;
            check_part(&part, number, paths.len())?;
            parts.push(part);
        }
        Gguf::join(parts)
    }

    /// Reads a model that is in memory: one whole file.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Gguf, Error> {
        let path = Path::new("(memory)");
        let opened = part::parse(path, Source::Memory(bytes), 0)?;
        match split::count(&opened.1)? {
            1 => Gguf::join(vec![opened]),
            count => Err(Error::Split {
                path: path.to_owned(),
                problem: format!("it is one of {count} parts, which have to be opened from files"),
            }),
        }
    }

    fn join(opened: Vec<(Part, Metadata, Vec<TensorInfo>)>) -> Result<Gguf, Error> {
        let mut parts = Vec::with_capacity(opened.len());
        let mut tensors: Vec<TensorInfo> = Vec::new();
        let mut first_metadata = None;
        for (part, metadata, more) in opened {
            parts.push(part);
            tensors.extend(more);
            first_metadata.get_or_insert(metadata);
        }
        let Some(metadata) = first_metadata else {
            return Err(Error::Split { path: "(memory)".into(), problem: "it has no parts".into() });
        };

        let mut index = HashMap::with_capacity(tensors.len());
        for (i, tensor) in tensors.iter().enumerate() {
            // Within one file the parser has seen to it already.
            if let Some(first) = index.insert(tensor.name.clone(), i) {
                let (here, there) = (&parts[tensor.part], &parts[tensors[first].part]);
                let problem = format!("tensor \"{}\" is also in {}", tensor.name, there.path.display());
                return Err(Error::Split { path: here.path.clone(), problem });
            }
        }
        if parts.len() > 1
            && let Some(told) = metadata.u64("split.tensors.count")?
            && told != tensors.len() as u64
        {
            let problem = format!("it promises {told} tensors, but the parts hold {}", tensors.len());
            return Err(Error::Split { path: parts[0].path.clone(), problem });
        }
        Ok(Gguf { parts, metadata, tensors, index })
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.parts[0].version
    }

    /// The byte order of the file.
    pub fn endian(&self) -> Endian {
        self.parts[0].endian
    }

    /// Tensor data starts at multiples of this, in bytes.
    pub fn alignment(&self) -> u64 {
        self.parts[0].alignment
    }

    /// Size of the file in bytes; of all files together if the model is split.
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.source.bytes().len() as u64).sum()
    }

    /// The files of the model, one unless it is split.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.parts.iter().map(|p| p.path.as_path())
    }

    /// The metadata; that of the first part if the model is split.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors in file order, part after part.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(*self.index.get(name)?)
    }

    /// The tensor's data in little-endian byte order, `n_bytes` long: borrowed from the map, or a copy if the file is
    /// big-endian. An error if the tensor's type is unknown.
    pub fn data(&self, tensor: &TensorInfo) -> Result<Cow<'_, [u8]>, Error> {
        let format = tensor.format()?;
        let (part, range) = self.locate(tensor)?;
        let bytes = &part.source.bytes()[range];
        Ok(match part.endian {
            Endian::Little => Cow::Borrowed(bytes),
            Endian::Big => {
                let mut swapped = bytes.to_vec();
                byteswap::swap(format, &mut swapped);
                Cow::Owned(swapped)
            }
        })
    }

    /// Lets go of the memory that reading the tensor's data has made resident: the pages that hold nothing else. The
    /// data can be read again, from the file. Does nothing for a model in memory, or where the system has no such call.
    pub fn release(&self, tensor: &TensorInfo) {
        self.release_range(tensor, 0..usize::MAX);
    }

    /// As [`Gguf::release`], for some bytes of the tensor's data; what lies past its end is ignored.
    pub fn release_range(&self, tensor: &TensorInfo, bytes: Range<usize>) {
        if let Ok((part, range)) = self.locate(tensor) {
            let at = |i: usize| range.start.saturating_add(i).min(range.end);
            part.source.release(at(bytes.start)..at(bytes.end));
        }
    }

    /// Says that some bytes of the tensor's data are read soon: if reading has lately had to wait for the disk, the system
    /// is asked to begin. What lies past the end is ignored, and so is all of it for a model in memory.
    pub fn prefetch_range(&self, tensor: &TensorInfo, bytes: Range<usize>) {
        if let Ok((part, range)) = self.locate(tensor) {
            let at = |i: usize| range.start.saturating_add(i).min(range.end);
            part.source.prefetch(at(bytes.start)..at(bytes.end));
        }
    }

    /// Where the data lies. Checked again, since the tensor may come from another `Gguf`.
    fn locate(&self, tensor: &TensorInfo) -> Result<(&Part, Range<usize>), Error> {
        let range = || -> Option<(&Part, Range<usize>)> {
            let part = self.parts.get(tensor.part)?;
            let n_bytes = tensor.n_bytes()?;
            if n_bytes == 0 {
                return Some((part, 0..0));
            }
            let end = tensor.start.checked_add(n_bytes)?;
            let range = usize::try_from(tensor.start).ok()?..usize::try_from(end).ok()?;
            (range.end <= part.source.bytes().len()).then_some((part, range))
        };
        range().ok_or_else(|| Error::Malformed {
            path: self.parts[0].path.clone(),
            field: format!("tensor \"{}\"", tensor.name),
            offset: tensor.start,
            problem: "it is not a tensor of this file".into(),
        })
    }
}

/// A part has to say about itself what its name says.
fn check_part(
    (part, metadata, _): &(Part, Metadata, Vec<TensorInfo>),
    number: usize,
    count: usize,
) -> Result<(), Error> {
    let told = (metadata.need_u32("split.no")? as usize, split::count(metadata)?);
    if told == (number, count) {
        return Ok(());
    }
    let problem = format!(
        "by its name it is part {} of {count}, but it says it is part {} of {}",
        number + 1,
        told.0 as u64 + 1,
        told.1
    );
    Err(Error::Split { path: part.path.clone(), problem })
}
