//! Checks the promise of equal bits on this machine: every kernel set, thread count and way to cut a prompt.

use llamay_cpu::Isa;
use llamay_gguf::Gguf;

use crate::{CustomBackend, DeviceChoice, Error, Feed, Logits, Model, Options, devices};

/// One way of running the prompt, and whether its logits are the reference's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The kernel set, or the device.
    pub kernels: String,
    /// Threads.
    pub threads: usize,
    /// How the prompt was cut.
    pub mode: Mode,
    /// The first differing logit, as (position, vocabulary entry).
    pub difference: Option<(usize, usize)>,
}

/// How a prompt is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In one call.
    Whole,
    /// In calls of 7 tokens.
    Chunked,
    /// Token by token.
    Decode,
    /// In one call with the tokens of another session.
    Mixed,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 4] = [Mode::Whole, Mode::Chunked, Mode::Decode, Mode::Mixed];

    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Whole => "whole",
            Mode::Chunked => "chunked",
            Mode::Decode => "token by token",
            Mode::Mixed => "mixed batch",
        }
    }
}

/// Logits of every position of the prompt.
///
/// # Errors
/// A prompt that does not fit, or a failed step.
pub fn logits(model: &Model, prompt: &[u32], mode: Mode) -> Result<Vec<f32>, Error> {
    let mut session = model.session();
    let mut all = Vec::new();
    let mut feed = |session: &mut crate::Session, tokens: &[u32]| -> Result<(), Error> {
        model.forward(&mut [Feed { session, tokens, logits: Logits::All }])?;
        all.extend_from_slice(session.logits());
        Ok(())
    };
    match mode {
        Mode::Whole => feed(&mut session, prompt)?,
        Mode::Chunked => prompt.chunks(7).try_for_each(|c| feed(&mut session, c))?,
        Mode::Decode => prompt.chunks(1).try_for_each(|c| feed(&mut session, c))?,
        Mode::Mixed => {
            let mut other = model.session();
            let backwards: Vec<u32> = prompt.iter().rev().copied().collect();
            let half = prompt.len() / 2;
            for (mine, theirs) in
                [(&prompt[..half], &backwards[half..]), (&prompt[half..], &backwards[..half])]
            {
                model.forward(&mut [
                    Feed { session: &mut other, tokens: theirs, logits: Logits::Last },
                    Feed { session: &mut session, tokens: mine, logits: Logits::All },
                ])?;
                all.extend_from_slice(session.logits());
            }
        }
    }
    Ok(all)
}

/// Where two tables of logits first differ.
fn difference(a: &[f32], b: &[f32], n_vocab: usize) -> Option<(usize, usize)> {
    let at = a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits());
    let at = at.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())));
    at.map(|at| (at / n_vocab.max(1), at % n_vocab.max(1)))
}

/// The kernel sets of this machine, from the least to the most capable, up to the one that the options cap them at.
pub fn kernel_sets(options: &Options) -> Vec<Isa> {
    let best = Isa::best(options.isa);
    Isa::available().into_iter().filter(|isa| *isa <= best).collect()
}

/// Runs `prompt` through every one of the [`kernel_sets`], every thread count from 1 to `max_threads`, and every
/// [`Mode`], and so on the device that the options choose, if there is one; the first run, portable with one thread and
/// whole, is the reference. `open` opens the file anew for each
/// kernel set and thread count; `report` hears each result as it comes.
///
/// # Errors
/// A model that cannot be loaded, or a prompt that does not fit.
pub fn verify(
    open: &dyn Fn() -> Result<Gguf, Error>,
    prompt: &dyn Fn(&Model) -> Vec<u32>,
    options: &Options,
    max_threads: usize,
    report: &mut dyn FnMut(&Check),
) -> Result<Vec<Check>, Error> {
    let on_cpu = |isa: Isa, threads: usize| {
        let options = Options {
            isa: Some(isa),
            threads: Some(threads),
            device: DeviceChoice::Cpu,
            backend: None,
            ..options.clone()
        };
        (isa.name().to_owned(), threads, options)
    };
    let mut runs: Vec<(String, usize, Options)> = Vec::new();
    for isa in kernel_sets(options) {
        runs.extend((1..=max_threads).map(|threads| on_cpu(isa, threads)));
    }
    if let Some(device) = devices::of(options)? {
        let threads = Some(max_threads);
        let name = device.name();
        let options = Options { threads, backend: Some(CustomBackend(device)), ..options.clone() };
        runs.push((name, max_threads, options));
    }
    let mut checks = Vec::new();
    let mut reference: Option<Vec<f32>> = None;
    for (kernels, threads, options) in runs {
        let model = Model::from_gguf(open()?, &options, &|_, _| {})?;
        let prompt = prompt(&model);
        for mode in Mode::ALL {
            let got = logits(&model, &prompt, mode)?;
            let reference = reference.get_or_insert_with(|| got.clone());
            let difference = difference(&got, reference, model.n_vocab());
            let check = Check { kernels: kernels.clone(), threads, mode, difference };
            report(&check);
            checks.push(check);
        }
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_a_difference_and_says_where() {
        let a = [1.0, 2.0, 3.0, 0.0];
        assert_eq!(difference(&a, &a, 2), None);
        assert_eq!(difference(&a, &[1.0, 2.0, f32::from_bits(3.0f32.to_bits() + 1), 0.0], 2), Some((1, 0)));
        assert_eq!(difference(&a, &[1.0, 2.0, 3.0, -0.0], 2), Some((1, 1)), "the sign of zero is a bit too");
        assert_eq!(difference(&a, &a[..2], 2), Some((1, 0)));
    }
}
