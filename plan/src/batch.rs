//! What one forward call is given: tokens of any number of sequences, and where their keys and values live.

/// Positions in one page of the KV cache, which is also the tile of attention (docs/arithmetic.md).
pub const KV_PAGE: usize = 64;

/// A page of the KV cache; within a [`crate::KvGroup`] the same number means the same positions in every layer and on every
/// device.
pub type PageId = u32;

/// Elements of a quantised cache that share a scale: runs of a head's elements, the last one padded with zeros.
pub const KV_BLOCK: usize = 32;

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Half precision.
    #[default]
    F16,
    /// Single precision.
    F32,
    /// Signed bytes, with a scale of half precision for each [`KV_BLOCK`].
    Q8_0,
    /// Four bits, with a scale of half precision for each [`KV_BLOCK`].
    Q4_0,
}

impl KvType {
    /// Every type, from the most to the fewest bits.
    pub const ALL: [KvType; 4] = [KvType::F32, KvType::F16, KvType::Q8_0, KvType::Q4_0];

    /// Bytes of `head_dim` elements: one position's keys, or values, of one head.
    pub const fn head_bytes(self, head_dim: usize) -> usize {
        match self {
            KvType::F16 => 2 * head_dim,
            KvType::F32 => 4 * head_dim,
            KvType::Q8_0 => head_dim.div_ceil(KV_BLOCK) * (2 + KV_BLOCK),
            KvType::Q4_0 => head_dim.div_ceil(KV_BLOCK) * (2 + KV_BLOCK / 2),
        }
    }

    /// Whether elements are integers that share scales.
    pub const fn is_quantized(self) -> bool {
        match self {
            KvType::F16 | KvType::F32 => false,
            KvType::Q8_0 | KvType::Q4_0 => true,
        }
    }

    /// The name that the command line uses.
    pub const fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::F32 => "f32",
            KvType::Q8_0 => "q8_0",
            KvType::Q4_0 => "q4_0",
        }
    }
}

/// One token of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchToken {
    /// The token.
    pub token: u32,
    /// Its position in its sequence.
    pub position: u32,
    /// Index of its sequence in [`Batch::tables`].
    pub sequence: u32,
    /// Whether the forward call returns its logits.
    pub wants_logits: bool,
}

/// Tokens for one forward call.
///
/// The tokens of one sequence stand together, at consecutive rising positions; every earlier position of that
/// sequence that they see is in the cache already.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The tokens.
    pub tokens: &'a [BatchToken],
    /// For each sequence and [`crate::KvGroup`] its pages: position `p` is in page
    /// `tables[sequence][group][p / KV_PAGE]`. Where the group's window has left a page for good, the entry is
    /// [`crate::NO_PAGE`].
    pub tables: &'a [Vec<&'a [PageId]>],
}

/// A run of tokens of one sequence within a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index into [`Batch::tables`].
    pub sequence: usize,
    /// Indices into [`Batch::tokens`].
    pub tokens: std::ops::Range<usize>,
    /// Position of the run's first token.
    pub start: usize,
}

impl Batch<'_> {
    /// The runs of tokens that belong to one sequence, in batch order.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (i, t) in self.tokens.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if run.sequence == t.sequence as usize => run.tokens.end = i + 1,
                _ => runs.push(Run {
                    sequence: t.sequence as usize,
                    tokens: i..i + 1,
                    start: t.position as usize,
                }),
            }
        }
        runs
    }

    /// How many tokens want logits.
    pub fn n_logits(&self) -> usize {
        self.tokens.iter().filter(|t| t.wants_logits).count()
    }
}
