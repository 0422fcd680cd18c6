//! The tokens with a role: begin, end, end of turn, and every token that ends a generation.

use llamay_gguf::Metadata;

use crate::Error;
use crate::vocab::{TokenType, Vocab};

/// Ids of the tokens with a role, as far as the vocabulary has them.
pub(crate) struct SpecialTokens {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub unk: Option<u32>,
    pub pad: Option<u32>,
    /// Tokens after which a model has nothing more to say, in order of their ids.
    pub eog: Vec<u32>,
}

/// What tokens that end a turn are called where no key names them, the likeliest first.
const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<|return|>",
    "<end_of_utterance>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
];

/// Other tokens that end a generation: of a message to a tool, of a text, of a file.
const END_OF_GENERATION: &[&str] = &[
    "<|eom_id|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|tool_response>",
    "[e~[",
    "[EOS]",
    "<eos>",
    "</s>",
    // Fill in the middle: a model that starts on the next file is done with this one.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<reponame>",
    "<|file_sep|>",
];

/// Keys whose tokens end a generation too.
const END_KEYS: &[&str] = &[
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
];

impl SpecialTokens {
    /// Reads the keys and looks for the well-known texts. Tokens that are found by text and were not control tokens
    /// become such, unless they may be ordinary text: some converters forgot to mark them.
    pub(crate) fn find(
        metadata: &Metadata,
        vocab: &mut Vocab,
        default: SpecialTokens,
    ) -> Result<SpecialTokens, Error> {
        let n = vocab.len() as u32;
        let id = |key: &str, default: Option<u32>| -> Result<Option<u32>, Error> {
            // Files use -1 and ids past the vocabulary for "none".
            Ok(metadata.i64(key)?.map_or(default, |id| u32::try_from(id).ok()).filter(|&id| id < n))
        };
        let mut special = SpecialTokens {
            bos: id("tokenizer.ggml.bos_token_id", default.bos)?,
            eos: id("tokenizer.ggml.eos_token_id", default.eos)?,
            eot: id("tokenizer.ggml.eot_token_id", default.eot)?,
            unk: id("tokenizer.ggml.unknown_token_id", default.unk)?,
            pad: id("tokenizer.ggml.padding_token_id", default.pad)?,
            eog: default.eog,
        };
        for key in END_KEYS {
            special.eog.extend(id(key, None)?);
        }
        for text in END_OF_TURN {
            let Some(id) = well_known(vocab, text) else { continue };
            special.eot.get_or_insert(id);
            special.eog.push(id);
        }
        special.eog.extend(END_OF_GENERATION.iter().filter_map(|text| well_known(vocab, text)));
        if let (Some(_), Some(end)) = (vocab.id(b"<|call|>"), vocab.id(b"<|end|>")) {
            // In the harmony format <|end|> ends a message of which a turn has several.
            special.eog.retain(|&id| id != end);
            special.eot = special.eot.filter(|&id| id != end).or(vocab.id(b"<|return|>"));
        }
        special.eog.extend(special.eos);
        special.eog.extend(special.eot);
        special.eog.sort_unstable();
        special.eog.dedup();
        Ok(special)
    }
}

fn well_known(vocab: &mut Vocab, text: &str) -> Option<u32> {
    let id = vocab.id(text.as_bytes())?;
    // Nobody writes <|…|> by chance, but </s> is a tag of HTML, and Gemma has it as a token of its own.
    let unmistakable = text.contains('|') || text.contains('｜') || text == "<end_of_turn>";
    if unmistakable {
        vocab.set_kind(id, TokenType::Control);
    }
    (vocab.kind(id) == Some(TokenType::Control)).then_some(id)
}
