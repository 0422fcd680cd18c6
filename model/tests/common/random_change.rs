//! Random changes of any file.
#![allow(dead_code)] // Not every test file uses it.

use llamay_formats::Format;
use llamay_gguf::Gguf;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;

use super::change::{Any, Change, KEYS};

pub(crate) fn any_value() -> impl Strategy<Value = Any> {
    let small = || 0..70u32;
    let power = (0..64u32).prop_map(|n| 1u64 << n);
    prop_oneof![
        small().prop_map(Any::U32),
        any::<u32>().prop_map(Any::U32),
        any::<i32>().prop_map(Any::I32),
        power.prop_map(Any::U64),
        any::<i64>().prop_map(Any::I64),
        any::<f32>().prop_map(Any::F32),
        (-2.0..2.0f32).prop_map(Any::F32),
        any::<f64>().prop_map(Any::F64),
        any::<bool>().prop_map(Any::Bool),
        ".{0,8}".prop_map(Any::Str),
        prop::sample::select(vec!["none", "linear", "yarn", "longrope", "llama"])
            .prop_map(|s| Any::Str(s.into())),
        prop::collection::vec(small(), 0..8).prop_map(Any::U32s),
        prop::collection::vec(any::<f32>(), 0..8).prop_map(Any::F32s),
        prop::collection::vec(any::<bool>(), 0..8).prop_map(Any::Bools),
        prop::collection::vec(".{0,8}", 0..8).prop_map(Any::Strs),
    ]
}

/// A change before it is known of which file.
#[derive(Clone, Debug)]
pub(crate) enum AnyChange {
    Key(Index, Any),
    NoKey(Index),
    Dims(Index, Vec<u64>),
    Format(Index, Index),
    Scale(Index, Index, i64),
    NoTensor(Index),
}

pub(crate) fn any_change() -> impl Strategy<Value = AnyChange> {
    let index = any::<Index>;
    prop_oneof![
        6 => (index(), any_value()).prop_map(|(key, value)| AnyChange::Key(key, value)),
        2 => index().prop_map(AnyChange::NoKey),
        1 => (index(), prop::collection::vec(0..600u64, 0..5)).prop_map(|(t, dims)| AnyChange::Dims(t, dims)),
        2 => (index(), index()).prop_map(|(t, format)| AnyChange::Format(t, format)),
        2 => (index(), index(), -2..3i64).prop_map(|(t, dim, by)| AnyChange::Scale(t, dim, by)),
        2 => index().prop_map(AnyChange::NoTensor),
    ]
}

impl AnyChange {
    /// The change of this file.
    pub(crate) fn of(self, gguf: &Gguf) -> Change {
        let present: Vec<&str> = gguf.metadata().iter().map(|(key, _)| key).collect();
        let key = |index: Index| {
            let architecture = gguf.metadata().need_str("general.architecture").unwrap();
            let more = KEYS.iter().map(|key| format!("{architecture}.{key}"));
            let keys: Vec<String> = present.iter().map(|key| key.to_string()).chain(more).collect();
            index.get(&keys).clone()
        };
        let tensor = |index: Index| index.get(gguf.tensors());
        match self {
            AnyChange::Key(index, value) => Change::Key(key(index), value),
            AnyChange::NoKey(index) => Change::NoKey(index.get(&present).to_string()),
            AnyChange::Dims(index, dims) => Change::Tensor(tensor(index).name.clone(), dims, Format::F32),
            AnyChange::Format(index, format) => {
                let t = tensor(index);
                Change::Tensor(t.name.clone(), t.dims.clone(), *format.get(Format::ALL))
            }
            AnyChange::Scale(index, dim, by) => {
                let t = tensor(index);
                let mut dims = t.dims.clone();
                let i = dim.index(dims.len());
                dims[i] = if by < 0 { dims[i] >> -by } else { dims[i] << by };
                Change::Tensor(t.name.clone(), dims, Format::F32)
            }
            AnyChange::NoTensor(index) => Change::NoTensor(tensor(index).name.clone()),
        }
    }
}

/// So many cases, the same ones in each run. `LLAMAY_CASES` asks for so many times as many, new ones, for a soak.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let soak = std::env::var("LLAMAY_CASES").ok().and_then(|times| times.parse::<u32>().ok());
    ProptestConfig {
        cases: cases * soak.unwrap_or(1),
        rng_seed: if soak.is_some() { RngSeed::Random } else { RngSeed::Fixed(0) },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
