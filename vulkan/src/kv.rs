//! The paged cache of keys and values on the device. A page holds all layers of its group, so that a table has one address
//! for each 64 positions.

use llamay_plan::{KV_BLOCK, KV_PAGE, KvLayer, KvType, PageId, Plan};

use crate::device::Commands;
use crate::memory::Use;
use crate::{Buffer, DeviceError, Gpu};

/// Bytes that a group's pages are allocated at a time, at least.
const CHUNK: u64 = 8 << 20;

/// The number of a type in the kernels, their specialisation constant 0.
pub(crate) fn kind_number(kind: KvType) -> u32 {
    match kind {
        KvType::F32 => 0,
        KvType::F16 => 1,
        KvType::Q8_0 => 2,
        KvType::Q4_0 => 3,
    }
}

/// Words of a head's keys and values in a page, as `shaders/kv_store.comp` lays them out.
fn head_words(kind: KvType, head_dim: usize) -> usize {
    let blocks = head_dim.div_ceil(KV_BLOCK);
    let one = match kind {
        KvType::F32 => head_dim,
        KvType::F16 => head_dim.div_ceil(2),
        // Quants, and a scale as a float.
        KvType::Q8_0 => blocks * (KV_BLOCK / 4 + 1),
        KvType::Q4_0 => blocks * (KV_BLOCK / 8 + 1),
    };
    2 * KV_PAGE * one
}

/// All groups' pages.
pub(crate) struct KvCache {
    pub(crate) kind: KvType,
    groups: Vec<Group>,
    /// For each layer its group, and where it is in a page, in words.
    layers: Vec<(usize, usize)>,
}

struct Group {
    /// Bytes of a page.
    page: u64,
    chunks: Vec<Buffer>,
    /// For each page the chunk and the byte in it.
    pages: Vec<(usize, u64)>,
}

impl KvCache {
    /// The cache of the layers that are `used`.
    pub(crate) fn new(plan: &Plan, kind: KvType, used: impl Fn(usize) -> bool) -> KvCache {
        let mut layers = vec![(0, 0); plan.kv.len()];
        let mut groups = Vec::new();
        for (g, group) in plan.kv_groups().into_iter().enumerate() {
            let mut words = 0;
            for (id, KvLayer { heads, head_dim, .. }) in group.layers.iter().zip(&group.shapes) {
                let layer = usize::from(id.0);
                layers[layer] = (g, words);
                if used(layer) {
                    words += heads * head_words(kind, *head_dim);
                }
            }
            groups.push(Group { page: 4 * words as u64, chunks: Vec::new(), pages: Vec::new() });
        }
        KvCache { kind, groups, layers }
    }

    pub(crate) fn n_groups(&self) -> usize {
        self.groups.len()
    }

    /// The layer's group.
    pub(crate) fn group(&self, layer: usize) -> usize {
        self.layers[layer].0
    }

    /// Where the layer is in a page, in words.
    pub(crate) fn offset(&self, layer: usize) -> usize {
        self.layers[layer].1
    }

    /// The address of a page; 0 for one that is not there.
    pub(crate) fn address(&self, group: usize, page: PageId) -> u64 {
        let group = &self.groups[group];
        let place = group.pages.get(page as usize);
        place.map_or(0, |(chunk, at)| group.chunks[*chunk].address() + at)
    }

    /// Makes pages `0..n` of a group exist.
    pub(crate) fn reserve(&mut self, gpu: &Gpu, group: usize, n: usize) -> Result<(), DeviceError> {
        let group = &mut self.groups[group];
        if group.page == 0 {
            return Ok(());
        }
        while group.pages.len() < n {
            // Twice as much each time, so that there are few; less where that is more than can be had.
            let most = gpu.inner.physical.max_allocation.min(1 << 30) / group.page;
            let wish = (CHUNK / group.page).max(group.pages.len() as u64).clamp(1, most.max(1));
            let made = (0..).map(|half| wish >> half).take_while(|pages| *pages > 0).find_map(|pages| {
                let buffer = gpu.buffer("pages of the KV cache", pages * group.page, Use::Device);
                buffer.ok().map(|buffer| (pages, buffer))
            });
            let short = DeviceError::Memory { what: "a page of the KV cache", bytes: group.page };
            let (pages, buffer) = made.ok_or(short)?;
            clear(gpu, &buffer)?;
            let chunk = group.chunks.len();
            group.pages.extend((0..pages).map(|i| (chunk, i * group.page)));
            group.chunks.push(buffer);
        }
        Ok(())
    }

    /// Copies a page.
    pub(crate) fn copy(
        &mut self,
        gpu: &Gpu,
        group: usize,
        from: PageId,
        to: PageId,
    ) -> Result<(), DeviceError> {
        let group = &self.groups[group];
        let place = |page: PageId| {
            let (chunk, at) = group.pages[page as usize];
            (group.chunks[chunk].handle, at)
        };
        if group.page == 0 || from == to {
            return Ok(());
        }
        let mut commands = Commands::new(gpu)?;
        commands.begin()?;
        commands.copy(place(from), place(to), group.page);
        commands.end()?;
        commands.run()
    }
}

/// Fills a buffer with zeros, so that positions nobody wrote are numbers.
fn clear(gpu: &Gpu, buffer: &Buffer) -> Result<(), DeviceError> {
    let mut commands = Commands::new(gpu)?;
    commands.begin()?;
    commands.fill(buffer.handle);
    commands.end()?;
    commands.run()
}
