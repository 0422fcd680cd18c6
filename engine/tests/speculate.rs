//! Speculative decoding changes how many forward calls a text takes, and nothing else.

mod common;

use common::{bits, file, open, tokens, with};
use llamay_engine::gguf::{Gguf, Writer};
use llamay_engine::sampling::SamplingParams;
use llamay_engine::{
    Cancel, Chat, DraftOptions, DraftStats, Finish, GenerateOptions, Isa, Model, Options, Session, Speculator,
};
use llamay_formats::Format;
use llamay_model::shapes::{N_VOCAB, Shape};
use proptest::prelude::*;
use proptest::sample::Index;

/// Who guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guesser {
    Lookup,
    /// The model's own weights in a coarser format: right often, wrong often.
    Coarse,
    /// The model itself, which is always right.
    Itself,
}

const GUESSERS: [Guesser; 3] = [Guesser::Lookup, Guesser::Coarse, Guesser::Itself];

/// A generated model and its draft model.
struct Pair {
    model: Model,
    coarse: Model,
}

impl Pair {
    fn new(shape: &Shape, options: &Options) -> Pair {
        let coarse =
            [Format::Q4_0, Format::Q8_0].into_iter().find(|f| shape.formats().any(|other| other == *f));
        Pair {
            model: open(shape, Format::F32, options),
            coarse: open(shape, coarse.unwrap_or(Format::F16), options),
        }
    }

    fn named(name: &str, options: &Options) -> Pair {
        Pair::new(Shape::named(name).expect("a generated model"), options)
    }

    fn speculator(&self, guesser: Guesser, options: &DraftOptions) -> Speculator {
        match guesser {
            Guesser::Lookup => Speculator::lookup(options),
            Guesser::Coarse => Speculator::draft(&self.coarse, &self.model, options),
            Guesser::Itself => Speculator::draft(&self.model, &self.model, options),
        }
        .expect("a draft model that fits")
    }
}

fn best(context: usize) -> Options {
    Options { context: Some(context), ..with(Isa::best(None), 1) }
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    let sampling = SamplingParams::greedy();
    GenerateOptions { max_tokens: Some(max_tokens), sampling, ignore_eos: true, ..GenerateOptions::default() }
}

/// All that a generation leaves behind, but for times.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    pieces: Vec<String>,
    text: String,
    tokens: Vec<u32>,
    finish: Finish,
    session: Vec<u32>,
    n_computed: usize,
    logits: Vec<u32>,
}

/// Generates, and cancels after so many pieces of text.
fn say(
    session: &mut Session,
    prompt: &[u32],
    options: &GenerateOptions,
    cancel_after: usize,
) -> (Said, Option<DraftStats>) {
    let cancel = Cancel::new();
    let (mut pieces, stop) = (Vec::new(), cancel.clone());
    let done = session
        .generate(prompt, options, &cancel, &mut |text| {
            pieces.push(text.to_owned());
            if pieces.len() == cancel_after {
                stop.cancel();
            }
        })
        .unwrap();
    let said = Said {
        pieces,
        text: done.text,
        tokens: done.tokens,
        finish: done.finish,
        session: session.tokens().to_vec(),
        n_computed: session.n_computed(),
        logits: bits(session.last_logits()),
    };
    (said, done.stats.drafts)
}

/// A prompt that repeats itself, so that look-up has something to find.
fn prompt(n: usize) -> Vec<u32> {
    tokens(7).into_iter().cycle().take(n).collect()
}

#[test]
fn every_model_says_greedily_what_it_says_without() {
    let mut total = [DraftStats::default(); GUESSERS.len()];
    for shape in Shape::all() {
        let pair = Pair::new(shape, &best(120));
        let plain = say(&mut pair.model.session(), &prompt(24), &greedy(48), usize::MAX);
        assert_eq!((plain.0.tokens.len(), plain.1), (48, None));
        for (guesser, total) in GUESSERS.into_iter().zip(&mut total) {
            let mut session = pair.model.session();
            session.set_speculator(Some(pair.speculator(guesser, &DraftOptions { max: 8, min_p: 0.0 })));
            let (said, drafts) = say(&mut session, &prompt(24), &greedy(48), usize::MAX);
            assert_eq!(said, plain.0, "{} {guesser:?}", shape.name());
            let drafts = drafts.expect("a speculator");
            total.drafts += drafts.drafts;
            total.guessed += drafts.guessed;
            total.accepted += drafts.accepted;
        }
    }
    let [lookup, coarse, itself] = total;
    assert!(0 < lookup.accepted && lookup.accepted < lookup.guessed, "{lookup:?}");
    assert!(0 < coarse.accepted && coarse.accepted < coarse.guessed, "{coarse:?}");
    assert!(itself.accepted == itself.guessed && itself.mean_accepted() > 4.0, "{itself:?}");
}

/// What a property is tried on.
#[derive(Clone, Debug)]
struct Trial {
    shape: Index,
    guesser: Index,
    draft: DraftOptions,
    batch: usize,
    context: usize,
    prompt: usize,
    sampling: SamplingParams,
    /// Added to the logit of the end of a text.
    end: f32,
    max_tokens: Option<usize>,
    stop_at: Option<Index>,
    cancel_after: usize,
    /// Tokens that are taken back before the second generation.
    taken: usize,
    fork: bool,
}

fn trial() -> impl Strategy<Value = Trial> {
    let sampling = (prop_oneof![Just(0.0f32), Just(0.8), Just(2.0)], any::<u64>(), any::<bool>()).prop_map(
        |(temperature, seed, penalties)| SamplingParams {
            temperature,
            seed: Some(seed),
            repeat_penalty: if penalties { 1.3 } else { 1.0 },
            frequency_penalty: if penalties { 0.2 } else { 0.0 },
            ..SamplingParams::default()
        },
    );
    let draft = (1..20usize, prop_oneof![Just(0.0f32), Just(0.02), Just(0.5)])
        .prop_map(|(max, min_p)| DraftOptions { max, min_p });
    let sizes = (prop_oneof![1..4usize, Just(64usize)], 60..140usize, 2..40usize);
    let ends = (
        prop_oneof![Just(0.0f32), Just(2.0), Just(6.0)],
        prop::option::of(0..60usize),
        prop::option::of(any::<Index>()),
        prop_oneof![3 => Just(usize::MAX), 1 => 1..20usize],
    );
    let again = (0..30usize, any::<bool>());
    ((any::<Index>(), any::<Index>(), draft), sizes, sampling, ends, again).prop_map(
        |((shape, guesser, draft), (batch, context, prompt), sampling, ends, (taken, fork))| Trial {
            shape,
            guesser,
            draft,
            batch,
            context,
            prompt,
            sampling,
            end: ends.0,
            max_tokens: ends.1,
            stop_at: ends.2,
            cancel_after: ends.3,
            taken,
            fork,
        },
    )
}

/// Layers that see all, windows of several kinds, sinks, and experts.
const SHAPES: [&str; 6] = ["llama-gqa", "mistral-window", "gemma3-deep", "gpt-oss", "qwen3moe", "exaone4"];

/// Two generations of one conversation, with tokens taken back between; also of a fork, if asked for.
fn converse(
    trial: &Trial,
    model: &Model,
    options: &GenerateOptions,
    guesser: Option<Speculator>,
) -> Vec<Said> {
    let mut session = model.session();
    session.set_speculator(guesser);
    let mut said = vec![say(&mut session, &prompt(trial.prompt), options, trial.cancel_after).0];
    let keep = session.len().saturating_sub(trial.taken).max(1);
    session.truncate(keep);
    let mut other = trial.fork.then(|| session.fork());
    let more = prompt(5.min(model.context() - session.len()));
    for session in [Some(&mut session), other.as_mut()].into_iter().flatten() {
        if !more.is_empty() {
            said.push(say(session, &more, options, usize::MAX).0);
        }
    }
    said
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever ends a text: its length, the context, a stop text or the model in the middle of a draft, a signal.
    #[test]
    fn a_conversation_is_the_same_with_and_without(trial in trial()) {
        let options = Options { batch: Some(trial.batch), ..best(trial.context) };
        let pair = Pair::named(SHAPES[trial.shape.index(SHAPES.len())], &options);
        let mut sampling = trial.sampling.clone();
        let ends = pair.model.tokenizer().eog();
        sampling.logit_bias = ends.iter().map(|token| (*token, trial.end)).collect();
        let mut options = GenerateOptions {
            max_tokens: trial.max_tokens,
            sampling,
            stop: Vec::new(),
            ignore_eos: false,
        };
        if let Some(at) = trial.stop_at {
            // A stop text that does come up.
            let text = converse(&trial, &pair.model, &options, None).swap_remove(0).text;
            let chars: Vec<char> = text.chars().collect();
            if !chars.is_empty() {
                let at = at.index(chars.len());
                options.stop.push(chars[at..(at + 2).min(chars.len())].iter().collect());
            }
        }
        let guesser = GUESSERS[trial.guesser.index(GUESSERS.len())];
        let plain = converse(&trial, &pair.model, &options, None);
        let speculator = pair.speculator(guesser, &trial.draft);
        prop_assert_eq!(converse(&trial, &pair.model, &options, Some(speculator)), plain);
    }
}

#[test]
fn windows_that_have_long_moved_on_change_nothing() {
    for name in ["mistral-window", "gemma3"] {
        let pair = Pair::named(name, &best(1200));
        let plain = say(&mut pair.model.session(), &prompt(700), &greedy(300), usize::MAX).0;
        for guesser in GUESSERS {
            let mut session = pair.model.session();
            session.set_speculator(Some(pair.speculator(guesser, &DraftOptions { max: 64, min_p: 0.0 })));
            let (said, drafts) = say(&mut session, &prompt(700), &greedy(300), usize::MAX);
            assert_eq!(said, plain, "{name} {guesser:?}");
            let accepted = drafts.expect("a speculator").accepted;
            assert!(accepted > 0 || guesser == Guesser::Lookup, "{name} {guesser:?}: {drafts:?}");
        }
    }
}

/// The draft model draws with the numbers that the model will draw with.
#[test]
fn a_model_that_drafts_for_itself_is_never_refused_at_any_temperature() {
    let pair = Pair::named("llama-gqa", &best(300));
    for temperature in [0.0, 1.0, 3.0] {
        let sampling = SamplingParams {
            temperature,
            seed: Some(5),
            repeat_penalty: 1.1,
            logit_bias: vec![(7, 1.0)],
            ..SamplingParams::default()
        };
        let options = GenerateOptions { sampling, ..greedy(200) };
        let mut session = pair.model.session();
        session.set_speculator(Some(pair.speculator(Guesser::Itself, &DraftOptions { max: 16, min_p: 0.0 })));
        let (said, drafts) = say(&mut session, &prompt(20), &options, usize::MAX);
        assert_eq!(said.tokens.len(), 200);
        let drafts = drafts.expect("a speculator");
        assert_eq!(drafts.guessed, drafts.accepted, "at {temperature}");
        // One token of each forward call is not guessed, and the first is the prompt's.
        assert_eq!(drafts.accepted + drafts.drafts + 1, 200);
        assert!(drafts.mean_accepted() > 12.0, "{drafts:?}");
    }
}

#[test]
fn a_draft_ends_where_its_model_is_unsure() {
    let pair = Pair::named("llama-gqa", &best(200));
    let guessed = |min_p| {
        let mut session = pair.model.session();
        session.set_speculator(Some(pair.speculator(Guesser::Itself, &DraftOptions { max: 8, min_p })));
        say(&mut session, &prompt(20), &greedy(100), usize::MAX).1.expect("a speculator").guessed
    };
    assert!(guessed(0.0) > guessed(0.1));
    assert_eq!(guessed(1.0), 0);
}

#[test]
fn a_draft_model_with_a_shorter_context_guesses_until_that_is_full() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let (model, draft) = (open(shape, Format::F32, &best(200)), open(shape, Format::F32, &best(60)));
    let plain = say(&mut model.session(), &prompt(20), &greedy(150), usize::MAX).0;
    let mut session = model.session();
    let options = DraftOptions { max: 8, min_p: 0.0 };
    session.set_speculator(Some(Speculator::draft(&draft, &model, &options).unwrap()));
    let (said, drafts) = say(&mut session, &prompt(20), &greedy(150), usize::MAX);
    assert_eq!(said, plain);
    assert!(drafts.is_some_and(|d| (20..=40).contains(&d.accepted)), "{drafts:?}");
}

#[test]
fn a_chat_speculates_over_its_turns() {
    let pair = Pair::named("llama-gqa", &best(512));
    let talk = |speculator| {
        let mut chat = Chat::new(&pair.model).unwrap();
        chat.set_speculator(speculator);
        let mut drafts = Vec::new();
        for text in ["one two three one two three", "one two", "three one two"] {
            let reply = chat.say(text, &greedy(20), &Cancel::new(), &mut |_| {}).unwrap();
            drafts.push(reply.generation.stats.drafts);
        }
        (chat.messages().to_vec(), drafts)
    };
    let plain = talk(None).0;
    for guesser in GUESSERS {
        let (messages, drafts) = talk(Some(pair.speculator(guesser, &DraftOptions::default())));
        assert_eq!(messages, plain, "{guesser:?}");
        assert!(drafts.iter().all(Option::is_some), "counts are each answer's own: {drafts:?}");
    }
}

/// The model's file with `n` tokens more that nobody says, and its tensors changed by `edit`.
fn edited(shape: &Shape, n: usize, edit: impl Fn(&str, &mut Vec<u8>)) -> Gguf {
    let file = file(shape, Format::F32);
    let metadata = file.metadata();
    let mut names: Vec<String> =
        metadata.need_strings("tokenizer.ggml.tokens").unwrap().iter().map(str::to_owned).collect();
    let mut types: Vec<i32> = metadata.need_i32s("tokenizer.ggml.token_type").unwrap().iter().collect();
    names.extend((0..n).map(|i| format!("[PAD{i}]")));
    types.resize(names.len(), 5);
    let mut writer = Writer::default();
    writer.set_all(metadata);
    writer.set("tokenizer.ggml.tokens", names).set("tokenizer.ggml.token_type", types);
    for tensor in file.tensors() {
        let (mut dims, mut data) = (tensor.dims.to_vec(), file.data(tensor).unwrap().into_owned());
        if dims.last() == Some(&(N_VOCAB as u64)) {
            dims[1] += n as u64;
            data.resize(data.len() + n * dims[0] as usize * 4, 0);
        }
        edit(&tensor.name, &mut data);
        writer.tensor(&tensor.name, &dims, tensor.format().unwrap(), data);
    }
    Gguf::from_bytes(writer.to_vec().unwrap()).unwrap()
}

#[test]
fn vocabularies_may_be_padded_in_other_ways() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let load = |n| Model::from_gguf(edited(shape, n, |_, _| {}), &best(200), &|_, _| {}).unwrap();
    // The last prompt has a token that only the longer vocabulary knows.
    for (n_model, n_draft, odd) in [(0, 9, None), (9, 0, None), (9, 0, Some(N_VOCAB as u32 + 3))] {
        let (model, draft) = (load(n_model), load(n_draft));
        assert_eq!(model.n_vocab(), N_VOCAB + n_model);
        let prompt: Vec<u32> = prompt(20).into_iter().chain(odd).collect();
        let plain = say(&mut model.session(), &prompt, &greedy(60), usize::MAX).0;
        let mut session = model.session();
        let options = DraftOptions { max: 8, min_p: 0.0 };
        session.set_speculator(Some(Speculator::draft(&draft, &model, &options).unwrap()));
        let (said, drafts) = say(&mut session, &prompt, &greedy(60), usize::MAX);
        assert_eq!(said, plain);
        assert!(drafts.is_some_and(|d| d.accepted > 0), "{drafts:?}");
    }
}

#[test]
fn an_error_of_the_draft_model_says_whose_it_is_and_leaves_the_session_whole() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let broken = edited(shape, 0, |name, data| {
        if name == "blk.1.ffn_down.weight" {
            data[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
    });
    let model = open(shape, Format::F32, &best(200));
    let draft = Model::from_gguf(broken, &best(200), &|_, _| {}).unwrap();
    let mut session = model.session();
    session.set_speculator(Some(Speculator::draft(&draft, &model, &DraftOptions::default()).unwrap()));
    let failed = session.generate(&prompt(20), &greedy(20), &Cancel::new(), &mut |_| {}).unwrap_err();
    let message = failed.to_string();
    assert!(message.starts_with("draft model: ") && message.contains("blk.1"), "{message}");
    assert_eq!(session.tokens(), prompt(20));
    session.set_speculator(None);
    let mut plain = model.session();
    plain.feed(&prompt(20)).unwrap();
    assert_eq!(say(&mut session, &[1], &greedy(9), 99).0, say(&mut plain, &[1], &greedy(9), 99).0);
}

#[test]
fn another_vocabulary_is_refused_by_its_first_other_token() {
    let named = |name| open(Shape::named(name).expect("a generated model"), Format::F32, &best(64));
    let (bpe, spm) = (named("llama-gqa"), named("gemma3"));
    let refused = Speculator::draft(&spm, &bpe, &DraftOptions::default()).err().expect("other tokens");
    assert_eq!(
        refused.to_string(),
        "the draft model has another vocabulary: its token 0 is \"<unk>\", and the model's is \"Ā\""
    );
}

#[test]
fn options_out_of_range_are_refused() {
    for (max, min_p, part) in
        [(0, 0.5, "between 1 and 64"), (65, 0.5, "65"), (8, 1.5, "1.5"), (8, f32::NAN, "NaN")]
    {
        let refused = Speculator::lookup(&DraftOptions { max, min_p }).err().expect("a bad option");
        assert!(refused.to_string().contains(part), "{refused}");
    }
}

#[test]
fn a_draft_model_takes_its_share_of_memory_and_context() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let draft = file(shape, Format::Q8_0);
    let wish = Options { context: Some(700), ..best(700) };
    let options = wish.for_draft(&draft).unwrap();
    assert_eq!(options.context, Some(512), "what it was trained with");
    let needs = Model::needs(&draft, &options).unwrap();
    let opened = Model::from_gguf(draft, &options, &|_, _| {}).unwrap();
    assert_eq!(needs, opened.memory().full());
    let reserved = Options { reserved: 1 << 60, ..wish };
    let refused = Model::from_gguf(file(shape, Format::Q8_0), &reserved, &|_, _| panic!("nothing is loaded"));
    let error = refused.err().expect("more than any machine has").to_string();
    assert!(error.contains("a draft model"), "{error}");
}
