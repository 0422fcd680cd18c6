//! Whatever the metadata say, there is a plan that can run or one clear sentence.

mod common;

use common::change::*;
use common::*;
use llamay_gguf::Gguf;
use llamay_model::load;
use llamay_model::shapes::Shape;
use llamay_plan::Op;

/// Keys without which no model can be read; of the epsilons, that of the architecture's norm.
const REQUIRED: &[&str] = &[
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
];

fn shape(name: &str) -> Gguf {
    file(Shape::named(name).unwrap())
}

/// The keys of every generated model, and those that other architectures read, with the model's name and file.
fn for_each_key(check: impl Fn(&str, &Gguf, &str)) {
    for (shape, gguf) in all_files() {
        let mut keys = architecture_keys(gguf);
        let others = KEYS.iter().map(|key| format!("{}.{key}", shape.architecture()));
        keys.extend(others.filter(|key| !gguf.metadata().contains(key)));
        keys.iter().for_each(|key| check(shape.name(), gguf, key));
    }
}

fn with(gguf: &Gguf, key: &str, value: Any) -> Gguf {
    changed(gguf, &[Change::Key(key.to_owned(), value)]).unwrap()
}

fn without(gguf: &Gguf, key: &str) -> Gguf {
    changed(gguf, &[Change::NoKey(key.to_owned())]).unwrap()
}

#[test]
fn every_key_that_is_read_is_among_those_that_are_tried() {
    for (shape, gguf) in all_files() {
        for key in architecture_keys(gguf) {
            let key = key.strip_prefix(shape.architecture()).unwrap().trim_start_matches('.');
            assert!(KEYS.contains(&key) || key == "tensor_data_layout", "{key}");
        }
    }
}

#[test]
fn a_missing_key_is_named_if_it_is_needed() {
    for_each_key(|name, gguf, key| {
        if !gguf.metadata().contains(key) {
            return;
        }
        let required = REQUIRED.iter().any(|r| key.split_once('.').is_some_and(|(_, key)| key == *r));
        match outcome(&without(gguf, key)) {
            Ok(_) => assert!(!required, "{name}: {key} is not needed"),
            Err(message) => assert!(!required || message.contains(key), "{name}, {key}: {message}"),
        }
    });
    assert!(refusal(&without(&shape("llama-gqa"), "general.architecture")).contains("general.architecture"));
}

/// Fails unless the value is refused by its key, or the key is one that the architecture never reads.
fn assert_refused_if_read(name: &str, gguf: &Gguf, key: &str, value: Any) {
    match outcome(&with(gguf, key, value.clone())) {
        Ok(loaded) => {
            let plan = load(&without(gguf, key)).map(|loaded| loaded.plan).ok();
            assert!(plan == Some(loaded.plan), "{name}: {key} may be {value:?}");
        }
        Err(message) => {
            assert!(message.contains(&format!("\"{key}\"")), "{name}, {key}, {value:?}: {message}")
        }
    }
}

#[test]
fn a_value_of_the_wrong_type_is_named() {
    for_each_key(|name, gguf, key| {
        let mut values = vec![Any::Strs(vec!["a".into(), "b".into()]), Any::Str("many".into())];
        let truth =
            ["causal", "sliding_window_pattern", "expert_weights_norm", "finetuned", "use_parallel_residual"];
        if !truth.iter().any(|end| key.ends_with(end)) {
            values.push(Any::Bool(true));
        }
        for value in values {
            assert_refused_if_read(name, gguf, key, value);
        }
    });
}

#[test]
fn negative_and_endless_values_are_named() {
    for_each_key(|name, gguf, key| {
        for value in [
            Any::I32(-1),
            Any::F32(f32::NAN),
            Any::F32(f32::INFINITY),
            Any::F64(f64::MAX),
            Any::U64(1 << 63),
            Any::U64(u64::MAX),
        ] {
            assert_refused_if_read(name, gguf, key, value);
        }
    });
}

#[test]
fn any_number_and_any_array_gives_a_plan_or_a_sentence() {
    for_each_key(|_, gguf, key| {
        for value in [
            Any::U32(0),
            Any::U32(1),
            Any::U32(3),
            Any::U32(1 << 31),
            Any::I64(i64::MIN),
            Any::F32(3.5),
            Any::F32(1e-30),
            Any::Str("".into()),
            Any::Bool(false),
            Any::U32s(vec![]),
            Any::U32s(vec![1; 5]),
            Any::F32s(vec![0.5; 2]),
            Any::Bools(vec![true; 2]),
        ] {
            let _ = outcome(&with(gguf, key, value));
        }
    });
}

#[test]
fn heads_that_do_not_divide_are_refused() {
    let gguf = shape("llama-gqa");
    let message = refusal(&with_key(&gguf, "llama.attention.head_count_kv", 3u32));
    assert_eq!(
        message,
        "the metadata key \"llama.attention.head_count_kv\" is 3, but it has to divide the number of query heads, 4"
    );
    let gguf = with_key(&gguf, "llama.attention.head_count_kv", 1u32);
    let gguf = without_key(&without_key(&gguf, "llama.attention.key_length"), "llama.attention.value_length");
    let message = refusal(&with_key(&gguf, "llama.attention.head_count", 3u32));
    assert!(message.contains("has to divide the embedding length, 256"), "{message}");
}

#[test]
fn odd_or_excessive_rotary_dimensions_are_refused() {
    let gguf = shape("llama-gqa");
    for (n_rot, words) in [(3u32, "has to be even"), (66, "has to be from 2 to 64"), (0, "from 2 to 64")] {
        let message = refusal(&with_key(&gguf, "llama.rope.dimension_count", n_rot));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let llama = shape("llama-gqa");
    let (gemma, yarn) = (shape("gemma3"), shape("llama-yarn"));
    for (message, words) in [
        (refusal(&with_key(&gemma, "gemma3.expert_count", 8u32)), "a mixture of experts"),
        (refusal(&with_key(&gemma, "gemma3.rope.scaling.type", "longrope")), "LongRoPE"),
        (refusal(&with_key(&llama, "llama.rope.scaling.type", "mystery\n")), "mystery"),
        (refusal(&with_key(&yarn, "llama.rope.scaling.yarn_ext_factor", 0.5f32)), "a variant of YaRN"),
        (refusal(&with_key(&yarn, "llama.rope.scaling.factor", 0.0f32)), "llama.rope.scaling.factor"),
        (refusal(&with_key(&llama, "llama.attention.causal", false)), "not causal"),
        (refusal(&with_key(&llama, "llama.attention.value_length", 32u32)), "value length"),
        (
            refusal(&with_key(&llama, "llama.attention.head_count_kv", vec![2u32, 1])),
            "differs between layers",
        ),
        (refusal(&with_key(&llama, "llama.feed_forward_length", vec![512u32])), "one a layer"),
        (refusal(&with_key(&gemma, "gemma3.attn_logit_softcapping", 50.0f32)), "soft cap"),
        (refusal(&with_key(&gemma, "gemma3.final_logit_softcapping", 30.0f32)), "soft cap"),
        (refusal(&with_key(&gemma, "gemma3.attention.sliding_window_pattern", vec![true])), "an array of 3"),
    ] {
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn neutral_values_of_unsupported_keys_change_nothing() {
    let gguf = shape("gemma3");
    let plan = load(&gguf).unwrap();
    for gguf in [
        with_key(&gguf, "gemma3.expert_count", 0u32),
        with_key(&gguf, "gemma3.final_logit_softcapping", 0.0f32),
        with_key(&gguf, "gemma3.attention.causal", true),
        with_key(&gguf, "gemma3.rope.scaling.type", "none"),
        with_key(&gguf, "gemma3.attention.head_count_kv", vec![2u32, 2, 2]),
        with_key(&gguf, "gemma3.attention.sliding_window_pattern", vec![true, false, true]),
    ] {
        assert_eq!(load(&gguf).unwrap(), plan);
    }
}

#[test]
fn other_families_are_refused_with_their_reason() {
    let gguf = shape("llama-gqa");
    for (architecture, words) in [
        ("mamba2", "state-space"),
        ("rwkv7", "state-space"),
        ("clip", "image or audio"),
        ("deepseek2", "latent attention"),
        ("t5", "encoder-decoder"),
        ("nomic-bert", "embedding encoders"),
        ("llama4", "mixture of experts"),
    ] {
        let message = refusal(&with_key(&gguf, "general.architecture", architecture));
        assert!(message.contains(architecture) && message.contains(words), "{message}");
    }
    let supported = llamay_model::architectures().collect::<Vec<_>>().join(", ");
    let message = llamay_model::load(&with_key(&gguf, "general.architecture", "hal\n9000")).unwrap_err();
    assert_eq!(
        message.to_string(),
        format!("the architecture \"hal\\n9000\" is not supported; supported are {supported}")
    );
    refusal(&with_key(&gguf, "general.architecture", "x".repeat(100_000)));
}

#[test]
fn a_vocabulary_larger_than_the_embedding_is_refused() {
    let tokens: Vec<String> = (0..321).map(|i| format!("t{i}")).collect();
    let message = refusal(&with_key(&shape("llama-gqa"), "tokenizer.ggml.tokens", tokens));
    assert!(message.contains("token_embd.weight") && message.contains("[256, 321]"), "{message}");
}

#[test]
fn windows_fall_on_the_layers_that_the_pattern_names() {
    let windows = |gguf: &Gguf| -> Vec<Option<u32>> {
        let steps = load(gguf).unwrap().plan.steps;
        steps
            .iter()
            .filter_map(|s| if let Op::Attend { window, .. } = s.op { Some(window) } else { None })
            .collect()
    };
    let w = Some(8);
    assert_eq!(windows(&shape("gemma3-deep")), [w, w, w, w, w, None, w]);
    assert_eq!(windows(&shape("gemma3")), [w, None, w]);
    assert_eq!(windows(&shape("mistral-window")), [Some(12); 3]);
    assert_eq!(
        windows(&with_key(&shape("mistral-window"), "llama.attention.sliding_window", 0u32)),
        [None; 3]
    );
}

#[test]
fn the_older_key_of_linear_scaling_means_the_same() {
    let gguf = shape("llama-linear");
    let older = with_key(&without_key(&gguf, "llama.rope.scaling.factor"), "llama.rope.scale_linear", 4.0f32);
    assert_eq!(load(&older).unwrap(), load(&gguf).unwrap());
}
