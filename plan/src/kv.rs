//! What the KV cache keeps: the layers' shapes, and which layers forget.
//!
//! A token of a layer with a window sees no position before the window, so the layer's old pages can be used again. All
//! layers of one window keep the same positions: they are a [`KvGroup`], with page numbers and tables of its own.

use crate::{KV_PAGE, KvId, KvType, Op, PageId, Plan};

/// Positions behind the window that a layer keeps for a sequence, so that its last tokens can be taken back without
/// computing the ones before them again.
///
/// 512 are a long answer that is generated anew, or many drafts of speculative decoding. They are also a prompt's
/// usual batch, whose positions a forward call has to hold beside the window anyway; so they cost nothing at the peak.
/// Gemma 3 270M, for one, has 15 KiB a position in its layers with a window: 7.5 MiB.
pub const KV_ROLLBACK: usize = 512;

/// The entry in a table of a page whose positions the layers have forgotten; nobody reads it.
pub const NO_PAGE: PageId = PageId::MAX;

/// One layer's shape in the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// Key and value heads.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// The window of the layer's attention, as in [`crate::Op::Attend`]; `None` keeps every position.
    pub window: Option<u32>,
}

impl KvLayer {
    /// Bytes of one position's keys and values.
    pub const fn bytes_per_token(&self, kv: KvType) -> usize {
        2 * self.heads * kv.head_bytes(self.head_dim)
    }
}

/// Cache layers that keep the same positions, and so share page numbers and tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroup {
    /// The layers' window.
    pub window: Option<u32>,
    /// The layers.
    pub layers: Vec<KvId>,
    /// Their shapes, in the same order.
    pub shapes: Vec<KvLayer>,
}

impl KvGroup {
    /// Bytes of one position in all of the group's layers.
    pub fn bytes_per_token(&self, kv: KvType) -> usize {
        self.shapes.iter().map(|layer| layer.bytes_per_token(kv)).sum()
    }

    /// The first position that the token behind `n` positions sees.
    pub fn first_seen(&self, n: usize) -> usize {
        self.window.map_or(0, |w| n.saturating_sub((w as usize).saturating_sub(1)))
    }

    /// The first position that a sequence of `n` positions keeps, between forward calls: what the next token sees, also
    /// once [`KV_ROLLBACK`] tokens are taken back.
    pub fn first_kept(&self, n: usize) -> usize {
        self.first_seen(n.saturating_sub(KV_ROLLBACK))
    }

    /// The first position that must be there while `n_new` tokens are appended to `n` positions.
    ///
    /// That is less than what is kept before and after, so that a batch of [`KV_ROLLBACK`] tokens has the room that is
    /// free between its ends.
    pub fn first_kept_while(&self, n: usize, n_new: usize) -> usize {
        self.first_seen(n).min(self.first_kept(n + n_new))
    }

    /// Positions in the pages of a sequence that grows to `n`, at the most, when no forward call appends more than
    /// `n_batch`.
    pub fn most_held(&self, n: usize, n_batch: usize) -> usize {
        let Some(window) = self.window else { return n };
        let span = (window as usize).saturating_sub(1).saturating_add(n_batch.max(KV_ROLLBACK));
        // A span that begins at the end of a page touches one page more than it fills.
        n.min((span - 1).div_ceil(KV_PAGE).saturating_add(1).saturating_mul(KV_PAGE))
    }
}

impl Plan {
    /// The groups of cache layers, in the order of their first layers. A group's index here is its number in
    /// [`crate::Batch::tables`] and for an [`crate::Executor`].
    pub fn kv_groups(&self) -> Vec<KvGroup> {
        let mut groups: Vec<KvGroup> = Vec::new();
        for (layer, id) in self.kv.iter().zip(0..) {
            let at = groups.iter().position(|g| g.window == layer.window).unwrap_or_else(|| {
                groups.push(KvGroup { window: layer.window, layers: Vec::new(), shapes: Vec::new() });
                groups.len() - 1
            });
            groups[at].layers.push(KvId(id));
            groups[at].shapes.push(*layer);
        }
        groups
    }

    /// For each cache layer whether it is needed where these steps run: others may attend to it too, but not they alone.
    pub fn kv_used(&self, steps: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut used = vec![true; self.kv.len()];
        for mine in [false, true] {
            for (_, step) in self.steps.iter().enumerate().filter(|(i, _)| steps(*i) == mine) {
                if let Op::Attend { kv, .. } = &step.op {
                    used[usize::from(kv.0)] = mine;
                }
            }
        }
        used
    }

    /// Bytes that one position takes in the cache, over all layers; those with a window give it back in time.
    pub fn kv_bytes_per_token(&self, kv: KvType) -> usize {
        self.kv.iter().map(|layer| layer.bytes_per_token(kv)).sum()
    }

    /// Bytes that a sequence takes in the cache, at the most, while it grows to `n` positions by forward calls of up to
    /// `n_batch` tokens: `n` positions in layers that see all, and in layers with a window no more than the window, the
    /// batch or [`KV_ROLLBACK`], and the ends of pages.
    pub fn kv_bytes(&self, kv: KvType, n: usize, n_batch: usize) -> u64 {
        let bytes =
            |g: &KvGroup| (g.bytes_per_token(kv) as u64).saturating_mul(g.most_held(n, n_batch) as u64);
        self.kv_groups().iter().map(bytes).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(windows: &[Option<u32>]) -> Plan {
        let kv = windows.iter().map(|w| KvLayer { heads: 2, head_dim: 8, window: *w }).collect();
        Plan { kv, ..Plan::default() }
    }

    #[test]
    fn layers_of_one_window_are_one_group() {
        let groups = plan(&[Some(8), None, Some(8), Some(9)]).kv_groups();
        let layers: Vec<_> =
            groups.iter().map(|g| (g.window, g.layers.iter().map(|l| l.0).collect())).collect();
        assert_eq!(layers, [(Some(8), vec![0, 2]), (None, vec![1]), (Some(9), vec![3])]);
        assert_eq!(groups[0].bytes_per_token(KvType::F32), 2 * 2 * 2 * 8 * 4);
        // A head of 8 elements fills a quarter of a block.
        assert_eq!(groups[0].bytes_per_token(KvType::Q8_0), 2 * 2 * 2 * 34);
        assert_eq!(groups[0].bytes_per_token(KvType::Q4_0), 2 * 2 * 2 * 18);
    }

    #[test]
    fn a_token_sees_itself_and_the_window_before_it() {
        let [windowed, full] = plan(&[Some(8), None]).kv_groups().try_into().unwrap();
        assert_eq!([0, 7, 8, 100].map(|n| windowed.first_seen(n)), [0, 0, 1, 93]);
        assert_eq!([0, 7, 8, 100].map(|n| full.first_seen(n)), [0; 4]);
        assert_eq!(plan(&[Some(1)]).kv_groups()[0].first_seen(5), 5);
        assert_eq!(plan(&[Some(u32::MAX)]).kv_groups()[0].first_seen(5), 0);
    }

    #[test]
    fn no_way_to_grow_holds_more_than_is_told() {
        for window in [1, 2, 63, 64, 65, 500] {
            let group = &plan(&[Some(window)]).kv_groups()[0];
            for n_batch in [1, 64, 100, KV_ROLLBACK, 2 * KV_ROLLBACK + 1] {
                let (mut n, mut most) = (0, 0);
                while n < 4000 {
                    let first = group.first_kept_while(n, n_batch) / KV_PAGE;
                    n += n_batch;
                    most = most.max(n.div_ceil(KV_PAGE) - first);
                    assert!(group.first_kept(n) <= group.first_seen(n));
                }
                let told = group.most_held(usize::MAX, n_batch);
                assert!(most * KV_PAGE <= told && told - most * KV_PAGE <= 2 * KV_PAGE, "{window} {n_batch}");
            }
        }
    }

    #[test]
    fn bytes_grow_with_the_positions_until_the_window_is_full() {
        let (window, n_batch, kv) = (100, 512, KvType::F16);
        let plan = plan(&[Some(window), None, Some(window)]);
        let layer = plan.kv[0].bytes_per_token(kv) as u64;
        assert_eq!(plan.kv_bytes(kv, 300, n_batch), 3 * 300 * layer);
        let held = (99u64 + 511).div_ceil(64) * 64 + 64;
        assert_eq!(plan.kv_bytes(kv, 10_000, n_batch), (10_000 + 2 * held) * layer);
        assert_eq!(plan.kv_bytes(kv, usize::MAX, n_batch), u64::MAX, "more than can be counted");
    }
}
