//! Attention kernels against the reference, over every type of cache.

use llamay_formats::Activation;
use llamay_plan::{KV_BLOCK, KV_PAGE, KvLayer, KvType, Plan};

use super::{Random, assert_same_bits, isas};
use crate::kernels::{ActLayout, Kernels, MergeArgs, Query, TileArgs, portable, scratch_len};
use crate::kv::{KvCache, PageShape, turn_query};
use crate::math;

const HEAD_DIMS: [usize; 8] = [1, 20, 32, 64, 80, 96, 128, 256];

/// A page of random keys and values of one head. What lies in its last position, which nobody may see, is no number.
fn page(random: &mut Random, head_dim: usize, kind: KvType) -> KvCache {
    let plan = Plan { kv: vec![KvLayer { heads: 1, head_dim, window: None }], ..Plan::default() };
    let mut cache = KvCache::new(&plan, kind, |_| true);
    cache.reserve(0, 1).expect("a page");
    for at in 0..KV_PAGE {
        let mut k = random.floats(head_dim);
        if at == KV_PAGE - 1 {
            k.fill(f32::NAN);
        }
        cache.store(0, 0, at, &k, &random.floats(head_dim));
    }
    cache
}

/// Query rows as the kernels want them, and words from one to the next.
fn rows(q: &[f32], shape: PageShape) -> (Vec<u32>, usize) {
    if !shape.kind.is_quantized() {
        return (q.iter().map(|v| v.to_bits()).collect(), shape.head_dim);
    }
    let layout = ActLayout::new(Activation::I8x32, shape.head_dim.next_multiple_of(KV_BLOCK));
    let mut records = vec![0; q.len() / shape.head_dim * layout.words];
    for (q, record) in q.chunks_exact(shape.head_dim).zip(records.chunks_exact_mut(layout.words)) {
        let mut padded = vec![0.0; layout.k];
        turn_query(q, &mut padded);
        // SAFETY: the portable kernels need no instruction set.
        unsafe { (Kernels::of(crate::Isa::Portable).elementwise.record)(&padded, &layout, record) };
    }
    (records, layout.words)
}

/// Queries that see different parts of the page; the others' states are there already.
fn queries(n: usize, words: usize, stride: usize, first: usize) -> Vec<Query> {
    let query = |i: usize| {
        let (lo, hi) = match (i + first) % 5 {
            0 => (0, KV_PAGE - 1),
            1 => (i % 60, i % 60 + 1),
            2 => (17, 48),
            3 => (0, 1 + i % 40),
            _ => (i % 50, KV_PAGE - 1),
        };
        Query { q: i * words, lo, hi, out: i * stride, merge: i % 2 == 1 }
    };
    (0..n).map(query).collect()
}

#[test]
fn attention_tiles_equal_the_reference() {
    let mut random = Random(6);
    for head_dim in HEAD_DIMS {
        for kind in KvType::ALL {
            let cache = page(&mut random, head_dim, kind);
            let shape = cache.shape(0);
            let stride = shape.v_stride + 2;
            for (i, n) in [1, 2, 3, 4, 5, 6, 7, 16, 61].into_iter().enumerate() {
                let (q, words) = rows(&random.floats(n * head_dim), shape);
                let mut before = random.floats(n * stride);
                before.chunks_exact_mut(stride).for_each(|s| s[stride - 1] += 2.0);
                let queries = queries(n, words, stride, i);
                let run = |kernels: &Kernels| {
                    let mut out = before.clone();
                    let mut scratch = vec![f32::NAN; scratch_len(head_dim, shape.v_stride, n)];
                    let args = TileArgs {
                        head_dim,
                        v_stride: shape.v_stride,
                        scale: 0.125,
                        softcap: (n % 3 == 2).then_some(5.0),
                        kv: kind,
                        k: cache.page(0, 0).wrapping_add(shape.k(0)),
                        v: cache.page(0, 0).wrapping_add(shape.v(0)),
                        q: q.as_ptr().cast(),
                        out: out.as_mut_ptr(),
                        queries: &queries,
                        scratch: scratch.as_mut_ptr(),
                    };
                    // SAFETY: the page, the rows, the states and the scratch have these sizes.
                    unsafe { (kernels.tile)(&args) };
                    out
                };
                let want = run(&Kernels::of(crate::Isa::Portable));
                assert!(want.iter().all(|v| v.is_finite()), "what is not seen does not matter");
                for kernels in isas() {
                    let what = format!("{} {kind:?} {head_dim}, {n} queries", kernels.isa.name());
                    assert_same_bits(&run(&kernels), &want, &what);
                }
            }
        }
    }
}

#[test]
fn merged_tiles_equal_the_reference() {
    let mut random = Random(9);
    for v_stride in [16, 32, 64, 80, 256] {
        for n_tiles in [1, 2, 3, 15, 16, 17, 40] {
            let (stride, step) = (v_stride + 2, 3 * (v_stride + 2));
            let tiles = random.floats((n_tiles - 1) * step + stride);
            let run = |kernels: &Kernels| {
                let mut state = vec![f32::NAN; stride];
                let mut factors = Vec::new();
                let args = &mut MergeArgs {
                    tiles: &tiles,
                    step,
                    v_stride,
                    factors: &mut factors,
                    state: &mut state,
                };
                // SAFETY: the instruction set is available.
                unsafe { (kernels.merge)(args) };
                state
            };
            let want = run(&Kernels::of(crate::Isa::Portable));
            for kernels in isas() {
                let what = format!("{} {v_stride}, {n_tiles} tiles", kernels.isa.name());
                assert_same_bits(&run(&kernels), &want, &what);
            }
        }
    }
}

/// Attention in double precision over what was stored.
#[test]
fn quantised_caches_attend_to_what_was_stored() {
    let mut random = Random(10);
    for (kind, tolerance) in [(KvType::Q8_0, 0.006), (KvType::Q4_0, 0.12)] {
        for head_dim in HEAD_DIMS {
            let plan = Plan { kv: vec![KvLayer { heads: 2, head_dim, window: None }], ..Plan::default() };
            let mut cache = KvCache::new(&plan, kind, |_| true);
            cache.reserve(0, 2).expect("two pages");
            let rows: Vec<[Vec<f32>; 2]> =
                (0..KV_PAGE).map(|_| [(); 2].map(|()| random.floats(2 * head_dim))).collect();
            for (at, [k, v]) in rows.iter().enumerate() {
                cache.store(0, 0, at, k, v);
            }
            // A page's copy is the page.
            cache.copy_page(0, 0, 1);
            let shape = cache.shape(0);
            let query = random.floats(head_dim);
            let (q, _) = self::rows(&query, shape);
            let scale = 1.0 / (head_dim as f32).sqrt();
            for head in 0..2 {
                let mut out = vec![0.0; shape.v_stride + 2];
                let mut scratch = vec![0.0; scratch_len(head_dim, shape.v_stride, 1)];
                let page = cache.page(0, 1);
                let args = TileArgs {
                    head_dim,
                    v_stride: shape.v_stride,
                    scale,
                    softcap: None,
                    kv: kind,
                    k: page.wrapping_add(shape.k(head)),
                    v: page.wrapping_add(shape.v(head)),
                    q: q.as_ptr().cast(),
                    out: out.as_mut_ptr(),
                    queries: &[Query { q: 0, lo: 0, hi: KV_PAGE, out: 0, merge: false }],
                    scratch: scratch.as_mut_ptr(),
                };
                // SAFETY: the page, the row, the state and the scratch have these sizes.
                unsafe { portable::attention_tile(&args) };
                let part = head * head_dim..(head + 1) * head_dim;
                let weights: Vec<f64> = rows
                    .iter()
                    .map(|[k, _]| {
                        let products = k[part.clone()].iter().zip(&query).map(|(k, q)| f64::from(k * q));
                        (products.sum::<f64>() * f64::from(scale)).exp()
                    })
                    .collect();
                let sum: f64 = weights.iter().sum();
                let r = f64::from(math::recip(out[shape.v_stride + 1]));
                for (d, out) in out[..head_dim].iter().enumerate() {
                    let values = rows.iter().map(|[_, v]| f64::from(v[part.start + d]));
                    let want = values.zip(&weights).map(|(v, w)| v * w).sum::<f64>() / sum;
                    let got = f64::from(*out) * r;
                    assert!((got - want).abs() < tolerance, "{kind:?} {head_dim}: {got} for {want}");
                }
                assert!(out[head_dim..shape.v_stride].iter().all(|v| *v == 0.0));
            }
        }
    }
}
