//! Whatever is wrong with a file, in several places at once or anywhere in its bytes: a valid plan or one sentence, and
//! no more memory than a model of that size takes.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::change::*;
use common::random_change::*;
use llamay_gguf::Gguf;
use llamay_model::load;
use proptest::prelude::*;
use proptest::sample::Index;

struct Counting;

thread_local! {
    // Per thread, since the tests run side by side.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn note(bytes: isize) {
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: every call is passed on to the system's allocator as it came; the counters neither allocate nor unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// More than the plan of any generated model takes, and less than any number in a file could ask for.
const MOST_BYTES: isize = 4 << 20;

/// A plan that can run or a sentence, in little memory.
fn assert_handled(gguf: &Gguf) {
    let live = LIVE.get();
    PEAK.set(live);
    let result = load(gguf);
    let peak = PEAK.get() - live;
    assert!(peak < MOST_BYTES, "{peak} bytes");
    drop(result);
    let _ = outcome(gguf);
}

#[test]
fn numbers_in_a_file_ask_for_no_memory() {
    for (shape, gguf) in all_files() {
        for key in KEYS {
            for n in [1 << 12, 1 << 14, 1 << 20, 1 << 22, 1 << 28, 1 << 30, u32::MAX] {
                let key = format!("{}.{key}", shape.architecture());
                assert_handled(&changed(gguf, &[Change::Key(key, Any::U32(n))]).unwrap());
            }
        }
    }
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn a_few_changes_give_a_plan_or_a_sentence(
        shape in any::<Index>(),
        changes in prop::collection::vec(any_change(), 1..4),
    ) {
        let (_, gguf) = shape.get(all_files());
        let changes: Vec<Change> = changes.into_iter().map(|change| change.of(gguf)).collect();
        if let Some(gguf) = changed(gguf, &changes) {
            assert_handled(&gguf);
        }
    }

    #[test]
    fn any_bytes_of_the_header_give_a_plan_or_a_sentence(
        shape in any::<Index>(),
        bytes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let (_, gguf) = shape.get(all_files());
        let mut file = changed_bytes(gguf, &[], false).unwrap();
        let header = gguf.tensors().iter().map(|t| t.offset() as usize).min().unwrap();
        for (at, byte) in bytes {
            file[at.index(header)] = byte;
        }
        match Gguf::from_bytes(file) {
            Ok(gguf) => assert_handled(&gguf),
            Err(error) => assert_is_sentence(&error.to_string()),
        }
    }
}
