//! The few vector operations that the kernels are written in.
//!
//! A value of a type that implements [`Simd`] is a proof that the CPU has its features: `new()` is the only way to one.
//! The kernels are generic over it and always inlined into one `#[target_feature]` wrapper for each instruction set.

/// Vectors whose lanes are output rows: `LANES` floats, or as many 32-bit integers, or four times as many bytes.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Lanes of a vector.
    const LANES: usize;
    /// Whether byte products take both factors signed, so that no weight may be above 127: formats with an offset of 128
    /// come without it ([`Simd::without_128`]), the others as they are.
    const SIGNED: bool = false;
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
    /// # Safety
    /// `LANES` half-precision numbers are readable at `p`.
    unsafe fn f_load_f16(self, p: *const u16) -> Self::F;
    /// # Safety
    /// `LANES` bfloat16 numbers are readable at `p`.
    unsafe fn f_load_bf16(self, p: *const u16) -> Self::F;
    /// # Safety
    /// `LANES` floats are writable at `p`.
    unsafe fn f_store(self, p: *mut f32, x: Self::F);

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

/// Four activation bytes as one integer, to be spread over all lanes.
///
/// # Safety
/// 4 bytes are readable at `p`.
#[inline(always)]
pub(crate) unsafe fn four(p: *const i8) -> i32 {
    // SAFETY: the caller vouches for 4 readable bytes; the read is unaligned.
    unsafe { p.cast::<i32>().read_unaligned() }
}
