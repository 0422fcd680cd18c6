//! The typed getters: which types they accept, and what they say of others.

use llamay_gguf::{Gguf, Writer};

fn metadata() -> Gguf {
    let mut writer = Writer::default();
    writer
        .set("u8", 200u8)
        .set("u64", 5_000_000_000u64)
        .set("i32", -3i32)
        .set("f32", 1.5f32)
        .set("f64", 0.1f64)
        .set("bool", true)
        .set("str", "text")
        .set("bytes", [1u8, 2, 255])
        .set("ints", [4i64, -1])
        .set("floats", [0.5f64, 2.0])
        .set("bools", [true, false])
        .set("strings", ["a", "b"])
        .set("nested", [[1u8], [2]])
        .set("empty", Vec::<String>::new());
    Gguf::from_bytes(writer.to_vec().unwrap()).unwrap()
}

#[test]
fn numbers_are_read_at_any_width_they_fit() {
    let gguf = metadata();
    let m = gguf.metadata();
    assert_eq!(m.u32("u8").unwrap(), Some(200));
    assert_eq!(m.u64("u64").unwrap(), Some(5_000_000_000));
    assert_eq!(m.i64("i32").unwrap(), Some(-3));
    assert_eq!(m.f32("f32").unwrap(), Some(1.5));
    assert_eq!(m.f32("f64").unwrap(), Some(0.1));
    assert_eq!(m.f32("i32").unwrap(), Some(-3.0));
    assert_eq!(m.need_u32s("bytes").unwrap().to_vec(), [1, 2, 255]);
    assert_eq!(m.need_i32s("ints").unwrap().to_vec(), [4, -1]);
    assert_eq!(m.need_f32s("floats").unwrap().to_vec(), [0.5, 2.0]);
    assert_eq!(m.need_f32s("bytes").unwrap().to_vec(), [1.0, 2.0, 255.0]);
    assert_eq!(m.need_bools("bools").unwrap().to_vec(), [true, false]);
    assert_eq!(m.need_strings("strings").unwrap().into_iter().collect::<String>(), "ab");
    assert!(m.need_strings("empty").unwrap().is_empty());
    assert_eq!(m.array("nested").unwrap().unwrap().len(), 2);
}

#[test]
fn an_absent_key_is_none_or_is_asked_for() {
    let gguf = metadata();
    let m = gguf.metadata();
    assert_eq!(m.u32("nothing").unwrap(), None);
    assert_eq!(m.str("nothing").unwrap(), None);
    assert!(m.strings("nothing").unwrap().is_none());
    assert!(!m.contains("nothing") && m.get("nothing").is_none());
    assert_eq!(m.need_u32("nothing").unwrap_err().to_string(), "(memory): the metadata has no \"nothing\"");
}

#[test]
fn another_type_is_named_beside_the_wanted_one() {
    let gguf = metadata();
    let m = gguf.metadata();
    let wrong =
        |found: &str, wanted: &str| format!("(memory): the metadata key {found}, but {wanted} is needed");
    let uint = "an integer from 0 to 4294967295";
    assert_eq!(m.u32("u64").unwrap_err().to_string(), wrong("\"u64\" is a u64 (5000000000)", uint));
    assert_eq!(m.u32("i32").unwrap_err().to_string(), wrong("\"i32\" is an i32 (-3)", uint));
    assert_eq!(m.u32("f32").unwrap_err().to_string(), wrong("\"f32\" is an f32 (1.5)", uint));
    assert_eq!(m.bool("u8").unwrap_err().to_string(), wrong("\"u8\" is a u8 (200)", "a bool"));
    assert_eq!(m.f32("str").unwrap_err().to_string(), wrong("\"str\" is a string (\"text\")", "a number"));
    assert_eq!(m.str("ints").unwrap_err().to_string(), wrong("\"ints\" is an array of 2 × i64", "a string"));
    assert_eq!(
        m.u32s("ints").unwrap_err().to_string(),
        wrong(
            "\"ints\" is an array in which element 1 is an i64 (-1)",
            "an array of integers from 0 to 4294967295"
        )
    );
    assert_eq!(
        m.strings("bytes").unwrap_err().to_string(),
        wrong("\"bytes\" is an array of 3 × u8", "an array of strings")
    );
    assert_eq!(m.array("u8").unwrap_err().to_string(), wrong("\"u8\" is a u8 (200)", "an array"));
    assert!(m.f32s("nested").is_err() && m.f32s("empty").is_err() && m.bools("bytes").is_err());
}

#[test]
fn values_print_as_a_person_would_write_them() {
    let mut writer = Writer::default();
    writer.set("long", (0..9u8).collect::<Vec<_>>()).set("text", "é\n").set("nested", [["a"], ["b"]]);
    let gguf = Gguf::from_bytes(writer.to_vec().unwrap()).unwrap();
    let shown = |key| gguf.metadata().get(key).unwrap().to_string();
    assert_eq!(shown("long"), "[0, 1, 2, 3, 4, 5, … 9 in all]");
    assert_eq!(shown("text"), "\"é\\n\"");
    assert_eq!(shown("nested"), "[[\"a\"], [\"b\"]]");
}
