//! Opening by path: split models, what is no file, and pages let go of.

use std::path::{Path, PathBuf};

use llamay_formats::Format;
use llamay_gguf::{Error, Gguf, Writer, part_name};
use tempfile::TempDir;

/// Part `i` of `n`, with one tensor and, in the first, the metadata.
fn part(i: usize, n: usize) -> Writer {
    let mut writer = Writer::default();
    if i == 0 {
        writer.set("general.architecture", "llama").set("split.tensors.count", n as i32);
    }
    writer.set("split.no", i as u16).set("split.count", n as u16);
    writer.tensor_f32(&format!("blk.{i}.weight"), &[2], &[i as f32; 2]);
    writer
}

fn split_model(n: usize) -> (TempDir, Vec<PathBuf>) {
    let folder = TempDir::new().unwrap();
    let paths: Vec<_> = (0..n).map(|i| folder.path().join(part_name("tiny", i + 1, n))).collect();
    for (i, path) in paths.iter().enumerate() {
        part(i, n).write_file(path).unwrap();
    }
    (folder, paths)
}

/// The error's sentence without the name of the temporary folder.
fn refusal(path: &Path, folder: &TempDir) -> String {
    let prefix = format!("{}/", folder.path().display());
    Gguf::open(path).expect_err("this opens").to_string().replace(&prefix, "")
}

#[test]
fn any_part_opens_the_whole() {
    let (_folder, paths) = split_model(3);
    for path in &paths {
        let gguf = Gguf::open(path).unwrap();
        assert_eq!(gguf.metadata().need_str("general.architecture").unwrap(), "llama");
        assert!(gguf.paths().eq(&paths));
        let total: u64 = paths.iter().map(|p| p.metadata().unwrap().len()).sum();
        assert_eq!(gguf.file_bytes(), total);
        for i in 0..3 {
            let tensor = gguf.tensor(&format!("blk.{i}.weight")).unwrap();
            assert_eq!((tensor, tensor.part()), (&gguf.tensors()[i], i));
            assert_eq!(gguf.data(tensor).unwrap()[..4], (i as f32).to_le_bytes());
            gguf.release(tensor);
        }
    }
}

#[test]
fn missing_parts_are_named() {
    let (folder, paths) = split_model(6);
    std::fs::remove_file(&paths[1]).unwrap();
    assert_eq!(
        refusal(&paths[0], &folder),
        "tiny-00001-of-00006.gguf: of the 6 parts of this model, 1 is missing: tiny-00002-of-00006.gguf"
    );
    for path in &paths[2..] {
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(
        refusal(&paths[0], &folder),
        "tiny-00001-of-00006.gguf: of the 6 parts of this model, 5 are missing: tiny-00002-of-00006.gguf, \
         tiny-00003-of-00006.gguf, tiny-00004-of-00006.gguf, 2 more"
    );
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let (folder, paths) = split_model(2);
    std::fs::copy(&paths[0], &paths[1]).unwrap();
    assert_eq!(
        refusal(&paths[0], &folder),
        "tiny-00002-of-00002.gguf: by its name it is part 2 of 2, but it says it is part 1 of 2"
    );

    let mut twin = part(1, 2);
    twin.tensor_f32("blk.0.weight", &[1], &[0.0]);
    twin.write_file(&paths[1]).unwrap();
    assert_eq!(
        refusal(&paths[0], &folder),
        "tiny-00002-of-00002.gguf: tensor \"blk.0.weight\" is also in tiny-00001-of-00002.gguf"
    );

    let mut more = part(1, 2);
    more.tensor_f32("extra", &[1], &[0.0]);
    more.write_file(&paths[1]).unwrap();
    assert_eq!(
        refusal(&paths[0], &folder),
        "tiny-00001-of-00002.gguf: it promises 2 tensors, but the parts hold 3"
    );

    Writer::default().write_file(&paths[1]).unwrap();
    assert_eq!(refusal(&paths[0], &folder), "tiny-00002-of-00002.gguf: the metadata has no \"split.no\"");
}

#[test]
fn a_lone_part_in_memory_is_refused() {
    let error = Gguf::from_bytes(part(0, 2).to_vec().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "(memory): it is one of 2 parts, which have to be opened from files");
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("directory.gguf");
    std::fs::create_dir(&directory).unwrap();
    assert_eq!(refusal(&directory, &folder), "directory.gguf: cannot be opened: it is a directory");
    let vanished = folder.path().join("vanished.gguf");
    assert!(refusal(&vanished, &folder).starts_with("vanished.gguf: cannot be opened: "));
    assert!(matches!(Gguf::open(&vanished), Err(Error::Io { .. })));
    #[cfg(unix)]
    assert_eq!(
        refusal(Path::new("/dev/null"), &folder),
        "/dev/null: cannot be opened: it is not a regular file"
    );
}

/// A sparse file costs nothing to make as large as its counts claim.
#[cfg(unix)]
#[test]
fn counts_backed_by_a_sparse_file_are_still_limited() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("sparse.gguf");
    let header = |n_tensors: u64, n_keys: u64| {
        [&b"GGUF\x03\0\0\0"[..], &n_tensors.to_le_bytes(), &n_keys.to_le_bytes()].concat()
    };
    let vocabulary = {
        let mut key = header(0, 1);
        key.extend_from_slice(b"\x01\0\0\0\0\0\0\0k\x09\0\0\0\x08\0\0\0");
        key.extend_from_slice(&(1u64 << 25).to_le_bytes());
        key
    };
    for head in [header(1 << 25, 0), header(0, 1 << 25), vocabulary] {
        std::fs::write(&path, head).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
        let sentence = refusal(&path, &folder);
        assert!(sentence.ends_with("33554432 is more than 16777216, the most that is read"), "{sentence}");
    }
}

#[test]
fn an_opened_model_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Gguf>();
    shared::<Error>();
}

#[test]
fn a_read_only_file_opens() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.gguf");
    part(0, 1).set("split.count", 0u16).write_file(&path).unwrap();
    let mut permissions = path.metadata().unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().tensors().len(), 1);
}

#[test]
fn a_tensor_of_another_file_is_refused() {
    let small = Gguf::from_bytes(part(0, 1).to_vec().unwrap()).unwrap();
    let mut writer = Writer::default();
    writer.tensor("x", &[1 << 12], Format::F32, vec![0; 1 << 14]);
    let large = Gguf::from_bytes(writer.to_vec().unwrap()).unwrap();
    assert!(small.data(large.tensor("x").unwrap()).is_err());
    small.release(large.tensor("x").unwrap());
}

/// Resident kilobytes of the map of this file.
#[cfg(target_os = "linux")]
fn resident_kb(path: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let name = path.to_str().unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(name));
    let rss = lines.find(|line| line.starts_with("Rss:")).unwrap();
    rss.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn released_data_leaves_memory_and_reads_the_same_again() {
    const MIB: usize = 1 << 20;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("large.gguf");
    let data: Vec<u8> = (0..8 * MIB).map(|i| (i / 1000) as u8).collect();
    let mut writer = Writer::default();
    writer.tensor_f32("before", &[1], &[1.0]);
    writer.tensor("large", &[data.len() as u64], Format::I8, data.clone());
    writer.tensor_f32("after", &[1], &[2.0]);
    writer.write_file(&path).unwrap();

    let gguf = Gguf::open(&path).unwrap();
    let large = gguf.tensor("large").unwrap();
    assert!(*gguf.data(large).unwrap() == data);
    assert!(resident_kb(&path) >= 8 * 1024 - 64);
    gguf.release(large);
    assert!(resident_kb(&path) < 1024);
    assert!(*gguf.data(large).unwrap() == data);
    // In halves, the second of which says more than there is.
    gguf.release_range(large, 0..4 * MIB);
    let half = resident_kb(&path);
    assert!((3 * 1024..6 * 1024).contains(&half), "{half} kB");
    gguf.release_range(large, 4 * MIB..usize::MAX);
    assert!(resident_kb(&path) < 1024);
    assert!(*gguf.data(large).unwrap() == data);
    assert_eq!(*gguf.data(gguf.tensor("after").unwrap()).unwrap(), 2.0f32.to_le_bytes());
}
