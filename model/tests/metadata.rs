//! Whatever the metadata say, there is a plan that can run or one clear sentence.

mod common;

use common::*;
use llamay_gguf::Gguf;
use llamay_model::shapes::Shape;
use llamay_model::{load, validate};
use llamay_plan::Op;
use proptest::prelude::*;

/// Keys without which no model can be read.
const REQUIRED: &[&str] = &[
    "llama.block_count",
    "llama.context_length",
    "llama.embedding_length",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.layer_norm_rms_epsilon",
    "gemma3.block_count",
    "gemma3.context_length",
    "gemma3.embedding_length",
    "gemma3.feed_forward_length",
    "gemma3.attention.head_count",
    "gemma3.attention.layer_norm_rms_epsilon",
    "gemma3.attention.sliding_window",
];

/// The vocabulary's size is that of the embedding.
fn is_read(key: &str) -> bool {
    !key.ends_with(".vocab_size")
}

fn shape(name: &str) -> Gguf {
    file(Shape::named(name).unwrap())
}

#[test]
fn a_missing_required_key_is_named() {
    for name in ["llama-gqa", "gemma3"] {
        let gguf = shape(name);
        for key in architecture_keys(&gguf).iter().filter(|k| REQUIRED.contains(&k.as_str())) {
            let message = refusal(&without_key(&gguf, key));
            assert!(message.contains(key.as_str()), "{message}");
        }
    }
    assert!(
        refusal(&without_key(&shape("llama-gqa"), "general.architecture")).contains("general.architecture")
    );
}

#[test]
fn a_missing_optional_key_leaves_a_plan_or_a_refusal() {
    for gguf in Shape::all().iter().map(file) {
        for key in architecture_keys(&gguf).iter().filter(|k| !REQUIRED.contains(&k.as_str())) {
            let gguf = without_key(&gguf, key);
            match load(&gguf) {
                Ok(loaded) => assert_eq!(validate(&loaded.plan), Ok(())),
                Err(_) => drop(refusal(&gguf)),
            }
        }
    }
}

#[test]
fn a_value_of_the_wrong_type_is_named() {
    for gguf in ["llama-linear", "mistral-window", "gemma3-deep", "gemma3"].map(shape) {
        for key in architecture_keys(&gguf).iter().filter(|k| is_read(k)) {
            for message in [
                refusal(&with_key(&gguf, key, vec!["a", "b"])),
                refusal(&with_key(&gguf, key, true)),
                refusal(&with_key(&gguf, key, "many")),
            ] {
                assert!(message.contains(key.as_str()), "{key}: {message}");
            }
        }
    }
}

#[test]
fn zero_and_negative_and_endless_values_are_named() {
    // What may be 0: no window, no scaling, an epsilon that the norm does without.
    let may_be_zero = |key: &str| {
        key.ends_with("rms_epsilon")
            || key.ends_with("scaling.factor")
            || key == "llama.attention.sliding_window"
    };
    for gguf in ["llama-linear", "mistral-window", "gemma3-deep", "gemma3"].map(shape) {
        let keys = architecture_keys(&gguf);
        for key in keys.iter().filter(|k| is_read(k) && !k.ends_with(".type")) {
            let mut messages = vec![
                refusal(&with_key(&gguf, key, -1i32)),
                refusal(&with_key(&gguf, key, f32::NAN)),
                refusal(&with_key(&gguf, key, f32::INFINITY)),
                refusal(&with_key(&gguf, key, f64::MAX)),
                refusal(&with_key(&gguf, key, u64::MAX)),
            ];
            if !may_be_zero(key) {
                messages.push(refusal(&with_key(&gguf, key, 0u32)));
            }
            for message in messages {
                assert!(message.contains(key.as_str()), "{key}: {message}");
            }
        }
    }
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

#[derive(Clone, Debug)]
enum AnyValue {
    U32(u32),
    I64(i64),
    F32(f32),
    Bool(bool),
    Str(String),
    U32s(Vec<u32>),
    F32s(Vec<f32>),
}

fn any_value() -> impl Strategy<Value = AnyValue> {
    prop_oneof![
        prop_oneof![0..70u32, any::<u32>()].prop_map(AnyValue::U32),
        any::<i64>().prop_map(AnyValue::I64),
        any::<f32>().prop_map(AnyValue::F32),
        any::<bool>().prop_map(AnyValue::Bool),
        ".{0,8}".prop_map(AnyValue::Str),
        prop::collection::vec(0..70u32, 0..8).prop_map(AnyValue::U32s),
        prop::collection::vec(any::<f32>(), 0..8).prop_map(AnyValue::F32s),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_value_of_any_key_gives_a_valid_plan_or_a_sentence(
        shape in 0..Shape::all().len(),
        key in any::<prop::sample::Index>(),
        value in any_value(),
    ) {
        const ALSO: [&str; 6] = ["attention.key_length", "attention.value_length", "rope.dimension_count",
            "attention.scale", "rope.freq_base_swa", "attention.sliding_window_pattern"];
        let gguf = file(&Shape::all()[shape]);
        let mut keys = architecture_keys(&gguf);
        keys.extend(ALSO.map(|k| format!("{}.{k}", Shape::all()[shape].architecture())));
        let key = key.get(&keys);
        let gguf = match value {
            AnyValue::U32(v) => with_key(&gguf, key, v),
            AnyValue::I64(v) => with_key(&gguf, key, v),
            AnyValue::F32(v) => with_key(&gguf, key, v),
            AnyValue::Bool(v) => with_key(&gguf, key, v),
            AnyValue::Str(v) => with_key(&gguf, key, v),
            AnyValue::U32s(v) => with_key(&gguf, key, v),
            AnyValue::F32s(v) => with_key(&gguf, key, v),
        };
        match load(&gguf) {
            Ok(loaded) => prop_assert_eq!(validate(&loaded.plan), Ok(())),
            Err(_) => drop(refusal(&gguf)),
        }
    }
}
