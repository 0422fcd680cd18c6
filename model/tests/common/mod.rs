//! Generated models with something changed.
#![allow(dead_code)] // Not every test file uses all of it.

pub(crate) mod change;
pub(crate) mod random_change;

use llamay_formats::Format;
use llamay_gguf::{Encode, Gguf, TensorInfo, Writer};
use llamay_model::shapes::Shape;

/// The shape's file, in a small format; the weights' values do not matter to a plan.
pub(crate) fn file(shape: &Shape) -> Gguf {
    Gguf::from_bytes(shape.gguf(Format::Q4_0).unwrap()).unwrap()
}

/// A copy of the file, written from those of its keys and tensors that `key` and `tensor` keep.
pub(crate) fn copy(gguf: &Gguf, key: impl Fn(&str) -> bool, tensor: impl Fn(&TensorInfo) -> bool) -> Writer {
    let mut writer = Writer::default();
    for (name, value) in gguf.metadata().iter().filter(|(name, _)| key(name)) {
        writer.set(name, value);
    }
    for t in gguf.tensors().iter().filter(|t| tensor(t)) {
        writer.tensor(&t.name, &t.dims, t.format().unwrap(), gguf.data(t).unwrap().into_owned());
    }
    writer
}

pub(crate) fn read(writer: &Writer) -> Gguf {
    Gguf::from_bytes(writer.to_vec().unwrap()).unwrap()
}

pub(crate) fn without_key(gguf: &Gguf, key: &str) -> Gguf {
    read(&copy(gguf, |k| k != key, |_| true))
}

pub(crate) fn with_key(gguf: &Gguf, key: &str, value: impl Encode) -> Gguf {
    read(copy(gguf, |_| true, |_| true).set(key, value))
}

pub(crate) fn without_tensor(gguf: &Gguf, name: &str) -> Gguf {
    read(&copy(gguf, |_| true, |t| t.name != name))
}

/// The tensor with other dimensions, and zeros for data.
pub(crate) fn with_shape(gguf: &Gguf, name: &str, dims: &[u64]) -> Gguf {
    let mut writer = copy(gguf, |_| true, |t| t.name != name);
    let n = dims.iter().product::<u64>() as usize;
    read(writer.tensor_f32(name, dims, &vec![0.0; n]))
}

/// The keys of the file's architecture.
pub(crate) fn architecture_keys(gguf: &Gguf) -> Vec<String> {
    let prefix = format!("{}.", gguf.metadata().need_str("general.architecture").unwrap());
    gguf.metadata().iter().map(|(k, _)| k.to_owned()).filter(|k| k.starts_with(&prefix)).collect()
}

/// The refusal, checked to be one sentence on one line.
#[track_caller]
pub(crate) fn refusal(gguf: &Gguf) -> String {
    let message = llamay_model::load(gguf).expect_err("a refusal").to_string();
    assert!(!message.contains('\n') && message.len() < 600, "{message}");
    message
}
