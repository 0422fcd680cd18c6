//! Asks a device for what the host knows, before its answers are trusted: a family of kernels that computes something else
//! would give wrong text.

use llamay_formats::{Activation, Format, QuantizedRow};
use llamay_plan::KvType;

use crate::kv::kind_number as kv_kind;
use crate::pack::{self, Layout};
use crate::record::record_words;
use crate::{Buffer, DeviceError, Gpu, OpenError, kernels};

/// A kernel's answer, in bits.
type Answer = fn(&Gpu) -> Result<Vec<u32>, DeviceError>;

/// What the other kernels make of numbers, and the hash of what is right: that of a device whose kernels have the CPU's bits
/// wherever `tests/` compare them.
const KNOWN: [(&str, Answer, u64); 6] = [
    ("norms", norms, 0x9c5a_de89_d347_94a2),
    ("rotations", rotations, 0x3ce0_02d6_409a_9fd4),
    ("non-linearities", nonlinearities, 0xe2d3_b22d_d7f5_6abc),
    ("routing", routing, 0xe2ee_628a_0e3a_8a44),
    ("attention", attention, 0x45dd_105f_5811_3911),
    ("attention over a quantised cache", quantised_attention, 0x33a5_3526_2650_c27d),
];

/// A short name for many bits (FNV-1a over words).
fn hash(words: &[u32]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |h, v| (h ^ u64::from(*v)).wrapping_mul(0x100_0000_01b3))
}

/// A layer norm with weights and bias, and an RMS norm of two parts.
fn norms(gpu: &Gpu) -> Result<Vec<u32>, DeviceError> {
    let (x, w) = (gpu.upload(&numbers(300, 11))?, gpu.upload(&numbers(300, 12))?);
    let out = gpu.zeroed(2 * 300 * 4)?;
    let mut push = kernels::Norm {
        x: x.address(),
        weight: w.address(),
        bias: w.address(),
        out: out.address(),
        len: 300,
        parts: 1,
        rows: 1,
        flags: kernels::norm::LAYER | kernels::norm::WEIGHT | kernels::norm::BIAS,
        weight_parts: 1,
        eps: 1e-5,
    };
    gpu.run_once(&gpu.kernel("norm", &[])?, &push, [1, 1, 1])?;
    (push.len, push.parts, push.flags) = (150, 2, kernels::norm::WEIGHT);
    push.out += 300 * 4;
    gpu.run_once(&gpu.kernel("norm", &[])?, &push, [2, 1, 1])?;
    gpu.read(&out)
}

/// Angles of three positions, and heads that turn by them.
fn rotations(gpu: &Gpu) -> Result<Vec<u32>, DeviceError> {
    let tokens = gpu.upload(&[0u32, 0, 77, 0, 40_000, 0])?;
    let frequencies: Vec<f32> = numbers(16, 13).iter().map(|v| v.abs()).collect();
    let (frequencies, magnitudes) = (gpu.upload(&frequencies)?, gpu.upload(&[1.0f32, 1.0, 1.25])?);
    let (cos, sin) = (gpu.zeroed(3 * 16 * 4)?, gpu.zeroed(3 * 16 * 4)?);
    let push = kernels::Angles {
        tokens: tokens.address(),
        frequencies: frequencies.address(),
        magnitudes: magnitudes.address(),
        cos: cos.address(),
        sin: sin.address(),
        half_: 16,
        rows: 3,
    };
    gpu.run_once(&gpu.kernel("angles", &[])?, &push, [1, 3, 1])?;
    let x = gpu.zeroed(3 * 80 * 4)?;
    let from = gpu.upload(&numbers(3 * 80, 14))?;
    let copy = kernels::Elementwise {
        x: from.address(),
        y: from.address(),
        out: x.address(),
        n: 3 * 80,
        scale: 1.0,
    };
    gpu.run_once(&gpu.kernel("elementwise", &[kernels::elementwise::SCALE, 0])?, &copy, [1, 1, 1])?;
    let push = kernels::Rope {
        x: x.address(),
        cos: cos.address(),
        sin: sin.address(),
        width: 80,
        head_dim: 40,
        half_: 16,
        rows: 3,
        interleaved: 0,
        pad: 0,
    };
    gpu.run_once(&gpu.kernel("rope", &[])?, &push, [1, 3, 1])?;
    gpu.read(&x)
}

/// Every non-linearity and the soft cap, from -8 to 8.
fn nonlinearities(gpu: &Gpu) -> Result<Vec<u32>, DeviceError> {
    let x: Vec<f32> = numbers(128, 15).iter().map(|v| 8.0 * v).collect();
    let (x, out) = (gpu.upload(&x)?, gpu.zeroed(8 * 128 * 4)?);
    let activate = (0..6).map(|kind| [kernels::elementwise::ACTIVATE, kind]);
    let others = [[kernels::elementwise::SOFTCAP, 0], [kernels::elementwise::CLIPPED_SWIGLU, 0]];
    for (i, constants) in activate.chain(others).enumerate() {
        let push = kernels::Elementwise {
            x: x.address(),
            y: x.address(),
            out: out.address() + 4 * 128 * i as u64,
            n: 128,
            scale: 5.0,
        };
        gpu.run_once(&gpu.kernel("elementwise", &constants)?, &push, [1, 1, 1])?;
    }
    gpu.read(&out)
}

/// Five of forty experts, and their outputs joined.
fn routing(gpu: &Gpu) -> Result<Vec<u32>, DeviceError> {
    let (x, parts) = (gpu.upload(&numbers(40, 16))?, gpu.upload(&numbers(5 * 20, 17))?);
    let out = gpu.zeroed((5 + 5 + 20) * 4)?;
    let (chosen, weights, sum) = (out.address(), out.address() + 20, out.address() + 40);
    let push = kernels::Route {
        x: x.address(),
        bias: x.address(),
        chosen,
        weights,
        n_expert: 40,
        n_used: 5,
        rows: 1,
        flags: kernels::route::BIAS | kernels::route::NORMALIZE,
        scoring: 0,
        scale: 1.5,
    };
    gpu.run_once(&gpu.kernel("route", &[])?, &push, [1, 1, 1])?;
    let push =
        kernels::Combine { x: parts.address(), weights, out: sum, width: 20, n_used: 5, rows: 1, pad: 0 };
    gpu.run_once(&gpu.kernel("combine", &[])?, &push, [1, 1, 1])?;
    gpu.read(&out)
}

fn attention(gpu: &Gpu) -> Result<Vec<u32>, DeviceError> {
    attention_over(gpu, KvType::F16)
}

fn quantised_attention(gpu: &Gpu) -> Result<Vec<u32>, DeviceError> {
    attention_over(gpu, KvType::Q8_0)
}

/// The last of 70 tokens, with two query heads for each key head, over two pages, whole and shared out.
fn attention_over(gpu: &Gpu, kv: KvType) -> Result<Vec<u32>, DeviceError> {
    const N: usize = 70;
    const DIM: usize = 40;
    let kind = [kv_kind(kv)];
    let (k, v) = (gpu.upload(&numbers(N * DIM, 18))?, gpu.upload(&numbers(N * DIM, 19))?);
    let q = gpu.upload(&numbers(2 * DIM, 20))?;
    let tokens: Vec<u32> = (0..N as u32).flat_map(|i| [i, 0]).collect();
    let (tokens, starts) = (gpu.upload(&tokens)?, gpu.upload(&[0u32])?);
    // Room for either kind of page.
    let page = 2 * 64 * 2 * DIM * 4;
    let cache = gpu.zeroed(2 * page)?;
    let pages = gpu.upload(&[cache.address(), cache.address() + page as u64])?;
    let store = kernels::KvStore {
        k: k.address(),
        v: v.address(),
        tokens: tokens.address(),
        pages: pages.address(),
        starts: starts.address(),
        rows: N as u32,
        heads: 1,
        head_dim: DIM as u32,
        group: 0,
        n_groups: 1,
        layer: 0,
    };
    gpu.run_once(&gpu.kernel("kv_store", &kind)?, &store, [1, N as u32, 1])?;
    let (out, scratch) = (gpu.zeroed(2 * 2 * DIM * 4)?, gpu.zeroed(2 * 2 * (DIM + 2) * 4)?);
    let mut push = kernels::Attention {
        q: q.address(),
        out: out.address(),
        tokens: tokens.address() + 8 * (N as u64 - 1),
        pages: pages.address(),
        starts: starts.address(),
        sinks: q.address(),
        rows: 1,
        heads: 2,
        heads_kv: 1,
        head_dim: DIM as u32,
        group: 0,
        n_groups: 1,
        layer: 0,
        window: 66,
        scale: 0.5,
        softcap: 3.0,
        flags: kernels::attention::SINKS,
        max_pages: 0,
        scratch: scratch.address(),
    };
    gpu.run_once(&gpu.kernel("attention", &kind)?, &push, [2, 1, 1])?;
    push.max_pages = 2;
    gpu.run_once(&gpu.kernel("attention_pages", &kind)?, &push, [2, 1, 2])?;
    let merge = kernels::AttentionMerge {
        scratch: push.scratch,
        out: push.out + 4 * 2 * DIM as u64,
        tokens: push.tokens,
        sinks: push.sinks,
        heads: 2,
        head_dim: push.head_dim,
        window: push.window,
        max_pages: 2,
        flags: push.flags,
        pad: 0,
    };
    gpu.run_once(&gpu.kernel("attention_merge", &[])?, &merge, [2, 1, 1])?;
    gpu.read(&out)
}

/// Numbers in (-1, 1) that follow no pattern that a kernel could hit by chance.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Tests the device; the error names the kernel that failed.
pub(crate) fn run(gpu: &Gpu) -> Result<(), OpenError> {
    let physical = &gpu.inner.physical;
    let fail = |what: String| OpenError::SelfTest {
        device: physical.name.clone(),
        driver: physical.driver.clone(),
        what,
    };
    for (name, outcome) in [("quantisation", quantised(gpu)), ("float products", floats(gpu))] {
        match outcome {
            Ok(true) => {}
            Ok(false) => return Err(fail(format!("{name} gives other bits"))),
            Err(e) => return Err(fail(format!("{name}: {e}"))),
        }
    }
    for (name, test, known) in KNOWN {
        match test(gpu).map(|words| hash(&words)) {
            Ok(found) if found == known => {}
            Ok(found) => return Err(fail(format!("{name} give other bits ({found:#018x})"))),
            Err(e) => return Err(fail(format!("{name}: {e}"))),
        }
    }
    for format in [Format::Q4_0, Format::Q8_0, Format::Q4_K, Format::Q6_K, Format::IQ2_XS, Format::IQ4_XS] {
        match product(gpu, format) {
            Ok(true) => {}
            Ok(false) => return Err(fail(format!("products with {format} give other bits"))),
            Err(e) => return Err(fail(format!("products with {format}: {e}"))),
        }
    }
    Ok(())
}

/// `out = x + scale * y` where a product that is rounded before the sum gives 0 or less.
pub(crate) fn fused(gpu: &Gpu) -> Result<bool, DeviceError> {
    let y: Vec<f32> = (0..64).map(|i| 1.0 + (i * 37 + 1) as f32 / 4_194_304.0).collect();
    let scale = y[17];
    let x: Vec<f32> = y.iter().map(|y| -(y * scale)).collect();
    let (a, b) = (gpu.upload(&x)?, gpu.upload(&y)?);
    let out = gpu.zeroed(64 * 4)?;
    let push = kernels::Elementwise { x: a.address(), y: b.address(), out: out.address(), n: 64, scale };
    gpu.run_once(&gpu.kernel("elementwise", &[kernels::elementwise::ADD_SCALED, 0])?, &push, [1, 1, 1])?;
    let got: Vec<f32> = gpu.read(&out)?;
    Ok(got.iter().zip(x.iter().zip(&y)).all(|(got, (x, y))| *got == y.mul_add(scale, *x)))
}

/// A quantised row on the host, in the kernels' form.
pub(crate) fn record(row: &QuantizedRow) -> Vec<u32> {
    let quants = row.quants().as_chunks().0.iter();
    let quants = quants.map(|q: &[i8; 4]| u32::from_le_bytes(q.map(|q| q as u8)));
    let scales = row.scales().iter().map(|s| s.to_bits());
    quants.chain(scales).chain(row.sums().iter().map(|s| i32::from(*s) as u32)).collect()
}

fn quantised(gpu: &Gpu) -> Result<bool, DeviceError> {
    for (block, kind) in [(32, Activation::I8x32), (256, Activation::I8x256)] {
        let x = numbers(512, block);
        let (from, words) = (gpu.upload(&x)?, record_words(512, block));
        let out = gpu.zeroed(4 * words)?;
        let push = kernels::Quantize {
            x: from.address(),
            out: out.address(),
            k: 512,
            rows: 1,
            block,
            record: words as u32,
        };
        gpu.run_once(&gpu.kernel("quantize", &[])?, &push, [2, 1, 1])?;
        if gpu.read::<u32>(&out)?[..words] != record(&QuantizedRow::new(kind, &x)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn floats(gpu: &Gpu) -> Result<bool, DeviceError> {
    let (w, x) = (numbers(8 * 100, 5), numbers(100, 6));
    let bytes: Vec<u8> = w.iter().flat_map(|w| w.to_le_bytes()).collect();
    let want: Vec<f32> = bytes.chunks_exact(400).map(|row| Format::F32.dot_f32(row, &x)).collect();
    let x = gpu.upload(&x)?;
    matches(gpu, Format::F32, 100, &bytes, &x, 100, &want)
}

/// Products of eight rows of random blocks with a row of activations.
fn product(gpu: &Gpu, format: Format) -> Result<bool, DeviceError> {
    let cols = 11 * 256;
    let row_bytes = format.row_bytes(cols).unwrap_or(0);
    let mut bytes: Vec<u8> = numbers(8 * row_bytes, 7).iter().map(|v| ((v + 1.0) * 127.9) as u8).collect();
    // Scales of modest size, wherever the format has them.
    let size = format.block_bytes();
    let at = match format {
        Format::Q6_K => size - 2,
        _ => 0,
    };
    for block in bytes.chunks_exact_mut(size) {
        block[at..at + 2].copy_from_slice(&0x2e66u16.to_le_bytes());
        if format == Format::Q4_K {
            block[2..4].copy_from_slice(&0x2a66u16.to_le_bytes());
        }
    }
    let x = QuantizedRow::new(format.activation(), &numbers(cols, 8));
    let want: Vec<f32> = bytes.chunks_exact(row_bytes).map(|row| format.dot(row, &x)).collect();
    let record = record(&x);
    let x = gpu.upload(&record)?;
    matches(gpu, format, cols, &bytes, &x, record.len(), &want)
}

/// Whether the device's products of eight rows with one column are these.
fn matches(
    gpu: &Gpu,
    format: Format,
    cols: usize,
    rows: &[u8],
    x: &Buffer,
    record: usize,
    want: &[f32],
) -> Result<bool, DeviceError> {
    let layout = Layout::new(format, cols);
    let (mut words, mut rest) = (vec![0u32; layout.group_words()], vec![0u32; layout.group_rest()]);
    layout.pack_group(rows, &mut words, &mut rest);
    let (w, rest) = (gpu.upload(&words)?, gpu.upload(&rest)?);
    let grid = gpu.upload(&pack::grid(format).unwrap_or_default())?;
    let y = gpu.zeroed(8 * 4)?;
    let push = kernels::Matmul {
        w: w.address(),
        rest: rest.address(),
        x: x.address(),
        y: y.address(),
        grid: grid.address(),
        rows: 8,
        cols: 1,
        blocks: layout.blocks() as u32,
        record: record as u32,
        y_stride: 8,
        ..kernels::Matmul::default()
    };
    let kernel = gpu.kernel(&layout.kernel(gpu.has_integer_dot()), &[1])?;
    gpu.run_once(&kernel, &push, [1, 1, 1])?;
    let got: Vec<f32> = gpu.read(&y)?;
    Ok(got.iter().zip(want).all(|(got, want)| got.to_bits() == want.to_bits()))
}
