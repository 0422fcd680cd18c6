//! Whatever is wrong with a file, it opens and runs a token or is refused in one sentence.

// The changes that the plans' own tests make.
#[path = "../../model/tests/common/change.rs"]
mod change;
#[path = "../../model/tests/common/random_change.rs"]
mod random_change;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use change::*;
use llamay_engine::gguf::Gguf;
use llamay_engine::{Model, Options};
use llamay_formats::Format;
use llamay_model::shapes::Shape;
use proptest::prelude::*;
use proptest::sample::Index;
use random_change::*;

/// The smallest generated model of each architecture.
fn files() -> &'static [Gguf] {
    static FILES: OnceLock<Vec<Gguf>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut smallest = BTreeMap::<&str, Vec<u8>>::new();
        for shape in Shape::all() {
            let file = shape.gguf(Format::Q4_0).unwrap();
            let known = smallest.entry(shape.architecture()).or_insert_with(|| file.clone());
            if file.len() < known.len() {
                *known = file;
            }
        }
        smallest.into_values().map(|file| Gguf::from_bytes(file).unwrap()).collect()
    })
}

/// Opens the model and runs a token.
fn run(gguf: Gguf) -> Result<(), llamay_engine::Error> {
    let options = Options { threads: Some(1), ..Options::default() };
    let model = Model::from_gguf(gguf, &options, &|_, _| {})?;
    let mut session = model.session();
    session.feed(&[1])?;
    assert_eq!(session.last_logits().len(), model.n_vocab());
    Ok(())
}

/// Runs the changed file; the error is checked to be a sentence.
#[track_caller]
fn outcome(base: &Gguf, changes: &[Change]) -> Result<(), String> {
    let Some(bytes) = changed_bytes(base, changes, true) else { return Ok(()) };
    run(Gguf::from_bytes(bytes).unwrap()).map_err(|error| {
        let message = error.to_string();
        assert_is_sentence(&message);
        message
    })
}

#[test]
fn every_architecture_runs_unchanged() {
    for base in files() {
        assert_eq!(outcome(base, &[]), Ok(()));
    }
}

#[test]
fn a_tensor_of_any_format_runs_or_is_named() {
    for (i, base) in files().iter().enumerate() {
        for (j, t) in base.tensors().iter().enumerate() {
            // Another format for each tensor of each architecture.
            let format = Format::ALL[(i + j) % Format::ALL.len()];
            if let Err(message) = outcome(base, &[Change::Tensor(t.name.clone(), t.dims.clone(), format)]) {
                assert!(message.contains(&t.name), "{}, {format}: {message}", t.name);
            }
        }
    }
}

#[test]
fn sizes_of_any_kind_run_or_are_refused() {
    for base in files() {
        for key in ["context_length", "attention.sliding_window", "rope.scaling.original_context_length"] {
            for n in [0, 1, 1 << 30, u32::MAX] {
                let architecture = base.metadata().need_str("general.architecture").unwrap();
                let _ = outcome(base, &[Change::Key(format!("{architecture}.{key}"), Any::U32(n))]);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn a_few_changes_run_or_are_refused(
        base in any::<Index>(),
        changes in prop::collection::vec(any_change(), 1..4),
    ) {
        let base = base.get(files());
        let changes: Vec<Change> = changes.into_iter().map(|change| change.of(base)).collect();
        let _ = outcome(base, &changes);
    }

    #[test]
    fn any_bytes_of_the_header_run_or_are_refused(
        base in any::<Index>(),
        bytes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let base = base.get(files());
        let mut file = changed_bytes(base, &[], true).unwrap();
        let header = base.tensors().iter().map(|t| t.offset() as usize).min().unwrap();
        for (at, byte) in bytes {
            file[at.index(header)] = byte;
        }
        if let Err(error) = Gguf::from_bytes(file).map_err(Into::into).and_then(run) {
            assert_is_sentence(&error.to_string());
        }
    }
}
