//! The reference attention: the contract, written to be read.

use half::f16;
use llamay_formats::{Activation, tree8};
use llamay_plan::{KV_BLOCK, KV_PAGE, KvType};

use super::attention::{MergeArgs, Query, TileArgs};
use super::elementwise::softcap;
use crate::acts::{ActLayout, block32};
use crate::kv::quant_bytes;
use crate::math;

/// A half-precision number of an array.
///
/// # Safety
/// Element `at` is readable at `p`.
unsafe fn half(p: *const u8, at: usize) -> f32 {
    // SAFETY: passed on to the caller.
    unsafe { f16::from_bits(*p.cast::<u16>().add(at)).to_f32() }
}

/// The quant of element `d` of a block, whose `bytes` are 32 or 16: two elements a byte, 16 apart.
fn unpacked(kv: KvType, bytes: impl Fn(usize) -> u8, d: usize) -> i32 {
    match kv {
        KvType::F16 | KvType::F32 | KvType::Q8_0 => i32::from(bytes(d) as i8),
        KvType::Q4_0 => i32::from(bytes(d % 16) >> (d / 16 * 4) & 15) - 8,
    }
}

/// The product of a query with the key of position `j`.
///
/// # Safety
/// As for [`super::TileFn`].
unsafe fn score(args: &TileArgs<'_>, query: &Query, j: usize) -> f32 {
    let mut acc = 0.0f32;
    // SAFETY: the page and the query have every element that is read here.
    unsafe {
        let q = args.q.add(query.q);
        match args.kv {
            KvType::F16 | KvType::F32 => {
                for d in 0..args.head_dim {
                    let k = match args.kv {
                        KvType::F32 => *args.k.cast::<f32>().add(d * KV_PAGE + j),
                        _ => half(args.k, d * KV_PAGE + j),
                    };
                    acc = (*q.add(d)).mul_add(k, acc);
                }
            }
            KvType::Q8_0 | KvType::Q4_0 => {
                let layout = ActLayout::new(Activation::I8x32, args.head_dim.next_multiple_of(KV_BLOCK));
                let block_bytes = quant_bytes(args.kv);
                // The bytes of keys are unsigned.
                let flip = if args.kv == KvType::Q8_0 { 0x80 } else { 0 };
                for b in 0..layout.n_blocks {
                    let x = q.cast::<u8>().add(b * block32::BYTES);
                    let block = args.k.add(b * block_bytes);
                    let byte = |i: usize| *block.add((i / 4 * KV_PAGE + j) * 4 + i % 4) ^ flip;
                    let mut isum = 0;
                    for d in 0..KV_BLOCK {
                        isum += unpacked(args.kv, byte, d) * i32::from(*x.cast::<i8>().add(d));
                    }
                    let t = half(args.k.add(layout.n_blocks * block_bytes), b * KV_PAGE + j) * isum as f32;
                    acc = (*x.add(block32::SCALE).cast::<f32>()).mul_add(t, acc);
                }
            }
        }
    }
    acc
}

/// Element `d` of the value of position `j`.
///
/// # Safety
/// As for [`super::TileFn`].
unsafe fn value(args: &TileArgs<'_>, j: usize, d: usize) -> f32 {
    // SAFETY: the page has every element that is read here.
    unsafe {
        match args.kv {
            KvType::F16 => half(args.v, j * args.v_stride + d),
            KvType::F32 => *args.v.cast::<f32>().add(j * args.v_stride + d),
            KvType::Q8_0 | KvType::Q4_0 => {
                let n_blocks = args.v_stride / KV_BLOCK;
                let (b, block_bytes) = (d / KV_BLOCK, quant_bytes(args.kv) / KV_PAGE);
                let byte = |i: usize| *args.v.add((j * n_blocks + b) * block_bytes + i);
                let scale = half(args.v.add(n_blocks * quant_bytes(args.kv)), b * KV_PAGE + j);
                scale * unpacked(args.kv, byte, d % KV_BLOCK) as f32
            }
        }
    }
}

/// Turns products into weights `exp(score - maximum)`, 0 outside of what the query sees; returns the maximum and the sum.
fn weights(p: &mut [f32; KV_PAGE], args: &TileArgs<'_>, query: &Query) -> (f32, f32) {
    let mut m = f32::NEG_INFINITY;
    let seen = &mut p[query.lo..query.hi];
    seen.iter_mut().for_each(|v| *v *= args.scale);
    if let Some(cap) = args.softcap {
        softcap(seen, cap);
    }
    for v in seen.iter() {
        m = if *v > m { *v } else { m };
    }
    // Of two zeros the positive.
    m += 0.0;
    seen.iter_mut().for_each(|v| *v = math::exp(*v - m));
    let mut partial = [0.0f32; 8];
    for (j, v) in p.iter().enumerate() {
        partial[j % 8] += v;
    }
    (m, tree8(partial))
}

/// # Safety
/// As for [`super::TileFn`].
pub(crate) unsafe fn attention_tile(args: &TileArgs<'_>) {
    let n = args.v_stride;
    let mut tile = vec![0.0f32; n + 2];
    for query in args.queries {
        let mut p = [0.0f32; KV_PAGE];
        // SAFETY: passed on to the caller.
        unsafe {
            for (j, p) in p.iter_mut().enumerate().take(query.hi).skip(query.lo) {
                *p = score(args, query, j);
            }
            (tile[n], tile[n + 1]) = weights(&mut p, args, query);
            for (d, out) in tile[..n].iter_mut().enumerate() {
                *out = 0.0;
                for (j, p) in p.iter().enumerate().take(query.hi).skip(query.lo) {
                    *out = p.mul_add(value(args, j, d), *out);
                }
            }
            let state = std::slice::from_raw_parts_mut(args.out.add(query.out), n + 2);
            if query.merge { merge(state, &tile) } else { state.copy_from_slice(&tile) }
        }
    }
}

/// Merges a tile (values, maximum, sum) into the state that holds the tiles before it.
fn merge(state: &mut [f32], tile: &[f32]) {
    let n = state.len() - 2;
    let (m0, m1) = (state[n], tile[n]);
    let m = if m1 > m0 { m1 } else { m0 };
    let (a, b) = (math::exp(m0 - m), math::exp(m1 - m));
    for (o, t) in state[..n].iter_mut().zip(&tile[..n]) {
        *o = t.mul_add(b, *o * a);
    }
    state[n] = m;
    state[n + 1] = tile[n + 1].mul_add(b, state[n + 1] * a);
}

/// # Safety
/// None is needed; the type is that of the other instruction sets' kernels.
pub(crate) unsafe fn attention_merge(args: &mut MergeArgs<'_>) {
    for (i, tile) in args.tiles.chunks(args.step).enumerate() {
        let tile = &tile[..args.v_stride + 2];
        if i == 0 {
            args.state.copy_from_slice(tile);
        } else {
            merge(args.state, tile);
        }
    }
}
