//! `llamay logits`: what a model says about every token of its vocabulary.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::ValueEnum;
use llamay_engine::tokenizer::EncodeOptions;
use llamay_engine::{Cancel, Error, Logits};
use serde_json::json;

use crate::args::RunOptions;
use crate::error::CliError;
use crate::output;

const AFTER_HELP: &str = "\
Tokens are used as they are, with nothing added. A prompt is turned into tokens as `run --raw` does it, with BOS where
the model wants one.

Example:
  llamay logits model.gguf --tokens 1,15043,2787 --all -o npy > logits.npy";

/// Print the logits behind a prompt
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The model, a GGUF file
    model: PathBuf,
    #[command(flatten)]
    prompt: Prompt,
    /// Print the logits of every position, not only of the last
    #[arg(long)]
    all: bool,
    /// How to print them: an object of tokens, n_vocab and logits (an array for each position), or a NumPy file
    /// (float32, positions × vocabulary)
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "json")]
    output: Format,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Prompt {
    /// Token ids, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    tokens: Option<Vec<u32>>,
    /// A text
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Npy,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    if args.output == Format::Npy && io::stdout().is_terminal() {
        return Err(CliError::Usage(
            "a terminal cannot show -o npy; send it to a file or a program".to_owned(),
        ));
    }
    let model = args.run.open(&args.model)?.model;
    let tokens = match (&args.prompt.tokens, &args.prompt.prompt) {
        (Some(tokens), _) => tokens.clone(),
        (None, text) => {
            let options = EncodeOptions { add_special: true, parse_special: true };
            model.tokenizer().encode(text.as_deref().unwrap_or_default(), options)
        }
    };
    if tokens.is_empty() {
        return Err(Error::EmptyPrompt.into());
    }
    let mut session = model.session();
    let which = if args.all { Logits::All } else { Logits::Last };
    session.feed_with(&tokens, which, &Cancel::new(), &mut |_| {})?;
    let (logits, n_vocab) = (session.logits(), model.n_vocab());
    match args.output {
        Format::Npy => output::print_bytes(&npy(logits, n_vocab)),
        Format::Json => {
            let rows: Vec<&[f32]> = logits.chunks_exact(n_vocab).collect();
            let value = json!({ "tokens": tokens, "n_vocab": n_vocab, "logits": rows });
            output::print(&format!("{value}\n"))
        }
    }
}

/// A NumPy file, version 1.0: magic, version, header length, a header padded to a multiple of 64, little-endian floats.
///
/// Source: the documentation of `numpy.lib.format`.
fn npy(values: &[f32], cols: usize) -> Vec<u8> {
    let rows = values.len() / cols.max(1);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    let preamble = 6 + 2 + 2;
    let padded = (preamble + header.len() + 1).next_multiple_of(64) - preamble;
    header.push_str(&" ".repeat(padded - header.len() - 1));
    header.push('\n');
    let mut file = Vec::with_capacity(preamble + padded + 4 * values.len());
    file.extend_from_slice(b"\x93NUMPY\x01\x00");
    // A shape of two numbers keeps the header below 128 bytes.
    file.extend_from_slice(&(padded as u16).to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numpy_file_aligns_its_data_and_states_its_shape() {
        let file = npy(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3);
        assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
        let header_len = usize::from(u16::from_le_bytes([file[8], file[9]]));
        assert_eq!((10 + header_len) % 64, 0);
        let header = std::str::from_utf8(&file[10..10 + header_len]).unwrap();
        assert!(header.contains("'shape': (2, 3)") && header.ends_with('\n'), "{header}");
        assert_eq!(file.len(), 10 + header_len + 24);
        assert_eq!(&file[10 + header_len..][..4], &1.0f32.to_le_bytes());
    }
}
