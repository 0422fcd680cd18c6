//! What stands in for an anonymous memory map on targets that have none (WebAssembly): zeroed memory of the allocator.

use std::io;
use std::ops::{Deref, DerefMut};

/// Zeroed bytes, with the part of `memmap2::MmapMut` that is used here.
pub(super) struct MmapMut(Vec<u8>);

impl MmapMut {
    /// `n` zeroed bytes.
    pub(super) fn map_anon(n: usize) -> io::Result<MmapMut> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(n).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(n, 0);
        Ok(MmapMut(bytes))
    }
}

impl Deref for MmapMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for MmapMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
