//! The few vector operations that the kernels are written in.
//!
//! A value of a type that implements [`Simd`] is a proof that the CPU has its features: `new()` is the only way to one.
//! The kernels are generic over it and always inlined into one `#[target_feature]` wrapper for each instruction set.

use llamay_formats::tree8;

/// Vectors whose lanes are output rows: `LANES` floats, or as many 32-bit integers, or four times as many bytes.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Lanes of a vector: 16 or fewer.
    const LANES: usize;
    /// Whether byte products take both factors signed, so that no weight may be above 127: formats with an offset of 128
    /// come without it ([`Simd::without_128`]), the others as they are.
    const SIGNED: bool = false;
    /// Vectors that registers hold, which bounds a register tile.
    const REGISTERS: usize = 16;
    /// A vector of floats.
    type F: Copy;
    /// A vector of integers.
    type I: Copy;

    // Floats.
    fn f_splat(self, x: f32) -> Self::F;
    fn f_add(self, a: Self::F, b: Self::F) -> Self::F;
    fn f_mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn f_fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Each lane's integer as the nearest float, ties to even.
    fn f_from_i(self, a: Self::I) -> Self::F;
    /// # Safety
    /// `LANES` floats are readable at `p`.
    unsafe fn f_load(self, p: *const f32) -> Self::F;
    /// Eight floats, in each eight lanes.
    ///
    /// # Safety
    /// They are readable at `p`.
    #[inline(always)]
    unsafe fn f_load_eight(self, p: *const f32) -> Self::F {
        const { assert!(Self::LANES == 8) };
        // SAFETY: passed on to the caller.
        unsafe { self.f_load(p) }
    }
    /// # Safety
    /// `LANES` half-precision numbers are readable at `p`.
    unsafe fn f_load_f16(self, p: *const u16) -> Self::F;
    /// # Safety
    /// `LANES` bfloat16 numbers are readable at `p`.
    unsafe fn f_load_bf16(self, p: *const u16) -> Self::F;
    /// # Safety
    /// `LANES` floats are writable at `p`.
    unsafe fn f_store(self, p: *mut f32, x: Self::F);

    /// `x` where `a < b`, else `y`.
    #[inline(always)]
    fn f_select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        let [a, b, x, mut y] = [a, b, x, y].map(|v| lanes(self, v));
        for i in 0..Self::LANES {
            y[i] = if a[i] < b[i] { x[i] } else { y[i] };
        }
        // SAFETY: a vector has no more lanes than the array.
        unsafe { self.f_load(y.as_ptr()) }
    }
    /// `a` where it is the greater one, else `b`; so a NaN in `a` is left out.
    #[inline(always)]
    fn f_max(self, a: Self::F, b: Self::F) -> Self::F {
        self.f_select_lt(b, a, a, b)
    }
    /// The greatest lane of a vector without NaN; either zero of two.
    #[inline(always)]
    fn f_max_of_lanes(self, a: Self::F) -> f32 {
        lanes(self, a)[..Self::LANES].iter().fold(f32::NEG_INFINITY, |m, v| if *v > m { *v } else { m })
    }
    /// Adds the integer in the lowest 9 bits of `n` to the exponent of `y`: the product with a power of two, as long as it
    /// is a normal number.
    #[inline(always)]
    fn f_add_exponent(self, y: Self::F, n: Self::F) -> Self::F {
        let (mut y, n) = (lanes(self, y), lanes(self, n));
        for (y, n) in y.iter_mut().zip(n) {
            *y = f32::from_bits(y.to_bits().wrapping_add(n.to_bits() << 23));
        }
        // SAFETY: as above.
        unsafe { self.f_load(y.as_ptr()) }
    }
    /// The sum of all lanes of some vectors, a multiple of 8 of them, as the contract has it: eight strided partial sums and
    /// the tree.
    #[inline(always)]
    fn strided_sum(self, v: &[Self::F]) -> f32 {
        let mut partial = [0.0f32; 8];
        for (i, v) in v.iter().enumerate() {
            for (lane, x) in lanes(self, *v)[..Self::LANES].iter().enumerate() {
                partial[(i * Self::LANES + lane) % 8] += x;
            }
        }
        tree8(partial)
    }
    /// Stores the balanced sums of each vector's lanes 0 to 7 and then, if it has them, 8 to 15: four floats or eight.
    ///
    /// # Safety
    /// They are writable at `out`.
    #[inline(always)]
    unsafe fn store_trees(self, v: [Self::F; 4], out: *mut f32) {
        for (i, v) in v.iter().enumerate() {
            for (half, eight) in lanes(self, *v).as_chunks().0.iter().take(Self::LANES / 8).enumerate() {
                // SAFETY: the caller vouches for half a vector's floats.
                unsafe { *out.add(4 * half + i) = tree8(*eight) };
            }
        }
    }

    /// Asks for the cache line at `p`, which may be any address.
    fn prefetch(self, p: *const u8);

    // Integers.
    fn i_splat(self, x: i32) -> Self::I;
    fn i_and(self, a: Self::I, b: Self::I) -> Self::I;
    fn i_or(self, a: Self::I, b: Self::I) -> Self::I;
    fn i_add(self, a: Self::I, b: Self::I) -> Self::I;
    fn i_sub(self, a: Self::I, b: Self::I) -> Self::I;
    /// The low 32 bits of each lane's product.
    fn i_mul(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shifts each 32-bit lane left.
    fn i_shl<const N: u32>(self, a: Self::I) -> Self::I;
    /// Shifts each 32-bit lane right, filling with zeros.
    fn i_shr<const N: u32>(self, a: Self::I) -> Self::I;
    /// Each byte of `q`, below 16, as the entry of the table that it numbers.
    fn lookup(self, table: &[u8; 16], q: Self::I) -> Self::I;
    /// Weights with an offset of 128 as byte products take them: where [`Simd::SIGNED`], without it; else as they are.
    fn without_128(self, q: Self::I) -> Self::I {
        q
    }
    /// # Safety
    /// `4 * LANES` bytes are readable at `p`.
    unsafe fn i_load(self, p: *const u8) -> Self::I;
    /// # Safety
    /// `4 * LANES` bytes are writable at `p`.
    #[inline(always)]
    unsafe fn i_store(self, p: *mut u8, x: Self::I) {
        // SAFETY: the caller vouches for the bytes; a vector type is as large as its lanes, which lie in order.
        unsafe { p.cast::<Self::I>().write_unaligned(x) }
    }
    /// The table's entries that the lanes number.
    ///
    /// # Safety
    /// Every lane of `index` is below the table's length.
    #[inline(always)]
    unsafe fn gather(self, table: &[u32], index: Self::I) -> Self::I {
        let mut lanes = [0u32; 16];
        // SAFETY: 16 lanes are the most that a vector has; the caller vouches for the indices.
        unsafe {
            self.i_store(lanes.as_mut_ptr().cast(), index);
            for lane in lanes.iter_mut().take(Self::LANES) {
                *lane = *table.get_unchecked(*lane as usize);
            }
            self.i_load(lanes.as_ptr().cast())
        }
    }
    /// `LANES` unsigned bytes, widened to 32 bits.
    ///
    /// # Safety
    /// They are readable at `p`.
    #[inline(always)]
    unsafe fn i_load_u8(self, p: *const u8) -> Self::I {
        let mut wide = [0u32; 16];
        for (i, wide) in wide.iter_mut().enumerate().take(Self::LANES) {
            // SAFETY: the caller vouches for `LANES` bytes.
            *wide = u32::from(unsafe { *p.add(i) });
        }
        // SAFETY: a vector has no more lanes than the array.
        unsafe { self.i_load(wide.as_ptr().cast()) }
    }
    /// As [`Simd::i_load_u8`], for signed bytes.
    ///
    /// # Safety
    /// `LANES` bytes are readable at `p`.
    #[inline(always)]
    unsafe fn i_load_i8(self, p: *const i8) -> Self::I {
        let mut wide = [0i32; 16];
        for (i, wide) in wide.iter_mut().enumerate().take(Self::LANES) {
            // SAFETY: the caller vouches for `LANES` bytes.
            *wide = i32::from(unsafe { *p.add(i) });
        }
        // SAFETY: a vector has no more lanes than the array.
        unsafe { self.i_load(wide.as_ptr().cast()) }
    }
    /// `LANES` pairs of unsigned bytes, widened to 16 bits: lane `r` holds the pair of row `r`.
    ///
    /// # Safety
    /// `2 * LANES` bytes are readable at `p`.
    unsafe fn pairs_u8(self, p: *const u8) -> Self::I;
    /// As [`Simd::pairs_u8`], for signed bytes.
    ///
    /// # Safety
    /// `2 * LANES` bytes are readable at `p`.
    unsafe fn pairs_i8(self, p: *const u8) -> Self::I;
    /// `acc + w.0 * a.0 + w.1 * a.1` over the two 16-bit halves of each lane.
    fn madd_pairs(self, acc: Self::I, w: Self::I, a: Self::I) -> Self::I;

    // Dot products of weight bytes (unsigned, but for `SIGNED`) with signed activation bytes.
    /// The first of each lane's pair of 16-bit factors, in the form that [`Simd::dot_scaled`] takes.
    fn scale_low(self, pairs: Self::I) -> Self::I;
    /// The second of each lane's pair.
    fn scale_high(self, pairs: Self::I) -> Self::I;
    /// `init` plus each row's dot product of 32 weights with 32 activations; no weight is above `max`, a constant.
    ///
    /// # Safety
    /// 32 bytes are readable at `a`.
    unsafe fn dot32(self, q: &[Self::I; 8], max: i32, a: *const i8, init: Self::I) -> Self::I;
    /// Dot products of 32 bytes, each 128 above a quant of -127..=127, with 32 activations of each of `C` columns: the quants'
    /// products. `offsets` are -128 times the sums of the activations.
    ///
    /// # Safety
    /// 32 bytes are readable at each of `a`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // an iterator's closure that is not inlined has none of the features
    unsafe fn dots32_offset<const C: usize>(
        self,
        q: &[Self::I; 8],
        a: [*const i8; C],
        offsets: [i32; C],
    ) -> [Self::I; C] {
        let mut q = *q;
        for q in &mut q {
            *q = self.without_128(*q);
        }
        let mut dots = [self.i_splat(0); C];
        for c in 0..C {
            // Signed quants have no offset to take off.
            let init = self.i_splat(if Self::SIGNED { 0 } else { offsets[c] });
            // SAFETY: passed on to the caller.
            dots[c] = unsafe { self.dot32(&q, 255, a[c], init) };
        }
        dots
    }
    /// `acc` plus `scale` times each row's dot product of `4 * N` weights (`q[FIRST..FIRST + N]`) with as many
    /// activations; no weight is above `max`, a constant, and `N` is 4 or 8.
    ///
    /// # Safety
    /// `4 * N` bytes are readable at `a`.
    unsafe fn dot_scaled<const FIRST: usize, const N: usize>(
        self,
        q: &[Self::I; 8],
        max: i32,
        a: *const i8,
        scale: Self::I,
        acc: Self::I,
    ) -> Self::I;
}

/// A vector's lanes, and zeros behind them.
#[inline(always)]
fn lanes<S: Simd>(s: S, v: S::F) -> [f32; 16] {
    let mut lanes = [0.0; 16];
    // SAFETY: a vector has no more lanes than the array.
    unsafe { s.f_store(lanes.as_mut_ptr(), v) };
    lanes
}

/// Four activation bytes as one integer, to be spread over all lanes.
///
/// # Safety
/// 4 bytes are readable at `p`.
#[inline(always)]
pub(crate) unsafe fn four(p: *const i8) -> i32 {
    // SAFETY: the caller vouches for 4 readable bytes; the read is unaligned.
    unsafe { p.cast::<i32>().read_unaligned() }
}
