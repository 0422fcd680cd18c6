//! Shared by the tests and, by path, by the fuzz target.

use llamay_gguf::{Error, Gguf, Value};

/// Opens the bytes and uses everything in them that can be used. Whatever they are, nothing may panic.
pub(crate) fn open_and_use(bytes: Vec<u8>) -> Result<(), Error> {
    let gguf = Gguf::from_bytes(bytes)?;
    let metadata = gguf.metadata();
    for (key, value) in metadata.iter() {
        walk(value);
        let _ = (value.to_string(), format!("{value:?}"));
        // Each getter either gives a value or an error; both have to be printable.
        let numbers = (metadata.u32(key), metadata.i64(key), metadata.f32(key), metadata.bool(key));
        let arrays = (metadata.strings(key), metadata.f32s(key), metadata.u32s(key), metadata.bools(key));
        let _ = format!("{numbers:?} {arrays:?}");
        if let Ok(Some(strings)) = metadata.strings(key) {
            assert_eq!(strings.iter().count(), strings.len());
        }
    }
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
        // An empty tensor has no data to walk, and its shape may claim any number of rows.
        if let Ok(data) = gguf.data(tensor) {
            assert_eq!(Some(data.len() as u64), tensor.n_bytes());
        }
        let _ = (tensor.n_rows(), tensor.row_len(), tensor.kind.to_string());
        gguf.release(tensor);
    }
    Ok(())
}

fn walk(value: Value<'_>) {
    if let Value::Array(array) = value {
        assert_eq!(array.iter().len(), array.len());
        assert_eq!(array.get(array.len()), None);
        for element in array.iter() {
            assert_eq!(element.kind(), array.kind());
            walk(element);
        }
    }
}
