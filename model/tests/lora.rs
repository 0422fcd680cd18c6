//! A plan with an adapter computes what the model with changed weights computes, and an adapter that does not fit is
//! refused in one sentence.

mod common;

use std::collections::HashMap;

use common::{copy, read, with_key, with_shape, without_key, without_tensor};
use llamay_formats::Format;
use llamay_gguf::{Gguf, TensorInfo, Writer};
use llamay_model::lora::{Adapter, Applied, Pair, apply, tensor_of};
use llamay_model::shapes::{Shape, lora_adapter};
use llamay_model::{Plan, naive};
use llamay_plan::Op;

const TOKENS: [u32; 5] = [1, 70, 7, 211, 70];

fn values(gguf: &Gguf, tensor: &TensorInfo) -> Vec<f32> {
    let mut values = vec![0.0; tensor.n_elements() as usize];
    tensor.format().unwrap().decode(&gguf.data(tensor).unwrap(), &mut values);
    values
}

/// The shape in `F32`, its elements rounded so that products with those of an adapter are exact in single precision.
fn base(shape: &Shape) -> Gguf {
    let gguf = Gguf::from_bytes(shape.gguf(Format::F32).unwrap()).unwrap();
    let mut writer = copy(&gguf, |_| true, |_| false);
    for tensor in gguf.tensors() {
        let rounded: Vec<f32> = match tensor.dims.len() {
            1 => values(&gguf, tensor),
            _ => values(&gguf, tensor).iter().map(|v| (v * 4096.0).round() / 4096.0).collect(),
        };
        writer.tensor_f32(&tensor.name, &tensor.dims, &rounded);
    }
    read(&writer)
}

/// An adapter for the plan, with a power of two for its factor.
fn adapter(plan: &Plan, rank: usize, seed: u32) -> Gguf {
    Gguf::from_bytes(lora_adapter(plan, rank, 2.0 * rank as f32, seed).unwrap()).unwrap()
}

/// A file with the model's tensors and those of the adapters, by the names that a plan has for them.
fn beside(model: &Gguf, adapters: &[&Gguf]) -> Gguf {
    let mut writer = copy(model, |_| true, |_| true);
    for (i, gguf) in adapters.iter().enumerate() {
        for t in gguf.tensors() {
            writer.tensor_f32(&format!("lora.{i}/{}", t.name), &t.dims, &values(gguf, t));
        }
    }
    read(&writer)
}

/// The model with `factor B A` added to its weights.
fn merged(model: &Gguf, adapter: &Gguf, factor: f32) -> Gguf {
    let pairs = Adapter::read(adapter).unwrap();
    let mut writer = copy(model, |_| true, |_| false);
    for tensor in model.tensors() {
        let mut w = values(model, tensor);
        if let Some(pair) = pairs.pair(&tensor.name) {
            let half = |name: &str| values(adapter, adapter.tensor(name).unwrap());
            add_product(&mut w, pair, &half(&pair.a.name), &half(&pair.b.name), factor);
        }
        writer.tensor_f32(&tensor.name, &tensor.dims, &w);
    }
    read(&writer)
}

fn add_product(w: &mut [f32], pair: &Pair, a: &[f32], b: &[f32], factor: f32) {
    let cols = if pair.is_lookup() { pair.b.rows } else { pair.a.cols };
    for (row, w) in w.chunks_mut(cols).enumerate() {
        for (col, w) in w.iter_mut().enumerate() {
            let term = |k: usize| match pair.is_lookup() {
                true => a[row * pair.rank + k] * b[col * pair.rank + k],
                false => b[row * pair.rank + k] * a[k * cols + col],
            };
            *w += factor * (0..pair.rank).map(term).sum::<f32>();
        }
    }
}

fn applied(plan: &Plan, adapters: &[(&Gguf, f32)]) -> (Plan, Vec<Applied>) {
    let mut plan = plan.clone();
    let read: Vec<(Adapter, f32)> =
        adapters.iter().map(|(gguf, scale)| (Adapter::read(gguf).unwrap(), *scale)).collect();
    let read: Vec<(&Adapter, f32)> = read.iter().map(|(adapter, scale)| (adapter, *scale)).collect();
    let applied = apply(&mut plan, &read).unwrap();
    (plan, applied)
}

/// The greatest difference as a share of the greatest logit.
fn apart(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let (a, b) = (a.concat(), b.concat());
    let most = b.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    a.iter().zip(&b).map(|(a, b)| (a - b).abs() / most).fold(0.0, f64::max)
}

#[test]
fn a_plan_with_an_adapter_is_the_plan_of_the_merged_weights() {
    for (i, shape) in Shape::all().iter().enumerate() {
        let model = base(shape);
        let plan = llamay_model::plan(&model).unwrap();
        let lora = adapter(&plan, [1, 3, 4, 8][i % 4], 1);
        let scale = [1.0, 0.5][i % 2];
        let (with, _) = applied(&plan, &[(&lora, scale)]);
        let got = naive::logits(&beside(&model, &[&lora]), &with, &TOKENS).unwrap();
        let wanted = naive::logits(&merged(&model, &lora, 2.0 * scale), &plan, &TOKENS).unwrap();
        assert!(apart(&got, &wanted) < 1e-12, "{}: {}", shape.name(), apart(&got, &wanted));
        let without = naive::logits(&model, &plan, &TOKENS).unwrap();
        assert!(apart(&got, &without) > 1e-2, "{}: the adapter changes little", shape.name());
    }
}

/// Files of `tools/reference/adapters.py`: a model, its adapter, and logits.
const REFERENCES: [(&str, &[u8], &[u8]); 3] = [
    ("llama-mha", include_bytes!("lora/llama-mha.gguf"), include_bytes!("lora/llama-mha.bin")),
    ("phi3", include_bytes!("lora/phi3.gguf"), include_bytes!("lora/phi3.bin")),
    ("gpt2", include_bytes!("lora/gpt2.gguf"), include_bytes!("lora/gpt2.bin")),
];

#[test]
fn converted_adapters_reproduce_the_logits_of_transformers() {
    for (name, lora, reference) in REFERENCES {
        let words: Vec<[u8; 4]> = reference.chunks_exact(4).map(|w| w.try_into().unwrap()).collect();
        let [n_tokens, n_vocab] = [0, 1].map(|i| u32::from_le_bytes(words[i]) as usize);
        let (tokens, logits) = words[2..].split_at(n_tokens);
        let tokens: Vec<u32> = tokens.iter().map(|w| u32::from_le_bytes(*w)).collect();
        let logits: Vec<f64> = logits.iter().map(|w| f64::from(f32::from_le_bytes(*w))).collect();
        let wanted: Vec<Vec<f64>> = logits.chunks(n_vocab).map(<[f64]>::to_vec).collect();

        let shape = Shape::named(name).unwrap();
        let model = Gguf::from_bytes(shape.gguf(Format::F32).unwrap()).unwrap();
        let lora = Gguf::from_bytes(lora.to_vec()).unwrap();
        let plan = llamay_model::plan(&model).unwrap();
        let error = |scale: f32| {
            let (with, _) = applied(&plan, &[(&lora, scale)]);
            apart(&naive::logits(&beside(&model, &[&lora]), &with, &tokens).unwrap(), &wanted)
        };
        println!("{name}: {:.1e}", error(0.75));
        assert!(error(0.75) < 1e-4, "{name}: {}", error(0.75));
        assert!(error(0.7) > 1e-3, "{name}: the reference hardly tells scales apart");
    }
}

#[test]
fn adapters_add_up() {
    let model = base(Shape::named("llama-gqa").unwrap());
    let plan = llamay_model::plan(&model).unwrap();
    let (one, two) = (adapter(&plan, 4, 1), adapter(&plan, 2, 2));
    let (with, changes) = applied(&plan, &[(&one, 0.5), (&two, -1.0)]);
    let got = naive::logits(&beside(&model, &[&one, &two]), &with, &TOKENS).unwrap();
    let wanted = merged(&merged(&model, &one, 1.0), &two, -2.0);
    let wanted = naive::logits(&wanted, &plan, &TOKENS).unwrap();
    assert!(apart(&got, &wanted) < 1e-12, "{}", apart(&got, &wanted));
    // The first adapter's sum stands before the second's.
    assert!(changes[0].sums.iter().zip(&changes[1].sums).all(|(a, b)| a.step < b.step));
}

#[test]
fn without_its_steps_the_plan_is_the_models() {
    for shape in Shape::all() {
        let model = common::file(shape);
        let plan = llamay_model::plan(&model).unwrap();
        let lora = adapter(&plan, 4, 1);
        let (mut with, changes) = applied(&plan, &[(&lora, 1.0)]);
        for sum in &changes[0].sums {
            assert!(changes[0].steps.contains(&sum.step));
            assert!(matches!(with.steps[sum.step].op, Op::Add { scale: 2.0, x, out, .. } if x == out));
        }
        let added: HashMap<usize, ()> = changes[0].steps.iter().map(|s| (*s, ())).collect();
        let mut at = 0..;
        with.steps.retain(|_| !added.contains_key(&at.next().unwrap()));
        assert_eq!(with.steps, plan.steps, "{}", shape.name());
        assert_eq!(with.slots[..plan.slots.len()], plan.slots);
        assert_eq!(with.weights[..plan.weights.len()], plan.weights);
        for weight in &with.weights[plan.weights.len()..] {
            let (index, name) = tensor_of(&weight.name).unwrap();
            assert!(index == 0 && lora.tensor(name).is_some(), "{}", weight.name);
        }
    }
}

#[test]
fn slots_are_shared_by_all_layers() {
    let slots = |name: &str| {
        let plan = llamay_model::plan(&common::file(Shape::named(name).unwrap())).unwrap();
        let lora = adapter(&plan, 4, 1);
        applied(&plan, &[(&lora, 1.0), (&lora, 1.0)]).0.slots.len() - plan.slots.len()
    };
    assert!(slots("llama-gqa") < 10, "{}", slots("llama-gqa"));
}

/// The model of most of the following tests, its plan and an adapter.
fn example() -> (Plan, Gguf) {
    let plan = llamay_model::plan(&common::file(Shape::named("llama-gqa").unwrap())).unwrap();
    let lora = adapter(&plan, 4, 1);
    (plan, lora)
}

/// The refusal, checked to be one sentence.
#[track_caller]
fn refusal(plan: &Plan, lora: &Gguf, scale: f32) -> String {
    let applied = Adapter::read(lora)
        .and_then(|adapter| apply(&mut plan.clone(), &[(&adapter, scale)]).map_err(|(_, error)| error));
    let message = applied.expect_err("a refusal").to_string();
    assert!(!message.contains('\n') && message.len() < 400, "{message}");
    message
}

#[track_caller]
fn assert_says(message: &str, words: &[&str]) {
    assert!(words.iter().all(|w| message.contains(w)), "{message}");
}

#[test]
fn the_kind_of_file_is_checked() {
    let (plan, lora) = example();
    let refused = |gguf: &Gguf, words: &[&str]| assert_says(&refusal(&plan, gguf, 1.0), words);
    refused(&without_key(&lora, "general.type"), &["no adapter", "general.type", "missing"]);
    refused(&with_key(&lora, "general.type", "model"), &["no adapter", "\"model\""]);
    refused(&without_key(&lora, "adapter.type"), &["adapter.type"]);
    refused(&with_key(&lora, "adapter.type", "ia3"), &["ia3", "lora"]);
    refused(&with_key(&lora, "adapter.alora.invocation_tokens", vec![1u32, 2]), &["activated"]);
    refused(&without_key(&lora, "general.architecture"), &["general.architecture"]);
    refused(&with_key(&lora, "general.architecture", "gemma3"), &["gemma3", "llama"]);
    refused(&with_key(&lora, "adapter.lora.alpha", f32::NAN), &["adapter.lora.alpha", "NaN"]);
    refused(&with_key(&lora, "adapter.lora.alpha", "16"), &["adapter.lora.alpha"]);
    refused(&read(&copy(&lora, |_| true, |_| false)), &["no tensors"]);
    for scale in [f32::NAN, f32::INFINITY, f32::MAX] {
        assert_says(&refusal(&plan, &lora, scale), &["scale", "finite"]);
    }
}

#[test]
fn without_alpha_the_product_counts_as_it_is() {
    let (_, lora) = example();
    for gguf in [without_key(&lora, "adapter.lora.alpha"), with_key(&lora, "adapter.lora.alpha", 0.0f32)] {
        let adapter = Adapter::read(&gguf).unwrap();
        assert_eq!(adapter.factor(&adapter.pairs()[0]), 1.0);
    }
    let adapter = Adapter::read(&lora).unwrap();
    assert_eq!((adapter.factor(&adapter.pairs()[0]), adapter.ranks()), (2.0, (4, 4)));
}

#[test]
fn norms_beside_the_pairs_are_told_and_other_tensors_are_refused() {
    let (plan, lora) = example();
    let with = |name: &str| read(copy(&lora, |_| true, |_| true).tensor_f32(name, &[4], &[1.0; 4]));
    let adapter = Adapter::read(&with("blk.0.attn_norm.weight")).unwrap();
    assert_eq!(adapter.unused(), ["blk.0.attn_norm.weight"]);
    for name in ["blk.0.attn_q.weight", "blk.0.attn_q.bias", "blk.0.attn_q.weight.lora_magnitude"] {
        assert_says(&refusal(&plan, &with(name), 1.0), &[name]);
    }
}

/// An adapter with one pair, of zeros.
fn one_pair(plan: &Plan, tensor: &str, a: &[u64], b: &[u64]) -> Gguf {
    let mut writer = Writer::default();
    writer
        .set("general.type", "adapter")
        .set("general.architecture", plan.architecture.as_str())
        .set("adapter.type", "lora")
        .set("adapter.lora.alpha", 8.0f32);
    for (half, dims) in [("lora_a", a), ("lora_b", b)] {
        let n = dims.iter().product::<u64>() as usize;
        writer.tensor_f32(&format!("{tensor}.{half}"), dims, &vec![0.0; n]);
    }
    read(&writer)
}

#[test]
fn tensors_that_cannot_have_an_adapter_are_refused_by_name() {
    let (plan, _) = example();
    for (tensor, words) in [
        ("blk.9.attn_q.weight", "does not have"),
        ("output.weight", "does not have"),
        ("token_embd.weight", "output matrix too"),
        ("blk.0.attn_norm.weight", "not a matrix"),
    ] {
        assert_says(&refusal(&plan, &one_pair(&plan, tensor, &[4, 4], &[4, 4]), 1.0), &[tensor, words]);
    }
    // Stacked experts show by their third dimension, before there is a model to look at.
    let stacked = one_pair(&plan, "blk.0.ffn_up_exps.weight", &[4, 2, 8], &[2, 4, 8]);
    assert_says(&refusal(&plan, &stacked, 1.0), &["blk.0.ffn_up_exps.weight", "experts"]);
}

#[test]
fn experts_are_refused_by_name() {
    for shape in Shape::all() {
        let plan = llamay_model::plan(&common::file(shape)).unwrap();
        let experts = plan.steps.iter().filter(|s| matches!(s.op, Op::ExpertLinear { .. }));
        for weight in experts.flat_map(|s| s.op.weights()).map(|w| plan.weight_of(w)) {
            let (cols, rows) = (weight.cols as u64, weight.rows as u64);
            let lora = one_pair(&plan, &weight.name, &[cols, 2], &[2, rows]);
            assert_says(&refusal(&plan, &lora, 1.0), &[&weight.name, "experts"]);
        }
    }
}

#[test]
fn a_missing_half_is_named() {
    for shape in Shape::all() {
        let plan = llamay_model::plan(&common::file(shape)).unwrap();
        let lora = adapter(&plan, 2, 1);
        for tensor in first_of_each_kind(&lora) {
            let message = refusal(&plan, &without_tensor(&lora, &tensor.name), 1.0);
            assert_says(&message, &[&format!("no {:?}", tensor.name)]);
        }
    }
}

#[test]
fn halves_of_other_shapes_are_named() {
    for shape in Shape::all() {
        let plan = llamay_model::plan(&common::file(shape)).unwrap();
        let lora = adapter(&plan, 2, 1);
        for tensor in first_of_each_kind(&lora) {
            let [width, height] = tensor.dims[..] else { panic!("{:?}", tensor.dims) };
            for dims in [[height, width], [width + 32, height], [width, height + 1], [width, 1], [0, height]]
            {
                if dims != [width, height] {
                    let message = refusal(&plan, &with_shape(&lora, &tensor.name, &dims), 1.0);
                    assert_says(&message, &[&format!("{:?}", tensor.name), &format!("{dims:?}")]);
                }
            }
            let deep = with_shape(&lora, &tensor.name, &[width, height, 2]);
            assert_says(&refusal(&plan, &deep, 1.0), &["experts"]);
        }
    }
}

#[test]
fn an_adapter_of_another_shape_of_model_is_refused() {
    for (a, b) in [("llama-gqa", "llama-mha"), ("llama-mha", "llama-linear"), ("gemma3", "gemma3-deep")] {
        let plan = |name| llamay_model::plan(&common::file(Shape::named(name).unwrap())).unwrap();
        let message = refusal(&plan(a), &adapter(&plan(b), 2, 1), 1.0);
        assert_says(&message, &["adapter", "model"]);
    }
}

/// The tensors that do not belong to a layer, and those of the first one: the others are alike.
fn first_of_each_kind(lora: &Gguf) -> impl Iterator<Item = &TensorInfo> {
    lora.tensors().iter().filter(|t| !t.name.starts_with("blk.") || t.name.starts_with("blk.0."))
}
