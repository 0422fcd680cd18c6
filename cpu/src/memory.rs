//! Zeroed buffers for weights and cache pages, aligned to cache lines.

#[cfg(not(any(unix, windows)))]
mod heap;

use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(not(any(unix, windows)))]
use heap::MmapMut;
#[cfg(any(unix, windows))]
use memmap2::MmapMut;

/// Bytes of a huge page on x86-64 and most AArch64 systems. Weights are read from end to end for every token, and with
/// small pages a good part of that time goes to address translation.
const HUGE_PAGE: usize = 2 << 20;

/// 64 bytes, aligned to a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Zeroed bytes that start at a cache line.
pub(crate) struct AlignedBytes {
    storage: Storage,
    len: usize,
}

enum Storage {
    Lines(Vec<Line>),
    /// `len` bytes at `ptr`, a part of the map that no other buffer has.
    Part {
        ptr: NonNull<u8>,
        _map: Arc<MmapMut>,
    },
}

// SAFETY: the bytes are owned, and shared only through `&self`, which gives no way to write.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// `n` zero bytes of their own, or `None` where memory is short.
    pub(crate) fn zeroed(n: usize) -> Option<AlignedBytes> {
        let lines = n.div_ceil(64);
        let mut storage = Vec::new();
        storage.try_reserve_exact(lines).ok()?;
        storage.resize(lines, Line([0; 64]));
        Some(AlignedBytes { storage: Storage::Lines(storage), len: n })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        match &self.storage {
            Storage::Lines(lines) => lines.as_ptr().cast(),
            Storage::Part { ptr, .. } => ptr.as_ptr(),
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let ptr = match &mut self.storage {
            Storage::Lines(lines) => lines.as_mut_ptr().cast(),
            Storage::Part { ptr, .. } => ptr.as_ptr(),
        };
        // SAFETY: `len` plain, initialised bytes at `ptr` are this buffer's alone, and it is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(ptr, self.len) }
    }
}

/// One large map that buffers are taken from, so that small matrices lie in huge pages too.
///
/// Its pages come from the system untouched, so each lands with the thread that first writes to it.
pub(crate) struct Arena {
    map: Arc<MmapMut>,
    /// The map's bytes, from the first huge page on.
    base: *mut u8,
    len: usize,
    used: usize,
}

impl Arena {
    /// Room for buffers of `n` bytes in all, each rounded up to whole cache lines; `None` where memory is short.
    pub(crate) fn new(n: usize) -> Option<Arena> {
        let mut map = MmapMut::map_anon(n.checked_add(HUGE_PAGE)?).ok()?;
        let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        // A refusal costs nothing but speed.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, start, n);
        let base = map[start..].as_mut_ptr();
        Some(Arena { base, len: map.len() - start, map: Arc::new(map), used: 0 })
    }

    /// The next `n` bytes, zeroed; `None` if the arena is used up.
    pub(crate) fn take(&mut self, n: usize) -> Option<AlignedBytes> {
        let end = self.used.checked_add(n.checked_next_multiple_of(64)?)?;
        if end > self.len {
            return None;
        }
        // SAFETY: `used` is within the map, whose memory stays where it is while one buffer holds the map.
        let ptr = NonNull::new(unsafe { self.base.add(self.used) })?;
        self.used = end;
        Some(AlignedBytes { storage: Storage::Part { ptr, _map: Arc::clone(&self.map) }, len: n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_zero_and_aligned_whatever_their_number() {
        let sizes = [0, 1, 63, 64, 4097, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1];
        let total = sizes.iter().map(|n| n.next_multiple_of(64)).sum();
        let mut arena = Arena::new(total).expect("a few megabytes");
        let mut buffers: Vec<AlignedBytes> = Vec::new();
        for n in sizes {
            buffers.push(arena.take(n).expect("room for all"));
            buffers.push(AlignedBytes::zeroed(n).expect("a few megabytes"));
        }
        drop(arena);
        for (bytes, n) in buffers.iter_mut().zip(sizes.iter().flat_map(|n| [n, n])) {
            assert_eq!(bytes.as_ptr() as usize % 64, 0);
            assert_eq!(bytes.as_mut_slice().len(), *n);
            assert!(bytes.as_mut_slice().iter().all(|b| *b == 0), "another buffer's bytes");
            bytes.as_mut_slice().fill(1);
        }
        assert!(AlignedBytes::zeroed(usize::MAX / 2).is_none() && Arena::new(usize::MAX / 2).is_none());
        assert!(Arena::new(64).expect("a line").take(8 << 20).is_none());
    }
}
