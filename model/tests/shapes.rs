//! Every generated model, in every format that fits it, has a plan that can run.

mod common;

use common::file;
use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::shapes::{N_VOCAB, Shape, ShapeError};
use llamay_model::{Plan, architectures, load, validate};
use llamay_plan::{Op, RopePairs, SlotId, Step};

fn plan(name: &str) -> Plan {
    load(&file(Shape::named(name).unwrap())).unwrap().plan
}

/// The shape in this format has a plan that reads every tensor, but for the rotary constants, which become part of it.
fn assert_valid(shape: &Shape, format: Format) {
    let gguf = Gguf::from_bytes(shape.gguf(format).unwrap()).unwrap();
    let loaded = load(&gguf).unwrap_or_else(|e| panic!("{} {format}: {e}", shape.name()));
    assert_eq!(validate(&loaded.plan), Ok(()), "{} {format}", shape.name());
    assert_eq!(loaded.unused, [""; 0], "{} {format}", shape.name());
    let tensors = gguf.tensors().iter().filter(|t| !t.name.starts_with("rope_f"));
    let bytes: u64 = tensors.map(|t| t.n_bytes().unwrap()).sum();
    assert_eq!(loaded.plan.weight_bytes() as u64, bytes, "{} {format}", shape.name());
}

#[test]
fn every_format_has_a_valid_plan() {
    for name in ["llama-gqa", "llama-mha", "gpt-oss"] {
        let shape = Shape::named(name).unwrap();
        shape.formats().for_each(|format| assert_valid(shape, format));
    }
}

#[test]
fn every_shape_has_a_valid_plan() {
    for shape in Shape::all() {
        let formats = [Format::F32, Format::Q4_0, Format::Q8_0, Format::Q4_K];
        for format in formats.into_iter().filter(|f| shape.formats().any(|g| g == *f)) {
            assert_valid(shape, format);
        }
    }
}

#[test]
fn every_architecture_has_a_shape_with_a_reference() {
    for architecture in architectures() {
        let known = |s: &&Shape| s.architecture() == architecture && s.reference().is_some();
        assert!(Shape::all().iter().any(|s| known(&s)), "{architecture}");
    }
}

#[test]
fn weights_of_every_format_are_finite_and_lively() {
    let shape = Shape::named("llama3-rope").unwrap();
    for format in shape.formats() {
        let gguf = Gguf::from_bytes(shape.gguf(format).unwrap()).unwrap();
        for tensor in gguf.tensors() {
            let mut values = vec![0.0; tensor.n_elements() as usize];
            tensor.format().unwrap().decode(&gguf.data(tensor).unwrap(), &mut values);
            let rms = (values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32).sqrt();
            assert!((0.02..10.0).contains(&rms), "{format} {}: {rms}", tensor.name);
        }
    }
}

#[test]
fn a_shape_is_the_same_file_every_time() {
    let shape = Shape::named("gemma3-deep").unwrap();
    assert_eq!(shape.gguf(Format::Q4_0).unwrap(), shape.gguf(Format::Q4_0).unwrap());
}

#[test]
fn formats_that_do_not_fit_are_refused() {
    let shape = Shape::named("llama-mha").unwrap();
    assert!(shape.formats().any(|f| f == Format::IQ4_NL));
    assert!(matches!(shape.gguf(Format::Q4_K), Err(ShapeError::Width { cols: 160, .. })));
}

#[test]
fn formats_can_be_mixed() {
    let shape = Shape::named("gemma3").unwrap();
    let choose = |name: &str| if name.ends_with("ffn_down.weight") { Format::Q6_K } else { Format::Q4_K };
    let plan = llamay_model::plan(&Gguf::from_bytes(shape.gguf_with(choose).unwrap()).unwrap()).unwrap();
    let format = |name: &str| plan.weights.iter().find(|w| w.name == name).unwrap().format;
    assert_eq!(format("blk.1.ffn_down.weight"), Format::Q6_K);
    assert_eq!(format("blk.1.ffn_up.weight"), Format::Q4_K);
    assert_eq!(format("blk.1.ffn_norm.weight"), Format::F32);
}

#[test]
fn matrices_that_share_their_input_are_one_step() {
    let dense =
        |s: &&Shape| ["llama", "gemma3"].contains(&s.architecture()) && !s.name().starts_with("mixtral");
    for shape in Shape::all().iter().filter(dense) {
        let plan = plan(shape.name());
        let outputs = |layer| -> Vec<usize> {
            let steps = plan.steps.iter().filter(|s| s.layer == layer);
            steps.filter(|s| matches!(s.op, Op::Linear { .. })).map(|s| s.op.outputs().len()).collect()
        };
        assert_eq!(outputs(Some(0)), [3, 1, 2, 1], "{}", shape.name());
        assert_eq!(outputs(None), [1]);
    }
}

#[test]
fn slots_do_not_grow_with_layers() {
    assert_eq!(plan("gemma3").slots.len(), plan("gemma3-deep").slots.len());
    assert_eq!(plan("gemma3").slots.len(), 13);
}

#[test]
fn a_tied_head_reads_the_embedding() {
    for shape in Shape::all() {
        let plan = plan(shape.name());
        let linear = |s: &&Step| matches!(s.op, Op::Linear { .. });
        let head = plan.steps.iter().rev().find(linear).unwrap().op.weights()[0];
        let embedding = plan.steps[0].op.weights()[0];
        let tied = !plan.weights.iter().any(|w| w.name == "output.weight");
        assert_eq!(head == embedding, tied, "{}", shape.name());
        assert_eq!((plan.weight_of(head).rows, plan.n_vocab), (N_VOCAB, N_VOCAB));
    }
}

#[test]
fn rows_are_selected_as_soon_as_no_step_needs_the_others() {
    for shape in Shape::all() {
        let plan = plan(shape.name());
        let is_select = |s: &Step| matches!(s.op, Op::Select { .. });
        let select = plan.steps.iter().position(is_select).expect("every plan selects");
        assert!(matches!(plan.steps[select - 1].op, Op::Attend { .. }), "{}", shape.name());
        assert!(!plan.steps[select..].iter().any(|s| matches!(s.op, Op::Attend { .. })), "{}", shape.name());
    }
}

#[test]
fn rotary_tables_follow_the_metadata() {
    let partial = plan("llama-partial-rope");
    assert_eq!(partial.ropes[0].frequencies.len(), 8);
    assert_eq!(partial.ropes[0].pairs, RopePairs::Interleaved);
    let (plain, linear) = (plan("llama-gqa"), plan("llama-linear"));
    assert_eq!(plain.ropes[0].frequencies[..2], [1.0, 0.749_894_2]);
    for (a, b) in plain.ropes[0].frequencies.iter().zip(&linear.ropes[0].frequencies) {
        assert_eq!(*a / 4.0, *b);
    }
    let gemma = plan("gemma3-deep");
    assert_eq!(
        gemma.ropes.iter().map(|r| (r.pairs, r.frequencies[0])).collect::<Vec<_>>(),
        [(RopePairs::Halves, 0.125), (RopePairs::Halves, 1.0)]
    );
}

/// The plan of a shape with one thing broken.
#[track_caller]
fn broken(name: &str, words: &str, damage: impl FnOnce(&mut Plan)) {
    let mut plan = plan(name);
    damage(&mut plan);
    let fault = validate(&plan).unwrap_err().to_string();
    assert!(fault.contains(words), "{fault}");
}

#[test]
fn the_validator_sees_what_is_broken() {
    broken("gemma3", "Unwritten", |p| drop(p.steps.remove(1)));
    broken("gemma3", "hold All rows", |p| p.steps.retain(|s| !matches!(s.op, Op::Select { .. })));
    broken("gemma3", "Selected are needed", |p| {
        let slot = p.slots.iter().position(|s| s.name == "attn_norm").unwrap();
        if let Some(Op::Norm { x, .. }) = p.steps.iter_mut().rev().nth(1).map(|s| &mut s.op) {
            *x = SlotId(slot as u16);
        }
    });
    broken("gemma3", "no slot", |p| p.logits = SlotId(99));
    broken("gemma3", "needed", |p| p.slots[2].width += 1);
    broken("gemma3", "is needed", |p| p.weights[3].cols += 1);
    broken("gemma3", "layer", |p| p.n_layer = 2);
    broken("gemma3", "attended", |p| p.kv.push(p.kv[0]));
    broken("gemma3", "pairs", |p| p.ropes[0].frequencies.resize(99, 1.0));
    broken("gemma3", "NaN", |p| p.ropes[0].frequencies[0] = f32::NAN);
    broken("gemma3-deep", "blocks", |p| p.weights[0].format = Format::Q4_K);
}
