//! Whatever the tensors are, there is a plan that reads them all or a sentence that names the wrong one.

mod common;

use common::*;
use llamay_formats::Format;
use llamay_gguf::{Gguf, TensorInfo};
use llamay_model::load;
use llamay_model::shapes::Shape;

/// Tensors that a model can be without: it is then another model.
fn is_optional(tensor: &TensorInfo) -> bool {
    tensor.name.ends_with(".bias") || ["output.weight", "rope_freqs.weight"].contains(&tensor.name.as_str())
}

#[test]
fn a_missing_tensor_is_named() {
    for gguf in Shape::all().iter().map(file) {
        for tensor in gguf.tensors().iter().filter(|t| !is_optional(t)) {
            let message = refusal(&without_tensor(&gguf, &tensor.name));
            assert_eq!(message, format!("the model has no tensor {:?}", tensor.name));
        }
    }
}

#[test]
fn a_tensor_of_another_shape_is_named_with_both_shapes() {
    for gguf in Shape::all().iter().map(file) {
        for tensor in gguf.tensors() {
            let mut transposed = tensor.dims.clone();
            transposed.reverse();
            let longer: Vec<u64> = tensor.dims.iter().map(|d| d + 32).collect();
            let deeper: Vec<u64> = tensor.dims.iter().copied().chain([2]).collect();
            for dims in [transposed, longer, deeper].into_iter().filter(|dims| *dims != tensor.dims) {
                let message = refusal(&with_shape(&gguf, &tensor.name, &dims));
                assert!(message.contains(&format!("{:?}", tensor.name)), "{message}");
                assert!(message.contains(&format!("{dims:?}")), "{message}");
            }
        }
    }
}

#[test]
fn dimensions_of_one_at_the_end_do_not_count() {
    let gguf = file(Shape::named("llama-gqa").unwrap());
    let plan = load(&gguf).unwrap();
    assert_eq!(load(&with_shape(&gguf, "output_norm.weight", &[256, 1, 1])).unwrap(), plan);
}

#[test]
fn a_tensor_of_unknown_type_is_named() {
    for shape in Shape::all() {
        let bytes = shape.gguf(Format::Q4_0).unwrap();
        let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
        for tensor in gguf.tensors() {
            let mut bytes = bytes.clone();
            let name = tensor.name.as_bytes();
            let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len();
            // Behind the name: the number of dimensions, the dimensions, the type.
            let at = at + 4 + 8 * tensor.dims.len();
            bytes[at..at + 4].copy_from_slice(&99u32.to_le_bytes());
            let message = refusal(&Gguf::from_bytes(bytes).unwrap());
            assert!(message.contains(&tensor.name) && message.contains("99"), "{message}");
        }
    }
}

#[test]
fn an_unknown_tensor_of_a_layer_is_refused_and_others_are_told() {
    let gguf = file(Shape::named("llama-gqa").unwrap());
    let with = |name: &str| read(copy(&gguf, |_| true, |_| true).tensor_f32(name, &[4], &[1.0; 4]));
    let message = refusal(&with("blk.1.attn_sinks.weight"));
    assert!(message.contains("blk.1.attn_sinks.weight"), "{message}");
    assert_eq!(load(&with("per_layer_thing.weight")).unwrap().unused, ["per_layer_thing.weight"]);
    assert_eq!(load(&with("blk.0.attn_rot_embd.weight")).unwrap().unused, [""; 0]);
}

#[test]
fn fewer_layers_than_the_file_has_are_refused() {
    let gguf = file(Shape::named("mistral-window").unwrap());
    assert!(refusal(&with_key(&gguf, "llama.block_count", 2u32)).contains("blk.2."));
}

#[test]
fn rotary_divisors_have_to_be_positive() {
    let gguf = file(Shape::named("llama3-rope").unwrap());
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let mut divisors = [1.0; 32];
        divisors[7] = bad;
        let mut writer = copy(&gguf, |_| true, |t| t.name != "rope_freqs.weight");
        let message = refusal(&read(writer.tensor_f32("rope_freqs.weight", &[32], &divisors)));
        assert!(message.contains("rope_freqs.weight") && message.contains("at 7"), "{message}");
    }
}
