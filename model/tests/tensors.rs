//! Whatever the tensors are, there is a plan that reads them all or a sentence that names the wrong one.

mod common;

use common::change::*;
use common::*;
use llamay_formats::Format;
use llamay_gguf::{Gguf, TensorInfo};
use llamay_model::load;
use llamay_model::shapes::Shape;

/// Whether a model can be without the tensor: it is then another model.
fn is_optional(tensor: &TensorInfo) -> bool {
    tensor.name.ends_with(".bias") || ["output.weight", "rope_freqs.weight"].contains(&tensor.name.as_str())
}

/// Every tensor of every generated model, with the model's name and file.
fn for_each_tensor(check: impl Fn(&str, &Gguf, &TensorInfo)) {
    for (shape, gguf) in all_files() {
        gguf.tensors().iter().for_each(|t| check(shape.name(), gguf, t));
    }
}

fn with_tensor(gguf: &Gguf, name: &str, dims: Vec<u64>, format: Format) -> Option<Gguf> {
    changed(gguf, &[Change::Tensor(name.to_owned(), dims, format)])
}

#[test]
fn a_missing_tensor_is_named() {
    for_each_tensor(|name, gguf, t| {
        let gguf = changed(gguf, &[Change::NoTensor(t.name.clone())]).unwrap();
        match outcome(&gguf) {
            Ok(_) => assert!(is_optional(t), "{name} is whole without {}", t.name),
            Err(message) => {
                assert_eq!(message, format!("the model has no tensor {:?}", t.name), "{name}");
            }
        }
    });
}

#[test]
fn a_tensor_of_another_shape_is_named_with_both_shapes() {
    for_each_tensor(|name, gguf, t| {
        let format = Format::F32;
        let last = t.dims.len() - 1;
        let mut shapes = vec![t.dims.clone(); 4];
        shapes[0].reverse();
        shapes[1][last] += 1;
        shapes[2][last] -= 1;
        shapes[3].push(2);
        shapes.push(t.dims.iter().map(|d| d + 32).collect());
        shapes.push(vec![t.n_elements()]);
        shapes.push(vec![]);
        let significant = |dims: &[u64]| dims.iter().rposition(|d| *d != 1).map_or(0, |last| last + 1);
        let same = |dims: &[u64]| dims[..significant(dims)] == t.dims[..significant(&t.dims)];
        for dims in shapes.into_iter().filter(|dims| !same(dims)) {
            let gguf = with_tensor(gguf, &t.name, dims.clone(), format).unwrap();
            // An embedding with a row more than there are tokens is padded, if the head is as well.
            if t.name == "token_embd.weight" && dims[..] == [t.dims[0], t.dims[1] + 1] {
                let message = outcome(&gguf).map_or_else(|message| message, |_| "output.weight".into());
                assert!(message.contains("output.weight"), "{name}: {message}");
                continue;
            }
            let message = outcome(&gguf).expect_err(&t.name);
            assert!(message.contains(&format!("{:?}", t.name)), "{name}, {}: {message}", t.name);
            assert!(message.contains(&format!("{dims:?}")), "{name}, {}: {message}", t.name);
        }
    });
}

#[test]
fn a_tensor_of_any_format_is_read_or_named() {
    for_each_tensor(|name, gguf, t| {
        for format in Format::ALL {
            let Some(gguf) = with_tensor(gguf, &t.name, t.dims.clone(), *format) else { continue };
            if let Err(message) = outcome(&gguf) {
                assert!(
                    message.contains(&format!("{:?}", t.name)),
                    "{name}, {}, {format}: {message}",
                    t.name
                );
            }
        }
    });
}

#[test]
fn dimensions_of_one_at_the_end_do_not_count() {
    let gguf = file(Shape::named("llama-gqa").unwrap());
    let plan = load(&gguf).unwrap();
    assert_eq!(load(&with_shape(&gguf, "output_norm.weight", &[256, 1, 1])).unwrap(), plan);
}

/// The file with another number for the tensor's type.
fn with_type(gguf: &Gguf, t: &TensorInfo, kind: u32) -> Vec<u8> {
    let mut bytes = changed_bytes(gguf, &[], false).unwrap();
    let name = t.name.as_bytes();
    // With its length before it, a name is no part of a longer one.
    let entry = [&(name.len() as u64).to_le_bytes(), name].concat();
    let at = bytes.windows(entry.len()).position(|w| w == entry).unwrap() + entry.len();
    // Behind the name: the number of dimensions, the dimensions, the type.
    let at = at + 4 + 8 * t.dims.len();
    bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
    bytes
}

#[test]
fn a_tensor_of_unknown_type_is_named() {
    for_each_tensor(|_, gguf, t| {
        let message = outcome(&Gguf::from_bytes(with_type(gguf, t, 99)).unwrap()).unwrap_err();
        assert!(message.contains(&t.name) && message.contains("99"), "{message}");
    });
}

#[test]
fn a_tensor_whose_rows_are_no_whole_blocks_is_named() {
    for (_, gguf) in all_files() {
        for t in gguf.tensors().iter().filter(|t| t.row_len() % 256 != 0) {
            let message = Gguf::from_bytes(with_type(gguf, t, Format::Q4_K as u32)).unwrap_err().to_string();
            assert_is_sentence(&message);
            assert!(message.contains(&t.name) && message.contains("Q4_K"), "{message}");
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
