//! What the writer writes, the reader reads back, in both byte orders and both versions.

use llamay_formats::Format;
use llamay_gguf::{Encode, Encoder, Endian, Error, Gguf, Value, ValueType, Writer};
use proptest::prelude::*;

/// A metadata value that owns itself; arrays of arrays may mix their inner types.
#[derive(Clone, Debug)]
enum Tree {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    U64(u64),
    I64(i64),
    F64(f64),
    Array(ValueType, Vec<Tree>),
}

impl Tree {
    fn same(&self, value: Value<'_>) -> bool {
        match (self, value) {
            (Tree::U8(a), Value::U8(b)) => *a == b,
            (Tree::I8(a), Value::I8(b)) => *a == b,
            (Tree::U16(a), Value::U16(b)) => *a == b,
            (Tree::I16(a), Value::I16(b)) => *a == b,
            (Tree::U32(a), Value::U32(b)) => *a == b,
            (Tree::I32(a), Value::I32(b)) => *a == b,
            (Tree::F32(a), Value::F32(b)) => a.to_bits() == b.to_bits(),
            (Tree::Bool(a), Value::Bool(b)) => *a == b,
            (Tree::Str(a), Value::Str(b)) => a == b,
            (Tree::U64(a), Value::U64(b)) => *a == b,
            (Tree::I64(a), Value::I64(b)) => *a == b,
            (Tree::F64(a), Value::F64(b)) => a.to_bits() == b.to_bits(),
            (Tree::Array(kind, items), Value::Array(array)) => {
                *kind == array.kind()
                    && items.len() == array.len()
                    && items.iter().zip(array.iter()).all(|(item, element)| item.same(element))
                    && (0..items.len()).all(|i| array.get(i).is_some_and(|element| items[i].same(element)))
            }
            _ => false,
        }
    }
}

impl Encode for Tree {
    fn kind(&self) -> ValueType {
        match self {
            Tree::U8(v) => v.kind(),
            Tree::I8(v) => v.kind(),
            Tree::U16(v) => v.kind(),
            Tree::I16(v) => v.kind(),
            Tree::U32(v) => v.kind(),
            Tree::I32(v) => v.kind(),
            Tree::F32(v) => v.kind(),
            Tree::Bool(v) => v.kind(),
            Tree::Str(v) => v.kind(),
            Tree::U64(v) => v.kind(),
            Tree::I64(v) => v.kind(),
            Tree::F64(v) => v.kind(),
            Tree::Array(..) => ValueType::Array,
        }
    }

    fn encode(&self, out: &mut Encoder) {
        match self {
            Tree::U8(v) => v.encode(out),
            Tree::I8(v) => v.encode(out),
            Tree::U16(v) => v.encode(out),
            Tree::I16(v) => v.encode(out),
            Tree::U32(v) => v.encode(out),
            Tree::I32(v) => v.encode(out),
            Tree::F32(v) => v.encode(out),
            Tree::Bool(v) => v.encode(out),
            Tree::Str(v) => v.encode(out),
            Tree::U64(v) => v.encode(out),
            Tree::I64(v) => v.encode(out),
            Tree::F64(v) => v.encode(out),
            Tree::Array(kind, items) => {
                out.array_header(*kind, items.len());
                items.iter().for_each(|item| item.encode(out));
            }
        }
    }
}

fn scalar(kind: ValueType) -> BoxedStrategy<Tree> {
    match kind {
        ValueType::U8 => any::<u8>().prop_map(Tree::U8).boxed(),
        ValueType::I8 => any::<i8>().prop_map(Tree::I8).boxed(),
        ValueType::U16 => any::<u16>().prop_map(Tree::U16).boxed(),
        ValueType::I16 => any::<i16>().prop_map(Tree::I16).boxed(),
        ValueType::U32 => any::<u32>().prop_map(Tree::U32).boxed(),
        ValueType::I32 => any::<i32>().prop_map(Tree::I32).boxed(),
        ValueType::F32 => any::<u32>().prop_map(|bits| Tree::F32(f32::from_bits(bits))).boxed(),
        ValueType::Bool => any::<bool>().prop_map(Tree::Bool).boxed(),
        ValueType::Str => ".{0,12}".prop_map(Tree::Str).boxed(),
        ValueType::U64 => any::<u64>().prop_map(Tree::U64).boxed(),
        ValueType::I64 => any::<i64>().prop_map(Tree::I64).boxed(),
        ValueType::F64 => any::<u64>().prop_map(|bits| Tree::F64(f64::from_bits(bits))).boxed(),
        ValueType::Array => array(1).boxed(),
    }
}

fn any_kind(depth: usize) -> impl Strategy<Value = ValueType> {
    prop::sample::select(ValueType::ALL)
        .prop_filter("no deeper", move |kind| depth > 0 || *kind != ValueType::Array)
}

/// An array with at most `depth` levels of arrays within it.
fn array(depth: usize) -> BoxedStrategy<Tree> {
    any_kind(depth)
        .prop_flat_map(move |kind| {
            let element = if kind == ValueType::Array { array(depth - 1) } else { scalar(kind) };
            prop::collection::vec(element, 0..5).prop_map(move |items| Tree::Array(kind, items))
        })
        .boxed()
}

fn any_value() -> impl Strategy<Value = Tree> {
    any_kind(1).prop_flat_map(|kind| if kind == ValueType::Array { array(3) } else { scalar(kind) })
}

/// Keys of their own kind, so that none is `general.alignment` or `split.count`.
fn any_metadata() -> impl Strategy<Value = Vec<(String, Tree)>> {
    prop::collection::btree_map("test\\.[a-zé]{0,8}", any_value(), 0..8)
        .prop_map(|map| map.into_iter().collect())
}

/// Name, dimensions, format and little-endian data.
type Tensor = (String, Vec<u64>, Format, Vec<u8>);

fn any_tensor() -> impl Strategy<Value = (Vec<u64>, Format, Vec<u8>)> {
    let dims = prop::collection::vec(0u64..4, 0..=4);
    (prop::sample::select(Format::ALL), dims).prop_flat_map(|(format, mut dims)| {
        // A scalar only exists in the formats whose block is one element.
        if dims.is_empty() && format.block_len() > 1 {
            dims.push(1);
        }
        let blocks: u64 = dims.iter().product();
        if let Some(row) = dims.first_mut() {
            *row *= format.block_len() as u64;
        }
        let n_bytes = blocks as usize * format.block_bytes();
        (Just(dims), Just(format), prop::collection::vec(any::<u8>(), n_bytes))
    })
}

fn any_tensors() -> impl Strategy<Value = Vec<Tensor>> {
    prop::collection::vec(any_tensor(), 0..5).prop_map(|tensors| {
        let named = tensors.into_iter().enumerate();
        named.map(|(i, (dims, format, data))| (format!("blk.{i}.weight"), dims, format, data)).collect()
    })
}

fn any_endian() -> impl Strategy<Value = Endian> {
    prop::sample::select(&[Endian::Little, Endian::Big])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn reading_gives_back_what_was_written(
        version in 2u32..=3,
        endian in any_endian(),
        alignment in (0u32..9).prop_map(|log2| 1u64 << log2),
        metadata in any_metadata(),
        tensors in any_tensors(),
    ) {
        let mut writer = Writer::new(version, endian, alignment);
        for (key, value) in &metadata {
            writer.set(key, value);
        }
        for (name, dims, format, data) in &tensors {
            writer.tensor(name, dims, *format, data.clone());
        }
        let file = writer.to_vec().unwrap();
        let n_bytes = file.len() as u64;
        let gguf = Gguf::from_bytes(file).unwrap();

        prop_assert_eq!(gguf.version(), version);
        prop_assert_eq!(gguf.endian(), endian);
        prop_assert_eq!(gguf.alignment(), alignment);
        prop_assert_eq!(gguf.file_bytes(), n_bytes);
        let read: Vec<_> = gguf.metadata().iter().filter(|(key, _)| *key != "general.alignment").collect();
        prop_assert_eq!(read.len(), metadata.len());
        for ((key, value), (read_key, read_value)) in metadata.iter().zip(read) {
            prop_assert_eq!(key, read_key);
            prop_assert!(value.same(read_value), "{} is {}", key, read_value);
        }
        prop_assert_eq!(gguf.tensors().len(), tensors.len());
        for ((name, dims, format, data), info) in tensors.iter().zip(gguf.tensors()) {
            prop_assert_eq!(name, &info.name);
            prop_assert_eq!(dims, &info.dims);
            prop_assert_eq!(*format, info.format().unwrap());
            prop_assert_eq!(info.offset() % alignment, 0);
            prop_assert_eq!(&data[..], &gguf.data(info).unwrap()[..]);
        }
    }

    #[test]
    fn streaming_in_pieces_writes_the_same_file(
        endian in any_endian(),
        tensors in any_tensors(),
        piece in 1usize..4,
    ) {
        let mut whole = Writer::new(3, endian, 32);
        let mut streamed = Writer::new(3, endian, 32);
        for (name, dims, format, data) in &tensors {
            whole.tensor(name, dims, *format, data.clone());
            streamed.declare(name, dims, *format);
        }
        let mut file = Vec::new();
        let mut body = streamed.begin(&mut file).unwrap();
        for (name, _, format, data) in &tensors {
            if !data.is_empty() {
                prop_assert_eq!(body.current(), Some(name.as_str()));
            }
            for blocks in data.chunks(piece * format.block_bytes()) {
                body.write(blocks).unwrap();
            }
        }
        prop_assert_eq!(body.current(), None);
        body.finish().unwrap();
        prop_assert_eq!(file, whole.to_vec().unwrap());
    }

    #[test]
    fn copying_metadata_across_byte_orders_keeps_it(metadata in any_metadata()) {
        let mut little = Writer::default();
        for (key, value) in &metadata {
            little.set(key, value);
        }
        let little = Gguf::from_bytes(little.to_vec().unwrap()).unwrap();
        let mut big = Writer::new(3, Endian::Big, 64);
        big.set_all(little.metadata());
        let big = Gguf::from_bytes(big.to_vec().unwrap()).unwrap();
        for (key, value) in &metadata {
            prop_assert!(value.same(big.metadata().get(key).unwrap()));
        }
        prop_assert_eq!(big.alignment(), 64);
    }
}

#[test]
fn setting_a_key_again_keeps_its_place() {
    let mut writer = Writer::default();
    writer.set("a", 1u8).set("b", vec!["x", "y"]).set("a", "one");
    let gguf = Gguf::from_bytes(writer.to_vec().unwrap()).unwrap();
    let keys: Vec<_> = gguf.metadata().iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["a", "b"]);
    assert_eq!(gguf.metadata().need_str("a").unwrap(), "one");
}

#[test]
fn what_cannot_be_a_file_is_not_written() {
    let refusal = |writer: &Writer| writer.to_vec().unwrap_err().to_string();
    let with = |name: &str, dims: &[u64], format, data: usize| {
        let mut writer = Writer::default();
        writer.tensor(name, dims, format, vec![0; data]);
        writer
    };
    assert_eq!(
        refusal(&Writer::new(1, Endian::Little, 32)),
        "(new file): GGUF version 1 is not supported (it was replaced in 2023; convert the model again to get version 3)"
    );
    assert_eq!(
        refusal(&Writer::new(3, Endian::Little, 24)),
        "cannot write the GGUF file: the alignment, 24, is not a power of two of at most 2³¹"
    );
    assert_eq!(
        refusal(&with("x", &[33], Format::Q4_0, 18)),
        "cannot write the GGUF file: tensor \"x\": a row of 33 elements is not a whole number of Q4_0 blocks of 32"
    );
    assert_eq!(
        refusal(&with("x", &[3], Format::F32, 11)),
        "cannot write the GGUF file: tensor \"x\": 11 bytes of data, but it takes 12"
    );
    assert_eq!(
        refusal(&with("x", &[1; 5], Format::F32, 4)),
        "cannot write the GGUF file: tensor \"x\": 5 dimensions are more than 4"
    );
    let mut twice = with("x", &[1], Format::F32, 4);
    twice.tensor("x", &[1], Format::F32, vec![0; 4]);
    assert_eq!(refusal(&twice), "cannot write the GGUF file: tensor \"x\": there is another of this name");
    let mut no_data = Writer::default();
    no_data.declare("x", &[1], Format::F32);
    assert_eq!(refusal(&no_data), "cannot write the GGUF file: tensor \"x\": no data was given");
}

#[test]
fn a_stream_takes_neither_more_nor_less_than_was_declared() {
    let mut writer = Writer::default();
    writer.declare("x", &[64], Format::Q8_0);
    let begin = || writer.begin(std::io::sink()).unwrap();
    let message = |result: Result<(), Error>| result.unwrap_err().to_string();

    assert_eq!(
        message(begin().write(&[0; 33])),
        "cannot write the GGUF file: tensor \"x\": 33 bytes are not whole Q8_0 blocks of 34"
    );
    assert_eq!(
        message(begin().write(&[0; 102])),
        "cannot write the GGUF file: tensor \"x\": 102 bytes came, but only 68 are missing"
    );
    let mut body = begin();
    body.write(&[0; 34]).unwrap();
    assert_eq!(
        message(body.finish()),
        "cannot write the GGUF file: tensor \"x\": 34 bytes of data are missing"
    );
    let mut body = begin();
    body.write(&[0; 68]).unwrap();
    assert_eq!(
        message(body.write(&[0; 34])),
        "cannot write the GGUF file: all tensors are complete, but more data came"
    );
    body.finish().unwrap();
}

#[test]
fn a_failing_disk_is_an_error() {
    /// Refuses every byte past the first hundred.
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let n = bytes.len().min(self.0);
            self.0 -= n;
            if n == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::default();
    writer.tensor_f32("x", &[64], &[0.5; 64]);
    assert!(matches!(writer.write_to(Full(100)), Err(Error::Io { .. })));
}
