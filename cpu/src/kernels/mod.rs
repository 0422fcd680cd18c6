//! The kernels of each instruction set, and the table that dispatch chooses once.

mod attention;
mod elementwise;
pub(crate) mod portable;
pub(crate) mod self_test;
mod simd;

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod block;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod codebook;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod float;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod superblock;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod unpack;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

#[cfg(test)]
mod tests;

use std::ops::Range;

use llamay_formats::Format;
use simd::Simd;

pub(crate) use crate::acts::ActLayout;
#[cfg(any(test, target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use crate::acts::{block32, block256};
use crate::isa::Isa;
use crate::pack::PackedMatrix;
pub(crate) use attention::{MergeArgs, MergeFn, Query, TileArgs, TileFn, scratch_len};
pub(crate) use elementwise::{Elementwise, Norm, Router};

/// A matrix product over packed rows, or a part of it.
pub(crate) struct MatArgs<'a> {
    pub(crate) weights: &'a PackedMatrix,
    /// The groups that are computed.
    pub(crate) groups: Range<usize>,
    /// How `x` is laid out.
    pub(crate) layout: &'a ActLayout,
    /// One record a column.
    pub(crate) x: &'a [u32],
    pub(crate) n_cols: usize,
    /// Where row `first_row` of column 0 goes.
    pub(crate) out: *mut f32,
    pub(crate) first_row: usize,
    /// Floats from one column to the next.
    pub(crate) out_stride: usize,
}

/// A kernel for one format and instruction set.
///
/// # Safety
/// The CPU has the instruction set that the kernel came from the table of; the weights are packed for its lanes; `x`
/// holds `n_cols` records; nobody else touches the rows of `groups` in any column of `out`, which are writable.
pub(crate) type MatFn = unsafe fn(&MatArgs<'_>);

/// A matrix product over rows of floats as the file has them.
pub(crate) struct FloatArgs<'a> {
    pub(crate) format: Format,
    /// All rows of the matrix.
    pub(crate) weights: &'a [u8],
    pub(crate) k: usize,
    /// The rows that are computed.
    pub(crate) rows: Range<usize>,
    /// `k` floats a column.
    pub(crate) x: &'a [u32],
    pub(crate) n_cols: usize,
    /// Where row `first_row` of column 0 goes.
    pub(crate) out: *mut f32,
    pub(crate) first_row: usize,
    /// Floats from one column to the next.
    pub(crate) out_stride: usize,
}

/// A kernel for float rows.
///
/// # Safety
/// The CPU has the kernel's instruction set; `weights` holds the rows; nobody else touches `rows` of `out`.
pub(crate) type FloatFn = unsafe fn(&FloatArgs<'_>);

/// The kernels of one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    pub(crate) isa: Isa,
    pub(crate) elementwise: Elementwise,
    pub(crate) tile: TileFn,
    pub(crate) merge: MergeFn,
    /// The kernel for float rows; the portable set has none and goes through `Format::dot_f32`.
    pub(crate) float: Option<FloatFn>,
    matmul: fn(Format) -> Option<MatFn>,
}

impl Kernels {
    /// The kernels of an instruction set that this machine has; of the portable one where it has not.
    pub(crate) fn of(isa: Isa) -> Kernels {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if isa.is_available() => sets::avx2(),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni if isa.is_available() => sets::avx_vnni(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512x256 if isa.is_available() => sets::vnni256(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512x512 if isa.is_available() => sets::avx512(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon if isa.is_available() => sets::neon(),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDotprod if isa.is_available() => sets::dotprod(),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonI8mm if isa.is_available() => sets::i8mm(),
            _ => portable_set(),
        }
    }

    /// The kernel over packed rows of this format.
    pub(crate) fn matmul(&self, format: Format) -> Option<MatFn> {
        (self.matmul)(format)
    }

    /// The instruction set whose kernel a matrix of this format runs on.
    pub(crate) fn isa_for(&self, format: Format) -> Isa {
        let float = matches!(format, Format::F32 | Format::F16 | Format::BF16) && self.float.is_some();
        if float || self.matmul(format).is_some() { self.isa } else { Isa::Portable }
    }
}

fn portable_set() -> Kernels {
    Kernels {
        isa: Isa::Portable,
        elementwise: elementwise::portable(),
        tile: portable::attention_tile,
        merge: portable::attention_merge,
        float: None,
        matmul: |_| None,
    }
}

/// Columns of one panel: 128 records of 2048 weights are 256 KiB, half of a small L2.
const PANEL: usize = 128;

/// How far ahead of its use a decode asks for weights, in bytes: the hardware's own prefetch stays within 20 lines, and
/// at some 17 GB/s a memory latency of 150 ns is 2.5 KiB. Measured: 4 KiB lose a hundredth to 8 KiB.
const AHEAD: usize = 8192;

/// Asks for the `bytes` that lie [`AHEAD`] of `p`.
#[inline(always)]
fn prefetch_ahead<S: Simd>(s: S, p: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        s.prefetch(p.wrapping_add(AHEAD + line));
    }
}

/// One group of rows and a few columns.
#[derive(Clone, Copy)]
struct Tile {
    group: usize,
    col: usize,
    n_cols: usize,
}

/// Runs `$body` for each tile of a product: panels of columns that stay in L2, in each panel the groups (a group's weights
/// stay in L1), in each group `$cols` columns at a time, the rest one by one.
///
/// A macro and not a function that takes a closure: a closure that is not inlined has none of its caller's target
/// features, and every intrinsic in it becomes a call.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! for_each_tile {
    ($args:ident, $cols:ident, |$tile:ident| $body:expr) => {
        for panel in (0..$args.n_cols).step_by($crate::kernels::PANEL) {
            let end = (panel + $crate::kernels::PANEL).min($args.n_cols);
            for group in $args.groups.clone() {
                let mut col = panel;
                while col < end {
                    let n_cols = if end - col >= $cols { $cols } else { 1 };
                    let $tile = $crate::kernels::Tile { group, col, n_cols };
                    $body;
                    col += n_cols;
                }
            }
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use for_each_tile;

/// `$body` for each `$c` below the constant `$n`, 16 at the most, written out: the compiler does not unroll a loop over eight
/// columns of instructions in assembly, and then keeps their sums in memory.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! unrolled {
    ($c:ident, $n:ident, $body:block) => {
        const { assert!($n <= 16) };
        unrolled!(@each $c, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    };
    (@each $c:ident, $n:ident, $body:block, $($i:literal)*) => {
        $(if $i < $n {
            let $c = $i;
            $body
        })*
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use unrolled;

/// `p`, of which the compiler knows nothing then. It would derive all columns' addresses from one of them by an index, and an
/// instruction with an index is two in the CPU's front end, a sixth of a kernel's time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // nothing follows the pointer
fn opaque(mut p: *const u8) -> *const u8 {
    // SAFETY: nothing is executed.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) p, options(pure, nomem, nostack, preserves_flags)) };
    p
}

/// Defines `matmul`, which computes all columns of a product by the module's `tile_product`, `COLS` at a time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! matmul_by_tiles {
    ($kind:ident) => {
        /// All columns of `args`, `COLS` at a time.
        ///
        /// # Safety
        /// As for [`MatFn`](super::MatFn).
        #[inline(always)]
        pub(crate) unsafe fn matmul<S: Simd, K: $kind, const COLS: usize>(
            s: S,
            args: &$crate::kernels::MatArgs<'_>,
        ) {
            $crate::kernels::for_each_tile!(args, COLS, |tile| {
                // SAFETY: the tile lies within `args`; the rest is passed on to the caller.
                unsafe {
                    if tile.n_cols == COLS {
                        tile_product::<S, K, COLS>(s, args, tile);
                    } else {
                        tile_product::<S, K, 1>(s, args, tile);
                    }
                }
            });
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use matmul_by_tiles;

impl MatArgs<'_> {
    /// The record of a column.
    #[inline(always)]
    fn record(&self, col: usize) -> *const u8 {
        debug_assert!(col < self.n_cols);
        self.x.as_ptr().wrapping_add(col * self.layout.words).cast()
    }

    /// Stores a tile's sums.
    ///
    /// # Safety
    /// As for [`MatFn`].
    #[inline(always)]
    unsafe fn store_sums<S: Simd, const C: usize>(&self, s: S, tile: Tile, sums: &[S::F; C]) {
        for (c, y) in sums.iter().enumerate() {
            // SAFETY: passed on to the caller.
            unsafe { self.store(s, tile.group, tile.col + c, *y) };
        }
    }

    /// Stores a group's results of one column, without the rows that only pad the group.
    ///
    /// # Safety
    /// As for [`MatFn`].
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, group: usize, col: usize, y: S::F) {
        let row = group * S::LANES;
        // SAFETY: the caller vouches for the group's rows of this column; padding rows are not written.
        unsafe {
            let to = self.out.add(col * self.out_stride + row - self.first_row);
            let n = (self.weights.rows - row).min(S::LANES);
            if n == S::LANES {
                s.f_store(to, y);
            } else {
                let mut all = [0.0f32; 16];
                s.f_store(all.as_mut_ptr(), y);
                to.copy_from_nonoverlapping(all.as_ptr(), n);
            }
        }
    }
}

/// The balanced sums of eight spans for each column, `llamay_formats::tree8` lane by lane, added up as spans come so that no
/// more than three wait: all eight of eight columns are a page of the stack, which every load would alias with.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct Spans<S: Simd, const C: usize> {
    /// Sums of one span, of two and of four that wait for as many more.
    waiting: [[S::F; C]; 3],
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<S: Simd, const C: usize> Spans<S, C> {
    #[inline(always)]
    fn new(s: S) -> Spans<S, C> {
        Spans { waiting: [[s.f_splat(0.0); C]; 3] }
    }

    /// Adds span `i`; they come in their order, and the result of the eighth is the sum of all.
    #[inline(always)]
    fn add(&mut self, s: S, i: usize, mut sums: [S::F; C]) -> [S::F; C] {
        let mut level = 0;
        while level < 3 {
            let waiting = &mut self.waiting[level];
            if i >> level & 1 == 0 {
                *waiting = sums;
                break;
            }
            let mut c = 0;
            while c < C {
                sums[c] = s.f_add(waiting[c], sums[c]);
                c += 1;
            }
            level += 1;
        }
        sums
    }
}

/// The balanced sum of eight partial vectors: `llamay_formats::tree8`, lane by lane.
#[inline(always)]
fn tree_f<S: Simd>(s: S, v: [S::F; 8]) -> S::F {
    s.f_add(
        s.f_add(s.f_add(v[0], v[1]), s.f_add(v[2], v[3])),
        s.f_add(s.f_add(v[4], v[5]), s.f_add(v[6], v[7])),
    )
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod sets {
    //! One wrapper a kernel and instruction set: the only places where target features are switched on.

    #[cfg(target_arch = "aarch64")]
    use super::aarch64::{DotProd, I8mm, Neon};
    #[cfg(target_arch = "x86_64")]
    use super::x86::{Avx2, Avx512, AvxVnni, Vnni256};
    use super::*;
    // Kinds that a set's own modules leave to everybody's.
    use super::block as every_block;

    /// The kernels of one instruction set: its features, its token, that of float products, columns of a matrix tile,
    /// columns of a float tile, and, where they are others than everybody's, the modules of its matrix products.
    macro_rules! set {
        ($name:ident, $features:literal, $token:ty, $float_token:ty, $isa:expr, $cols:literal, $float_cols:literal
         $(, $own:item)?) => {
            pub(super) fn $name() -> Kernels {
                $($own)?

                /// The token, for callers that were let in by the table.
                #[inline(always)]
                fn token<T>(new: fn() -> Option<T>) -> T {
                    // SAFETY: the table of this instruction set is handed out only where `new` gave a token.
                    unsafe { new().unwrap_unchecked() }
                }

                macro_rules! matmul {
                    ($family:ident, $kind:ident) => {{
                        #[target_feature(enable = $features)]
                        unsafe fn kernel(args: &MatArgs<'_>) {
                            // SAFETY: passed on to the caller, who has the features.
                            unsafe {
                                $family::matmul::<$token, $family::$kind, $cols>(token(<$token>::new), args)
                            }
                        }
                        Some(kernel as MatFn)
                    }};
                }

                fn matmul(format: Format) -> Option<MatFn> {
                    match format {
                        Format::Q4_0 => matmul!(block, Q4_0),
                        Format::Q4_1 => matmul!(block, Q4_1),
                        Format::Q5_0 => matmul!(block, Q5_0),
                        Format::Q5_1 => matmul!(block, Q5_1),
                        Format::Q8_0 => matmul!(block, Q8_0),
                        Format::IQ4_NL => matmul!(block, Iq4Nl),
                        Format::IQ4_XS => matmul!(superblock, Iq4Xs),
                        Format::MXFP4 => matmul!(block, Mxfp4),
                        Format::NVFP4 => matmul!(every_block, Nvfp4),
                        Format::Q1_0 => matmul!(every_block, Q1_0),
                        Format::Q2_K => matmul!(superblock, Q2K),
                        Format::Q3_K => matmul!(superblock, Q3K),
                        Format::Q4_K => matmul!(superblock, Q4K),
                        Format::Q5_K => matmul!(superblock, Q5K),
                        Format::Q6_K => matmul!(superblock, Q6K),
                        Format::TQ1_0 | Format::TQ2_0 => matmul!(superblock, Ternary),
                        Format::IQ1_S => matmul!(codebook, Iq1S),
                        Format::IQ1_M => matmul!(codebook, Iq1M),
                        Format::IQ2_XXS => matmul!(codebook, Iq2Xxs),
                        Format::IQ2_XS => matmul!(codebook, Iq2Xs),
                        Format::IQ2_S => matmul!(codebook, Iq2S),
                        Format::IQ3_XXS => matmul!(codebook, Iq3Xxs),
                        Format::IQ3_S => matmul!(codebook, Iq3S),
                        _ => None,
                    }
                }

                #[target_feature(enable = $features)]
                unsafe fn float(args: &FloatArgs<'_>) {
                    // SAFETY: passed on to the caller, who has the features.
                    unsafe {
                        let narrow = token(<$float_token>::new);
                        float::matmul::<_, _, $float_cols>(narrow, token(<$token>::new), args)
                    }
                }

                #[target_feature(enable = $features)]
                unsafe fn tile(args: &TileArgs<'_>) {
                    // SAFETY: passed on to the caller, who has the features.
                    unsafe { attention::tile::<$token>(token(<$token>::new), args) }
                }

                #[target_feature(enable = $features)]
                unsafe fn merge(args: &mut MergeArgs<'_>) {
                    // SAFETY: passed on to the caller, who has the features.
                    unsafe { attention::merge::<$token>(token(<$token>::new), args) }
                }

                elementwise::set!($features);

                Kernels { isa: $isa, elementwise: elementwise(), tile, merge, float: Some(float), matmul }
            }
        };
    }

    #[cfg(target_arch = "x86_64")]
    set!(avx2, "avx2,fma,f16c", Avx2, Avx2, Isa::Avx2, 4, 3);
    #[cfg(target_arch = "x86_64")]
    set!(avx_vnni, "avx2,fma,f16c,avxvnni", AvxVnni, AvxVnni, Isa::AvxVnni, 4, 3);
    #[cfg(target_arch = "x86_64")]
    set!(
        vnni256,
        "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni",
        Vnni256,
        Vnni256,
        Isa::Avx512x256,
        8,
        6
    );
    #[cfg(target_arch = "x86_64")]
    set!(
        avx512,
        "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni",
        Avx512,
        Vnni256,
        Isa::Avx512x512,
        8,
        6
    );

    #[cfg(target_arch = "aarch64")]
    set!(neon, "neon", Neon, Neon, Isa::Neon, 8, 3);
    #[cfg(target_arch = "aarch64")]
    set!(dotprod, "neon,dotprod", DotProd, Neon, Isa::NeonDotprod, 8, 3);
    #[cfg(target_arch = "aarch64")]
    set!(
        i8mm,
        "neon,dotprod,i8mm",
        I8mm,
        Neon,
        Isa::NeonI8mm,
        16,
        3,
        use super::aarch64::smmla::{block, superblock};
    );
}
