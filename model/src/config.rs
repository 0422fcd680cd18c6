//! Hyperparameters: the typed reading of `{architecture}.key`, and what nearly all models share.

use std::fmt::{Debug, Display};
use std::ops::RangeInclusive;

use llamay_gguf::{Metadata, Value};
use llamay_plan::NormKind;

use crate::ModelError;

// Far above any model that exists, and low enough that no product of a few of them overflows.
const MOST_LAYERS: u32 = 4096;
const MOST_HEADS: u32 = 4096;
const MOST_HEAD_DIM: u32 = 1 << 14;
const MOST_WIDTH: u32 = 1 << 20;
pub(crate) const MOST_FF_WIDTH: u32 = 1 << 22;
const MOST_CONTEXT: u32 = 1 << 30;

/// The metadata keys of one architecture.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) architecture: &'static str,
}

impl<'a> Keys<'a> {
    /// The full name of a key.
    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// An integer within `range`.
    pub(crate) fn count(&self, key: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, ModelError> {
        let name = self.name(key);
        let value = self.metadata.u32(&name)?;
        value.map(|v| in_range(name, v, range)).transpose()
    }

    pub(crate) fn need_count(&self, key: &str, range: RangeInclusive<u32>) -> Result<usize, ModelError> {
        let name = self.name(key);
        let value = self.metadata.need_u32(&name)?;
        in_range(name, value, range).map(|v| v as usize)
    }

    /// A finite number within `range`.
    pub(crate) fn float(&self, key: &str, range: RangeInclusive<f32>) -> Result<Option<f32>, ModelError> {
        let name = self.name(key);
        let value = self.metadata.f32(&name)?;
        value.map(|v| in_range(name, v, range)).transpose()
    }

    pub(crate) fn need_float(&self, key: &str, range: RangeInclusive<f32>) -> Result<f32, ModelError> {
        let name = self.name(key);
        let value = self.metadata.need_f32(&name)?;
        in_range(name, value, range)
    }

    /// An integer that files give once, or for each layer; layers that differ are refused.
    pub(crate) fn uniform(
        &self,
        key: &str,
        n_layer: u32,
        range: RangeInclusive<u32>,
    ) -> Result<Option<usize>, ModelError> {
        let name = self.name(key);
        let Some(Value::Array(_)) = self.metadata.get(&name) else {
            return Ok(self.count(key, range)?.map(|v| v as usize));
        };
        let values = self.metadata.need_u32s(&name)?;
        let first = values.get(0).unwrap_or_default();
        if values.len() != n_layer as usize {
            let wanted = format!("it has to be one number, or an array of {n_layer}, one a layer");
            return Err(ModelError::Value {
                key: name,
                value: format!("an array of {}", values.len()),
                wanted,
            });
        }
        match values.iter().find(|v| *v != first) {
            None => in_range(name, first, range).map(|v| Some(v as usize)),
            Some(other) => Err(ModelError::Feature {
                what: "a width that differs between layers",
                key: name,
                value: format!("{first} in one layer and {other} in another"),
            }),
        }
    }

    /// Refuses a key that is present, unless its value, or all of an array, is one of `neutral`, which ask for nothing.
    pub(crate) fn refuse(&self, key: &str, what: &'static str, neutral: &[f32]) -> Result<(), ModelError> {
        let name = self.name(key);
        if let Some(Value::Bool(value)) = self.metadata.get(&name) {
            let error = ModelError::Feature { what, key: name, value: value.to_string() };
            return if value { Err(error) } else { Ok(()) };
        }
        if let Some(Value::Array(_)) = self.metadata.get(&name) {
            let values = self.metadata.need_f32s(&name)?;
            return match values.iter().find(|value| !neutral.contains(value)) {
                Some(value) => {
                    let value = format!("an array with {value}");
                    Err(ModelError::Feature { what, key: name, value })
                }
                None => Ok(()),
            };
        }
        match self.metadata.f32(&name)? {
            Some(value) if !neutral.contains(&value) => {
                let value = self.metadata.get(&name).map_or(value.to_string(), |value| value.to_string());
                Err(ModelError::Feature { what, key: name, value })
            }
            _ => Ok(()),
        }
    }

    /// Refuses the features that the architecture does not know, wherever a file asks for them; `known` are the keys that
    /// it reads itself.
    fn refuse_unknown_features(&self, known: &[&str]) -> Result<(), ModelError> {
        for (key, what, neutral) in FEATURES {
            if !known.contains(key) {
                self.refuse(key, what, neutral)?;
            }
        }
        let causal = self.name("attention.causal");
        match self.metadata.bool(&causal)? {
            Some(false) => {
                let what = "attention that is not causal";
                Err(ModelError::Feature { what, key: causal, value: "false".into() })
            }
            _ => Ok(()),
        }
    }

    /// A truth value; `default` if the file does not say.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        Ok(self.metadata.bool(&self.name(key))?.unwrap_or(default))
    }

    /// The window of the layers that have one; `None` if there is none, which files of models that could have one say
    /// with 0.
    pub(crate) fn window(&self) -> Result<Option<u32>, ModelError> {
        Ok(self.count("attention.sliding_window", 0..=u32::MAX)?.filter(|window| *window > 0))
    }

    /// Which layers have a window, as the file says it: with a number for each layer, or with a period of which the last
    /// layer has none. `period` is for files that do not say it.
    pub(crate) fn windowed_layers(&self, n_layer: u32, period: u32) -> Result<Vec<bool>, ModelError> {
        const KEY: &str = "attention.sliding_window_pattern";
        let name = self.name(KEY);
        if let Some(Value::Array(_)) = self.metadata.get(&name) {
            let layers = self.metadata.need_bools(&name)?;
            return if layers.len() == n_layer as usize {
                Ok(layers.to_vec())
            } else {
                let wanted = format!("it has to be a number, or an array of {n_layer}, one a layer");
                Err(value_error(*self, KEY, format_args!("an array of {}", layers.len()), wanted))
            };
        }
        let period = self.count(KEY, 1..=u32::MAX)?.unwrap_or(period);
        Ok((1..=n_layer).map(|n| n % period != 0).collect())
    }
}

/// Features that some architectures have: the key that asks for each, its name, and the values that ask for nothing.
const FEATURES: &[(&str, &str, &[f32])] = &[
    ("expert_count", "a mixture of experts", &[0.0]),
    ("expert_shared_count", "shared experts", &[0.0]),
    ("expert_group_count", "experts in groups", &[0.0, 1.0]),
    ("leading_dense_block_count", "dense layers before a mixture of experts", &[0.0]),
    ("interleave_moe_layer_step", "dense layers between mixtures of experts", &[0.0, 1.0]),
    ("attention.sliding_window", "a window of attention", &[0.0]),
    ("attn_logit_softcapping", "a soft cap of attention scores", &[0.0]),
    ("final_logit_softcapping", "a soft cap of logits", &[0.0]),
    ("attention.clamp_kqv", "clamping queries, keys and values", &[0.0]),
    ("attention.max_alibi_bias", "ALiBi", &[0.0]),
    ("attention.temperature_scale", "attention that sharpens with the position", &[0.0]),
    ("embedding_scale", "a factor of the embedding", &[0.0, 1.0]),
    ("residual_scale", "a factor of residual branches", &[0.0, 1.0]),
    ("logit_scale", "a factor of logits", &[0.0, 1.0]),
    ("nextn_predict_layers", "layers that predict further tokens", &[0.0]),
    ("rope.dimension_sections", "positions of several dimensions", &[0.0]),
    ("use_parallel_residual", "parallel attention and feed-forward parts", &[]),
];

fn in_range<T: PartialOrd + Debug>(key: String, value: T, range: RangeInclusive<T>) -> Result<T, ModelError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let wanted = format!("it has to be from {:?} to {:?}", range.start(), range.end());
    Err(ModelError::Value { key, value: format!("{value:?}"), wanted })
}

/// The hyperparameters of a decoder whose layers are all of one size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// `general.architecture`.
    pub(crate) architecture: &'static str,
    /// Layers.
    pub(crate) n_layer: u32,
    /// Width of the residual stream.
    pub(crate) n_embd: usize,
    /// Width of the feed-forward layer.
    pub(crate) n_ff: usize,
    /// Query heads.
    pub(crate) n_head: usize,
    /// Key and value heads; a divisor of `n_head`.
    pub(crate) n_head_kv: usize,
    /// Elements of a head.
    pub(crate) head_dim: usize,
    /// Elements of a head that rotate; even.
    pub(crate) n_rot: usize,
    /// Which norm all layers have.
    pub(crate) norm: NormKind,
    /// Epsilon of every norm.
    pub(crate) eps: f32,
    /// Positions that the model was trained for.
    pub(crate) n_ctx_train: u32,
    /// The factor of attention scores, where the file gives one.
    pub(crate) attention_scale: Option<f32>,
}

impl Config {
    /// Reads and checks the keys of a model with norms of one kind. `known` are the keys of [`FEATURES`] that the
    /// architecture reads itself; all others are refused.
    pub(crate) fn read(keys: Keys<'_>, norm: NormKind, known: &[&str]) -> Result<Config, ModelError> {
        keys.refuse_unknown_features(known)?;
        let n_layer = keys.need_count("block_count", 1..=MOST_LAYERS)? as u32;
        let n_ctx_train = keys.need_count("context_length", 1..=MOST_CONTEXT)? as u32;
        let n_embd = keys.need_count("embedding_length", 1..=MOST_WIDTH)?;
        let need = |key: &str, most: u32| match keys.uniform(key, n_layer, 1..=most)? {
            Some(value) => Ok(value),
            None => keys.need_count(key, 1..=most),
        };
        let n_ff = need("feed_forward_length", MOST_FF_WIDTH)?;
        let n_head = need("attention.head_count", MOST_HEADS)?;
        let n_head_kv = keys.uniform("attention.head_count_kv", n_layer, 1..=MOST_HEADS)?.unwrap_or(n_head);
        if !n_head.is_multiple_of(n_head_kv) {
            let wanted = format!("it has to divide the number of query heads, {n_head}");
            return Err(value_error(keys, "attention.head_count_kv", n_head_kv, wanted));
        }
        let head_dim = head_dim(keys, n_embd, n_head)?;
        let n_rot = keys.count("rope.dimension_count", 2..=head_dim as u32)?.map_or(head_dim, |n| n as usize);
        if !n_rot.is_multiple_of(2) {
            return Err(value_error(keys, "rope.dimension_count", n_rot, "it has to be even".into()));
        }
        Ok(Config {
            architecture: keys.architecture,
            n_layer,
            n_embd,
            n_ff,
            n_head,
            n_head_kv,
            head_dim,
            n_rot,
            norm,
            eps: match norm {
                NormKind::Rms => keys.need_float("attention.layer_norm_rms_epsilon", 0.0..=1.0)?,
                NormKind::Layer => keys.need_float("attention.layer_norm_epsilon", 0.0..=1.0)?,
            },
            n_ctx_train,
            attention_scale: keys.float("attention.scale", f32::MIN_POSITIVE..=1e6)?,
        })
    }

    /// The factor of attention scores: the file's, else the inverse root of the head's length.
    pub(crate) fn attention_scale(&self) -> f32 {
        self.attention_scale.unwrap_or((1.0 / (self.head_dim as f64).sqrt()) as f32)
    }
}

#[cfg(test)]
impl Config {
    /// A configuration of these sizes, for tests of what depends on them.
    pub(crate) fn sized(n_layer: u32, n_embd: usize, n_head: usize, head_dim: usize) -> Config {
        Config {
            architecture: "test",
            n_layer,
            n_embd,
            n_ff: 4 * n_embd,
            n_head,
            n_head_kv: 1,
            head_dim,
            n_rot: head_dim,
            norm: NormKind::Rms,
            eps: 1e-6,
            n_ctx_train: 32768,
            attention_scale: None,
        }
    }
}

/// `attention.key_length`, else an equal share of the residual stream.
fn head_dim(keys: Keys<'_>, n_embd: usize, n_head: usize) -> Result<usize, ModelError> {
    let key_length = keys.count("attention.key_length", 1..=MOST_HEAD_DIM)?;
    let value_length = keys.count("attention.value_length", 1..=MOST_HEAD_DIM)?;
    let head_dim = match key_length {
        Some(length) => length as usize,
        None if n_embd.is_multiple_of(n_head) => n_embd / n_head,
        None => {
            let wanted = format!("it has to divide the embedding length, {n_embd}");
            return Err(value_error(keys, "attention.head_count", n_head, wanted));
        }
    };
    match value_length {
        Some(length) if length as usize != head_dim => Err(ModelError::Feature {
            what: "a value length that differs from the key length",
            key: keys.name("attention.value_length"),
            value: format!("{length} and the key length {head_dim}"),
        }),
        _ => Ok(head_dim),
    }
}

/// An error about the value of a key.
pub(crate) fn value_error(keys: Keys<'_>, key: &str, value: impl Display, wanted: String) -> ModelError {
    ModelError::Value { key: keys.name(key), value: value.to_string(), wanted }
}
