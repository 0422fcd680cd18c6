//! A vocabulary of 320 tokens for generated models: every byte, some English pairs, a few special tokens.

use llamay_gguf::Writer;
use serde::Deserialize;

/// Tokens of every generated model.
pub const N_VOCAB: usize = 320;

/// A kind of vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum VocabularyKind {
    /// Byte-level BPE, as GPT-2 and Llama 3, with a chat template.
    Bpe,
    /// SentencePiece, as Llama 2 and Gemma, without one.
    Spm,
}

/// Merges in order, each of two bytes or earlier results; `_` stands for the space.
const MERGES: &str = "_ t, h e, _ a, i n, _t he, r e, o n, e r, _ s, a t, _ w, o r, e n, _ c, e s, i t, i s, _ o, a l, \
    _ b, a r, _ p, _ f, e d, in g, _ m, o u, n d, _a nd, _ h, l l, _ d, l e, a n, _o f, _t o, _ in, \
    i c, _ l, r o, s t, _ n, en t, _ e, i on, v e, _b e, a s, l y, _ g, c h, _h e, u r, _ re, i l, \
    o m, u t, o t, _w as, _f or";

fn merges() -> impl Iterator<Item = (&'static str, &'static str)> {
    MERGES.split(", ").filter_map(|merge| merge.split_once(' '))
}

/// ChatML, which needs no helpers.
const CHAT_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n\
    {{ message['content'] }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// `tokenizer.ggml.token_type`: an ordinary piece.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

/// Sets the keys of a vocabulary.
pub(super) fn write(kind: VocabularyKind, writer: &mut Writer) {
    match kind {
        VocabularyKind::Bpe => write_bpe(writer),
        VocabularyKind::Spm => write_spm(writer),
    }
}

/// GPT-2's stand-in for a byte: itself where it prints, else the next character from U+0100 on.
fn stand_ins() -> Vec<char> {
    let prints = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut substitutes = '\u{100}'..;
    (0..=255u8)
        .filter_map(|b| if prints(u32::from(b)) { Some(char::from(b)) } else { substitutes.next() })
        .collect()
}

fn write_bpe(writer: &mut Writer) {
    let spaced = |s: &str| s.replace('_', "Ġ");
    let mut tokens: Vec<String> = stand_ins().into_iter().map(String::from).collect();
    tokens.extend(merges().map(|(a, b)| spaced(a) + &spaced(b)));
    let mut types = vec![NORMAL; tokens.len()];
    let specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"];
    let first_special = tokens.len() as u32;
    tokens.extend(specials.map(String::from));
    types.extend([CONTROL; 4]);
    let merges: Vec<String> = merges().map(|(a, b)| format!("{} {}", spaced(a), spaced(b))).collect();
    writer
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "smollm")
        .set("tokenizer.ggml.tokens", tokens)
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.merges", merges)
        .set("tokenizer.ggml.bos_token_id", first_special)
        .set("tokenizer.ggml.eos_token_id", first_special + 3)
        .set("tokenizer.ggml.add_bos_token", false)
        .set("tokenizer.chat_template", CHAT_TEMPLATE);
}

fn write_spm(writer: &mut Writer) {
    let spaced = |s: &str| s.replace('_', "\u{2581}");
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).into();
    let mut types = vec![UNKNOWN, CONTROL, CONTROL];
    tokens.extend((0..=255u8).map(|b| format!("<0x{b:02X}>")));
    types.extend([BYTE; 256]);
    tokens.push(spaced("_"));
    tokens.extend(('a'..='z').map(String::from));
    let merged = merges().map(|(a, b)| spaced(a) + &spaced(b));
    tokens.extend(merged.take(N_VOCAB - tokens.len()));
    types.resize(tokens.len(), NORMAL);
    // The greater score merges first; only the order matters.
    let scores: Vec<f32> = (0..tokens.len()).map(|i| -(i as f32)).collect();
    writer
        .set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.pre", "default")
        .set("tokenizer.ggml.tokens", tokens)
        .set("tokenizer.ggml.scores", scores)
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.bos_token_id", 1u32)
        .set("tokenizer.ggml.eos_token_id", 2u32)
        .set("tokenizer.ggml.unknown_token_id", 0u32)
        .set("tokenizer.ggml.add_bos_token", true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use llamay_gguf::Gguf;
    use std::collections::HashSet;

    #[test]
    fn vocabularies_have_distinct_tokens_of_the_stated_number() {
        for kind in [VocabularyKind::Bpe, VocabularyKind::Spm] {
            let mut writer = Writer::default();
            write(kind, &mut writer);
            let file = Gguf::from_bytes(writer.to_vec().unwrap()).unwrap();
            let tokens = file.metadata().need_strings("tokenizer.ggml.tokens").unwrap();
            assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), N_VOCAB, "{kind:?}");
            let types = file.metadata().need_i32s("tokenizer.ggml.token_type").unwrap();
            assert_eq!(types.len(), N_VOCAB);
        }
    }

    #[test]
    fn every_merge_joins_what_exists() {
        let mut known: HashSet<String> = ('a'..='z').chain(['_']).map(String::from).collect();
        for (a, b) in merges() {
            assert!(known.contains(a) && known.contains(b), "{a} {b}");
            assert!(known.insert(format!("{a}{b}")), "{a}{b} twice");
        }
    }
}
