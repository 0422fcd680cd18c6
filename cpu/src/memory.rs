//! Zeroed buffers for weights and cache pages, aligned to cache lines.

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
    /// A large buffer comes as untouched pages from the system, so each page lands with the thread that first writes to
    /// it. It begins at the first huge page within.
    Pages {
        map: MmapMut,
        start: usize,
    },
}

impl AlignedBytes {
    /// `n` zero bytes, or `None` where memory is short. From the size of a huge page on, the system is asked for those.
    pub(crate) fn zeroed(n: usize) -> Option<AlignedBytes> {
        let storage = if n < HUGE_PAGE {
            let lines = n.div_ceil(64);
            let mut storage = Vec::new();
            storage.try_reserve_exact(lines).ok()?;
            storage.resize(lines, Line([0; 64]));
            Storage::Lines(storage)
        } else {
            let map = MmapMut::map_anon(n.checked_add(HUGE_PAGE)?).ok()?;
            let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
            // A refusal costs nothing but speed.
            #[cfg(target_os = "linux")]
            let _ = map.advise_range(memmap2::Advice::HugePage, start, n);
            Storage::Pages { map, start }
        };
        Some(AlignedBytes { storage, len: n })
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        match &self.storage {
            Storage::Lines(lines) => lines.as_ptr().cast(),
            Storage::Pages { map, start } => map[*start..].as_ptr(),
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Lines(lines) => {
                // SAFETY: the lines are plain bytes without padding, at least `len` of them, and borrowed uniquely.
                unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), self.len) }
            }
            Storage::Pages { map, start } => &mut map[*start..*start + self.len],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_zero_and_aligned_whatever_their_number() {
        for n in [0, 1, 63, 64, 4097, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1] {
            let mut bytes = AlignedBytes::zeroed(n).expect("a few megabytes");
            assert_eq!(bytes.as_ptr() as usize % 64, 0);
            assert_eq!(bytes.as_mut_slice().len(), n);
            assert!(bytes.as_mut_slice().iter().all(|b| *b == 0));
        }
        assert!(AlignedBytes::zeroed(usize::MAX / 2).is_none());
    }
}
