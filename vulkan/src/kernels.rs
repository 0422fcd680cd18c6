//! Push constants of the kernels in `shaders/`, field by field as these declare them: addresses first.

use bytemuck::{Pod, Zeroable};

/// Defines the push constants of a kernel.
macro_rules! push {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
            pub(crate) struct $name { $(pub(crate) $field: $type,)* }
        )*
    };
}

push! {
    /// `quantize.comp`.
    Quantize { x: u64, out: u64, k: u32, rows: u32, block: u32, record: u32, }
    /// `norm.comp`.
    Norm {
        x: u64, weight: u64, bias: u64, out: u64,
        len: u32, parts: u32, rows: u32, flags: u32, weight_parts: u32, eps: f32,
    }
    /// `angles.comp`.
    Angles { tokens: u64, frequencies: u64, magnitudes: u64, cos: u64, sin: u64, half_: u32, rows: u32, }
    /// `rope.comp`.
    Rope {
        x: u64, cos: u64, sin: u64,
        width: u32, head_dim: u32, half_: u32, rows: u32, interleaved: u32, pad: u32,
    }
    /// `elementwise.comp`.
    Elementwise { x: u64, y: u64, out: u64, n: u32, scale: f32, }
    /// `gather.comp`.
    Gather { x: u64, out: u64, rows: u64, width: u32, n: u32, }
    /// `route.comp`.
    Route {
        x: u64, bias: u64, chosen: u64, weights: u64,
        n_expert: u32, n_used: u32, rows: u32, flags: u32, scoring: u32, scale: f32,
    }
    /// `combine.comp`.
    Combine { x: u64, weights: u64, out: u64, width: u32, n_used: u32, rows: u32, pad: u32, }
    /// `kv_store.comp`.
    KvStore {
        k: u64, v: u64, tokens: u64, pages: u64, starts: u64,
        rows: u32, heads: u32, head_dim: u32, group: u32, n_groups: u32, layer: u32,
    }
    /// `attention.comp` and `attention_pages.comp`.
    Attention {
        q: u64, out: u64, tokens: u64, pages: u64, starts: u64, sinks: u64,
        rows: u32, heads: u32, heads_kv: u32, head_dim: u32, group: u32, n_groups: u32, layer: u32, window: u32,
        scale: f32, softcap: f32, flags: u32, max_pages: u32, scratch: u64,
    }
    /// `attention_merge.comp`.
    AttentionMerge {
        scratch: u64, out: u64, tokens: u64, sinks: u64,
        heads: u32, head_dim: u32, window: u32, max_pages: u32, flags: u32, pad: u32,
    }
    /// `matmul.comp` and `matmul_float.comp`.
    Matmul {
        w: u64, rest: u64, x: u64, y: u64, bias: u64, chosen: u64, grid: u64,
        rows: u32, cols: u32, blocks: u32, record: u32, y_stride: u32, y_first: u32, flags: u32, n_used: u32,
        expert_w: u32, expert_rest: u32, bias_stride: u32, pad: u32,
    }
}

/// [`Norm::flags`].
pub(crate) mod norm {
    pub(crate) const LAYER: u32 = 1;
    pub(crate) const WEIGHT: u32 = 2;
    pub(crate) const BIAS: u32 = 4;
}

/// The operation of `elementwise.comp`, its constant 0; constant 1 is the number of a non-linearity.
pub(crate) mod elementwise {
    pub(crate) const ADD: u32 = 0;
    pub(crate) const ADD_SCALED: u32 = 1;
    pub(crate) const SCALE: u32 = 2;
    pub(crate) const SOFTCAP: u32 = 3;
    pub(crate) const ACTIVATE: u32 = 4;
    pub(crate) const GATE: u32 = 5;
    pub(crate) const CLIPPED_SWIGLU: u32 = 6;
}

/// [`Route::flags`].
pub(crate) mod route {
    pub(crate) const BIAS: u32 = 1;
    pub(crate) const NORMALIZE: u32 = 2;
}

/// [`Attention::flags`].
pub(crate) mod attention {
    pub(crate) const SINKS: u32 = 1;
}

/// [`Matmul::flags`].
pub(crate) mod matmul {
    pub(crate) const BIAS: u32 = 1;
    pub(crate) const EXPERTS: u32 = 2;
    pub(crate) const ROW_A_CHOICE: u32 = 4;
}
