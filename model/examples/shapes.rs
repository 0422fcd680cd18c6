//! Writes the generated models as GGUF files, for other programs to read.
//!
//! ```text
//! cargo run --release -p llamay-model --example shapes -- FOLDER FORMAT [NAME ...]
//! ```
//!
//! Standard output gets one JSON object a file: `name`, `architecture`, `path`, and `tokens`, the sequence of the model's
//! reference. Models whose rows are no whole blocks of the format are left out, with a line on standard error.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use llamay_formats::Format;
use llamay_model::reference::Reference;
use llamay_model::shapes::{N_VOCAB, Shape};

fn main() -> ExitCode {
    match run(&env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), String> {
    let [folder, format, names @ ..] = args else {
        return Err("usage: shapes FOLDER FORMAT [NAME ...]".to_owned());
    };
    let format = Format::from_name(format).ok_or(format!("{format} is no format"))?;
    let named = |name: &String| Shape::named(name).ok_or(format!("no generated model is called {name}"));
    let shapes = if names.is_empty() {
        Shape::all().iter().collect()
    } else {
        names.iter().map(named).collect::<Result<Vec<_>, _>>()?
    };
    fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    for shape in shapes {
        if !shape.formats().any(|f| f == format) {
            eprintln!("{}: left out, as {format} does not fit all of its rows", shape.name());
            continue;
        }
        let path = Path::new(folder).join(format!("{}.gguf", shape.name()));
        let file = shape.gguf(format).map_err(|e| e.to_string())?;
        fs::write(&path, file).map_err(|e| format!("{}: {e}", path.display()))?;
        println!(
            r#"{{"name": {:?}, "architecture": {:?}, "path": {path:?}, "tokens": {:?}}}"#,
            shape.name(),
            shape.architecture(),
            tokens(shape)
        );
    }
    Ok(())
}

/// The tokens of the shape's reference; of one without, as many in no particular order.
fn tokens(shape: &'static Shape) -> Vec<u32> {
    let scattered = || (0..56).map(|i| (i * 61 + i / 7 + 3) % N_VOCAB as u32).collect();
    Reference::of(shape).map_or_else(scattered, |reference| reference.tokens)
}
