//! Timing one shape.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use llamay_engine::plan::Ceilings;
use llamay_engine::{Cancel, Isa, Logits, Model, Options, Session};

use super::Shape;
use super::profile::Profiled;
use crate::args::{self, Adapters, Kv};
use crate::error::CliError;

/// How a shape is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) n_batch: usize,
    pub(super) n_ubatch: usize,
    pub(super) kv: Kv,
    pub(super) threads: Option<usize>,
}

/// A model for some case.
pub(super) struct Opened {
    pub(super) model: Model,
    pub(super) path: PathBuf,
    pub(super) threads: usize,
    pub(super) isa: Isa,
}

/// One line of the results.
pub(super) struct Measured {
    pub(super) case: Case,
    pub(super) shape: Shape,
    pub(super) threads: usize,
    pub(super) path: PathBuf,
    pub(super) model: Model,
    /// When the measurement began, since the Unix epoch.
    pub(super) began: Duration,
    /// Times of the repetitions.
    pub(super) samples: Vec<Duration>,
    /// Where the time went, if that was asked for.
    pub(super) profile: Option<Profiled>,
}

/// Opens the model with a context that holds the longest shape.
pub(super) fn open(
    path: &Path,
    case: Case,
    shapes: &[Shape],
    device: &args::Device,
    adapters: &Adapters,
) -> Result<Opened, CliError> {
    let env = device.choose(Options::from_env()?);
    let options = Options {
        threads: case.threads.or(env.threads),
        context: shapes.iter().map(Shape::context).max(),
        kv: case.kv.into(),
        adapters: adapters.lora.clone(),
        batch: Some(case.n_batch.min(case.n_ubatch)),
        ..env
    };
    let threads = options.threads.unwrap_or_else(llamay_engine::available_threads);
    let model = args::open(path, &options, |_| Ok(()))?.model;
    Ok(Opened { model, path: path.to_owned(), threads, isa: Isa::best(options.isa) })
}

/// Times a shape, after one run of it that is not timed. `done` is called after each repetition. With `ceilings`, the steps
/// are timed too.
pub(super) fn measure(
    opened: &Opened,
    case: Case,
    shape: Shape,
    repetitions: usize,
    ceilings: Option<Ceilings>,
    done: &dyn Fn(),
) -> Result<Measured, CliError> {
    let model = &opened.model;
    let mut deep = model.session();
    let mut tokens = Tokens::new(model);
    let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();

    prefill(&mut deep, &tokens.some(shape.n_depth))?;
    // Of a fork, every repetition finds the same cache, also where windows have to be left behind.
    let mut session = deep.fork();
    // Generation is warm after one token; a prompt has to be as long as the one that is timed.
    once(&mut session, &mut tokens, Shape { n_gen: shape.n_gen.min(1), ..shape })?;
    let mut samples = Vec::with_capacity(repetitions);
    let mut profiled: Option<Profiled> = None;
    for _ in 0..repetitions {
        drop(session);
        session = deep.fork();
        model.profile(ceilings.is_some());
        let start = Instant::now();
        once(&mut session, &mut tokens, shape)?;
        let elapsed = start.elapsed();
        let profile = model.take_profile();
        let time = elapsed.saturating_sub(profile.counting);
        samples.push(time);
        match &mut profiled {
            Some(profiled) => profiled.add(&profile, time),
            None => profiled = ceilings.map(|c| Profiled::new(c, opened.isa, profile, time)),
        }
        done();
    }
    model.profile(false);
    Ok(Measured {
        case,
        shape,
        threads: opened.threads,
        path: opened.path.clone(),
        model: model.clone(),
        began,
        samples,
        profile: profiled,
    })
}

/// Feeds the shape's prompt and then its generated tokens, each with its logits.
fn once(session: &mut Session, tokens: &mut Tokens, shape: Shape) -> Result<(), CliError> {
    if session.is_empty() {
        tokens.begin();
    }
    prefill(session, &tokens.some(shape.n_prompt))?;
    for _ in 0..shape.n_gen {
        session.feed(&tokens.some(1))?;
    }
    Ok(())
}

fn prefill(session: &mut Session, tokens: &[u32]) -> Result<(), CliError> {
    session.feed_with(tokens, Logits::Last, &Cancel::new(), &mut |_| {})?;
    Ok(())
}

/// Tokens of no meaning, the same in every run: BOS where the model wants one, then any of the vocabulary.
struct Tokens {
    n_vocab: u64,
    bos: Option<u32>,
    first: bool,
    state: u64,
}

impl Tokens {
    fn new(model: &Model) -> Tokens {
        let bos = model.tokenizer().bos().filter(|_| model.tokenizer().add_bos());
        Tokens { n_vocab: model.n_vocab() as u64, bos, first: true, state: 0 }
    }

    /// The next token is the first of a context.
    fn begin(&mut self) {
        self.first = true;
    }

    fn some(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> u32 {
        if std::mem::take(&mut self.first)
            && let Some(bos) = self.bos
        {
            return bos;
        }
        // Knuth's MMIX constants; the upper half of the state is random enough.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Below `n_vocab`, which is below 2^32.
        (((self.state >> 32) * self.n_vocab) >> 32) as u32
    }
}
