//! What README says of architectures is what the code does.

use std::fmt::Write;

use llamay_gguf::{Gguf, Writer};
use llamay_model::ARCHITECTURES;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const START: &str = "<!-- architectures: model/tests/readme.rs writes this table -->\n";
const END: &str = "<!-- end of architectures -->\n";

/// The table as README has to have it.
fn table() -> String {
    let mut table = String::from("| `general.architecture` | models |\n|---|---|\n");
    for architecture in ARCHITECTURES {
        writeln!(table, "| `{}` | {} |", architecture.name, architecture.models).expect("a string grows");
    }
    table
}

/// `LLAMAY_BLESS=1` writes the table anew.
#[test]
fn the_table_lists_every_architecture_and_no_other() {
    let readme = std::fs::read_to_string(PATH).expect("README.md");
    let (before, rest) = readme.split_once(START).expect("the table's start");
    let (found, after) = rest.split_once(END).expect("the table's end");
    if std::env::var_os("LLAMAY_BLESS").is_some() {
        std::fs::write(PATH, format!("{before}{START}{}{END}{after}", table())).expect("README.md");
    } else {
        assert_eq!(found, table(), "LLAMAY_BLESS=1 cargo test -p llamay-model --test readme");
    }
}

#[test]
fn names_are_sorted_and_distinct() {
    let names: Vec<&str> = llamay_model::architectures().collect();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
}

#[test]
fn refused_families_are_told_as_readme_says() {
    // As it was compiled in: the other test may be writing the file.
    let readme = include_str!("../../README.md");
    for name in ["mamba", "clip", "deepseek2", "t5", "bert"] {
        let mut writer = Writer::default();
        writer.set("general.architecture", name);
        let file = Gguf::from_bytes(writer.to_vec().expect("a small file")).expect("a valid file");
        let message = llamay_model::load(&file).expect_err("a refusal").to_string();
        assert!(readme.contains(&message), "README does not say: {message}");
    }
}
