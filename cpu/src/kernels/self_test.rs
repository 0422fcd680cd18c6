//! A test of a kernel set against the reference on a few known inputs, made whenever a backend opens.
//!
//! It is there for machines that are not what they say: an emulator or hypervisor whose CPU reports instructions and computes
//! something else with them. One block and one column are enough for that, since every column runs the same instructions;
//! the whole takes a few hundred microseconds.

use llamay_formats::{Activation, Format, QuantizedRow};
use llamay_plan::{Gating, KV_BLOCK, KV_PAGE, KvLayer, KvType, Nonlinearity, NormKind, Plan, RopePairs};

use super::*;
use crate::kv::{KvCache, turn_query};
use crate::memory::AlignedBytes;
use crate::pack::{PackFormat, pack_group};

/// The first set that passes its test, or else the portable one; and a sentence about each before it.
pub(crate) fn choose(sets: impl IntoIterator<Item = Kernels>) -> (Kernels, Vec<String>) {
    let mut faults = Vec::new();
    for set in sets {
        match self_test(&set) {
            Ok(()) => return (set, faults),
            Err(what) => {
                let name = set.isa.name();
                faults.push(format!(
                    "the {name} kernels are not used: this CPU reports their instructions, but {what}"
                ));
            }
        }
    }
    (portable_set(), faults)
}

/// Compares a kernel of every kind and format with the reference.
///
/// # Errors
/// What differs, as a clause.
pub(crate) fn self_test(kernels: &Kernels) -> Result<(), String> {
    if kernels.isa == Isa::Portable {
        return Ok(());
    }
    let mut random = Sequence(1);
    for &format in Format::ALL.iter().filter(|f| PackFormat::of(**f).is_some()) {
        if let Some(kernel) = kernels.matmul(format) {
            same(
                &format!("its product with {format}"),
                packed_product(kernels, kernel, format, &mut random),
            )?;
        }
    }
    if let Some(kernel) = kernels.float {
        for format in [Format::F32, Format::F16, Format::BF16] {
            same(&format!("its product with {format}"), float_product(kernel, format, &mut random))?;
        }
    }
    let (x, y) = (random.floats(N), random.floats(N));
    let [got, want] = [kernels.elementwise, elementwise::portable()].map(|e| row_kernels(&e, &x, &y));
    same("a norm, rotation or gate", (got, want))?;
    for kv in KvType::ALL {
        let Some(cache) = page(kv, &mut random) else { continue };
        let q = random.floats(2 * HEAD_DIM);
        let [got, want] = [*kernels, portable_set()].map(|set| attention(&set, &cache, &q));
        same(&format!("its attention over a cache of {}", kv.name()), (got, want))?;
    }
    Ok(())
}

fn same(what: &str, (got, want): (Vec<f32>, Vec<f32>)) -> Result<(), String> {
    let equal = got.iter().map(|v| v.to_bits()).eq(want.iter().map(|v| v.to_bits()));
    if equal { Ok(()) } else { Err(format!("{what} is wrong")) }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1.
    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
    }

    /// Weights of any format. Without bit 6 no float of any width is infinite or not a number, wherever it starts.
    fn weights(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8 & 0xbf).collect()
    }
}

/// One group of rows of the least length times one column: the kernel's and the reference's.
fn packed_product(
    kernels: &Kernels,
    kernel: MatFn,
    format: Format,
    random: &mut Sequence,
) -> (Vec<f32>, Vec<f32>) {
    let (rows, k) = (kernels.isa.group_rows(), format.block_len());
    let (Some(row_bytes), Some(size)) = (format.row_bytes(k), PackedMatrix::bytes(format, rows, k, rows))
    else {
        unreachable!("a block is a row")
    };
    let (w, x) = (random.weights(rows * row_bytes), random.floats(k));
    let Some(data) = AlignedBytes::zeroed(size) else { return (Vec::new(), Vec::new()) };
    let mut packed = PackedMatrix::new(format, rows, k, rows, data);
    packed.groups_mut().for_each(|group| pack_group(format, k, rows, &w, group));
    let layout = ActLayout::new(format.activation(), k);
    let (mut record, mut out) = (vec![0u32; layout.words], vec![0.0f32; rows]);
    // SAFETY: this machine has the table's instruction set.
    unsafe { (kernels.elementwise.record)(&x, &layout, &mut record) };
    let args = MatArgs {
        weights: &packed,
        groups: 0..1,
        layout: &layout,
        x: &record,
        n_cols: 1,
        out: out.as_mut_ptr(),
        first_row: 0,
        out_stride: rows,
    };
    // SAFETY: as above; the weights are packed for it, and all buffers have the sizes that the arguments say.
    unsafe { kernel(&args) };
    let x = QuantizedRow::new(format.activation(), &x);
    (out, w.chunks_exact(row_bytes).map(|w| format.dot(w, &x)).collect())
}

/// Rows of floats, whose length is no whole number of vectors, times one column.
fn float_product(kernel: FloatFn, format: Format, random: &mut Sequence) -> (Vec<f32>, Vec<f32>) {
    let (rows, k) = (3, 37);
    let row_bytes = k * format.block_bytes();
    let (w, x) = (random.weights(rows * row_bytes), random.floats(k));
    let record: Vec<u32> = x.iter().map(|v| v.to_bits()).collect();
    let mut out = vec![0.0f32; rows];
    let args = FloatArgs {
        format,
        weights: &w,
        k,
        rows: 0..rows,
        x: &record,
        n_cols: 1,
        out: out.as_mut_ptr(),
        first_row: 0,
        out_stride: rows,
    };
    // SAFETY: this machine has the kernel's instruction set, and the buffers have these sizes.
    unsafe { kernel(&args) };
    (out, w.chunks_exact(row_bytes).map(|w| format.dot_f32(w, &x)).collect())
}

/// Elements of the rows: halves of it, and it, are no whole number of vectors.
const N: usize = 38;

/// The row kernels one behind the other, so that a wrong bit of any is in the result.
fn row_kernels(e: &Elementwise, x: &[f32], y: &[f32]) -> Vec<f32> {
    let (mut a, mut b) = (vec![0.0; N], vec![0.0; N]);
    let (mut cos, mut sin) = (vec![0.0; N / 2], vec![0.0; N / 2]);
    let norm = Norm { kind: NormKind::Rms, len: N, weight: y, bias: &[], eps: 1e-5 };
    // SAFETY: this machine has the table's instruction set.
    unsafe {
        (e.norm)(&norm, x, &mut a);
        (e.angles)(1000.0, &y[..N / 2], 1.0, &mut cos, &mut sin);
        (e.rope)(&mut a, N, RopePairs::Halves, &cos, &sin);
        (e.gate)(&a, y, Gating::Product(Nonlinearity::Silu), &mut b);
        (e.add_scaled)(&mut b, x, -1.7);
        (e.softcap)(&mut b, 0.5);
    }
    b
}

/// No whole number of blocks or vectors.
const HEAD_DIM: usize = 20;

/// A cache of one head and one full page; `None` where memory is short.
fn page(kv: KvType, random: &mut Sequence) -> Option<KvCache> {
    let plan = Plan { kv: vec![KvLayer { heads: 1, head_dim: HEAD_DIM, window: None }], ..Plan::default() };
    let mut cache = KvCache::new(&plan, kv, |_| true);
    cache.reserve(0, 1).ok()?;
    for at in 0..KV_PAGE {
        cache.store(0, 0, at, &random.floats(HEAD_DIM), &random.floats(HEAD_DIM));
    }
    Some(cache)
}

/// Two queries against the page, of which the second is merged into a state.
fn attention(set: &Kernels, cache: &KvCache, q: &[f32]) -> Vec<f32> {
    let shape = cache.shape(0);
    let layout = ActLayout::new(Activation::I8x32, HEAD_DIM.next_multiple_of(KV_BLOCK));
    let words = if shape.kind.is_quantized() { layout.words } else { HEAD_DIM };
    let mut rows = vec![0u32; 2 * words];
    for (q, row) in q.chunks_exact(HEAD_DIM).zip(rows.chunks_exact_mut(words)) {
        if shape.kind.is_quantized() {
            let mut padded = vec![0.0; layout.k];
            turn_query(q, &mut padded);
            // SAFETY: this machine has the table's instruction set.
            unsafe { (set.elementwise.record)(&padded, &layout, row) };
        } else {
            row.copy_from_slice(bytemuck::cast_slice(q));
        }
    }
    let stride = shape.v_stride + 2;
    let mut out = vec![0.5f32; 2 * stride];
    let mut scratch = vec![0.0f32; scratch_len(HEAD_DIM, shape.v_stride, 2)];
    let queries = [
        Query { q: 0, lo: 0, hi: KV_PAGE, out: 0, merge: false },
        Query { q: words, lo: 3, hi: 40, out: stride, merge: true },
    ];
    let args = TileArgs {
        head_dim: HEAD_DIM,
        v_stride: shape.v_stride,
        scale: 0.25,
        softcap: None,
        kv: shape.kind,
        k: cache.page(0, 0).wrapping_add(shape.k(0)),
        v: cache.page(0, 0).wrapping_add(shape.v(0)),
        q: rows.as_ptr().cast(),
        out: out.as_mut_ptr(),
        queries: &queries,
        scratch: scratch.as_mut_ptr(),
    };
    // SAFETY: this machine has the set's instructions, and the page, the rows, the states and the scratch have these sizes.
    unsafe { (set.tile)(&args) };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_this_machine_passes() {
        for isa in Isa::available() {
            assert_eq!(self_test(&Kernels::of(isa)), Ok(()), "{}", isa.name());
        }
    }

    /// Sets of this machine that are wrong in one kernel, with a word of what the test has to say.
    fn broken(set: Kernels) -> Vec<(Kernels, &'static str)> {
        unsafe fn no_product(_: &MatArgs<'_>) {}
        unsafe fn no_float_product(_: &FloatArgs<'_>) {}
        unsafe fn no_attention(_: &TileArgs<'_>) {}
        unsafe fn no_gate(_: &[f32], _: &[f32], _: Gating, _: &mut [f32]) {}
        vec![
            (Kernels { matmul: |_| Some(no_product as MatFn), ..set }, "Q4_0"),
            (Kernels { matmul: |f| (f == Format::Q6_K).then_some(no_product as MatFn), ..set }, "Q6_K"),
            (Kernels { float: Some(no_float_product), ..set }, "F32"),
            (Kernels { tile: no_attention, ..set }, "attention"),
            (Kernels { elementwise: Elementwise { gate: no_gate, ..set.elementwise }, ..set }, "gate"),
        ]
    }

    #[test]
    fn a_set_that_computes_something_else_is_passed_over_with_a_sentence() {
        for isa in Isa::available().into_iter().filter(|isa| *isa != Isa::Portable) {
            let good = Kernels::of(isa);
            for (bad, word) in broken(good) {
                let (chosen, faults) = choose([bad, bad, Kernels::of(Isa::Portable)]);
                assert_eq!(chosen.isa, Isa::Portable);
                assert_eq!(faults.len(), 2);
                assert!(faults[0].contains(isa.name()) && faults[0].contains(word), "{}", faults[0]);
                assert_eq!(choose([bad, good]).0.isa, isa);
                assert_eq!(choose([good, bad]).1, Vec::<String>::new());
            }
        }
    }

    #[test]
    fn where_no_set_passes_the_portable_one_runs() {
        for (bad, _) in broken(Kernels { isa: Isa::Avx2, ..portable_set() }).into_iter().skip(2) {
            assert_eq!(choose([bad]).0.isa, Isa::Portable);
        }
    }
}
