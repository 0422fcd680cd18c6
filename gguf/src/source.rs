//! The bytes of one file: mapped, or held in memory.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use crate::Error;
use crate::readahead::ReadAhead;

pub(crate) enum Source {
    #[cfg_attr(not(any(unix, windows)), expect(dead_code))]
    Map(Mmap, ReadAhead),
    Memory(Vec<u8>),
}

impl Source {
    /// Maps a regular file read-only, or reads it where there are no memory maps.
    pub(crate) fn open(path: &Path) -> Result<Source, Error> {
        let about = fs::metadata(path).map_err(|e| Error::io(path, "cannot be opened", e))?;
        // Looked at first: opening a pipe would wait for a writer, and mapping a directory fails with a riddle.
        if about.is_dir() {
            let error = io::Error::new(io::ErrorKind::IsADirectory, "it is a directory");
            return Err(Error::io(path, "cannot be opened", error));
        }
        if !about.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
            return Err(Error::io(path, "cannot be opened", error));
        }
        Source::load(path, about.len())
    }

    /// Reads the whole file: WebAssembly has no memory maps.
    #[cfg(not(any(unix, windows)))]
    fn load(path: &Path, _len: u64) -> Result<Source, Error> {
        fs::read(path).map(Source::Memory).map_err(|e| Error::io(path, "cannot be read", e))
    }

    #[cfg(any(unix, windows))]
    fn load(path: &Path, len: u64) -> Result<Source, Error> {
        let file = fs::File::open(path).map_err(|e| Error::io(path, "cannot be opened", e))?;
        if len == 0 {
            return Ok(Source::Memory(Vec::new()));
        }
        // SAFETY: the map is private, read-only, and owned by `Source`, so every slice of it ends before it is
        // unmapped. What the type system cannot rule out is another process writing to the file meanwhile, which
        // `Gguf::open` asks callers to prevent. The harm is kept small all the same: lengths are checked and strings
        // validated again at each access, and tensor data has no invalid bit patterns. If the file is truncated, touching
        // a page past its new end raises SIGBUS, which ends this process without reading foreign memory.
        let map = unsafe { Mmap::map(&file) };
        map.map(|map| Source::Map(map, ReadAhead::default()))
            .map_err(|e| Error::io(path, "cannot be mapped into memory", e))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Source::Map(map, _) => map,
            Source::Memory(bytes) => bytes,
        }
    }

    /// Lets go of the resident pages that lie wholly inside `range`; a later read fetches them from the file again.
    #[cfg(unix)]
    pub(crate) fn release(&self, range: Range<usize>) {
        let Source::Map(map, _) = self else { return };
        // SAFETY: asking for a system constant has no preconditions.
        let Ok(page) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) else { return };
        if page == 0 {
            return;
        }
        // The map starts on a page boundary, so positions in the file and in memory round alike.
        let start = range.start.next_multiple_of(page);
        let end = range.end.min(map.len()) / page * page;
        if start < end {
            // SAFETY: the map is of a file, private and never written through, so no page differs from the file and
            // dropping one loses nothing: `MADV_DONTNEED` makes the next access read the same bytes again.
            let advised =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            // Memory stays resident if the system declines; nothing depends on it.
            drop(advised);
        }
    }

    /// Elsewhere the system reclaims the pages of a map by itself.
    #[cfg(not(unix))]
    pub(crate) fn release(&self, _range: Range<usize>) {}

    /// Asks for the pages of `range`, if reading has lately had to wait for pages.
    pub(crate) fn prefetch(&self, range: Range<usize>) {
        let Source::Map(map, read_ahead) = self else { return };
        if !range.is_empty() && read_ahead.is_worth_it() {
            will_need(map, range);
        }
    }
}

/// Has the system begin to read these bytes, where it can be told to.
#[cfg(unix)]
fn will_need(map: &Mmap, range: Range<usize>) {
    // The pages are read in any case, later if the system declines.
    let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
}

#[cfg(not(unix))]
fn will_need(_map: &Mmap, _range: Range<usize>) {}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = match self {
            Source::Map(..) => "mapped",
            Source::Memory(_) => "in memory",
        };
        write!(f, "{} bytes {how}", self.bytes().len())
    }
}
