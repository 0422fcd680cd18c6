//! The cache and attention over it have the bits of docs/arithmetic.md, "Attention", restated here.

mod common;

use std::collections::HashMap;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use common::device;
use llamay_formats::{Activation, MIN_AMAX, QuantizedRow, tree8};
use llamay_plan::{KV_BLOCK, KV_PAGE, KvType};
use llamay_vulkan::{Buffer, Gpu};

// By its file, so that no backend needs another one to be built.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../cpu/src/math/mod.rs"]
mod math;

/// The push constants of `kv_store.comp`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct KvStore {
    k: u64,
    v: u64,
    tokens: u64,
    pages: u64,
    starts: u64,
    rows: u32,
    heads: u32,
    head_dim: u32,
    group: u32,
    n_groups: u32,
    layer: u32,
}

/// Those of `attention.comp` and `attention_pages.comp`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Attention {
    q: u64,
    out: u64,
    tokens: u64,
    pages: u64,
    starts: u64,
    sinks: u64,
    rows: u32,
    heads: u32,
    heads_kv: u32,
    head_dim: u32,
    group: u32,
    n_groups: u32,
    layer: u32,
    window: u32,
    scale: f32,
    softcap: f32,
    flags: u32,
    max_pages: u32,
    scratch: u64,
}

/// Those of `attention_merge.comp`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AttentionMerge {
    scratch: u64,
    out: u64,
    tokens: u64,
    sinks: u64,
    heads: u32,
    head_dim: u32,
    window: u32,
    max_pages: u32,
    flags: u32,
    pad: u32,
}

/// Numbers that repeat from run to run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 32) as u32
    }

    /// In -1..1.
    fn signed(&mut self) -> f32 {
        self.next() as i32 as f32 / 2_147_483_648.0
    }
}

/// What rows look like.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rows {
    /// Numbers around 1.
    Plain,
    /// Of every size, with zeros, ties and blocks that count as zero among them.
    Odd,
    /// With some that are none: a NaN, an infinity, one that half precision does not hold.
    Broken,
}

/// An attention step, and the lengths of the sequences that it runs over.
#[derive(Clone, Debug)]
struct Case {
    head_dim: usize,
    heads: usize,
    heads_kv: usize,
    window: Option<u32>,
    softcap: Option<f32>,
    sinks: bool,
    lengths: Vec<usize>,
    rows: Rows,
}

/// The rows of a case; those of the sequences stand behind one another.
struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    sinks: Vec<f32>,
}

impl Case {
    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn n(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// The row of a sequence's position.
    fn row(&self, sequence: usize, position: usize) -> usize {
        self.lengths[..sequence].iter().sum::<usize>() + position
    }

    /// Positions that a token sees.
    fn seen(&self, position: usize) -> Range<usize> {
        self.window.map_or(0, |w| (position + 1).saturating_sub(w as usize))..position + 1
    }

    fn data(&self, seed: u64) -> Data {
        let mut random = Random(seed);
        let mut side = |heads: usize, size: f32, halves: bool| -> Vec<f32> {
            let mut x: Vec<f32> =
                (0..self.n() * heads * self.head_dim).map(|_| random.signed() * size).collect();
            if self.rows != Rows::Plain {
                x.chunks_mut(self.head_dim.min(KV_BLOCK)).for_each(|part| odd(part, &mut random, halves));
            }
            let broken = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 65519.0, 65520.0, -1e6];
            for bad in broken.into_iter().filter(|_| self.rows == Rows::Broken) {
                let at = random.next() as usize % x.len();
                x[at] = bad;
            }
            x
        };
        let (q, k) = (side(self.heads, 4.0, false), side(self.heads_kv, 2.0, true));
        let v = side(self.heads_kv, 1.0, true);
        let sinks = (0..if self.sinks { self.heads } else { 0 }).map(|i| (i as f32 - 1.0) * 2.5).collect();
        Data { q, k, v, sinks }
    }
}

/// Makes part of a row one of a few special ones. Where half precision has to hold it, nothing is too large.
fn odd(part: &mut [f32], random: &mut Random, halves: bool) {
    let first = part[0];
    match random.next() % 12 {
        0 => part.fill(0.0),
        1 => part.iter_mut().step_by(2).for_each(|x| *x = -0.0),
        // A scale that is subnormal in half precision, one that vanishes there, blocks that count as zero.
        2 => part.iter_mut().for_each(|x| *x *= 1e-4),
        3 => part.iter_mut().for_each(|x| *x *= 1e-7),
        4 => part.iter_mut().for_each(|x| *x *= MIN_AMAX * 0.4),
        // The largest magnitude with both signs, and of one sign alone.
        5 => part.iter_mut().enumerate().for_each(|(i, x)| *x = if i % 3 == 0 { first } else { -first }),
        6 => part.fill(-first.abs()),
        7 => part.fill(first.abs()),
        // Ties.
        8 => part.iter_mut().for_each(|x| *x = (*x * 8.0).round() * 0.5),
        9 => part.iter_mut().step_by(7).for_each(|x| *x *= 40.0),
        10 => part.iter_mut().for_each(|x| *x *= if halves { 3000.0 } else { 50.0 }),
        _ => {}
    }
}

// The contract, restated.

/// The nearest number of half precision, ties to even, as single precision.
fn half(x: f32) -> f32 {
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    // The distance of such numbers around `x`: eleven bits, or a whole number of 2^-24.
    let exponent = ((x.to_bits() >> 23 & 255) as i32 - 127).max(-14);
    let ulp = 2f32.powi(exponent - 10);
    let rounded = (x / ulp).round_ties_even() * ulp;
    if rounded.abs() > 65504.0 { f32::INFINITY.copysign(x) } else { rounded }
}

/// The Walsh-Hadamard transform of each block of 32, as the sum that each element is, times `factor`.
fn turn(x: &mut [f32], factor: f32) {
    for block in x.as_chunks_mut::<KV_BLOCK>().0 {
        for bit in 0..5 {
            let before = *block;
            for (i, x) in block.iter_mut().enumerate() {
                let (low, high) = (before[i & !(1 << bit)], before[i | 1 << bit]);
                *x = if i >> bit & 1 == 0 { low + high } else { low - high };
            }
        }
        block.iter_mut().for_each(|x| *x *= factor);
    }
}

fn padded(x: &[f32]) -> Vec<f32> {
    let mut x = x.to_vec();
    x.resize(x.len().next_multiple_of(KV_BLOCK), 0.0);
    x
}

/// Blocks of a cached row: their scales in half precision, and the quants.
fn blocks(kind: KvType, x: &[f32]) -> (Vec<f32>, Vec<i8>) {
    if kind == KvType::Q8_0 {
        let row = QuantizedRow::new(Activation::I8x32, x);
        return (row.scales().iter().map(|d| half(*d)).collect(), row.quants().to_vec());
    }
    let (mut scales, mut quants) = (Vec::new(), Vec::new());
    for block in x.as_chunks::<KV_BLOCK>().0 {
        let nan = block.iter().find(|x| x.is_nan());
        let amax = nan.map_or_else(|| block.iter().fold(0.0f32, |m, x| m.max(x.abs())), |x| x.abs());
        let peak = if block.contains(&amax) { amax } else { -amax };
        let d = if amax < MIN_AMAX { 0.0 } else { peak / -8.0 };
        let inverse = if d.is_nan() || d == 0.0 { 0.0 } else { 1.0 / d };
        scales.push(half(d));
        let quant = |x: f32| (x * inverse).round_ties_even();
        // Not `min`, which would make 7 of a NaN.
        quants.extend(block.iter().map(|x| if quant(*x) > 7.0 { 7 } else { quant(*x) as i8 }));
    }
    (scales, quants)
}

/// What the cache has of a row: its elements, or its blocks.
enum Kept {
    Floats(Vec<f32>),
    Blocks(Vec<f32>, Vec<i8>),
}

impl Kept {
    fn new(kind: KvType, x: &[f32], key: bool) -> Kept {
        match kind {
            KvType::F32 => Kept::Floats(x.to_vec()),
            KvType::F16 => Kept::Floats(x.iter().map(|x| half(*x)).collect()),
            KvType::Q8_0 | KvType::Q4_0 => {
                let mut x = padded(x);
                if key {
                    turn(&mut x, 0.25);
                }
                let (scales, quants) = blocks(kind, &x);
                Kept::Blocks(scales, quants)
            }
        }
    }

    fn element(&self, d: usize) -> f32 {
        match self {
            Kept::Floats(x) => x[d],
            Kept::Blocks(scales, quants) => scales[d / KV_BLOCK] * f32::from(quants[d]),
        }
    }

    /// The product of a query with this key.
    fn product(&self, q: &[f32], turned: &QuantizedRow) -> f32 {
        match self {
            Kept::Floats(k) => q.iter().zip(k).fold(0.0, |acc, (q, k)| q.mul_add(*k, acc)),
            Kept::Blocks(scales, quants) => {
                let parts = turned.quants().chunks(KV_BLOCK).zip(quants.chunks(KV_BLOCK));
                let isums =
                    parts.map(|(q, k)| q.iter().zip(k).map(|(q, k)| i32::from(*q) * i32::from(*k)).sum());
                let blocks = isums.zip(scales).zip(turned.scales());
                blocks.fold(0.0, |acc, ((isum, d), scale): ((i32, _), _)| scale.mul_add(d * isum as f32, acc))
            }
        }
    }
}

/// Values, their maximum and their sum, of one page or of several.
struct Tile {
    o: Vec<f32>,
    m: f32,
    l: f32,
}

impl Tile {
    /// One page's, over the positions that are seen.
    fn new(scores: &[f32], first: usize, values: &[&Kept], head_dim: usize) -> Tile {
        let m = scores.iter().fold(f32::NEG_INFINITY, |m, s| if *s > m { *s } else { m }) + 0.0;
        let weights: Vec<f32> = scores.iter().map(|s| math::exp(s - m)).collect();
        let mut partial = [0.0f32; 8];
        weights.iter().enumerate().for_each(|(i, p)| partial[(first + i) % 8] += p);
        let chain = |d: usize| {
            weights.iter().zip(values).fold(0.0, |acc, (p, v): (&f32, _)| p.mul_add(v.element(d), acc))
        };
        Tile { o: (0..head_dim).map(chain).collect(), m, l: tree8(partial) }
    }

    /// With the page behind it.
    fn join(self, page: &Tile) -> Tile {
        let m = if page.m > self.m { page.m } else { self.m };
        let (a, b) = (math::exp(self.m - m), math::exp(page.m - m));
        let o = self.o.iter().zip(&page.o).map(|(o, page)| page.mul_add(b, o * a)).collect();
        Tile { o, m, l: page.l.mul_add(b, self.l * a) }
    }

    fn finish(mut self, sink: Option<f32>) -> Vec<f32> {
        if let Some(sink) = sink {
            let m = if sink > self.m { sink } else { self.m };
            let (a, b) = (math::exp(self.m - m), math::exp(sink - m));
            self.l = self.l * a + b;
            self.o.iter_mut().for_each(|o| *o *= a);
        }
        let r = math::recip(self.l);
        self.o.iter().map(|o| o * r).collect()
    }
}

/// What every token's attention is: `[rows][heads * head_dim]`.
fn expected(case: &Case, kind: KvType, data: &Data) -> Vec<f32> {
    let n = case.head_dim;
    let kept = |x: &[f32], key| -> Vec<Kept> { x.chunks(n).map(|x| Kept::new(kind, x, key)).collect() };
    let (keys, values) = (kept(&data.k, true), kept(&data.v, false));
    let mut out = Vec::new();
    for (sequence, length) in case.lengths.iter().enumerate() {
        for position in 0..*length {
            for head in 0..case.heads {
                let q = &data.q[(case.row(sequence, position) * case.heads + head) * n..][..n];
                let mut turned = padded(q);
                turn(&mut turned, 0.125);
                let turned = QuantizedRow::new(Activation::I8x32, &turned);
                let head_kv = head / (case.heads / case.heads_kv);
                let at = |position| case.row(sequence, position) * case.heads_kv + head_kv;
                let seen = case.seen(position);
                let mut state: Option<Tile> = None;
                for page in seen.start / KV_PAGE..=position / KV_PAGE {
                    let part = seen.start.max(page * KV_PAGE)..seen.end.min((page + 1) * KV_PAGE);
                    let score = |j| {
                        let s = keys[at(j)].product(q, &turned) * case.scale();
                        case.softcap.map_or(s, |cap| cap * math::tanh(s / cap))
                    };
                    let scores: Vec<f32> = part.clone().map(score).collect();
                    let of_page: Vec<&Kept> = part.clone().map(|j| &values[at(j)]).collect();
                    let tile = Tile::new(&scores, part.start, &of_page, n);
                    state = Some(match state {
                        None => tile,
                        Some(state) => state.join(&tile),
                    });
                }
                out.extend(state.expect("a token sees itself").finish(data.sinks.get(head).copied()));
            }
        }
    }
    out
}

// The device.

/// A NaN that no test expects: it shows what is read before it is written, and what is never written.
const POISON: u32 = 0x7fc1_2345;
/// Words before and behind the layer's part of a page, which are others'.
const OTHERS: [usize; 2] = [12, 20];
/// Of the group's tables; the step's is the last.
const N_GROUPS: usize = 2;

/// Words of a head's keys or values in a page.
fn side_words(kind: KvType, head_dim: usize) -> usize {
    let blocks = head_dim.div_ceil(KV_BLOCK);
    KV_PAGE
        * match kind {
            KvType::F32 => head_dim,
            KvType::F16 => head_dim.div_ceil(2),
            KvType::Q8_0 => 9 * blocks,
            KvType::Q4_0 => 5 * blocks,
        }
}

/// The order in which tokens are fed, and where each batch ends.
struct Feed {
    /// Sequence and position of each token.
    tokens: Vec<(usize, usize)>,
    batches: Vec<Range<usize>>,
}

impl Feed {
    /// All sequences in one batch.
    fn whole(case: &Case) -> Feed {
        let tokens: Vec<_> =
            (0..case.lengths.len()).flat_map(|s| (0..case.lengths[s]).map(move |p| (s, p))).collect();
        Feed { batches: std::iter::once(0..tokens.len()).collect(), tokens }
    }

    /// Up to `most` tokens of each sequence in a batch.
    fn by(case: &Case, most: usize) -> Feed {
        let (mut tokens, mut batches) = (Vec::new(), Vec::new());
        let longest = case.lengths.iter().copied().max().unwrap_or(0);
        for from in (0..longest).step_by(most) {
            let first = tokens.len();
            for (s, length) in case.lengths.iter().enumerate() {
                tokens.extend((from..(from + most).min(*length)).map(|p| (s, p)));
            }
            batches.push(first..tokens.len());
        }
        Feed { tokens, batches }
    }
}

/// A case on the device: what it computes by both forms, as [`expected`] orders it.
struct Run<'a> {
    gpu: &'a Gpu,
    case: &'a Case,
    kind: KvType,
    feed: &'a Feed,
}

impl Run<'_> {
    fn outputs(&self, data: &Data) -> [Vec<f32>; 2] {
        let Run { gpu, case, kind, feed } = self;
        let n = case.head_dim;
        let (width, width_kv) = (case.heads * n, case.heads_kv * n);
        let rows = |x: &[f32], width: usize| {
            let row = |(s, p): &(usize, usize)| &x[case.row(*s, *p) * width..][..width];
            let rows: Vec<f32> = feed.tokens.iter().flat_map(row).copied().collect();
            gpu.upload(&rows).unwrap()
        };
        let (q, k, v) = (rows(&data.q, width), rows(&data.k, width_kv), rows(&data.v, width_kv));
        let tokens: Vec<u32> = feed.tokens.iter().flat_map(|(s, p)| [*p as u32, *s as u32]).collect();
        let tokens = gpu.upload(&tokens).unwrap();
        let pages = Pages::new(gpu, case, *kind);
        let sinks = gpu.upload(if case.sinks { &data.sinks[..] } else { &[0.0] }).unwrap();
        // More pages than any token sees, so that some workgroups have none.
        let max_pages = case.lengths.iter().max().unwrap().div_ceil(KV_PAGE) + 1;
        let most = feed.batches.iter().map(Range::len).max().unwrap();
        let record = n + 2;
        let scratch = vec![POISON; most * case.heads * max_pages * record];
        let outs = [(); 2].map(|()| gpu.upload(&vec![POISON; case.n() * width]).unwrap());
        let constants = [match kind {
            KvType::F32 => 0,
            KvType::F16 => 1,
            KvType::Q8_0 => 2,
            KvType::Q4_0 => 3,
        }];
        let kernel = |name, constants: &[u32]| gpu.kernel(name, constants).unwrap();
        let [store, attention, of_pages] =
            ["kv_store", "attention", "attention_pages"].map(|name| kernel(name, &constants));
        let merge = kernel("attention_merge", &[]);
        let run =
            |kernel, push: &dyn Fn() -> Attention, groups| gpu.run_once(kernel, &push(), groups).unwrap();
        for batch in &feed.batches {
            let at = |buffer: &Buffer, width: usize| buffer.address() + 4 * (batch.start * width) as u64;
            let (rows, heads) = (batch.len() as u32, case.heads as u32);
            let push = KvStore {
                k: at(&k, width_kv),
                v: at(&v, width_kv),
                tokens: at(&tokens, 2),
                pages: pages.table.address(),
                starts: pages.starts.address(),
                rows,
                heads: case.heads_kv as u32,
                head_dim: n as u32,
                group: N_GROUPS as u32 - 1,
                n_groups: N_GROUPS as u32,
                layer: OTHERS[0] as u32,
            };
            gpu.run_once(&store, &push, [case.heads_kv as u32, rows, 1]).unwrap();
            let scratch = gpu.upload(&scratch[..batch.len() * case.heads * max_pages * record]).unwrap();
            let push = |out: &Buffer| Attention {
                q: at(&q, width),
                out: at(out, width),
                tokens: at(&tokens, 2),
                pages: pages.table.address(),
                starts: pages.starts.address(),
                sinks: sinks.address(),
                rows,
                heads,
                heads_kv: case.heads_kv as u32,
                head_dim: n as u32,
                group: N_GROUPS as u32 - 1,
                n_groups: N_GROUPS as u32,
                layer: OTHERS[0] as u32,
                window: case.window.unwrap_or(0),
                scale: case.scale(),
                softcap: case.softcap.unwrap_or(0.0),
                flags: u32::from(case.sinks),
                max_pages: max_pages as u32,
                scratch: scratch.address(),
            };
            run(&attention, &|| push(&outs[0]), [heads, rows, 1]);
            run(&of_pages, &|| push(&outs[1]), [heads, rows, max_pages as u32]);
            let joined = AttentionMerge {
                scratch: scratch.address(),
                out: at(&outs[1], width),
                tokens: at(&tokens, 2),
                sinks: sinks.address(),
                heads,
                head_dim: n as u32,
                window: case.window.unwrap_or(0),
                max_pages: max_pages as u32,
                flags: u32::from(case.sinks),
                pad: 0,
            };
            gpu.run_once(&merge, &joined, [heads, rows, 1]).unwrap();
            let records: Vec<u32> = gpu.read(&scratch).unwrap();
            for (i, of_token) in records.chunks_exact(case.heads * max_pages * record).enumerate() {
                let position = feed.tokens[batch.start + i].1;
                let seen = position / KV_PAGE - case.seen(position).start / KV_PAGE + 1;
                for of_head in of_token.chunks_exact(max_pages * record) {
                    assert!(
                        of_head[seen * record..].iter().all(|w| *w == POISON),
                        "a page that is none: {case:?}"
                    );
                }
            }
        }
        pages.check(gpu, case, *kind);
        outs.map(|out| {
            let fed: Vec<f32> = gpu.read(&out).unwrap();
            let mut ordered = vec![0.0; case.n() * width];
            for ((s, p), row) in feed.tokens.iter().zip(fed.chunks_exact(width)) {
                ordered[case.row(*s, *p) * width..][..width].copy_from_slice(row);
            }
            ordered
        })
    }
}

/// The pages of a case, poisoned and in no order.
struct Pages {
    memory: Buffer,
    /// Their addresses, and where those of each sequence and group begin.
    table: Buffer,
    starts: Buffer,
    /// Words from one to the next.
    stride: usize,
}

impl Pages {
    fn new(gpu: &Gpu, case: &Case, kind: KvType) -> Pages {
        let layer = 2 * case.heads_kv * side_words(kind, case.head_dim);
        let stride = OTHERS[0] + layer + OTHERS[1];
        let counts: Vec<usize> = case.lengths.iter().map(|n| n.div_ceil(KV_PAGE)).collect();
        let n: usize = counts.iter().sum();
        let memory = gpu.upload(&vec![POISON; n * stride]).unwrap();
        // A step that shares no factor with their number visits each once.
        let step = [2, 3, 5, 7].into_iter().find(|step| n == 1 || !n.is_multiple_of(*step)).unwrap();
        let mut numbers = (0..n).map(|i| (i * step + 1) % n);
        let (mut table, mut starts): (Vec<u64>, Vec<u32>) = (Vec::new(), Vec::new());
        for count in counts {
            // The other group has no pages: an address that nobody may read.
            starts.push(table.len() as u32);
            table.push(0);
            starts.push(table.len() as u32);
            let address = |i| memory.address() + 4 * (i * stride) as u64;
            table.extend(numbers.by_ref().take(count).map(address));
        }
        let (table, starts) = (gpu.upload(&table).unwrap(), gpu.upload(&starts).unwrap());
        Pages { memory, table, starts, stride }
    }

    /// Nothing but the layer's part was written, and of that only positions that there are.
    fn check(&self, gpu: &Gpu, case: &Case, kind: KvType) {
        let words: Vec<u32> = gpu.read(&self.memory).unwrap();
        let side = side_words(kind, case.head_dim);
        let pages = words.chunks_exact(self.stride);
        let written: usize = pages
            .map(|page| {
                let (before, rest) = page.split_at(OTHERS[0]);
                let (layer, behind) = rest.split_at(2 * case.heads_kv * side);
                assert!(
                    before.iter().chain(behind).all(|w| *w == POISON),
                    "another's words: {kind:?} {case:?}"
                );
                layer.iter().filter(|w| **w != POISON).count()
            })
            .sum();
        assert_eq!(
            written,
            case.n() * case.heads_kv * 2 * side / KV_PAGE,
            "words written: {kind:?} {case:?}"
        );
    }
}

/// Compares on bits; of a NaN only that it is one, and a device may have zero for a subnormal.
fn same(got: f32, want: f32) -> bool {
    got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()) || (want.is_subnormal() && got == 0.0)
}

fn check(gpu: &Gpu, case: &Case, kind: KvType, feeds: &[Feed], seed: u64) {
    let data = case.data(seed);
    let want = expected(case, kind, &data);
    assert!(case.rows == Rows::Broken || want.iter().all(|x| x.is_finite()), "{kind:?} {case:?}");
    for feed in feeds {
        let outputs = Run { gpu, case, kind, feed }.outputs(&data);
        for (form, got) in ["whole", "shared out"].iter().zip(outputs) {
            let wrong: Vec<usize> = (0..want.len()).filter(|i| !same(got[*i], want[*i])).collect();
            if let Some(&i) = wrong.first() {
                let width = case.heads * case.head_dim;
                panic!(
                    "{kind:?} {case:?}, {form}, {} batches: {} of {} wrong, row {} element {}: {:e} for {:e}",
                    feed.batches.len(),
                    wrong.len(),
                    want.len(),
                    i / width,
                    i % width,
                    got[i],
                    want[i],
                );
            }
        }
    }
}

/// A plain case of two sequences.
fn plain(head_dim: usize, heads: usize, heads_kv: usize, lengths: &[usize]) -> Case {
    Case {
        head_dim,
        heads,
        heads_kv,
        window: None,
        softcap: None,
        sinks: false,
        lengths: lengths.to_vec(),
        rows: Rows::Plain,
    }
}

const HEADS: [(usize, usize); 8] = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (4, 2), (4, 4)];

#[test]
fn every_width_of_a_head_has_the_bits_of_the_contract() {
    let Some(gpu) = device() else { return };
    for (i, head_dim) in [1, 2, 8, 20, 31, 33, 64, 80, 96, 128, 256, 512, 1024].into_iter().enumerate() {
        for (j, kind) in KvType::ALL.into_iter().enumerate() {
            let (heads, heads_kv) = HEADS[(i * 3 + j) % HEADS.len()];
            let long = if head_dim > 256 { 66 } else { 130 };
            let rows = if i % 2 == j % 2 { Rows::Odd } else { Rows::Plain };
            let case = Case { sinks: i % 3 == 0, rows, ..plain(head_dim, heads, heads_kv, &[long, 3]) };
            check(&gpu, &case, kind, &[Feed::whole(&case)], (100 * i + j) as u64);
        }
    }
}

#[test]
fn every_context_and_window_has_the_bits_of_the_contract() {
    let Some(gpu) = device() else { return };
    let mut seed = 0;
    for kind in KvType::ALL {
        for length in [1, 63, 64, 65, 200, 300] {
            for window in [None, Some(1), Some(5), Some(64), Some(100), Some(u32::MAX)] {
                let (heads, heads_kv) = HEADS[seed % HEADS.len()];
                let case = Case {
                    window,
                    softcap: [None, Some(30.0), Some(1.5)][seed % 3],
                    sinks: seed % 2 == 1,
                    rows: if seed % 5 < 2 { Rows::Plain } else { Rows::Odd },
                    ..plain(20, heads, heads_kv, &[length])
                };
                seed += 1;
                check(&gpu, &case, kind, &[Feed::whole(&case)], seed as u64);
            }
        }
    }
}

#[test]
fn soft_caps_and_sinks_together_and_apart_have_the_bits_of_the_contract() {
    let Some(gpu) = device() else { return };
    for (i, kind) in KvType::ALL.into_iter().enumerate() {
        for (j, softcap) in [None, Some(50.0), Some(0.25)].into_iter().enumerate() {
            for (window, sinks) in [(None, false), (None, true), (Some(70), false), (Some(70), true)] {
                let (heads, heads_kv) = HEADS[(i + 2 * j) % HEADS.len()];
                let case = Case {
                    window,
                    softcap,
                    sinks,
                    rows: Rows::Odd,
                    ..plain(64, heads, heads_kv, &[70, 129])
                };
                check(&gpu, &case, kind, &[Feed::whole(&case)], (1000 + 10 * i + j) as u64);
            }
        }
    }
}

#[test]
fn whole_in_parts_and_token_by_token_are_the_same() {
    let Some(gpu) = device() else { return };
    for (i, kind) in KvType::ALL.into_iter().enumerate() {
        for (window, sinks) in [(None, true), (Some(64), false)] {
            let lengths = [[140, 66], [66, 140]][i % 2];
            let case = Case { window, sinks, rows: Rows::Odd, ..plain(40, 4, 2, &lengths) };
            let feeds = [Feed::whole(&case), Feed::by(&case, 50), Feed::by(&case, 1)];
            check(&gpu, &case, kind, &feeds, 2000 + i as u64);
        }
    }
}

/// NaN is not lost and infinity is none the less one.
#[test]
fn numbers_that_are_none_spoil_what_they_spoil_on_the_cpu() {
    let Some(gpu) = device() else { return };
    for (i, kind) in KvType::ALL.into_iter().enumerate() {
        for seed in 0..6 {
            let case = Case { rows: Rows::Broken, sinks: seed % 2 == 0, ..plain(33, 2, 1, &[67, 20]) };
            check(&gpu, &case, kind, &[Feed::whole(&case)], 3000 + 10 * i as u64 + seed);
        }
    }
}

/// The restated rounding is that of half precision, for every number of it and its neighbours' middles.
#[test]
fn half_precision_is_restated_right() {
    let values: HashMap<u32, f32> = (0..0x7c00u32)
        .map(|h| {
            let (exponent, mantissa) = ((h >> 10) as i32, (h & 0x3ff) as f32);
            let value = if exponent == 0 {
                mantissa * 2f32.powi(-24)
            } else {
                (1024.0 + mantissa) * 2f32.powi(exponent - 25)
            };
            (h, value)
        })
        .collect();
    for h in 0..0x7bffu32 {
        let (low, high) = (values[&h], values[&(h + 1)]);
        let middle = f32::midpoint(low, high);
        let even = if h % 2 == 0 { low } else { high };
        assert_eq!([half(low), half(high), half(-middle)], [low, high, -even], "{h:#x}");
        assert_eq!(half(f32::from_bits(middle.to_bits() - 1)), low, "{h:#x}");
        assert_eq!(half(f32::from_bits(middle.to_bits() + 1)), high, "{h:#x}");
    }
    assert_eq!([65519.0, 65520.0, -1e6].map(half), [65504.0, f32::INFINITY, f32::NEG_INFINITY]);
}
