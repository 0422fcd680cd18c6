//! Products of every format with activations: the bits of the reference dot products of `llamay-formats`.

mod common;

use bytemuck::{Pod, Zeroable};
use common::{Numbers, device};
use llamay_formats::{Format, QuantizedRow};
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

/// How the bytes of weights are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fill {
    Random,
    /// Every bit, under great scales.
    Ones,
    /// Scales too.
    Zeros,
    /// The top bit of each byte alone: -128 where a weight is a signed byte.
    Tops,
}

/// Blocks of any quants and factors whose scales are finite; random ones are of modest size. The elements of a plain
/// format are random where they are not zeros.
fn blocks(format: Format, n: usize, fill: Fill, numbers: &mut Numbers) -> Vec<u8> {
    let size = format.block_bytes();
    if fill == Fill::Zeros {
        return vec![0; n * size];
    }
    let mut bytes: Vec<u8> = (0..n * size)
        .map(|_| match fill {
            Fill::Ones if !format.is_plain() => 0xff,
            Fill::Tops if !format.is_plain() => 0x80,
            _ => numbers.byte(),
        })
        .collect();
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
            // An exponent of -12 to 3, or the greatest, of either sign; seldom a subnormal or zero.
            let exponent = match fill {
                Fill::Ones => 30,
                _ if bits & 0x1f == 7 => 0,
                _ => 3 + (bits >> 10 & 15),
            };
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
            // Around the bound below which it counts as zero, where it is not modest.
            Format::Q8_K => {
                let scale = match fill {
                    Fill::Random => 1.0,
                    _ => [f32::from_bits(0x3100_0000), f32::from_bits(0x3180_0000), 1e9]
                        [numbers.byte() as usize % 3],
                };
                block[..4].copy_from_slice(&(scale * numbers.float()).to_le_bytes());
            }
            // Its scale is in the top nibbles of four words: an exponent field of 0 or 1 is finite.
            Format::IQ1_M => block[55] &= 0x9f,
            Format::MXFP4 if fill == Fill::Random => block[0] = 90 + block[0] % 50,
            // Any exponent that counts as zero, and those that do not up to where nothing is too great.
            Format::MXFP4 => block[0] = [0, 1, 97, 98, 99, 100, 200][numbers.byte() as usize % 7],
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
    fill: Fill,
}

/// A row of activations.
enum Input {
    Floats(Vec<f32>),
    Quantized(QuantizedRow),
}

impl Input {
    /// Row `c` of activations for a format's rows of `k` elements: some with zeros in front, some with blocks of many
    /// magnitudes, also around the least that counts.
    fn new(format: Format, k: usize, c: usize, numbers: &mut Numbers) -> Input {
        let mut x: Vec<f32> = (0..k).map(|_| numbers.float()).collect();
        if c % 5 == 3 {
            x[..k.min(40)].fill(0.0);
        }
        if format.is_plain() {
            return Input::Floats(x);
        }
        if c % 5 == 4 {
            for (i, block) in x.chunks_mut(format.activation().block_len()).enumerate() {
                let factor = [1.0, 1e4, 1e-27, 0.0, 1e-20][i % 5];
                block.iter_mut().for_each(|v| *v *= factor);
            }
        }
        Input::Quantized(QuantizedRow::new(format.activation(), &x))
    }

    /// As the kernels read it.
    fn words(&self) -> Vec<u32> {
        match self {
            Input::Floats(x) => x.iter().map(|x| x.to_bits()).collect(),
            Input::Quantized(row) => record(row),
        }
    }

    /// The reference product with a row of weights.
    fn dot(&self, format: Format, row: &[u8]) -> f32 {
        match self {
            Input::Floats(x) => format.dot_f32(row, x),
            Input::Quantized(x) => format.dot(row, x),
        }
    }
}

/// The kernels of a format that this device runs: without and with four bytes multiplied at once.
fn variants(gpu: &Gpu, format: Format) -> &'static [bool] {
    if format.is_plain() || !gpu.has_integer_dot() { &[false] } else { &[false, true] }
}

/// A number that no kernel writes.
const UNTOUCHED: u32 = 0x7fc0_1234;

/// The same bits; which NaN it is does not count.
#[track_caller]
fn assert_same(got: u32, want: f32, what: impl FnOnce() -> String) {
    let value = f32::from_bits(got);
    let same = got == want.to_bits() || value.is_nan() && want.is_nan() && got != UNTOUCHED;
    assert!(same, "{}: {value:e} for {want:e}", what());
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
    let Case { format, rows, cols, n_blocks, bias, fill } = *case;
    let k = n_blocks * format.block_len();
    let row_bytes = format.row_bytes(k).unwrap();
    let weights = blocks(format, rows * n_blocks, fill, numbers);
    let inputs: Vec<Input> = (0..cols).map(|c| Input::new(format, k, c, numbers)).collect();
    let x: Vec<u32> = inputs.iter().flat_map(Input::words).collect();
    let layout = Layout::new(format, k);
    let (words, rest) = pack(&layout, &weights, row_bytes, rows);
    let added: Vec<f32> = (0..rows).map(|_| numbers.float()).collect();
    // The rows are a part of those of a slot, with room behind for columns that are not there.
    let (first, stride, room) = (2, rows + 3, cols + 8);
    let (w, rest, x_at) = (gpu.upload(&words).unwrap(), gpu.upload(&rest).unwrap(), gpu.upload(&x).unwrap());
    let (y, bias_at) = (gpu.upload(&vec![UNTOUCHED; stride * room]).unwrap(), gpu.upload(&added).unwrap());
    let push = Push {
        w: w.address(),
        rest: rest.address(),
        x: x_at.address(),
        y: y.address(),
        bias: bias_at.address(),
        grid: grid.address(),
        rows: rows as u32,
        cols: cols as u32,
        blocks: layout.blocks() as u32,
        record: (x.len() / cols) as u32,
        y_stride: stride as u32,
        y_first: first as u32,
        flags: u32::from(bias),
        ..Push::default()
    };
    let columns = cols.min(8);
    let kernel = gpu.kernel(&layout.kernel(dot), &[columns as u32]).unwrap();
    gpu.run_once(&kernel, &push, [rows.div_ceil(8) as u32, cols.div_ceil(columns) as u32, 1]).unwrap();
    let got: Vec<u32> = gpu.read(&y).unwrap();
    assert!(
        got[stride * cols..stride * room].iter().all(|y| *y == UNTOUCHED),
        "{format}: written behind {cols} columns"
    );
    for (c, (got, x)) in got.chunks_exact(stride).zip(&inputs).enumerate() {
        let (before, got) = got.split_at(first);
        let (got, after) = got.split_at(rows);
        assert!(before.iter().chain(after).all(|y| *y == UNTOUCHED), "{format}: written beside {rows} rows");
        for (r, (got, row)) in got.iter().zip(weights.chunks_exact(row_bytes)).enumerate() {
            let product = x.dot(format, row);
            assert_same(*got, if bias { product + added[r] } else { product }, || {
                format!(
                    "{format} {fill:?} dot {dot}, row {r} of {rows}, column {c} of {cols}, {n_blocks} blocks"
                )
            });
        }
    }
}

/// Every format over row lengths around the cuts of spans, rows around a group, and columns around a workgroup's.
#[test]
fn every_format_gives_the_reference_bits() {
    let Some(gpu) = device() else { return };
    let mut numbers = Numbers(7);
    for &format in Format::ALL {
        let grid = gpu.upload(&grid(format).unwrap_or_default()).unwrap();
        for &dot in variants(&gpu, format) {
            let step = if format.is_plain() { 8 } else { 1 };
            for n_blocks in (1..=17).chain([24, 33]) {
                let rows = [1, 7, 8, 9, 20][n_blocks % 5];
                let cols = [1, 3, 8, 33, 1, 9][n_blocks % 6];
                let n_blocks = n_blocks * step + if step > 1 { n_blocks % 3 } else { 0 };
                let case = Case { format, rows, cols, n_blocks, bias: cols % 2 == 1, fill: Fill::Random };
                check(&gpu, dot, &grid, &case, &mut numbers);
            }
        }
    }
}

/// Zeros, every bit, and the least signed bytes, under scales at their bounds.
#[test]
fn extreme_blocks_give_the_reference_bits() {
    let Some(gpu) = device() else { return };
    let mut numbers = Numbers(11);
    for &format in Format::ALL {
        let grid = gpu.upload(&grid(format).unwrap_or_default()).unwrap();
        for &dot in variants(&gpu, format) {
            for fill in [Fill::Ones, Fill::Zeros, Fill::Tops] {
                for (n_blocks, rows) in [(3, 9), (16, 8), (19, 1)] {
                    let case = Case { format, rows, cols: 8, n_blocks, bias: rows == 9, fill };
                    check(&gpu, dot, &grid, &case, &mut numbers);
                }
            }
        }
    }
}

/// The other numbers of columns that a workgroup can have; formats take turns, since all share the loops over columns.
#[test]
fn every_number_of_columns_gives_the_reference_bits() {
    let Some(gpu) = device() else { return };
    let mut numbers = Numbers(13);
    for (i, &format) in Format::ALL.iter().enumerate() {
        let grid = gpu.upload(&grid(format).unwrap_or_default()).unwrap();
        let cols = [2, 4, 5, 6, 7][i % 5];
        for &dot in variants(&gpu, format) {
            let case = Case { format, rows: 9, cols, n_blocks: 10, bias: false, fill: Fill::Random };
            check(&gpu, dot, &grid, &case, &mut numbers);
        }
    }
}

/// Each token's choice of experts, with an input a token and with one a choice.
#[test]
fn experts_give_the_reference_bits() {
    const N_EXPERT: usize = 5;
    const N_USED: usize = 2;
    let chosen = [4, 0, 2, 2, 1, 4];
    let Some(gpu) = device() else { return };
    let mut numbers = Numbers(17);
    for &format in Format::ALL {
        let grid = gpu.upload(&grid(format).unwrap_or_default()).unwrap();
        // The last group of each expert's rows is not full, and the last word of a plain row is not either.
        let (rows, n_blocks) = (11, 9);
        let k = n_blocks * format.block_len();
        let row_bytes = format.row_bytes(k).unwrap();
        let layout = Layout::new(format, k);
        let experts: Vec<Vec<u8>> =
            (0..N_EXPERT).map(|_| blocks(format, rows * n_blocks, Fill::Random, &mut numbers)).collect();
        let (mut words, mut rest) = (Vec::new(), Vec::new());
        for weights in &experts {
            let (w, r) = pack(&layout, weights, row_bytes, rows);
            words.extend(w);
            rest.extend(r);
        }
        let added: Vec<f32> = (0..N_EXPERT * rows).map(|_| numbers.float()).collect();
        let inputs: Vec<Input> = (0..chosen.len()).map(|c| Input::new(format, k, c, &mut numbers)).collect();
        let x: Vec<u32> = inputs.iter().flat_map(Input::words).collect();
        let (w, rest_at, x_at) =
            (gpu.upload(&words).unwrap(), gpu.upload(&rest).unwrap(), gpu.upload(&x).unwrap());
        let (bias, chosen_at) = (gpu.upload(&added).unwrap(), gpu.upload(&chosen.map(|e| e as f32)).unwrap());
        for &dot in variants(&gpu, format) {
            for (biased, row_a_choice) in [(false, false), (true, false), (true, true)] {
                let y = gpu.upload(&vec![UNTOUCHED; rows * chosen.len()]).unwrap();
                let push = Push {
                    w: w.address(),
                    rest: rest_at.address(),
                    x: x_at.address(),
                    y: y.address(),
                    bias: bias.address(),
                    chosen: chosen_at.address(),
                    grid: grid.address(),
                    rows: rows as u32,
                    cols: chosen.len() as u32,
                    blocks: layout.blocks() as u32,
                    record: (x.len() / inputs.len()) as u32,
                    y_stride: rows as u32,
                    flags: u32::from(biased) | 2 | (4 * u32::from(row_a_choice)),
                    n_used: N_USED as u32,
                    expert_w: (words.len() / N_EXPERT) as u32,
                    expert_rest: (rest.len() / N_EXPERT) as u32,
                    bias_stride: rows as u32,
                    ..Push::default()
                };
                let kernel = gpu.kernel(&layout.kernel(dot), &[1]).unwrap();
                gpu.run_once(&kernel, &push, [rows.div_ceil(8) as u32, chosen.len() as u32, 1]).unwrap();
                let got: Vec<u32> = gpu.read(&y).unwrap();
                for (choice, (got, &e)) in got.chunks_exact(rows).zip(&chosen).enumerate() {
                    let x = &inputs[if row_a_choice { choice } else { choice / N_USED }];
                    for (r, (got, row)) in got.iter().zip(experts[e].chunks_exact(row_bytes)).enumerate() {
                        let product = x.dot(format, row);
                        assert_same(
                            *got,
                            if biased { product + added[e * rows + r] } else { product },
                            || {
                                format!(
                                    "{format} dot {dot}, choice {choice}, row {r}, a row a choice: {row_a_choice}"
                                )
                            },
                        );
                    }
                }
            }
        }
    }
}
