//! The closed list of tensor types and their block geometry.

/// How a row of activations is represented before it meets a weight row of some format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Plain `f32`; used by the float and integer tensor types.
    F32,
    /// Signed bytes in blocks of 32, one `f32` scale a block.
    I8x32,
    /// Signed bytes in blocks of 256, one `f32` scale a block.
    I8x256,
}

impl Activation {
    /// Elements that share one scale; 1 for [`Activation::F32`].
    pub const fn block_len(self) -> usize {
        match self {
            Activation::F32 => 1,
            Activation::I8x32 => 32,
            Activation::I8x256 => 256,
        }
    }
}

macro_rules! formats {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal, $len:literal, $bytes:literal, $act:ident;)*) => {
        /// A tensor type of GGUF, numbered as in the file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Format { $($(#[$doc])* $variant = $id,)* }

        impl Format {
            /// Every format, in the order of their numbers.
            pub const ALL: &'static [Format] = &[$(Format::$variant),*];

            /// The format with this number in a GGUF file.
            pub const fn from_id(id: u32) -> Option<Format> {
                match id { $($id => Some(Format::$variant),)* _ => None }
            }

            /// The field's name of the format, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self { $(Format::$variant => $name,)* }
            }

            /// Elements in one block.
            pub const fn block_len(self) -> usize {
                match self { $(Format::$variant => $len,)* }
            }

            /// Bytes of one block.
            pub const fn block_bytes(self) -> usize {
                match self { $(Format::$variant => $bytes,)* }
            }

            /// The form an activation row takes before its dot product with a row of this format.
            pub const fn activation(self) -> Activation {
                match self { $(Format::$variant => Activation::$act,)* }
            }
        }
    };
}

formats! {
    /// IEEE single precision.
    F32 = 0, "F32", 1, 4, F32;
    /// IEEE half precision.
    F16 = 1, "F16", 1, 2, F32;
    /// 4-bit, scale per 32.
    Q4_0 = 2, "Q4_0", 32, 18, I8x32;
    /// 4-bit, scale and minimum per 32.
    Q4_1 = 3, "Q4_1", 32, 20, I8x32;
    /// 5-bit, scale per 32.
    Q5_0 = 6, "Q5_0", 32, 22, I8x32;
    /// 5-bit, scale and minimum per 32.
    Q5_1 = 7, "Q5_1", 32, 24, I8x32;
    /// 8-bit, scale per 32.
    Q8_0 = 8, "Q8_0", 32, 34, I8x32;
    /// 8-bit, scale and weighted sum per 32; an activation format that files seldom carry.
    Q8_1 = 9, "Q8_1", 32, 36, I8x32;
    /// 2-bit super-block of 256.
    Q2_K = 10, "Q2_K", 256, 84, I8x256;
    /// 3-bit super-block of 256.
    Q3_K = 11, "Q3_K", 256, 110, I8x256;
    /// 4-bit super-block of 256.
    Q4_K = 12, "Q4_K", 256, 144, I8x256;
    /// 5-bit super-block of 256.
    Q5_K = 13, "Q5_K", 256, 176, I8x256;
    /// 6-bit super-block of 256.
    Q6_K = 14, "Q6_K", 256, 210, I8x256;
    /// 8-bit super-block of 256; an activation format that files seldom carry.
    Q8_K = 15, "Q8_K", 256, 292, I8x256;
    /// 2.06-bit code book.
    IQ2_XXS = 16, "IQ2_XXS", 256, 66, I8x256;
    /// 2.31-bit code book.
    IQ2_XS = 17, "IQ2_XS", 256, 74, I8x256;
    /// 3.06-bit code book.
    IQ3_XXS = 18, "IQ3_XXS", 256, 98, I8x256;
    /// 1.56-bit code book.
    IQ1_S = 19, "IQ1_S", 256, 50, I8x256;
    /// 4-bit non-linear table, scale per 32.
    IQ4_NL = 20, "IQ4_NL", 32, 18, I8x32;
    /// 3.44-bit code book.
    IQ3_S = 21, "IQ3_S", 256, 110, I8x256;
    /// 2.5-bit code book.
    IQ2_S = 22, "IQ2_S", 256, 82, I8x256;
    /// 4.25-bit non-linear table.
    IQ4_XS = 23, "IQ4_XS", 256, 136, I8x256;
    /// Signed byte.
    I8 = 24, "I8", 1, 1, F32;
    /// Signed 16-bit integer.
    I16 = 25, "I16", 1, 2, F32;
    /// Signed 32-bit integer.
    I32 = 26, "I32", 1, 4, F32;
    /// Signed 64-bit integer.
    I64 = 27, "I64", 1, 8, F32;
    /// IEEE double precision.
    F64 = 28, "F64", 1, 8, F32;
    /// 1.75-bit code book.
    IQ1_M = 29, "IQ1_M", 256, 56, I8x256;
    /// The upper half of a single-precision number.
    BF16 = 30, "BF16", 1, 2, F32;
    /// Ternary, 1.69 bits.
    TQ1_0 = 34, "TQ1_0", 256, 54, I8x256;
    /// Ternary, 2.06 bits.
    TQ2_0 = 35, "TQ2_0", 256, 66, I8x256;
    /// OCP microscaling 4-bit float, power-of-two scale per 32.
    MXFP4 = 39, "MXFP4", 32, 17, I8x32;
    /// NVIDIA 4-bit float, 8-bit float scale per 16.
    NVFP4 = 40, "NVFP4", 64, 36, I8x32;
    /// Signs alone, scale per 128.
    Q1_0 = 41, "Q1_0", 128, 18, I8x32;
}

impl Format {
    /// The format with this name, in any letter case.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.iter().copied().find(|f| f.name().eq_ignore_ascii_case(name))
    }

    /// Bytes of a row of `n` elements; `None` when `n` is no multiple of the block or the product overflows.
    pub const fn row_bytes(self, n: usize) -> Option<usize> {
        if !n.is_multiple_of(self.block_len()) {
            return None;
        }
        (n / self.block_len()).checked_mul(self.block_bytes())
    }

    /// True for the types whose elements stand alone, with no block scale.
    pub const fn is_plain(self) -> bool {
        self.block_len() == 1
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
