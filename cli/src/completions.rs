//! `llamay completions`: scripts that teach a shell the commands and options.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::error::CliError;
use crate::output;

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  llamay completions bash > ~/.local/share/bash-completion/completions/llamay"
)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "llamay", &mut script);
    output::print_bytes(&script)
}
