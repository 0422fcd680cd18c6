//! The corpus of broken files: each is refused, in the sentence that `broken/expected.txt` records.
//!
//! `tools/corpus/make_broken.py` makes the files. After a change to them or to the messages, look over the difference
//! that `UPDATE_EXPECTED=1 cargo test -p llamay-gguf --test broken` leaves in `expected.txt`.

use std::path::PathBuf;

use llamay_gguf::{Endian, Error, Gguf, TensorType};

fn corpus(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "bin"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_broken_file_is_refused_in_a_sentence() {
    let files = corpus("tests/broken");
    assert!(files.len() >= 40);
    let mut sentences = String::new();
    for path in files {
        let error = Gguf::open(&path).expect_err(&format!("{} opens", path.display()));
        sentences += &format!("{error}\n");
    }
    let expected = "tests/broken/expected.txt";
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(expected, &sentences).unwrap();
    }
    let expected = std::fs::read_to_string(expected).unwrap();
    for (found, wanted) in sentences.lines().zip(expected.lines()) {
        assert_eq!(found, wanted);
    }
    assert_eq!(sentences, expected);
}

#[test]
fn every_valid_file_opens() {
    let files = corpus("tests/valid");
    assert!(!files.is_empty());
    for path in files {
        if let Err(error) = Gguf::open(&path) {
            panic!("{error}");
        }
    }
}

/// The two files hold the same model, written by code that is not this crate's.
#[test]
fn both_byte_orders_read_the_same() {
    let little = Gguf::open("tests/valid/v3-little.bin").unwrap();
    let big = Gguf::open("tests/valid/v3-big.bin").unwrap();
    assert_ne!(little.endian(), big.endian());
    assert!(little.metadata().iter().eq(big.metadata().iter()));
    assert_eq!(little.tensors(), big.tensors());
    for tensor in little.tensors() {
        assert_eq!(little.data(tensor).unwrap(), big.data(tensor).unwrap(), "{}", tensor.name);
    }

    let metadata = big.metadata();
    assert_eq!(metadata.need_str("general.architecture").unwrap(), "llama");
    assert_eq!(metadata.need_u32("llama.block_count").unwrap(), 2);
    assert_eq!(metadata.need_f32("llama.rope.freq_base").unwrap(), 10000.0);
    assert!(metadata.need_bool("tokenizer.ggml.add_bos_token").unwrap());
    assert_eq!(metadata.need_strings("tokenizer.ggml.tokens").unwrap().to_vec(), ["<s>", "▁the", ""]);
    assert_eq!(metadata.need_f32s("tokenizer.ggml.scores").unwrap().to_vec(), [0.0, -1.5, -2.0]);
    let embedding = big.data(big.tensor("token_embd.weight").unwrap()).unwrap();
    assert_eq!(embedding[4..8], 0.5f32.to_le_bytes());
}

/// A model and what the `gguf` package's converter makes of it, by `tools/corpus/make_byteswap.py`.
#[test]
fn a_converted_file_reads_as_its_original() {
    let little = Gguf::open("tests/byteswap/little.bin").unwrap();
    let big = Gguf::open("tests/byteswap/big.bin").unwrap();
    assert_eq!(big.endian(), Endian::Big);
    assert!(little.metadata().iter().eq(big.metadata().iter()));
    assert_eq!(little.tensors(), big.tensors());
    assert_eq!(little.tensors().len(), 9);
    for tensor in little.tensors() {
        assert!(little.data(tensor).unwrap() == big.data(tensor).unwrap(), "{}", tensor.kind);
    }
}

#[test]
fn an_unknown_tensor_type_refuses_its_use_and_not_the_file() {
    let gguf = Gguf::open("tests/valid/unknown-tensor-type.bin").unwrap();
    let unknown = gguf.tensor("blk.0.attn_q.weight").unwrap();
    assert_eq!(unknown.kind, TensorType::Unknown(999));
    assert_eq!(unknown.n_bytes(), None);
    let error = gguf.data(unknown).unwrap_err();
    assert!(matches!(error, Error::UnknownTensorType { id: 999, .. }));
    assert_eq!(error.to_string(), "tensor \"blk.0.attn_q.weight\" has type 999, which is not supported");
    gguf.release(unknown);
    assert!(gguf.data(gguf.tensor("output_norm.weight").unwrap()).is_ok());
}

#[test]
fn a_scalar_has_one_element_and_an_empty_tensor_none() {
    let gguf = Gguf::open("tests/valid/scalar-and-empty-tensor.bin").unwrap();
    let (scalar, empty) = (&gguf.tensors()[0], &gguf.tensors()[1]);
    assert_eq!((scalar.n_elements(), scalar.n_bytes(), scalar.n_rows()), (1, Some(4), 1));
    assert_eq!((empty.n_elements(), empty.n_bytes(), empty.row_len()), (0, Some(0), 0));
    assert_eq!(gguf.data(scalar).unwrap().len(), 4);
    assert_eq!(gguf.data(empty).unwrap().len(), 0);
}
