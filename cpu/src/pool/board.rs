//! The protocol between the caller of a step and the workers: claim a chunk, finish it, reuse the step's memory.
//!
//! A *step* is some work cut into chunks. One thread at a time opens a step; any number of threads claim its chunks. Two
//! things make it sound:
//!
//! - **One word says everything** a claim depends on: which step, in which slot, how many chunks are unclaimed. A claim is
//!   one compare-and-swap on it, so that no claim can be made on a step that has moved on.
//! - **A claim pins its slot** before that compare-and-swap. The opener writes only to slots that nobody pins. A worker that
//!   was descheduled with a claim in hand may therefore go on reading its step, however many steps have passed; the others
//!   go round it through the remaining slots.
//!
//! A chunk may be computed twice (the opener redoing what a laggard has claimed). Each computes into memory of its own and
//! asks [`Claim::take`] or [`Step::take`], of which exactly one per chunk returns true, for the right to write the result.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, UnsafeCell, spin_loop};

/// The word: 39 bits of step number, 9 of slot, 16 of unclaimed chunks. At 20,000 steps a second the number comes round
/// after 300 days, and only a thread that slept between two instructions for exactly that long could be misled.
const SLOT_BITS: u32 = 9;
const CHUNK_BITS: u32 = 16;

/// The most chunks of a step.
pub const MAX_CHUNKS: usize = (1 << CHUNK_BITS) - 1;
/// The most slots of a board.
pub const MAX_SLOTS: usize = 1 << SLOT_BITS;

fn unclaimed(word: u64) -> usize {
    (word & MAX_CHUNKS as u64) as usize
}

fn slot_index(word: u64) -> usize {
    (word >> CHUNK_BITS) as usize & (MAX_SLOTS - 1)
}

/// Memory of one step. Aligned so that no two slots share a pair of cache lines (which prefetchers fetch together).
#[repr(align(128))]
struct Slot<T> {
    /// Threads that hold, or are trying for, a claim.
    pins: AtomicUsize,
    /// Chunks not yet done.
    pending: AtomicUsize,
    contents: UnsafeCell<Contents<T>>,
}

struct Contents<T> {
    n_chunks: usize,
    /// For each chunk, whether somebody has the right to write its result.
    taken: Vec<AtomicBool>,
    payload: T,
}

/// Where steps are posted: the shared half of the pool.
pub struct Board<T> {
    word: Word,
    slots: Box<[Slot<T>]>,
}

#[repr(align(128))]
struct Word(AtomicU64);

// SAFETY: the payload of a slot is written by the opener alone while no claim exists, and shared afterwards.
unsafe impl<T: Send + Sync> Sync for Board<T> {}
// SAFETY: a board owns its payloads.
unsafe impl<T: Send> Send for Board<T> {}

impl<T> Board<T> {
    /// A board for `n_threads` claiming threads. Each can hold one slot back, and a slot more is always free in the end.
    pub fn new(n_threads: usize, mut payload: impl FnMut() -> T) -> Self {
        let n_slots = (n_threads + 1).min(MAX_SLOTS);
        let slots = (0..n_slots).map(|_| Slot {
            pins: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            contents: UnsafeCell::new(Contents { n_chunks: 0, taken: Vec::new(), payload: payload() }),
        });
        Self { word: Word(AtomicU64::new(0)), slots: slots.collect() }
    }

    /// Whether a claim might succeed.
    #[inline]
    pub fn has_work(&self) -> bool {
        unclaimed(self.word.0.load(Relaxed)) > 0
    }

    /// Posts a step of `n_chunks` chunks, after `write` has put its description into a free slot.
    ///
    /// # Safety
    /// No other step is open: the step returned last has been through [`Step::is_done`] with the answer true, and no other
    /// thread is in this function.
    pub unsafe fn open(&self, n_chunks: usize, write: impl FnOnce(&mut T)) -> Step<'_, T> {
        assert!(
            0 < n_chunks && n_chunks <= MAX_CHUNKS,
            "a step has 1 to {MAX_CHUNKS} chunks, not {n_chunks}"
        );
        let last = self.word.0.load(Acquire);
        debug_assert_eq!(unclaimed(last), 0, "the step before is still open");
        // In turn, so that what a laggard has kept is overwritten soon. Workers whose claim fails pin a slot for an instant,
        // hence the loop. Acquire: what the last to unpin has read, it has read before this thread writes.
        let mut index = (slot_index(last) + 1) % self.slots.len();
        while self.slots[index].pins.load(Acquire) != 0 {
            if index == slot_index(last) {
                spin_loop();
            }
            index = (index + 1) % self.slots.len();
        }
        let slot = &self.slots[index];
        slot.contents.with_mut(|contents| {
            // SAFETY: nobody has a claim on this slot: there is no pin, and a pin made from now on is followed by a
            // compare-and-swap that fails, because the word has no unclaimed chunk until it is stored below.
            let contents = unsafe { &mut *contents };
            contents.n_chunks = n_chunks;
            contents.taken.truncate(n_chunks);
            contents.taken.iter().for_each(|taken| taken.store(false, Relaxed));
            contents.taken.resize_with(n_chunks, || AtomicBool::new(false));
            write(&mut contents.payload);
        });
        slot.pending.store(n_chunks, Relaxed);
        let number = (last >> (CHUNK_BITS + SLOT_BITS)).wrapping_add(1);
        let word = number << (CHUNK_BITS + SLOT_BITS) | (index as u64) << CHUNK_BITS | n_chunks as u64;
        // Release: a claim of this step sees all of the above.
        self.word.0.store(word, Release);
        Step { board: self, slot }
    }

    /// Claims a chunk of the open step, if there is one with a chunk left.
    #[inline]
    pub fn claim(&self) -> Option<Claim<'_, T>> {
        let mut word = self.word.0.load(Relaxed);
        while unclaimed(word) > 0 {
            let slot = &self.slots[slot_index(word)];
            slot.pins.fetch_add(1, Relaxed);
            // Acquire: the slot's contents. Release: the pin, to the opener that finds the step without unclaimed chunks.
            match self.word.0.compare_exchange(word, word - 1, AcqRel, Relaxed) {
                Ok(_) => {
                    // SAFETY: pinned and claimed.
                    let n_chunks = slot.contents.with(|contents| unsafe { (*contents).n_chunks });
                    return Some(Claim { slot, chunk: n_chunks - unclaimed(word) });
                }
                Err(now) => word = now,
            }
            slot.pins.fetch_sub(1, Release);
        }
        None
    }
}

/// A chunk claimed by a worker. Its slot stays as it is until this is dropped.
pub struct Claim<'a, T> {
    slot: &'a Slot<T>,
    chunk: usize,
}

impl<T> Claim<'_, T> {
    /// The chunk's index.
    #[inline]
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Reads the step's description.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: pinned and claimed, so nobody writes.
        self.slot.contents.with(|contents| f(unsafe { &(*contents).payload }))
    }

    /// Asks for the right to write this chunk's result. Whoever gets it owes the step a [`Claim::done`].
    #[inline]
    pub fn take(&self) -> bool {
        take(self.slot, self.chunk)
    }

    /// Counts the chunk as done, with everything this thread has written for it; true for the last chunk of the step.
    #[inline]
    pub fn done(&self) -> bool {
        self.slot.pending.fetch_sub(1, Release) == 1
    }
}

impl<T> Drop for Claim<'_, T> {
    fn drop(&mut self) {
        // Release: the reads of the contents are over.
        self.slot.pins.fetch_sub(1, Release);
    }
}

/// The open step, in the hands of the thread that opened it.
pub struct Step<'a, T> {
    board: &'a Board<T>,
    slot: &'a Slot<T>,
}

impl<T> Step<'_, T> {
    /// Claims a chunk. The opener needs no pin: only it could reuse the slot.
    #[inline]
    pub fn claim(&self) -> Option<usize> {
        // SAFETY: `open` wrote it, and writes no more while this step exists.
        let n_chunks = self.slot.contents.with(|contents| unsafe { (*contents).n_chunks });
        let mut word = self.board.word.0.load(Relaxed);
        while unclaimed(word) > 0 {
            match self.board.word.0.compare_exchange_weak(word, word - 1, Relaxed, Relaxed) {
                Ok(_) => return Some(n_chunks - unclaimed(word)),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Reads the step's description.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: as in `claim`.
        self.slot.contents.with(|contents| f(unsafe { &(*contents).payload }))
    }

    /// Asks for the right to write the result of any chunk. Whoever gets it owes a [`Step::done`].
    #[inline]
    pub fn take(&self, chunk: usize) -> bool {
        take(self.slot, chunk)
    }

    /// Whether somebody has the right to write the chunk's result.
    #[inline]
    pub fn is_taken(&self, chunk: usize) -> bool {
        // SAFETY: as in `claim`.
        self.slot.contents.with(|contents| unsafe { (&(*contents).taken)[chunk].load(Relaxed) })
    }

    /// Counts `n` chunks as done.
    #[inline]
    pub fn done(&self, n: usize) {
        self.slot.pending.fetch_sub(n, Release);
    }

    /// Whether every chunk is done; if so, what was written for them is visible.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.slot.pending.load(Acquire) == 0
    }

    /// Rewrites the description of a step that is done, unless a laggard may still be reading it.
    pub fn retire(self, write: impl FnOnce(&mut T)) {
        // Acquire: the pin of every claim, which came before the claim's part in bringing the word to no chunks left.
        let word = self.board.word.0.load(Acquire);
        debug_assert!(self.is_done() && unclaimed(word) == 0);
        if self.slot.pins.load(Acquire) == 0 {
            self.slot.contents.with_mut(|contents| {
                // SAFETY: as in `open`.
                write(unsafe { &mut (*contents).payload });
            });
        }
    }
}

/// One thread gets true. Relaxed: it decides who writes; that the writing is seen is the business of `pending`.
#[inline]
fn take<T>(slot: &Slot<T>, chunk: usize) -> bool {
    // SAFETY: the caller has a claim on the slot or is its opener.
    slot.contents.with(|contents| unsafe { !(&(*contents).taken)[chunk].swap(true, Relaxed) })
}
