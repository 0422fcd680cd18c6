//! `llamay`, the one binary: a command line over `llamay-engine`.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 success, 1 failure, 2 wrong usage,
//! 130 interrupted.

mod args;
mod bench;
mod chat;
mod completions;
mod devices;
mod error;
mod generation;
mod inspect;
mod logits;
mod output;
mod perplexity;
mod quantize;
mod run;
#[cfg(unix)]
mod sigill;
mod speculation;
mod tokenize;
mod verify;
mod version;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    #[cfg(unix)]
    sigill::explain();
    let cli = Cli::parse_from(bench::long_names(std::env::args_os()));
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Perplexity(args) => perplexity::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Version(args) => version::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(message) = error.message() {
                output::note(&format!("error: {message}"));
            }
            error.exit_code()
        }
    }
}
