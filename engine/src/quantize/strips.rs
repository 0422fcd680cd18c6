//! A tensor's way from one format to another, on all cores.

use std::sync::{Mutex, PoisonError};

use llamay_formats::Format;
use llamay_gguf::{Gguf, TensorInfo};

use super::merge::Product;
use super::unencodable;
use crate::Error;

/// Weights that are converted between two writes: some megabytes, enough to keep every core busy.
const STRIP_WEIGHTS: usize = 1 << 22;

/// Weights that a thread takes at a time.
const TASK_WEIGHTS: usize = 1 << 16;

/// Takes bytes of the new tensor, and how many bytes of the old one are done then.
pub(super) type Write<'a> = &'a mut dyn FnMut(&[u8], u64) -> Result<(), Error>;

/// Encodes the tensor, with `products` added to it, in format `to` and hands its bytes to `write`, strip after strip. A
/// tensor that has the format already and to which nothing is added is passed on as it is.
pub(super) fn convert(
    gguf: &Gguf,
    tensor: &TensorInfo,
    to: Format,
    products: &[Product],
    threads: usize,
    write: Write<'_>,
) -> Result<(), Error> {
    let from = tensor.format()?;
    let data = gguf.data(tensor)?;
    // Rows are whole blocks of both formats, so anything cut at rows is as well.
    let row = usize::try_from(tensor.row_len()).unwrap_or(usize::MAX);
    let (Some(row_from), Some(row_to)) = (from.row_bytes(row), to.row_bytes(row)) else {
        return Err(Error::Unfit(format!("tensor {}: rows of {row} are no whole {to} blocks", tensor.name)));
    };
    if row_from == 0 || row_to == 0 {
        return Ok(());
    }
    let as_it_is = from == to && products.is_empty();
    if !as_it_is && !to.can_encode() {
        let name = &tensor.name;
        return Err(Error::Unfit(format!(
            "tensor {name}: {to} cannot be written, so nothing can be added to it"
        )));
    }
    let strip_rows = (STRIP_WEIGHTS / row).max(1);
    let mut out = Vec::new();
    let mut done = 0;
    for (i, strip) in data.chunks(strip_rows * row_from).enumerate() {
        let range = done..done + strip.len();
        done = range.end;
        if as_it_is {
            write(strip, done as u64)?;
        } else {
            out.resize(strip.len() / row_from * row_to, 0);
            let offset = i * strip_rows * row;
            encode(Rows { tensor, from, to, products, row, offset }, strip, &mut out, threads)?;
            write(&out, done as u64)?;
        }
        gguf.release_range(tensor, range);
    }
    Ok(())
}

/// Rows of a tensor, from element `offset` on.
#[derive(Clone, Copy)]
struct Rows<'a> {
    tensor: &'a TensorInfo,
    from: Format,
    to: Format,
    products: &'a [Product],
    row: usize,
    offset: usize,
}

/// Converts whole rows. Of several errors, the first in the tensor is given.
fn encode(rows: Rows<'_>, src: &[u8], out: &mut [u8], threads: usize) -> Result<(), Error> {
    let Rows { tensor, from, to, products, row, offset } = rows;
    let task_rows = (TASK_WEIGHTS / row).max(1);
    let task_bytes = |format: Format| task_rows * format.row_bytes(row).unwrap_or(0);
    let tasks = src.chunks(task_bytes(from)).zip(out.chunks_mut(task_bytes(to))).enumerate();
    let tasks = Mutex::new(tasks);
    let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let work = || {
        let mut weights = Vec::new();
        loop {
            let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((i, (src, out))) = next else { return };
            weights.resize(src.len() / from.block_bytes() * from.block_len(), 0.0);
            from.decode(src, &mut weights);
            let offset = offset + i * task_rows * row;
            products.iter().for_each(|product| product.add_to(offset / row, &mut weights));
            if let Err(e) = to.encode(&weights, None, out) {
                let error = unencodable(tensor, offset, e);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(first, _)| i < *first) {
                    *failed = Some((i, error));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            // Where the system has no more threads, those that there are do the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}
