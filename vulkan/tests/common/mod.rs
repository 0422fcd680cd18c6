//! What the tests share.
#![allow(dead_code)] // each test file uses a part

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::shapes::Shape;
use llamay_plan::{
    Backend, Batch, BatchToken, Executor, KV_PAGE, KvType, LoadOptions, PageId, Plan, WeightId, WeightSource,
};
use llamay_vulkan::{Gpu, VulkanBackend};

/// A device, or a line that says why there is none.
pub(crate) fn device() -> Option<Gpu> {
    Gpu::open_any().map_err(|why| eprintln!("skipped: {why}")).ok()
}

/// A tested device as a backend.
pub(crate) fn backend() -> Option<VulkanBackend> {
    device().map(|gpu| VulkanBackend::of(gpu).expect("a device that passes its self-test"))
}

/// A file in memory as the source of a plan's weights.
struct Source {
    gguf: Gguf,
    plan: Arc<Plan>,
}

impl WeightSource for Source {
    fn bytes(&self, weight: WeightId) -> Result<Cow<'_, [u8]>, String> {
        let tensor = self.gguf.tensor(&self.plan.weight_of(weight).name).ok_or("no such tensor")?;
        self.gguf.data(tensor).map_err(|e| e.to_string())
    }

    fn release(&self, _: WeightId, _: Range<usize>) {}
}

/// A generated model on a device, with one sequence.
pub(crate) struct Running {
    pub(crate) plan: Arc<Plan>,
    pub(crate) executor: Box<dyn Executor>,
    /// Pages of each group; the numbers rise in no order, so that a table matters.
    tables: Vec<Vec<PageId>>,
}

/// Positions that a test may use.
const CONTEXT: usize = 6 * KV_PAGE;

impl Running {
    pub(crate) fn new(backend: &dyn Backend, shape: &Shape, format: Format, kv: KvType) -> Running {
        let gguf = Gguf::from_bytes(shape.gguf(format).expect("the shape takes the format")).unwrap();
        let plan = Arc::new(llamay_model::load(&gguf).expect("a model that runs").plan);
        let source = Arc::new(Source { gguf, plan: Arc::clone(&plan) });
        let options = LoadOptions { kv, ..LoadOptions::default() };
        let mut executor = backend.load(Arc::clone(&plan), source, options, &|_, _| {}).unwrap();
        let n = CONTEXT / KV_PAGE;
        let tables: Vec<Vec<PageId>> =
            plan.kv_groups().iter().map(|_| (0..n).map(|i| ((i * 5 + 2) % n) as PageId).collect()).collect();
        for group in 0..tables.len() {
            executor.reserve_pages(group, n).unwrap();
        }
        Running { plan, executor, tables }
    }

    /// Feeds tokens from a position on; the logits of all.
    pub(crate) fn feed(&mut self, first: usize, tokens: &[u32]) -> Vec<f32> {
        let tokens: Vec<BatchToken> = tokens
            .iter()
            .zip(first as u32..)
            .map(|(&token, position)| BatchToken { token, position, sequence: 0, wants_logits: true })
            .collect();
        let tables = [self.tables.iter().map(Vec::as_slice).collect()];
        let mut logits = Vec::new();
        self.executor.forward(Batch { tokens: &tokens, tables: &tables }, &mut logits).unwrap();
        logits
    }
}

impl Running {
    /// Feeds one token; how much `count` rose in the forward call alone.
    pub(crate) fn decode(
        &mut self,
        position: usize,
        token: u32,
        logits: &mut Vec<f32>,
        count: impl Fn() -> usize,
    ) -> usize {
        let tokens = [BatchToken { token, position: position as u32, sequence: 0, wants_logits: true }];
        let tables = [self.tables.iter().map(Vec::as_slice).collect()];
        let before = count();
        self.executor.forward(Batch { tokens: &tokens, tables: &tables }, logits).unwrap();
        count() - before
    }
}

/// Tokens of a generated vocabulary, in no particular order; the engine's tests have the same.
pub(crate) fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 61 + i / 7 + 3) % llamay_model::shapes::N_VOCAB) as u32).collect()
}

/// A short name for many bits, as in `engine/tests/golden_hashes.txt` (FNV-1a over words).
pub(crate) fn hash(logits: &[f32]) -> u64 {
    logits
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, v| (h ^ u64::from(v.to_bits())).wrapping_mul(0x100_0000_01b3))
}

/// Numbers that look random and are the same each time (xorshift).
pub(crate) struct Numbers(pub(crate) u32);

impl Numbers {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    pub(crate) fn byte(&mut self) -> u8 {
        (self.next() >> 11) as u8
    }

    /// From -1 to 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}
