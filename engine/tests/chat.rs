//! Conversations: what is kept, what is computed again, what goes when the context is full.

mod common;

use common::{best, open, with};
use llamay_engine::sampling::SamplingParams;
use llamay_engine::{Cancel, Chat, Error, GenerateOptions, Options};
use llamay_formats::Format;
use llamay_model::shapes::Shape;

/// A chat with a generated model.
fn chat(shape: &str, context: usize) -> Result<Chat, Error> {
    let options = Options { context: Some(context), ..with(best(), 1) };
    Chat::new(&open(Shape::named(shape).expect("a generated model"), Format::Q8_0, &options))
}

fn short() -> GenerateOptions {
    let sampling = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    GenerateOptions { max_tokens: Some(4), sampling, ignore_eos: true, ..GenerateOptions::default() }
}

fn say(chat: &mut Chat, text: &str) -> Result<llamay_engine::Reply, Error> {
    chat.say(text, &short(), &Cancel::new(), &mut |_| {})
}

fn roles(chat: &Chat) -> Vec<&str> {
    chat.messages().iter().map(|m| m.role.as_str()).collect()
}

#[test]
fn a_second_turn_computes_only_what_is_new() {
    let mut one = chat("llama-gqa", 512).unwrap();
    let first = say(&mut one, &"Hello there, how are you? ".repeat(4)).unwrap();
    let second = say(&mut one, "Fine.").unwrap();
    assert_eq!(roles(&one), ["user", "assistant", "user", "assistant"]);
    let (first, second) = (first.generation.stats.prompt_tokens, second.generation.stats.prompt_tokens);
    assert!(second < first, "{second} new tokens after {first}");

    let mut fresh = chat("llama-gqa", 512).unwrap();
    fresh.set_messages(one.messages()[..2].to_vec());
    say(&mut fresh, "Fine.").unwrap();
    assert_eq!(fresh.messages(), one.messages(), "a conversation that is loaded goes on to the same answer");
}

#[test]
fn the_oldest_turns_go_when_the_context_is_full_and_the_system_message_stays() {
    let mut chat = chat("llama-gqa", 300).unwrap();
    chat.set_system(Some("Be brief.")).unwrap();
    let mut dropped = 0;
    for _ in 0..6 {
        dropped += say(&mut chat, "Tell me something about nothing.").unwrap().dropped;
    }
    assert!(dropped > 0 && dropped % 2 == 0, "{dropped} messages dropped, in whole turns");
    assert_eq!(roles(&chat)[..2], ["system", "user"]);
    assert_eq!(chat.messages().len() + dropped, 1 + 2 * 6);
}

#[test]
fn a_message_too_long_for_the_context_is_an_error_that_changes_nothing() {
    let mut chat = chat("llama-gqa", 120).unwrap();
    say(&mut chat, "Hi").unwrap();
    let before = chat.messages().to_vec();
    let error = say(&mut chat, &"very long ".repeat(100)).unwrap_err();
    assert!(matches!(error, Error::ContextFull { limit: 120, .. }), "{error}");
    assert_eq!(chat.messages(), before);
    say(&mut chat, "Hi").unwrap();
}

#[test]
fn a_model_without_a_template_has_no_chat() {
    let error = chat("mistral-window", 100).err().expect("no chat");
    assert!(error.to_string().contains("--raw"), "{error}");
}

#[test]
fn clearing_keeps_the_system_message_alone() {
    let mut chat = chat("llama-gqa", 400).unwrap();
    chat.set_system(Some("Be brief.")).unwrap();
    say(&mut chat, "Hi").unwrap();
    chat.clear();
    assert_eq!(roles(&chat), ["system"]);
    chat.set_system(None).unwrap();
    assert!(chat.messages().is_empty());
}
