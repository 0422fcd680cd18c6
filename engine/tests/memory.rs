//! Memory over the length of a prompt. One test only: the counter is the process's.

mod common;

use common::{best, open, tokens, with};
use llamay_engine::plan::KV_PAGE;
use llamay_engine::{DEFAULT_BATCH, KvType, Options};
use llamay_formats::Format;
use llamay_model::shapes::Shape;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What may come to the cache for each token, in bytes: its number, entries of page tables, and in decode the parts of
/// attention that are shared out, a few floats a head and page.
const BESIDE_THE_CACHE: u64 = 64;

/// The most bytes at once, beyond the loaded model, of a prompt of `n` tokens and a token behind it. On one thread: how
/// many of several have a buffer at the same moment differs from run to run.
fn peak(shape: &str, n: usize) -> u64 {
    let options = Options { context: Some(n + 1), ..with(best(), 1) };
    let model = open(Shape::named(shape).expect("a generated model"), Format::F32, &options);
    let prompt = tokens(n);
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let mut session = model.session();
    session.feed(&prompt).unwrap();
    session.feed(&[1]).unwrap();
    (ALLOCATOR.peak_usage() - before) as u64
}

#[test]
fn memory_grows_with_the_prompt_as_the_cache_does() {
    // Everything that a forward call of one batch takes is there in both; a power of two and one token more fill vectors
    // that grow by doubling alike.
    let (short, long) = (1024, 4096);
    for shape in ["llama-gqa", "mistral-window", "gemma3"] {
        let options = Options::default();
        let model = open(Shape::named(shape).expect("a generated model"), Format::F32, &options);
        let told =
            |n: usize| model.plan().kv_bytes(KvType::F16, (n + 1).next_multiple_of(KV_PAGE), DEFAULT_BATCH);
        let cache = told(long) - told(short);
        // What the thread keeps from its first product on is there for both then.
        peak(shape, short);
        let grown = peak(shape, long).checked_sub(peak(shape, short)).expect("a longer prompt takes no less");
        let beside = (long - short) as u64 * BESIDE_THE_CACHE;
        assert!(
            (cache..=cache + beside).contains(&grown),
            "{shape}: {grown} bytes, of which {cache} are cache"
        );
    }
}
