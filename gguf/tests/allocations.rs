//! How much memory opening takes, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use llamay_gguf::{Gguf, Writer};

struct Counting;

thread_local! {
    // Per thread, since the tests run side by side.
    static COUNT: Cell<usize> = const { Cell::new(0) };
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
        COUNT.set(COUNT.get() + 1);
        note(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `f`, and returns with its result the number of allocations and the peak of bytes held above the start.
fn counted<T>(f: impl FnOnce() -> T) -> (T, usize, usize) {
    let (count, live) = (COUNT.get(), LIVE.get());
    PEAK.set(live);
    let result = f();
    (result, COUNT.get() - count, (PEAK.get() - live) as usize)
}

const VOCABULARY: usize = 262_144;

fn with_vocabulary() -> Vec<u8> {
    let tokens: Vec<String> = (0..VOCABULARY).map(|i| format!("▁token{i}")).collect();
    let mut writer = Writer::default();
    writer
        .set("general.architecture", "gemma3")
        .set("tokenizer.ggml.tokens", &tokens)
        .set("tokenizer.ggml.scores", vec![-1.0f32; VOCABULARY])
        .set("tokenizer.ggml.token_type", vec![1i32; VOCABULARY]);
    writer.to_vec().unwrap()
}

#[test]
fn opening_a_large_vocabulary_copies_no_string() {
    let file = with_vocabulary();
    let (gguf, allocations, peak) = counted(|| Gguf::from_bytes(file).unwrap());
    assert!(allocations < 100, "{allocations} allocations");
    // The table of positions, and little besides.
    assert!(peak < VOCABULARY * size_of::<usize>() + 10_000, "{peak} bytes");

    let (tokens, allocations, _) = counted(|| gguf.metadata().need_strings("tokenizer.ggml.tokens").unwrap());
    assert_eq!(allocations, 0);
    let (longest, allocations, _) = counted(|| tokens.iter().map(str::len).max().unwrap());
    assert_eq!((longest, allocations), ("▁token262143".len(), 0));
    assert_eq!(tokens.get(VOCABULARY - 1), Some("▁token262143"));
    assert_eq!(tokens.get(VOCABULARY), None);
    assert!(tokens.iter().next_back().unwrap().ends_with("143"));
}

/// Whatever a file claims, opening it takes memory in proportion to its size.
#[test]
fn a_broken_file_cannot_ask_for_more_memory_than_it_has_bytes_for() {
    for entry in std::fs::read_dir("tests/broken").unwrap() {
        let path = entry.unwrap().path();
        let file = std::fs::read(&path).unwrap();
        let bound = 10 * file.len() + 10_000;
        let (_, _, peak) = counted(|| drop(Gguf::from_bytes(file)));
        assert!(peak < bound, "{}: {peak} bytes", path.display());
    }
}
