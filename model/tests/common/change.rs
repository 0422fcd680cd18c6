//! Files with some keys and tensors changed, made without a copy of the weights: a plan asks for none of them.
#![allow(dead_code)] // Not every test file uses all of it.

use std::sync::OnceLock;

use llamay_formats::Format;
use llamay_gguf::{Encode, Encoder, Gguf, ValueType, Writer};
use llamay_model::shapes::Shape;
use llamay_model::{Loaded, load, validate};

/// What some architecture reads behind `{architecture}.`.
pub(crate) const KEYS: &[&str] = &[
    "attention.causal",
    "attention.clamp_kqv",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.max_alibi_bias",
    "attention.scale",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_scale",
    "attention.value_length",
    "attn_logit_softcapping",
    "block_count",
    "context_length",
    "embedding_length",
    "embedding_scale",
    "expert_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_group_count",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "expert_weights_norm",
    "expert_weights_scale",
    "feed_forward_length",
    "final_logit_softcapping",
    "interleave_moe_layer_step",
    "leading_dense_block_count",
    "logit_scale",
    "nextn_predict_layers",
    "residual_scale",
    "rope.dimension_count",
    "rope.dimension_sections",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
    "use_parallel_residual",
    "vocab_size",
];

/// The longest sentence that is still read: a tensor's name, two shapes, and what is wrong with them.
const LONGEST: usize = 300;

/// A value of any type that a key can have.
#[derive(Clone, Debug)]
pub(crate) enum Any {
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    U32s(Vec<u32>),
    F32s(Vec<f32>),
    Bools(Vec<bool>),
    Strs(Vec<String>),
}

impl Any {
    fn as_dyn(&self) -> &dyn Encode {
        match self {
            Any::U32(v) => v,
            Any::I32(v) => v,
            Any::U64(v) => v,
            Any::I64(v) => v,
            Any::F32(v) => v,
            Any::F64(v) => v,
            Any::Bool(v) => v,
            Any::Str(v) => v,
            Any::U32s(v) => v,
            Any::F32s(v) => v,
            Any::Bools(v) => v,
            Any::Strs(v) => v,
        }
    }
}

impl Encode for Any {
    fn kind(&self) -> ValueType {
        self.as_dyn().kind()
    }

    fn encode(&self, out: &mut Encoder) {
        self.as_dyn().encode(out);
    }
}

/// What is done to a file.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The key gets this value.
    Key(String, Any),
    NoKey(String),
    /// The tensor gets these dimensions and this format, and zeros for data.
    Tensor(String, Vec<u64>, Format),
    NoTensor(String),
}

/// The changed file. Of the weights only the small constants are there that a plan reads; the others are zeros, unless
/// `weights` asks for them. `None` if it is no file: a format's blocks do not fit the rows, or it is far larger than any
/// generated model.
pub(crate) fn changed_bytes(base: &Gguf, changes: &[Change], weights: bool) -> Option<Vec<u8>> {
    const LARGEST: usize = 1 << 27;
    let mut writer = Writer::default();
    let gone = |key: &str| changes.iter().any(|c| matches!(c, Change::NoKey(k) if k == key));
    for (key, value) in base.metadata().iter().filter(|(key, _)| !gone(key)) {
        writer.set(key, value);
    }
    for change in changes {
        if let Change::Key(key, value) = change {
            writer.set(key, value);
        }
    }
    let mut end = 0usize;
    // Where each tensor's data goes, from the start of all data.
    let mut data = vec![];
    for t in base.tensors() {
        let change = changes
            .iter()
            .find(|c| matches!(c, Change::Tensor(name, ..) | Change::NoTensor(name) if *name == t.name));
        let (dims, format) = match change {
            Some(Change::NoTensor(_)) => continue,
            Some(Change::Tensor(_, dims, format)) => (dims, *format),
            _ => (&t.dims, t.format().ok()?),
        };
        if change.is_none() && (weights || t.name.starts_with("rope_")) {
            data.push((end, base.data(t).ok()?));
        }
        writer.declare(&t.name, dims, format);
        end = end.checked_add(n_bytes(dims, format)?).filter(|end| *end <= LARGEST)?.next_multiple_of(32);
    }
    let mut head = vec![];
    writer.begin(&mut head).ok()?;
    // Zeros that nobody reads cost nothing.
    let mut file = vec![0; head.len() + end];
    file[..head.len()].copy_from_slice(&head);
    for (at, bytes) in data {
        file[head.len() + at..][..bytes.len()].copy_from_slice(&bytes);
    }
    Some(file)
}

fn n_bytes(dims: &[u64], format: Format) -> Option<usize> {
    let cols = usize::try_from(dims.first().copied().unwrap_or(1)).ok()?;
    let rows = dims.iter().skip(1).try_fold(1u64, |n, d| n.checked_mul(*d))?;
    format.row_bytes(cols)?.checked_mul(usize::try_from(rows).ok()?)
}

/// As [`changed_bytes`], opened.
pub(crate) fn changed(base: &Gguf, changes: &[Change]) -> Option<Gguf> {
    Some(Gguf::from_bytes(changed_bytes(base, changes, false)?).expect("a valid file"))
}

/// Every generated model in a small format.
pub(crate) fn all_files() -> &'static [(&'static Shape, Gguf)] {
    static FILES: OnceLock<Vec<(&Shape, Gguf)>> = OnceLock::new();
    let file = |shape: &'static Shape| {
        let full = Gguf::from_bytes(shape.gguf(Format::Q4_0).unwrap()).unwrap();
        (shape, changed(&full, &[]).unwrap())
    };
    FILES.get_or_init(|| Shape::all().iter().map(file).collect())
}

/// The plan, checked to be one that can run, or the refusal, checked to be a sentence about a key or a tensor.
#[track_caller]
pub(crate) fn outcome(gguf: &Gguf) -> Result<Loaded, String> {
    match load(gguf) {
        Ok(loaded) => {
            assert_eq!(validate(&loaded.plan), Ok(()));
            Ok(loaded)
        }
        Err(error) => {
            let message = error.to_string();
            assert_is_sentence(&message);
            let names = |prefix: &str| message.contains(prefix);
            let architecture =
                gguf.metadata().str("general.architecture").ok().flatten().unwrap_or("general");
            let key = names(&format!("\"{architecture}.")) || names("\"general.") || names("\"tokenizer.");
            let tensor = names("tensor \"");
            let family = message.starts_with("the architecture \"");
            assert!(key || tensor || family, "neither a key nor a tensor: {message}");
            Err(message)
        }
    }
}

/// One line for people, not for programmers.
#[track_caller]
pub(crate) fn assert_is_sentence(message: &str) {
    // Only the lists of all architectures and pre-tokenizers may be longer.
    let lists = ["; supported are ", " (supported: "];
    let sentence = lists.iter().find_map(|l| message.split_once(l)).map_or(message, |(sentence, _)| sentence);
    assert!(!sentence.is_empty() && sentence.len() <= LONGEST, "{} bytes: {message}", message.len());
    assert!(!message.chars().any(char::is_control), "{message:?}");
    // What a file says, in quotes, may be anything.
    for words in message.replace("\\\"", "").split('"').step_by(2) {
        for dump in ["Some(", "None", "Err(", "Ok(", " { ", "unwrap", "panicked", "::"] {
            assert!(!words.contains(dump), "{message}");
        }
    }
}
