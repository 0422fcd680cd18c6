//! Sessions: what they hold, share, refuse, and leave as it was.

mod common;

use common::{bits, isas, open, tokens, with};
use llamay_engine::gguf::Gguf;
use llamay_engine::sampling::SamplingParams;
use llamay_engine::{Cancel, Error, Feed, Finish, GenerateOptions, Logits, Model, Options, plan::KV_PAGE};
use llamay_formats::Format;
use llamay_model::shapes::Shape;

fn model(options: &Options) -> Model {
    open(Shape::named("llama-gqa").expect("a generated model"), Format::Q8_0, options)
}

fn best() -> Options {
    with(common::best(), 2)
}

/// The last logits behind `tokens` in a fresh session.
fn fresh(model: &Model, tokens: &[u32]) -> Vec<u32> {
    let mut session = model.session();
    session.feed(tokens).unwrap();
    bits(session.last_logits())
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    let sampling = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    GenerateOptions { max_tokens: Some(max_tokens), sampling, ignore_eos: true, ..GenerateOptions::default() }
}

#[test]
fn a_fork_shares_the_prefix_and_writes_apart() {
    let model = model(&best());
    let prefix = tokens(KV_PAGE + 10);
    let mut a = model.session();
    a.feed(&prefix).unwrap();
    let mut b = a.fork();
    a.feed(&[1, 2, 3]).unwrap();
    b.feed(&[9, 8]).unwrap();
    let with = |rest: &[u32]| fresh(&model, &[prefix.as_slice(), rest].concat());
    assert_eq!(bits(a.last_logits()), with(&[1, 2, 3]));
    assert_eq!(bits(b.last_logits()), with(&[9, 8]));
    drop(a);
    b.feed(&[7]).unwrap();
    assert_eq!(bits(b.last_logits()), with(&[9, 8, 7]), "a dropped fork takes no page from the other");
}

#[test]
fn a_truncated_session_goes_on_as_if_the_rest_had_never_been() {
    let model = model(&best());
    let all = tokens(2 * KV_PAGE + 5);
    for keep in [0, 1, KV_PAGE - 1, KV_PAGE, KV_PAGE + 1] {
        let mut session = model.session();
        session.feed(&all).unwrap();
        session.truncate(keep);
        assert_eq!((session.len(), session.last_logits().len()), (keep, 0));
        session.feed(&[5, 6]).unwrap();
        assert_eq!(bits(session.last_logits()), fresh(&model, &[&all[..keep], &[5, 6]].concat()), "{keep}");
    }
}

#[test]
fn many_sessions_in_one_batch_get_what_they_would_get_alone() {
    let model = model(&best());
    let mut sessions: Vec<_> = (0..5).map(|_| model.session()).collect();
    for (i, session) in sessions.iter_mut().enumerate() {
        session.feed(&tokens(10 + 17 * i)).unwrap();
    }
    let mut feeds: Vec<Feed<'_>> =
        sessions.iter_mut().map(|session| Feed { session, tokens: &[4, 2], logits: Logits::Last }).collect();
    model.forward(&mut feeds).unwrap();
    for (i, session) in sessions.iter().enumerate() {
        assert_eq!(bits(session.last_logits()), fresh(&model, &[tokens(10 + 17 * i), vec![4, 2]].concat()));
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let model = model(&Options { context: Some(20), ..best() });
    let mut session = model.session();
    session.feed(&tokens(15)).unwrap();
    let before = bits(session.last_logits());
    let full = session.feed(&tokens(6)).unwrap_err();
    assert!(matches!(full, Error::ContextFull { needed: 21, limit: 20 }), "{full}");
    let unknown = session.feed(&[u32::MAX]).unwrap_err();
    assert!(matches!(unknown, Error::Token { token: u32::MAX, .. }), "{unknown}");
    assert_eq!((session.len(), bits(session.last_logits())), (15, before));
    session.feed(&tokens(5)).unwrap();
}

#[test]
fn a_context_of_one_token_runs_one_token() {
    let model = model(&Options { context: Some(1), ..best() });
    let mut session = model.session();
    let done = session.generate(&[3], &greedy(10), &Cancel::new(), &mut |_| {}).unwrap();
    assert_eq!((done.tokens.len(), done.finish), (1, Finish::ContextFull));
}

#[test]
fn nothing_asked_is_nothing_generated() {
    let model = model(&best());
    let done = model.session().generate(&[3, 4], &greedy(0), &Cancel::new(), &mut |_| {}).unwrap();
    assert_eq!((done.text.as_str(), done.tokens.len(), done.finish), ("", 0, Finish::Length));
    let empty = model.session().generate(&[], &greedy(1), &Cancel::new(), &mut |_| {}).unwrap_err();
    assert!(matches!(empty, Error::EmptyPrompt), "{empty}");
}

#[test]
fn the_same_seed_gives_the_same_tokens_on_every_kernel_set_and_thread_count() {
    let options = GenerateOptions {
        max_tokens: Some(30),
        sampling: SamplingParams { seed: Some(7), ..SamplingParams::default() },
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let mut all = Vec::new();
    for isa in isas() {
        for threads in [1, 2, 4] {
            let model = model(&with(isa, threads));
            let mut shown = String::new();
            let done = model
                .session()
                .generate(&tokens(9), &options, &Cancel::new(), &mut |text| shown.push_str(text))
                .unwrap();
            assert_eq!(shown, done.text, "what is shown is the text");
            all.push(done.tokens);
        }
    }
    assert!(all.windows(2).all(|w| w[0] == w[1]), "{all:?}");
    assert_eq!(all[0].len(), 30);
}

#[test]
fn cancelling_stops_between_tokens_and_keeps_the_session() {
    let model = model(&best());
    let mut session = model.session();
    let cancel = Cancel::new();
    let (mut seen, stop) = (0, cancel.clone());
    let options = GenerateOptions { max_tokens: Some(1000), ..greedy(1000) };
    let done = session
        .generate(&tokens(4), &options, &cancel, &mut |_| {
            seen += 1;
            if seen == 3 {
                stop.cancel();
            }
        })
        .unwrap();
    assert_eq!(done.finish, Finish::Cancelled);
    assert!(done.tokens.len() < 1000 && session.len() == 4 + done.tokens.len());
}

#[test]
fn a_weight_that_is_not_a_number_is_an_error_that_names_the_step() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let mut bytes = shape.gguf(Format::F32).unwrap();
    let file = Gguf::from_bytes(bytes.clone()).unwrap();
    let tensor = file.tensor("blk.1.ffn_down.weight").expect("a layer's weight");
    let at = tensor.offset() as usize;
    // The offset is from the start of the data, which is at the end of the file.
    let data = bytes.len() - data_bytes(&file);
    bytes[data + at..data + at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    for isa in isas() {
        let model =
            Model::from_gguf(Gguf::from_bytes(bytes.clone()).unwrap(), &with(isa, 1), &|_, _| {}).unwrap();
        let mut session = model.session();
        let error = session.feed(&[1, 2]).unwrap_err().to_string();
        assert!(error.contains("blk.1") && error.contains("linear"), "{error}");
        assert_eq!(session.len(), 0);
    }
}

/// Bytes of all tensors, each padded to the alignment.
fn data_bytes(file: &Gguf) -> usize {
    file.tensors()
        .iter()
        .map(|t| (t.offset() + t.n_bytes().expect("a known type")).next_multiple_of(file.alignment()))
        .max()
        .unwrap_or(0) as usize
}

#[test]
fn too_little_memory_is_said_before_anything_is_loaded() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let options = Options { context: Some(usize::MAX / (1 << 20)), ..best() };
    let refused = Model::from_gguf(common::file(shape, Format::Q8_0), &options, &|_, _| {
        panic!("nothing is loaded");
    });
    let error = refused.err().expect("a cache larger than any machine").to_string();
    assert!(error.contains("MiB cache") && error.contains("-c"), "{error}");
}
