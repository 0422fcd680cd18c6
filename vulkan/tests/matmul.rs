//! Products of every format with activations: the bits of the reference dot products of `llamay-formats`.

mod common;

use bytemuck::{Pod, Zeroable};
use common::{Numbers, device};
use llamay_formats::{Activation, Format, QuantizedRow};
use llamay_vulkan::pack::{Layout, grid};
use llamay_vulkan::{Buffer, Gpu};

/// Push constants of `shaders/matmul.comp`.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct Push {
    w: u64,
    rest: u64,
    x: u64,
    y: u64,
    bias: u64,
    chosen: u64,
    grid: u64,
    rows: u32,
    cols: u32,
    blocks: u32,
    record: u32,
    y_stride: u32,
    y_first: u32,
    flags: u32,
    n_used: u32,
    expert_w: u32,
    expert_rest: u32,
    bias_stride: u32,
    pad: u32,
}

/// Random blocks whose scales are finite and of modest size, and now and then all zeros.
fn blocks(format: Format, n: usize, numbers: &mut Numbers) -> Vec<u8> {
    let size = format.block_bytes();
    let mut bytes: Vec<u8> = (0..n * size).map(|_| numbers.byte()).collect();
    if format.is_plain() {
        let mut values = vec![0.0f32; n];
        values.iter_mut().for_each(|v| *v = numbers.float());
        if format.can_encode() {
            format.encode(&values, None, &mut bytes).unwrap();
        }
        return bytes;
    }
    for block in bytes.chunks_exact_mut(size) {
        let mut half = |at: usize, block: &mut [u8]| {
            let bits = (numbers.byte() as u16) << 8 | numbers.byte() as u16;
            // An exponent of -12 to 3, of either sign; seldom a subnormal or zero.
            let exponent = if bits & 0x1f == 7 { 0 } else { 3 + (bits >> 10 & 15) };
            let half = bits & 0x83ff | exponent << 10;
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        };
        match format {
            Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K | Format::Q8_1 => {
                half(0, block);
                half(2, block);
            }
            Format::Q2_K => {
                half(80, block);
                half(82, block);
            }
            Format::Q3_K | Format::Q6_K | Format::TQ1_0 | Format::TQ2_0 => half(size - 2, block),
            Format::Q8_K => block[..4].copy_from_slice(&numbers.float().to_le_bytes()),
            // Its scale is in the top nibbles of four words: an exponent field of 0 or 1 is finite.
            Format::IQ1_M => block[55] &= 0x9f,
            Format::MXFP4 => block[0] = 90 + block[0] % 50,
            Format::NVFP4 => {}
            _ => half(0, block),
        }
    }
    bytes
}

/// A quantised row in the kernels' form.
fn record(row: &QuantizedRow) -> Vec<u32> {
    let quants = row.quants().as_chunks().0.iter();
    let quants = quants.map(|q: &[i8; 4]| u32::from_le_bytes(q.map(|q| q as u8)));
    let scales = row.scales().iter().map(|s| s.to_bits());
    quants.chain(scales).chain(row.sums().iter().map(|s| i32::from(*s) as u32)).collect()
}

struct Case {
    format: Format,
    rows: usize,
    cols: usize,
    n_blocks: usize,
    bias: bool,
}

/// Rows of activations, packed, and the products of each weight row with each of them.
fn reference(case: &Case, weights: &[u8], numbers: &mut Numbers) -> (Vec<u32>, usize, Vec<f32>) {
    let k = case.n_blocks * case.format.block_len();
    let (mut words, mut products, mut record_len) = (Vec::new(), Vec::new(), 0);
    for c in 0..case.cols {
        let mut x: Vec<f32> = (0..k).map(|_| numbers.float()).collect();
        if c % 5 == 3 {
            x[..k.min(40)].fill(0.0);
        }
        let row_bytes = case.format.row_bytes(k).unwrap();
        let rows = weights.chunks_exact(row_bytes);
        if case.format.activation() == Activation::F32 {
            words.extend(x.iter().map(|x| x.to_bits()));
            products.extend(rows.map(|row| case.format.dot_f32(row, &x)));
            record_len = k;
        } else {
            let row = QuantizedRow::new(case.format.activation(), &x);
            let record = record(&row);
            record_len = record.len();
            words.extend(record);
            products.extend(rows.map(|w| case.format.dot(w, &row)));
        }
    }
    (words, record_len, products)
}

fn pack(layout: &Layout, rows: &[u8], row_bytes: usize, n: usize) -> (Vec<u32>, Vec<u32>) {
    let groups = n.div_ceil(8);
    let (gw, gr) = (layout.group_words(), layout.group_rest());
    let (mut words, mut rest) = (vec![0; groups * gw], vec![0; groups * gr]);
    for (g, rows) in rows.chunks(8 * row_bytes).enumerate() {
        layout.pack_group(rows, &mut words[g * gw..(g + 1) * gw], &mut rest[g * gr..(g + 1) * gr]);
    }
    (words, rest)
}

fn check(gpu: &Gpu, dot: bool, grid: &Buffer, case: &Case, numbers: &mut Numbers) {
    let Case { format, rows, cols, n_blocks, bias } = *case;
    let k = n_blocks * format.block_len();
    let weights = blocks(format, rows * n_blocks, numbers);
    let (x, record, mut want) = reference(case, &weights, numbers);
    let layout = Layout::new(format, k);
    let (words, rest) = pack(&layout, &weights, format.row_bytes(k).unwrap(), rows);
    let added: Vec<f32> = (0..rows).map(|_| numbers.float()).collect();
    if bias {
        want.iter_mut().enumerate().for_each(|(i, y)| *y += added[i % rows]);
    }
    let (w, rest, x) = (gpu.upload(&words).unwrap(), gpu.upload(&rest).unwrap(), gpu.upload(&x).unwrap());
    let (y, added) = (gpu.zeroed(4 * rows * cols).unwrap(), gpu.upload(&added).unwrap());
    let push = Push {
        w: w.address(),
        rest: rest.address(),
        x: x.address(),
        y: y.address(),
        bias: added.address(),
        grid: grid.address(),
        rows: rows as u32,
        cols: cols as u32,
        blocks: layout.blocks() as u32,
        record: record as u32,
        y_stride: rows as u32,
        flags: u32::from(bias),
        ..Push::default()
    };
    let columns = cols.min(8);
    let kernel = gpu.kernel(&layout.kernel(dot), &[columns as u32]).unwrap();
    gpu.run_once(&kernel, &push, [rows.div_ceil(8) as u32, cols.div_ceil(columns) as u32, 1]).unwrap();
    let got: Vec<f32> = gpu.read(&y).unwrap();
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        let (c, r) = (i / rows, i % rows);
        assert!(
            got.to_bits() == want.to_bits(),
            "{format} dot {dot}, row {r} of {rows}, column {c} of {cols}, {n_blocks} blocks: {got:e} for {want:e}"
        );
    }
}

/// Every format over row lengths around the cuts of spans, rows around a group, and columns around a workgroup's.
#[test]
fn every_format_gives_the_reference_bits() {
    let Some(gpu) = device() else { return };
    let mut numbers = Numbers(7);
    for &format in Format::ALL {
        let grid = gpu.upload(&grid(format).unwrap_or_default()).unwrap();
        let variants: &[bool] =
            if format.is_plain() || !gpu.has_integer_dot() { &[false] } else { &[false, true] };
        for &dot in variants {
            let step = if format.is_plain() { 8 } else { 1 };
            for n_blocks in (1..=17).chain([24, 33]) {
                let rows = [1, 7, 8, 9, 20][n_blocks % 5];
                let cols = [1, 3, 8, 33, 1, 9][n_blocks % 6];
                let n_blocks = n_blocks * step + if step > 1 { n_blocks % 3 } else { 0 };
                check(
                    &gpu,
                    dot,
                    &grid,
                    &Case { format, rows, cols, n_blocks, bias: cols % 2 == 1 },
                    &mut numbers,
                );
            }
        }
    }
}
