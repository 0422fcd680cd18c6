//! Encodes texts for `tools/tokenizer/parity.py`: one JSON string a line on standard input, one JSON array of ids a
//! line on standard output.
//!
//!     cargo run -p llamay-tokenizer --example encode_lines -- MODEL.gguf [--special] < texts.jsonl

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

use llamay_gguf::Gguf;
use llamay_tokenizer::{EncodeOptions, Tokenizer};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = args.first().ok_or("which GGUF file?")?;
    let gguf = Gguf::open(path)?;
    let start = Instant::now();
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    eprintln!("{tokenizer:?} made in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);

    let options =
        EncodeOptions { parse_special: args.iter().any(|arg| arg == "--special"), ..Default::default() };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        serde_json::to_writer(&mut out, &tokenizer.encode(&text, options))?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
