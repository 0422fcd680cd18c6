//! Asks a device for what the host knows, before its answers are trusted: a family of kernels that computes something else
//! would give wrong text.

use llamay_formats::{Activation, Format, QuantizedRow};

use crate::pack::{self, Layout};
use crate::record::record_words;
use crate::{Buffer, DeviceError, Gpu, OpenError, kernels};

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
