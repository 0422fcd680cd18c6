//! GPT-NeoX: Pythia, RedPajama-INCITE, Dolly. Attention and feed-forward part side by side, each behind its norm, or one
//! after the other.
//!
//! Source: Black et al., "GPT-NeoX-20B: An Open-Source Autoregressive Language Model" (2022).

use llamay_plan::{Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("gptneox");
    let config = Config::read(keys, NormKind::Layer, &["use_parallel_residual"])?;
    let parallel = keys.metadata.need_bool(&keys.name("use_parallel_residual"))?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Halves)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;

        // Side by side, the feed-forward part reads the stream as attention did.
        if parallel {
            b.norm("ffn_norm", x, s.ffn_norm)?;
            b.add(x, s.attn_output);
        } else {
            b.add(x, s.attn_output);
            b.norm("ffn_norm", x, s.ffn_norm)?;
        }
        b.plain_ffn(s.ffn_norm, s, Nonlinearity::Gelu)?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
