//! Runs the binary on generated models in folders of their own.
#![allow(dead_code, unreachable_pub)] // each test file uses a part

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use llamay_formats::Format;
use llamay_model::shapes::Shape;

/// A folder that goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("llamay-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a file in the temporary folder");
        path
    }

    /// Writes a generated model.
    pub fn model(&self, shape: &str, format: Format) -> PathBuf {
        let shape = Shape::named(shape).expect("a generated model");
        self.file(&format!("{}-{format}.gguf", shape.name()), shape.gguf(format).expect("a format that fits"))
    }

    /// A model with a chat template, and BPE without BOS.
    pub fn chat_model(&self) -> PathBuf {
        self.model("llama-gqa", Format::Q8_0)
    }

    /// A model without a chat template, and SPM with BOS.
    pub fn plain_model(&self) -> PathBuf {
        self.model("mistral-window", Format::Q8_0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The binary, with nothing from the environment that would change what it does; LLAMAY_BACKEND changes no result.
pub fn llamay<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llamay"));
    command.args(args).stdin(Stdio::null());
    for name in ["LLAMAY_THREADS", "LLAMAY_ISA", "LLAMAY_GPU"] {
        command.env_remove(name);
    }
    command
}

/// How a run went.
pub struct Ran {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().expect("an exit code, not a signal"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
        }
    }

    /// Standard output of a run that has to have succeeded.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!(self.code, 0, "{}", self.stderr);
        std::str::from_utf8(&self.stdout).expect("UTF-8 on standard output")
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.ok()).unwrap_or_else(|e| panic!("{e}: {}", self.ok()))
    }

    /// The error of a run that has to have failed with this code, and printed nothing as a result.
    #[track_caller]
    pub fn error(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert!(self.stdout.is_empty(), "{}", String::from_utf8_lossy(&self.stdout));
        let at = self.stderr.find("error: ").unwrap_or_else(|| panic!("no error in {:?}", self.stderr));
        self.stderr[at..].trim_end()
    }
}

pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    Ran::of(llamay(args).output().expect("the binary starts"))
}

/// As [`run`], with something on standard input.
pub fn run_with_input<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, input: &str) -> Ran {
    let mut child = piped(args);
    let mut stdin = child.stdin.take().expect("a pipe");
    // The program may end without reading all.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    Ran::of(child.wait_with_output().expect("the binary ends"))
}

/// The binary with pipes on all sides.
pub fn piped<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Child {
    let mut command = llamay(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary starts")
}

/// A path as an argument.
pub fn arg(path: &Path) -> &str {
    path.to_str().expect("a temporary path is UTF-8")
}
