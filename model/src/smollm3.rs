//! SmolLM3: Llama with no rotary embedding in every fourth layer.
//!
//! Sources: Hugging Face, "SmolLM3: smol, multilingual, long-context reasoner" (2025); Yang et al., "Rope to Nope and Back
//! Again: A New Hybrid Attention Strategy" (2025).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

/// Every so many layers, one has no rotary embedding; files do not say.
const PATTERN: u32 = 4;

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("smollm3");
    let config = Config::read(keys, NormKind::Rms, &[])?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Interleaved)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        if (layer + 1) % PATTERN != 0 {
            b.rope(s.q, rope);
            b.rope(s.k, rope);
        }
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
