//! The reference attention: the contract, written to be read.

use half::f16;
use llamay_plan::{KV_PAGE, KvType};

use super::attention::{TileArgs, exponentials};

/// One element of the cache.
///
/// # Safety
/// Element `at` of an array of type `kv` is readable at `p`.
unsafe fn element(kv: KvType, p: *const u8, at: usize) -> f32 {
    // SAFETY: passed on to the caller.
    unsafe {
        match kv {
            KvType::F16 => f16::from_bits(*p.cast::<u16>().add(at)).to_f32(),
            KvType::F32 => *p.cast::<f32>().add(at),
        }
    }
}

/// # Safety
/// As for [`super::TileFn`].
pub(crate) unsafe fn attention_tile(args: &TileArgs<'_>) {
    // SAFETY: the page's arrays hold every element that is read here, and `out` what is written.
    unsafe {
        for query in args.queries {
            let mut p = [0.0f32; KV_PAGE];
            for (j, p) in p.iter_mut().enumerate().take(query.hi).skip(query.lo) {
                for d in 0..args.head_dim {
                    *p = (*query.q.add(d)).mul_add(element(args.kv, args.k, d * KV_PAGE + j), *p);
                }
            }
            let (m, l) = exponentials(&mut p, args, query.lo, query.hi);
            for d in 0..args.v_stride {
                let mut value = 0.0f32;
                for (j, p) in p.iter().enumerate().take(query.hi).skip(query.lo) {
                    value = p.mul_add(element(args.kv, args.v, j * args.v_stride + d), value);
                }
                *query.out.add(d) = value;
            }
            *query.out.add(args.v_stride) = m;
            *query.out.add(args.v_stride + 1) = l;
        }
    }
}
