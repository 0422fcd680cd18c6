//! Sharing a buffer's rows out among the threads.

use std::sync::{Mutex, PoisonError};

use crate::pool::Pool;

/// Rows below which a hand-off costs more than it saves.
const FEW: usize = 4;

/// Calls `f(first_row, rows, worker)` on chunks of the `n` rows of `data`, each of `width` elements.
pub(crate) fn for_row_chunks<T: Send>(
    pool: &Pool,
    n: usize,
    width: usize,
    data: &mut [T],
    f: &(dyn Fn(usize, &mut [T], usize) + Sync),
) {
    let data = &mut data[..n * width];
    if n < FEW || pool.threads() == 1 || width == 0 {
        f(0, data, 0);
        return;
    }
    let rows = n.div_ceil(pool.threads() * 4);
    let chunks: Vec<Mutex<&mut [T]>> = data.chunks_mut(rows * width).map(Mutex::new).collect();
    pool.run(chunks.len(), &|i, worker| {
        let mut chunk = chunks[i].lock().unwrap_or_else(PoisonError::into_inner);
        f(i * rows, &mut chunk, worker);
    });
}
