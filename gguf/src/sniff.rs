//! What a file that is not GGUF seems to be.

/// A phrase for what these bytes look like, with what to do about it where that is known.
pub(crate) fn looks_like(bytes: &[u8]) -> String {
    const PREFIXES: &[(&[u8], &str)] = &[
        (b"PK\x03\x04", "it looks like a zip archive, such as a PyTorch checkpoint or a Python wheel"),
        (b"version https://git-lfs", "it is a Git LFS pointer; `git lfs pull` fetches the model itself"),
        (b"\x1f\x8b", "it is compressed with gzip; unpack it first"),
        (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; unpack it first"),
        (b"\xfd7zXZ\x00", "it is compressed with xz; unpack it first"),
        (b"BZh", "it is compressed with bzip2; unpack it first"),
        (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive; unpack it first"),
        (b"lmgg", "it is in the GGML format that GGUF replaced; convert the model again"),
        (b"fmgg", "it is in the GGMF format that GGUF replaced; convert the model again"),
        (b"tjgg", "it is in the GGJT format that GGUF replaced; convert the model again"),
        (b"algg", "it is a GGLA adapter, which GGUF replaced; convert it again"),
        (b"FUGG", "its magic is written backwards; even big-endian files start with \"GGUF\""),
        (b"\x80\x02", "it looks like a Python pickle, an old PyTorch checkpoint"),
        (b"\x89HDF", "it is an HDF5 file"),
        (b"\x93NUMPY", "it is a NumPy array"),
        (b"\x7fELF", "it is a program"),
        (b"%PDF", "it is a PDF document"),
    ];
    if bytes.is_empty() {
        return "the file is empty".into();
    }
    if let Some((_, what)) = PREFIXES.iter().find(|(prefix, _)| bytes.starts_with(prefix)) {
        return (*what).into();
    }
    if is_safetensors(bytes) {
        return "it is a safetensors file; convert the model to GGUF first".into();
    }
    let head = &bytes[..bytes.len().min(512)];
    let text = head.trim_ascii_start();
    if starts_with_ignoring_case(text, b"<!doctype html") || starts_with_ignoring_case(text, b"<html") {
        return "it is a web page, probably an error or a login that was saved in place of the model".into();
    }
    if text.starts_with(b"{") {
        return "it looks like JSON".into();
    }
    if crate::MAGIC.starts_with(bytes) {
        return "the file ends within the magic".into();
    }
    if head.iter().all(|&b| b == 0) {
        return "it starts with zeros, like a download that was never finished".into();
    }
    format!("it starts with \"{}\" and not with \"GGUF\"", bytes[..bytes.len().min(4)].escape_ascii())
}

/// A safetensors file is a `u64` length and a JSON object of that length.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((len, rest)) = bytes.split_first_chunk::<8>() else { return false };
    rest.first() == Some(&b'{') && u64::from_le_bytes(*len) < 1 << 32
}

fn starts_with_ignoring_case(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}
