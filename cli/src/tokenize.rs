//! `llamay tokenize`: a text's tokens, or the text of some tokens.

use std::io::Read;
use std::path::PathBuf;

use llamay_engine::gguf::Gguf;
use llamay_engine::tokenizer::{EncodeOptions, Tokenizer};
use serde_json::json;

use crate::error::CliError;
use crate::output;

const AFTER_HELP: &str = "\
Ids are printed on one line, separated by commas, as `logits --tokens` takes them.

Examples:
  llamay tokenize model.gguf \"Hello, world\"
  llamay tokenize model.gguf --decode 19556,28,905";

/// Turn a text into tokens, or tokens into text
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The model, a GGUF file; only its vocabulary is read
    model: PathBuf,
    /// The text; `-` reads standard input
    #[arg(required_unless_present = "decode")]
    text: Option<String>,
    /// Print the text of these ids, separated by commas, control tokens written out
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with = "text")]
    decode: Option<Vec<u32>>,
    /// Do not add the BOS and EOS tokens that the model wants
    #[arg(long)]
    no_special: bool,
    /// Take text that spells a control token as text
    #[arg(long)]
    no_parse_special: bool,
    /// Print one object: tokens (id, piece), text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&args.model)?)?;
    let tokens = match &args.decode {
        Some(ids) => ids.clone(),
        None => {
            let text = text(args.text.as_deref().unwrap_or_default())?;
            let options =
                EncodeOptions { add_special: !args.no_special, parse_special: !args.no_parse_special };
            tokenizer.encode(&text, options)
        }
    };
    let n_tokens = tokenizer.n_tokens();
    if let Some(id) = tokens.iter().find(|id| **id as usize >= n_tokens) {
        let message = format!("token {id} is not in the vocabulary of {n_tokens} tokens");
        return Err(CliError::Failure(message));
    }
    if args.json {
        let piece = |id: &u32| String::from_utf8_lossy(&tokenizer.token_bytes(*id, true)).into_owned();
        let list: Vec<_> = tokens.iter().map(|id| json!({ "id": id, "piece": piece(id) })).collect();
        let text = tokenizer.decode_with_special(&tokens);
        return output::print_json(&json!({ "n_tokens": tokens.len(), "tokens": list, "text": text }));
    }
    if args.decode.is_some() {
        return output::print(&format!("{}\n", tokenizer.decode_with_special(&tokens)));
    }
    let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
    output::print(&format!("{}\n", ids.join(",")))
}

/// The argument, or with `-` what stands on standard input.
fn text(argument: &str) -> Result<String, CliError> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let mut text = String::new();
    match std::io::stdin().read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(e) => Err(CliError::Failure(format!("standard input cannot be read as UTF-8 text: {e}"))),
    }
}
