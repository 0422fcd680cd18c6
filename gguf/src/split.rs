//! Models that are split over files named `model-00001-of-00003.gguf`.

use std::path::{Path, PathBuf};

use crate::{Error, Metadata};

/// The file name of part `number` (from 1) of `count`, in the convention that every tool follows.
///
/// ```
/// assert_eq!(llamay_gguf::part_name("model", 1, 3), "model-00001-of-00003.gguf");
/// ```
pub fn part_name(stem: &str, number: usize, count: usize) -> String {
    format!("{stem}-{number:05}-of-{count:05}.gguf")
}

/// How many files the model has, according to one of them.
pub(crate) fn count(metadata: &Metadata) -> Result<usize, Error> {
    Ok(metadata.u32("split.count")?.unwrap_or(1).max(1) as usize)
}

/// The files of the model that `path` is a part of, in order. They need not exist.
pub(crate) fn siblings(path: &Path, metadata: &Metadata) -> Result<Vec<PathBuf>, Error> {
    let count = count(metadata)?;
    let number = metadata.need_u32("split.no")? as usize + 1;
    let fail = |problem| Err(Error::Split { path: path.to_owned(), problem });
    if number > count {
        return fail(format!("it says it is part {number} of {count}"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let suffix = part_name("", number, count);
    // The limit keeps the list below small; five digits are all that a name has room for.
    match name.strip_suffix(&suffix) {
        Some(stem) if count <= 99_999 => {
            Ok((1..=count).map(|i| path.with_file_name(part_name(stem, i, count))).collect())
        }
        _ => fail(format!(
            "it says it is part {number} of {count}, so its name has to end in \"{suffix}\" for the others to be found"
        )),
    }
}

/// An error that lists the absent files, if any are.
pub(crate) fn all_present(path: &Path, parts: &[PathBuf]) -> Result<(), Error> {
    const MOST: usize = 3;
    let missing: Vec<_> = parts.iter().filter(|p| !p.exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut names: Vec<_> = missing.iter().take(MOST).map(|p| p.display().to_string()).collect();
    if missing.len() > MOST {
        names.push(format!("{} more", missing.len() - MOST));
    }
    let are = if missing.len() == 1 { "is" } else { "are" };
    let problem = format!(
        "of the {} parts of this model, {} {are} missing: {}",
        parts.len(),
        missing.len(),
        names.join(", ")
    );
    Err(Error::Split { path: path.to_owned(), problem })
}
