//! Files cut at any byte and changed at any byte: an error or a model, never a panic.

mod common;

use common::open_and_use;
use llamay_formats::Format;
use llamay_gguf::{Endian, Gguf, Writer};
use proptest::prelude::*;

/// A model with every kind of field in it.
fn model(endian: Endian) -> Vec<u8> {
    let mut writer = Writer::new(3, endian, 32);
    writer
        .set("general.architecture", "llama")
        .set("general.alignment", 32u32)
        .set("a.u8", 1u8)
        .set("a.i64", -1i64)
        .set("a.f64", 0.5f64)
        .set("a.bool", true)
        .set("a.strings", vec!["<s>", "▁the", ""])
        .set("a.bools", [true, false])
        .set("a.f32s", [1.0f32, f32::NAN])
        .set("a.nested", vec![vec!["x"], vec![], vec!["y", "z"]]);
    writer.tensor_f32("token_embd.weight", &[4, 3], &[0.25; 12]);
    writer.tensor("blk.0.attn_q.weight", &[256, 1], Format::Q4_K, (0..144).collect());
    writer.tensor("blk.0.attn_k.weight", &[32, 2], Format::Q8_0, vec![7; 68]);
    writer.to_vec().unwrap()
}

#[test]
fn every_proper_prefix_is_refused_unless_it_only_loses_padding() {
    for endian in [Endian::Little, Endian::Big] {
        let file = model(endian);
        let gguf = Gguf::from_bytes(file.clone()).unwrap();
        let data_end = gguf.tensors().iter().map(|t| t.offset() + t.n_bytes().unwrap()).max().unwrap();
        for len in 0..file.len() {
            let opened = open_and_use(file[..len].to_vec());
            assert_eq!(opened.is_ok(), len as u64 >= data_end, "{endian}, {len} bytes: {opened:?}");
        }
    }
}

#[test]
fn no_change_of_a_single_byte_panics() {
    for endian in [Endian::Little, Endian::Big] {
        let file = model(endian);
        for at in 0..file.len() {
            let flips = (0..8).map(|bit| file[at] ^ (1 << bit));
            for value in flips.chain([0, 0x7f, 0x80, 0xff]) {
                let mut changed = file.clone();
                changed[at] = value;
                let _ = open_and_use(changed);
            }
        }
    }
}

#[test]
fn no_extreme_number_in_any_place_panics() {
    let extremes = [0, 1, 9, 13, 1 << 31, u32::MAX as u64, 1 << 40, i64::MAX as u64, u64::MAX - 31, u64::MAX];
    for endian in [Endian::Little, Endian::Big] {
        let file = model(endian);
        for at in 0..file.len() {
            for extreme in extremes {
                for width in [4, 8] {
                    let mut bytes = extreme.to_le_bytes()[..width].to_vec();
                    if endian == Endian::Big {
                        bytes.reverse();
                    }
                    let mut changed = file.clone();
                    let end = (at + width).min(file.len());
                    changed[at..end].copy_from_slice(&bytes[..end - at]);
                    let _ = open_and_use(changed);
                }
            }
        }
    }
}

/// One thing to do to a file, at places given as shares of its length.
#[derive(Clone, Debug)]
enum Mutation {
    Set(f64, u8),
    Remove(f64, usize),
    Repeat(f64, usize),
    Move(f64, f64, usize),
    Insert(f64, Vec<u8>),
}

fn any_mutation() -> impl Strategy<Value = Mutation> {
    let place = 0.0..1.0f64;
    prop_oneof![
        (place.clone(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (place.clone(), 1usize..40).prop_map(|(at, n)| Mutation::Remove(at, n)),
        (place.clone(), 1usize..40).prop_map(|(at, n)| Mutation::Repeat(at, n)),
        (place.clone(), place.clone(), 1usize..40).prop_map(|(from, to, n)| Mutation::Move(from, to, n)),
        (place, prop::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
    ]
}

fn mutate(file: &mut Vec<u8>, mutation: Mutation) {
    let len = file.len();
    let at = |share: f64| (share * len as f64) as usize;
    let span = |share: f64, n: usize| at(share)..(at(share) + n).min(len);
    if len == 0 {
        return;
    }
    match mutation {
        Mutation::Set(share, byte) => file[at(share)] = byte,
        Mutation::Remove(share, n) => drop(file.drain(span(share, n))),
        Mutation::Repeat(share, n) => {
            let copy = file[span(share, n)].to_vec();
            file.splice(at(share)..at(share), copy);
        }
        Mutation::Move(from, to, n) => {
            let copy = file[span(from, n)].to_vec();
            let to = at(to);
            let end = (to + copy.len()).min(len);
            file[to..end].copy_from_slice(&copy[..end - to]);
        }
        Mutation::Insert(share, bytes) => drop(file.splice(at(share)..at(share), bytes)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_mutation_panics(big in any::<bool>(), mutations in prop::collection::vec(any_mutation(), 1..6)) {
        let mut file = model(if big { Endian::Big } else { Endian::Little });
        for mutation in mutations {
            mutate(&mut file, mutation);
        }
        let _ = open_and_use(file);
    }

    #[test]
    fn no_bytes_after_a_header_panic(big in any::<bool>(), counts in (0u8..4, 0u8..4), rest in prop::collection::vec(any::<u8>(), 0..200)) {
        let order = |n: u8, width: usize| {
            let mut bytes = vec![0; width];
            bytes[if big { width - 1 } else { 0 }] = n;
            bytes
        };
        let file = [b"GGUF".to_vec(), order(3, 4), order(counts.0, 8), order(counts.1, 8), rest].concat();
        let _ = open_and_use(file);
    }
}
