//! Decoding asks the allocator for nothing: what a token needs is there from the token before it.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Running, backend, tokens};
use llamay_formats::Format;
use llamay_model::shapes::Shape;
use llamay_plan::KvType;

/// The system's allocator, which counts what it gives.
struct Counting;

static GIVEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        GIVEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_decoded_token_allocates_nothing() {
    let Some(backend) = backend() else { return };
    let prompt = tokens(70);
    for name in ["llama-gqa", "gemma3", "mixtral"] {
        let shape = Shape::named(name).expect("a generated model");
        let mut model = Running::new(&backend, shape, Format::Q4_0, KvType::default());
        model.feed(0, &prompt[..66]);
        let mut logits = Vec::new();
        let mut given = usize::MAX;
        for (at, token) in prompt.iter().enumerate().skip(66) {
            given = model.decode(at, *token, &mut logits, || GIVEN.load(Ordering::Relaxed));
        }
        assert_eq!(given, 0, "{name}");
    }
}
