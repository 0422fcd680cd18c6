//! The paged cache of keys and values.

use half::f16;
use half::slice::HalfFloatSliceExt;
use llamay_plan::{ExecError, KV_PAGE, KvLayer, KvType, PageId, Plan};

use crate::memory::AlignedBytes;

/// All layers' pages.
pub(crate) struct KvCache {
    pub(crate) kind: KvType,
    layers: Vec<Layer>,
}

struct Layer {
    shape: PageShape,
    /// Index of its group in [`Plan::kv_groups`].
    group: usize,
    pages: Vec<AlignedBytes>,
}

/// Where a head's keys and values are in a page: all heads' keys, each `[head_dim][KV_PAGE]`, then all heads' values,
/// each `[KV_PAGE][v_stride]`.
#[derive(Clone, Copy)]
pub(crate) struct PageShape {
    pub(crate) heads: usize,
    pub(crate) head_dim: usize,
    /// `head_dim` rounded up to a whole number of the widest vectors; the rest stays zero.
    pub(crate) v_stride: usize,
}

impl PageShape {
    pub(crate) fn new(layer: &KvLayer) -> PageShape {
        PageShape {
            heads: layer.heads,
            head_dim: layer.head_dim,
            v_stride: layer.head_dim.next_multiple_of(16),
        }
    }

    /// The first element of a head's keys.
    pub(crate) fn k(&self, head: usize) -> usize {
        head * self.head_dim * KV_PAGE
    }

    /// The first element of a head's values.
    pub(crate) fn v(&self, head: usize) -> usize {
        self.heads * self.head_dim * KV_PAGE + head * KV_PAGE * self.v_stride
    }

    fn elements(&self) -> usize {
        self.v(self.heads)
    }
}

impl KvCache {
    pub(crate) fn new(plan: &Plan, kind: KvType) -> KvCache {
        let groups = plan.kv_groups();
        let group_of = |l: &KvLayer| groups.iter().position(|g| g.window == l.window).unwrap_or(0);
        let layers = plan.kv.iter();
        let layers = layers
            .map(|l| Layer { shape: PageShape::new(l), group: group_of(l), pages: Vec::new() })
            .collect();
        KvCache { kind, layers }
    }

    /// Makes pages `0..n` exist in every layer of a group.
    pub(crate) fn reserve(&mut self, group: usize, n: usize) -> Result<(), ExecError> {
        for layer in self.layers.iter_mut().filter(|l| l.group == group) {
            let bytes = layer.shape.elements() * self.kind.bytes();
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
        match self.kind {
            KvType::F16 => {
                let page: &mut [u16] = bytemuck::cast_slice_mut(bytes);
                let mut halves = [f16::ZERO; 512];
                for head in 0..shape.heads {
                    let head_range = head * shape.head_dim..(head + 1) * shape.head_dim;
                    for (i, k) in k[head_range.clone()].chunks(512).enumerate() {
                        let halves = &mut halves[..k.len()];
                        halves.convert_from_f32_slice(k);
                        let to = &mut page[shape.k(head) + i * 512 * KV_PAGE..];
                        for (d, h) in halves.iter().enumerate() {
                            to[d * KV_PAGE + at] = h.to_bits();
                        }
                    }
                    for (i, v) in v[head_range].chunks(512).enumerate() {
                        let halves = &mut halves[..v.len()];
                        halves.convert_from_f32_slice(v);
                        let to = &mut page[shape.v(head) + at * shape.v_stride + i * 512..];
                        for (to, h) in to.iter_mut().zip(halves) {
                            *to = h.to_bits();
                        }
                    }
                }
            }
            KvType::F32 => {
                let page: &mut [f32] = bytemuck::cast_slice_mut(bytes);
                for head in 0..shape.heads {
                    let head_range = head * shape.head_dim..(head + 1) * shape.head_dim;
                    for (d, k) in k[head_range.clone()].iter().enumerate() {
                        page[shape.k(head) + d * KV_PAGE + at] = *k;
                    }
                    page[shape.v(head) + at * shape.v_stride..][..shape.head_dim]
                        .copy_from_slice(&v[head_range]);
                }
            }
        }
    }
}
