//! Vocabularies for tests: the tiny ones beside the tests, and real ones from the cache folder.
#![allow(dead_code, unreachable_pub)] // each test binary uses a part

use std::fs;
use std::path::{Path, PathBuf};

use llamay_gguf::{Endian, Gguf, Writer};
use llamay_tokenizer::{Error, Tokenizer};
use serde::Deserialize;

/// A vocabulary as `tools/tokenizer/tiny.py` writes it.
#[derive(Deserialize, Clone)]
pub struct Vocabulary {
    pub model: String,
    pub tokens: Vec<String>,
    pub types: Vec<i32>,
    #[serde(default)]
    pub merges: Vec<String>,
    #[serde(default)]
    pub scores: Vec<f32>,
}

pub fn data(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Vocabulary {
    pub fn tiny_bpe() -> Vocabulary {
        serde_json::from_str(&data("fixtures/tiny-bpe.json")).unwrap()
    }

    pub fn tiny_spm() -> Vocabulary {
        serde_json::from_str(&data("fixtures/tiny-spm.json")).unwrap()
    }

    /// The start of a GGUF file with this vocabulary; more keys may follow.
    pub fn writer(&self) -> Writer {
        let mut writer = Writer::new(3, Endian::Little, 32);
        writer.set("tokenizer.ggml.model", self.model.as_str());
        writer.set("tokenizer.ggml.tokens", self.tokens.as_slice());
        writer.set("tokenizer.ggml.token_type", self.types.as_slice());
        if !self.merges.is_empty() {
            writer.set("tokenizer.ggml.merges", self.merges.as_slice());
        } else {
            writer.set("tokenizer.ggml.scores", self.scores.as_slice());
        }
        writer
    }
}

pub fn load(writer: &Writer) -> Result<Tokenizer, Error> {
    Tokenizer::from_gguf(&Gguf::from_bytes(writer.to_vec().unwrap()).unwrap())
}

/// The tiny BPE vocabulary with a named pre-tokenizer.
pub fn bpe(pre: &str) -> Tokenizer {
    let mut writer = Vocabulary::tiny_bpe().writer();
    writer.set("tokenizer.ggml.pre", pre);
    load(&writer).unwrap()
}

/// The tiny SentencePiece vocabulary.
pub fn spm(add_space_prefix: bool) -> Tokenizer {
    let mut writer = Vocabulary::tiny_spm().writer();
    writer.set("tokenizer.ggml.add_space_prefix", add_space_prefix);
    load(&writer).unwrap()
}

/// A file of the cache folder, which `tools/fetch.py` fills. Where it is missing the test has nothing to do and says
/// so, or fails if `LLAMAY_REQUIRE_MODELS=1`.
pub fn cached(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("LLAMAY_CACHE").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
        Some(cache?.join("llamay"))
    })?;
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("LLAMAY_REQUIRE_MODELS").is_none_or(|value| value != "1"),
        "{} is missing; tools/fetch.py gets it",
        path.display()
    );
    eprintln!("skipped: no {}", path.display());
    None
}

pub fn load_file(path: &Path) -> Result<Tokenizer, Error> {
    Tokenizer::from_gguf(&Gguf::open(path).unwrap())
}
