//! Layers with a window forget what no token sees any more, and no logit tells.

mod common;

use common::{best, bits, open, tokens, with};
use llamay_engine::plan::{KV_PAGE, KV_ROLLBACK};
use llamay_engine::{Cancel, Feed, Logits, Model, Options, Session};
use llamay_formats::Format;
use llamay_model::shapes::{N_VOCAB, Shape};
use proptest::prelude::*;
use proptest::sample::Index;

/// Only windows; windows and other layers in turn; a pattern of six.
const SHAPES: [&str; 3] = ["mistral-window", "gemma3", "gemma3-deep"];

fn model(name: &str, batch: usize) -> Model {
    let options = Options { batch: Some(batch), context: Some(4096), ..with(best(), 2) };
    open(Shape::named(name).expect("a generated model"), Format::F32, &options)
}

/// The last logits behind `tokens` in a session of their own.
fn fresh(model: &Model, tokens: &[u32]) -> Vec<u32> {
    let mut session = model.session();
    session.feed(tokens).unwrap();
    bits(session.last_logits())
}

/// Bytes of the cache of a session that grows to `n` tokens, by the plan.
fn told(model: &Model, n: usize, batch: usize) -> u64 {
    let pages = |n: usize| n.next_multiple_of(KV_PAGE);
    model.plan().kv_bytes(Options::default().kv, pages(n), batch)
}

/// What may happen to one of some sessions.
#[derive(Clone, Debug)]
enum Event {
    /// So many tokens come, of which the first says which.
    Feed(usize, u32),
    /// A few of the last tokens go, as when a draft was wrong.
    TakeBack(usize),
    /// All tokens from some place on go.
    Truncate(Index),
    /// A fork takes the place of another session.
    Fork(Index),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..1000usize, 0..N_VOCAB as u32).prop_map(|(n, first)| Event::Feed(n, first)),
        2 => (1..9usize, 0..N_VOCAB as u32).prop_map(|(n, first)| Event::Feed(n, first)),
        2 => (1..30usize).prop_map(Event::TakeBack),
        1 => any::<Index>().prop_map(Event::Truncate),
        1 => any::<Index>().prop_map(Event::Fork),
    ]
}

/// Runs the events over three sessions and compares each with a fresh one at the end; every session then takes one more
/// token, all in one batch.
fn run(name: &str, batch: usize, events: &[(Index, Event)]) {
    const MOST: usize = 1500;
    let model = model(name, batch);
    let mut sessions: Vec<Session> = (0..3).map(|_| model.session()).collect();
    let mut wanted: Vec<Vec<u32>> = vec![Vec::new(); sessions.len()];
    for (which, event) in events {
        let at = which.index(sessions.len());
        let session = &mut sessions[at];
        match event {
            Event::Feed(n, first) => {
                let n = (*n).min(MOST - session.len());
                let new: Vec<u32> = tokens(n).iter().map(|t| (t + first) % N_VOCAB as u32).collect();
                session.feed(&new).unwrap();
                wanted[at].extend(&new);
            }
            Event::TakeBack(n) => {
                let n = session.len().saturating_sub(*n);
                session.truncate(n);
                wanted[at].truncate(n);
            }
            Event::Truncate(n) => {
                let n = n.index(session.len() + 1);
                session.truncate(n);
                wanted[at].truncate(n);
            }
            Event::Fork(from) => {
                let from = from.index(sessions.len());
                sessions[at] = sessions[from].fork();
                wanted[at] = wanted[from].clone();
            }
        }
        let (session, wanted) = (&sessions[at], &wanted[at]);
        assert_eq!(session.tokens(), wanted);
        assert!(session.n_computed() == session.len() || session.n_computed() == 0);
        assert!(session.cache_bytes() as u64 <= told(&model, session.len(), batch));
    }
    let mut feeds: Vec<Feed<'_>> =
        sessions.iter_mut().map(|session| Feed { session, tokens: &[7], logits: Logits::Last }).collect();
    model.forward(&mut feeds).unwrap();
    for (session, wanted) in sessions.iter().zip(&mut wanted) {
        wanted.push(7);
        assert!(bits(session.last_logits()) == fresh(&model, wanted), "{name}, {} tokens", wanted.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sessions_that_grow_shrink_and_fork_equal_fresh_ones(
        shape in 0..SHAPES.len(),
        batch in prop_oneof![1 => Just(512usize), 2 => 30..200usize, 1 => 600..1000usize],
        events in prop::collection::vec((any::<Index>(), event()), 1..14),
    ) {
        run(SHAPES[shape], batch, &events);
    }
}

#[test]
fn the_pages_held_stay_bounded_while_a_session_grows() {
    for name in SHAPES {
        for batch in [64, 512] {
            let model = model(name, batch);
            let groups = model.plan().kv_groups();
            let per_token = |windowed: bool| -> usize {
                let groups = groups.iter().filter(|g| g.window.is_some() == windowed);
                groups.map(|g| g.bytes_per_token(Options::default().kv)).sum()
            };
            let mut session = model.session();
            for chunk in tokens(2000).chunks(200) {
                session.feed(chunk).unwrap();
                let n = session.len();
                let windowed = session.cache_bytes() - per_token(false) * n.next_multiple_of(KV_PAGE);
                // The window, what may be taken back, and the ends of the first and the last page.
                let most = (12 + KV_ROLLBACK + 2 * KV_PAGE).min(n.next_multiple_of(KV_PAGE));
                assert!(windowed <= per_token(true) * most, "{name}: {windowed} at {n}");
            }
            for token in tokens(2 * KV_PAGE) {
                session.feed(&[token]).unwrap();
                assert!(session.cache_bytes() as u64 <= told(&model, session.len(), 1), "{name}");
            }
            let all = session.tokens().to_vec();
            assert_eq!(bits(session.last_logits()), fresh(&model, &all), "{name}");
        }
    }
}

#[test]
fn the_last_tokens_can_be_taken_back_without_computing_others_again() {
    let all = tokens(1200);
    for name in SHAPES {
        let model = model(name, 100);
        let mut session = model.session();
        session.feed(&all).unwrap();
        for n in [all.len() - 1, all.len() - KV_ROLLBACK + 200, all.len() - KV_ROLLBACK] {
            session.truncate(n);
            assert_eq!(session.n_computed(), n, "{name}");
        }
        session.feed(&[5, 6]).unwrap();
        let kept = &all[..all.len() - KV_ROLLBACK];
        assert_eq!(bits(session.last_logits()), fresh(&model, &[kept, &[5, 6]].concat()), "{name}");
    }
}

#[test]
fn what_windows_have_left_behind_is_computed_again() {
    let all = tokens(1300);
    for name in SHAPES {
        let model = model(name, 128);
        let mut session = model.session();
        session.feed(&all).unwrap();
        session.truncate(300);
        assert_eq!((session.len(), session.n_computed(), session.cache_bytes()), (300, 0, 0), "{name}");
        let mut fork = session.fork();
        session.truncate(290);
        session.feed(&[5, 6]).unwrap();
        assert_eq!(bits(session.last_logits()), fresh(&model, &[&all[..290], &[5, 6]].concat()), "{name}");
        model.forward(&mut [Feed { session: &mut fork, tokens: &[9], logits: Logits::All }]).unwrap();
        assert_eq!(bits(fork.last_logits()), fresh(&model, &[&all[..300], &[9]].concat()), "{name}");
    }
}

#[test]
fn a_fork_made_at_the_place_to_return_to_needs_nothing_computed_again() {
    let model = model("gemma3", 256);
    let mut session = model.session();
    session.feed(&tokens(600)).unwrap();
    let place = session.fork();
    session.feed(&tokens(900)).unwrap();
    drop(session);
    let mut again = place.fork();
    assert_eq!(again.n_computed(), 600);
    again.feed(&[1, 2]).unwrap();
    assert_eq!(bits(again.last_logits()), fresh(&model, &[tokens(600), vec![1, 2]].concat()));
}

#[test]
fn computing_again_can_be_cancelled_and_goes_on_later() {
    let model = model("mistral-window", 64);
    let mut session = model.session();
    session.feed(&tokens(900)).unwrap();
    session.truncate(200);
    let cancel = Cancel::new();
    cancel.cancel();
    let fed = session.feed_with(&[1], Logits::Last, &cancel, &mut |_| {}).unwrap();
    assert_eq!((fed, session.len()), (0, 200));
    session.feed(&[1]).unwrap();
    assert_eq!(bits(session.last_logits()), fresh(&model, &[tokens(200), vec![1]].concat()));
}

#[test]
fn a_plan_without_windows_gives_nothing_back_and_computes_nothing_again() {
    let model = model("llama-gqa", 512);
    let mut session = model.session();
    session.feed(&tokens(1000)).unwrap();
    let page = model.plan().kv_bytes_per_token(Options::default().kv) * KV_PAGE;
    assert_eq!(session.cache_bytes(), 1000usize.div_ceil(KV_PAGE) * page);
    session.truncate(1);
    assert_eq!((session.n_computed(), session.cache_bytes()), (1, page));
}
