//! What ends a command early, and the exit code it gives.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use llamay_engine::Error;

/// Why a command did not finish.
#[derive(Debug)]
pub(crate) enum CliError {
    /// It could not be done: exit code 1.
    Failure(String),
    /// It was asked for in a wrong way: exit code 2.
    Usage(String),
    /// Whoever read standard output has gone, which is how `llamay … | head` ends: quietly, exit code 0.
    BrokenPipe,
    /// Ctrl-C: exit code 130, as shells expect of a program that SIGINT ended.
    Interrupted,
}

impl CliError {
    /// What to tell the user.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            CliError::Failure(message) | CliError::Usage(message) => Some(message),
            CliError::BrokenPipe | CliError::Interrupted => None,
        }
    }

    /// The same failure, told of a file.
    pub(crate) fn about(self, path: &Path) -> CliError {
        match self {
            CliError::Failure(message) => CliError::Failure(format!("{}: {message}", path.display())),
            other => other,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Failure(_) => ExitCode::FAILURE,
            CliError::Usage(_) => ExitCode::from(2),
            CliError::BrokenPipe => ExitCode::SUCCESS,
            CliError::Interrupted => ExitCode::from(130),
        }
    }

    /// An error of writing to standard output.
    pub(crate) fn stdout(error: io::Error) -> CliError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::BrokenPipe,
            _ => CliError::Failure(format!("standard output cannot be written: {error}")),
        }
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> CliError {
        match error {
            Error::Params(_) | Error::Variable { .. } => CliError::Usage(error.to_string()),
            other => CliError::Failure(other.to_string()),
        }
    }
}

impl From<llamay_engine::gguf::Error> for CliError {
    fn from(error: llamay_engine::gguf::Error) -> CliError {
        CliError::Failure(error.to_string())
    }
}

impl From<llamay_engine::tokenizer::Error> for CliError {
    fn from(error: llamay_engine::tokenizer::Error) -> CliError {
        CliError::Failure(error.to_string())
    }
}
