//! The paged cache of keys and values.

mod quantized;

use half::f16;
use half::slice::HalfFloatSliceExt;
use llamay_plan::{ExecError, KV_BLOCK, KV_PAGE, KvLayer, KvType, PageId, Plan};

use crate::memory::AlignedBytes;
pub(crate) use quantized::{quant_bytes, turn_query};

/// All layers' pages.
pub(crate) struct KvCache {
    pub(crate) kind: KvType,
    layers: Vec<Layer>,
}

struct Layer {
    shape: PageShape,
    /// Index of its group in [`Plan::kv_groups`].
    group: usize,
    /// Whether any step here reads it.
    used: bool,
    pages: Vec<AlignedBytes>,
}

/// What is where in a page: head by head its keys, then its values.
///
/// | type | keys | values |
/// |---|---|---|
/// | floats | `[head_dim][KV_PAGE]` | `[KV_PAGE][v_stride]` |
/// | `q8_0` | `[blocks][8][KV_PAGE][4]` bytes, 128 above the quants; scales | `[KV_PAGE][v_stride]` quants; scales |
/// | `q4_0` | `[blocks][4][KV_PAGE][4]` bytes; scales | `[KV_PAGE][blocks][16]` bytes; scales |
///
/// Scales are `[blocks][KV_PAGE]` of half precision. A byte of `q4_0` holds an element of the block's first half in its low
/// bits and the one 16 elements on in its high bits, both 8 above the quants.
#[derive(Clone, Copy)]
pub(crate) struct PageShape {
    pub(crate) kind: KvType,
    pub(crate) heads: usize,
    pub(crate) head_dim: usize,
    /// `head_dim` rounded up to a whole number of the widest vectors, or of blocks; the rest stays zero.
    pub(crate) v_stride: usize,
}

impl PageShape {
    pub(crate) fn new(layer: &KvLayer, kind: KvType) -> PageShape {
        let unit = if kind.is_quantized() { KV_BLOCK } else { 16 };
        PageShape {
            kind,
            heads: layer.heads,
            head_dim: layer.head_dim,
            v_stride: layer.head_dim.next_multiple_of(unit),
        }
    }

    /// Bytes of a head's keys.
    pub(crate) fn k_bytes(&self) -> usize {
        self.kind.head_bytes(self.head_dim) * KV_PAGE
    }

    /// Bytes of a head's keys and values.
    fn head_bytes(&self) -> usize {
        self.k_bytes() + self.kind.head_bytes(self.v_stride) * KV_PAGE
    }

    /// Where a head's keys are, in bytes.
    pub(crate) fn k(&self, head: usize) -> usize {
        head * self.head_bytes()
    }

    /// Where a head's values are, in bytes.
    pub(crate) fn v(&self, head: usize) -> usize {
        self.k(head) + self.k_bytes()
    }

    fn bytes(&self) -> usize {
        self.k(self.heads)
    }

    /// Stores one position's keys and values of a head in the head's part of a page.
    fn store(&self, part: &mut [u8], at: usize, k: &[f32], v: &[f32]) {
        let (keys, values) = part.split_at_mut(self.k_bytes());
        match self.kind {
            KvType::F16 => {
                let (keys, values) = (cast::<u16>(keys), cast::<u16>(values));
                let mut halves = [f16::ZERO; 512];
                for (i, k) in k.chunks(512).enumerate() {
                    let halves = &mut halves[..k.len()];
                    halves.convert_from_f32_slice(k);
                    let columns = keys[i * 512 * KV_PAGE..].chunks_exact_mut(KV_PAGE);
                    columns.zip(halves).for_each(|(to, h)| to[at] = h.to_bits());
                }
                for (i, v) in v.chunks(512).enumerate() {
                    let halves = &mut halves[..v.len()];
                    halves.convert_from_f32_slice(v);
                    let row = &mut values[at * self.v_stride + i * 512..];
                    row.iter_mut().zip(halves).for_each(|(to, h)| *to = h.to_bits());
                }
            }
            KvType::F32 => {
                let columns = cast::<f32>(keys).chunks_exact_mut(KV_PAGE);
                columns.zip(k).for_each(|(to, k)| to[at] = *k);
                cast::<f32>(values)[at * self.v_stride..][..v.len()].copy_from_slice(v);
            }
            KvType::Q8_0 | KvType::Q4_0 => {
                quantized::store(self.kind, keys, at, k, quantized::Row::Key);
                quantized::store(self.kind, values, at, v, quantized::Row::Value);
            }
        }
    }
}

fn cast<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

impl KvCache {
    /// The cache of the steps that are this device's.
    pub(crate) fn new(plan: &Plan, kind: KvType, mine: impl Fn(usize) -> bool) -> KvCache {
        let groups = plan.kv_groups();
        let group_of = |l: &KvLayer| groups.iter().position(|g| g.window == l.window).unwrap_or(0);
        let used = plan.kv_used(mine);
        let layers = plan.kv.iter().zip(used).map(|(l, used)| Layer {
            shape: PageShape::new(l, kind),
            group: group_of(l),
            used,
            pages: Vec::new(),
        });
        KvCache { kind, layers: layers.collect() }
    }

    /// Makes pages `0..n` exist in every layer of a group.
    pub(crate) fn reserve(&mut self, group: usize, n: usize) -> Result<(), ExecError> {
        for layer in self.layers.iter_mut().filter(|l| l.group == group && l.used) {
            let bytes = layer.shape.bytes();
            while layer.pages.len() < n {
                let page = AlignedBytes::zeroed(bytes)
                    .ok_or(ExecError::OutOfMemory { what: "a page of the KV cache", bytes: bytes as u64 })?;
                layer.pages.push(page);
            }
        }
        Ok(())
    }

    /// Copies a page in every layer of a group.
    pub(crate) fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        let (from, to) = (from as usize, to as usize);
        if from == to {
            return;
        }
        for layer in self.layers.iter_mut().filter(|l| l.group == group) {
            if let Ok([from, to]) = layer.pages.get_disjoint_mut([from, to]) {
                to.as_mut_slice().copy_from_slice(from.as_mut_slice());
            }
        }
    }

    /// The layer's group, whose tables it follows.
    pub(crate) fn group(&self, layer: usize) -> usize {
        self.layers[layer].group
    }

    pub(crate) fn shape(&self, layer: usize) -> PageShape {
        self.layers[layer].shape
    }

    /// The page's bytes, to be read by the attention kernels.
    pub(crate) fn page(&self, layer: usize, page: PageId) -> *const u8 {
        self.layers[layer].pages[page as usize].as_ptr()
    }

    /// Stores one position's keys and values, `[heads * head_dim]` each.
    pub(crate) fn store(&mut self, layer: usize, page: PageId, at: usize, k: &[f32], v: &[f32]) {
        let shape = self.layers[layer].shape;
        let bytes = self.layers[layer].pages[page as usize].as_mut_slice();
        let parts = bytes.chunks_exact_mut(shape.head_bytes());
        let rows = k.chunks_exact(shape.head_dim).zip(v.chunks_exact(shape.head_dim));
        parts.zip(rows).for_each(|(part, (k, v))| shape.store(part, at, k, v));
    }
}
