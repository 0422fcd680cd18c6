//! Decoding and encoding against the `gguf` Python package, bit by bit. tools/golden/make.py writes the vectors.

use std::path::PathBuf;

use llamay_formats::{Format, grids};

/// Formats that the reference cannot decode, and why we know ours to be right nevertheless.
const NO_REFERENCE: &[(Format, &str)] = &[
    (Format::Q8_1, "an activation format without a decoder; Q8_0 with one more field, tested in q8_1.rs"),
    (Format::Q8_K, "an activation format without a decoder; tested in q8_k.rs"),
    (Format::Q1_0, "listed by the package, which has no decoder for it yet; tested in q1_0.rs"),
];

/// Formats that the reference can encode.
const REFERENCE_ENCODES: &[Format] = &[
    Format::F32,
    Format::F16,
    Format::BF16,
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::TQ1_0,
    Format::TQ2_0,
    Format::MXFP4,
];

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden"].iter().collect()
}

/// The vector `kind/<format>.bin`, if there is one.
fn vector(kind: &str, format: Format) -> Option<Vec<u8>> {
    std::fs::read(folder().join(kind).join(format!("{}.bin", format.name().to_lowercase()))).ok()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn every_format_decodes_as_the_reference() {
    for &format in Format::ALL {
        let exception = NO_REFERENCE.iter().find(|(f, _)| *f == format);
        let data = match (vector("decode", format), exception) {
            (Some(data), None) => data,
            (None, Some(_)) => continue,
            (None, None) => panic!("{format} has neither a golden vector nor a stated exception"),
            (Some(_), Some((_, why))) => panic!("{format} has a golden vector: no longer \"{why}\""),
        };
        let n_blocks = data.len() / (format.block_bytes() + 4 * format.block_len());
        let (blocks, weights) = data.split_at(n_blocks * format.block_bytes());
        let expected = floats(weights);
        assert!(
            n_blocks >= 6 && expected.len() == n_blocks * format.block_len(),
            "{format}: a vector of odd length"
        );
        let mut decoded = vec![0.0; expected.len()];
        format.decode(blocks, &mut decoded);
        for (i, (ours, theirs)) in decoded.iter().zip(&expected).enumerate() {
            assert_eq!(ours.to_bits(), theirs.to_bits(), "{format}, weight {i}: {ours:e}, not {theirs:e}");
        }
    }
}

#[test]
fn formats_that_the_reference_encodes_give_its_bytes() {
    let weights = floats(&std::fs::read(folder().join("encode/input.bin")).expect("the weights to encode"));
    for &format in Format::ALL {
        let listed = REFERENCE_ENCODES.contains(&format);
        let Some(expected) = vector("encode", format) else {
            assert!(!listed, "{format} has no golden encoding");
            continue;
        };
        assert!(listed, "{format} has a golden encoding and is not listed");
        let mut encoded = vec![0; expected.len()];
        format.encode(&weights, None, &mut encoded).unwrap_or_else(|e| panic!("{format}: {e}"));
        let blocks = encoded.chunks(format.block_bytes()).zip(expected.chunks(format.block_bytes()));
        for (i, (ours, theirs)) in blocks.enumerate() {
            let source = &weights[i * format.block_len()..(i + 1) * format.block_len()];
            assert_eq!(ours, theirs, "{format}, block {i}, from {source:?}");
        }
    }
}

#[test]
fn every_vector_belongs_to_a_format() {
    for kind in ["decode", "encode"] {
        for entry in std::fs::read_dir(folder().join(kind)).expect("the vectors") {
            let path = entry.expect("a vector").path();
            let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
            assert!(name == "input" || Format::from_name(&name).is_some(), "{} is stale", path.display());
        }
    }
}

/// FNV-1a, 64 bits.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn code_books_are_those_of_the_reference() {
    fn line<const LEN: usize>(name: &str, grid: &[[u8; LEN]]) -> String {
        format!("{name} {} {LEN} {:016x}", grid.len(), hash(grid.iter().flatten().copied()))
    }
    let iq1 = grids::IQ1_GRID.map(|entry| entry.map(|w| w as u8));
    let ours = [
        line("IQ2_XXS", &grids::IQ2_XXS_GRID),
        line("IQ2_XS", &grids::IQ2_XS_GRID),
        line("IQ2_S", &grids::IQ2_S_GRID),
        line("IQ3_XXS", &grids::IQ3_XXS_GRID),
        line("IQ3_S", &grids::IQ3_S_GRID),
        line("IQ1_S", &iq1),
    ];
    let theirs = std::fs::read_to_string(folder().join("grids.txt")).expect("the hashes");
    assert_eq!(ours.to_vec(), theirs.lines().collect::<Vec<_>>());
}
