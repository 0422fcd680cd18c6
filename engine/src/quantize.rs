//! Writing a model's matrices in another format.
//!
//! Any GGUF file will do, also of architectures that llamay does not run. Tensors are read, encoded and written one strip
//! of rows after another, so memory stays small whatever the model.

mod merge;
mod recipe;
mod strips;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use llamay_formats::{EncodeError, Format};
use llamay_gguf::{Endian, Gguf, TensorInfo, TensorType, Writer};

pub use recipe::Recipe;

use merge::Merge;

use crate::{AdapterSource, Cancel, Error};

/// What a quantisation did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantized {
    /// Bytes of the tensors before.
    pub bytes_before: u64,
    /// Bytes of the tensors after.
    pub bytes_after: u64,
    /// Tensors written in another format than they had.
    pub converted: usize,
    /// Tensors whose bytes were copied.
    pub copied: usize,
    /// Tensors that got another format than the recipe's because their rows are no whole blocks of it: how many, from
    /// which format, to which.
    pub fallbacks: Vec<(usize, Format, Format)>,
    /// Converted tensors that were quantised before, so that their losses add up.
    pub requantized: usize,
    /// Tensors that adapters changed, whether their format did or not.
    pub merged: usize,
}

/// A tensor that is about to be written.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Bytes of the input's tensors that are done.
    pub done: u64,
    /// Bytes of all of them.
    pub total: u64,
    /// The tensor being written.
    pub tensor: &'a str,
    /// Its format in the new file.
    pub format: TensorType,
}

/// Writes `input` to the file `output`, with its matrices as `recipe` says, and with `adapters` added to its weights.
///
/// The file appears under its name only when it is complete. `progress` hears of every strip of rows.
///
/// # Errors
/// A tensor of unknown type, a weight that is not finite or that the format cannot hold, a file that cannot be written,
/// a cancelled run, an adapter that does not fit. Nothing is left behind then.
pub fn quantize(
    input: &Gguf,
    adapters: &[AdapterSource],
    output: &Path,
    recipe: &Recipe,
    threads: usize,
    cancel: &Cancel,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Quantized, Error> {
    let merge = Merge::new(input, adapters)?;
    let partial = Partial::create(output)?;
    let result = write(input, &merge, &partial, recipe, threads, cancel, progress)?;
    partial.rename(output)?;
    Ok(result)
}

fn write(
    input: &Gguf,
    merge: &Merge<'_>,
    partial: &Partial,
    recipe: &Recipe,
    threads: usize,
    cancel: &Cancel,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Quantized, Error> {
    let formats = recipe.formats(input)?;
    let mut writer = Writer::new(3, Endian::Little, input.alignment());
    writer.set_all(input.metadata());
    writer.set("general.quantization_version", 2u32);
    if let Some(file_type) = recipe.file_type() {
        writer.set("general.file_type", file_type);
    }
    let mut result = Quantized::default();
    let total = input.tensors().iter().filter_map(TensorInfo::n_bytes).sum();
    for (tensor, chosen) in input.tensors().iter().zip(&formats) {
        writer.declare(&tensor.name, &tensor.dims, chosen.format);
        if let Some(wanted) = chosen.instead_of {
            let (from, to) = (wanted, chosen.format);
            match result.fallbacks.iter_mut().find(|(_, f, t)| (*f, *t) == (from, to)) {
                Some((n, ..)) => *n += 1,
                None => result.fallbacks.push((1, from, to)),
            }
        }
    }
    let mut body = writer.begin(BufWriter::new(partial.file()?)).map_err(|e| partial.unwritable(e))?;
    for (tensor, chosen) in input.tensors().iter().zip(&formats) {
        let (from, to) = (tensor.format()?, chosen.format);
        let before = result.bytes_before;
        let products = merge.products(tensor)?;
        strips::convert(input, tensor, to, &products, threads, &mut |strip, bytes_read| {
            if cancel.is_cancelled() {
                return Err(Error::Unfit("stopped; no file was written".to_owned()));
            }
            let done = before + bytes_read;
            progress(Progress { done, total, tensor: &tensor.name, format: TensorType::Known(to) });
            result.bytes_after += strip.len() as u64;
            body.write(strip).map_err(|e| partial.unwritable(e))
        })?;
        result.bytes_before += tensor.n_bytes().unwrap_or(0);
        let merged = merge.changes(tensor);
        result.merged += usize::from(merged);
        result.converted += usize::from(from != to);
        result.copied += usize::from(from == to && !merged);
        result.requantized += usize::from((from != to || merged) && !from.is_plain());
    }
    body.finish().map_err(|e| partial.unwritable(e))?;
    Ok(result)
}

/// The sentence for a weight that cannot be encoded; `offset` is where in the tensor the encoder's slice began.
fn unencodable(tensor: &TensorInfo, offset: usize, error: EncodeError) -> Error {
    let error = match error {
        EncodeError::NotFinite { index, value } => EncodeError::NotFinite { index: index + offset, value },
        EncodeError::TooLarge { index, value, format } => {
            EncodeError::TooLarge { index: index + offset, value, format }
        }
        other => other,
    };
    Error::Unfit(format!("tensor {}: {error}", tensor.name))
}

/// A file that is removed unless it was renamed.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn create(output: &Path) -> Result<Partial, Error> {
        let mut name = output.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        File::create(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        Ok(Partial { path })
    }

    fn file(&self) -> Result<File, Error> {
        let file = File::options().write(true).open(&self.path);
        file.map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    /// The writer knows no path, so it is added here.
    fn unwritable(&self, error: llamay_gguf::Error) -> Error {
        match error {
            llamay_gguf::Error::Io { what, error, .. } => {
                llamay_gguf::Error::Io { path: self.path.clone(), what, error }.into()
            }
            other => other.into(),
        }
    }

    fn rename(&self, output: &Path) -> Result<(), Error> {
        fs::rename(&self.path, output).map_err(|source| Error::Io { path: output.to_owned(), source })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After the renaming there is nothing of this name, which is as well.
        let _ = fs::remove_file(&self.path);
    }
}
