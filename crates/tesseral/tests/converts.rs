//! Conversions: every transfer strategy gives the same cells, and unsupported input is rejected.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use tesseral::{
    ArraySchema, ArraySpec, CodecSpec, ConvertOptions, Create, DType, DiffOptions, ErrorKind, Options, Value,
};
use tesseral_core::schema::Labels;
use tesseral_engine::TransferMethod;

/// A file of one array of counting int32 cells.
fn counting(path: &Path, shape: &[u64], chunk: &[u64], codec: &str) {
    let mut schema = ArraySchema::dense("a", DType::Int32, shape, chunk);
    for (d, dim) in schema.dims.iter_mut().enumerate() {
        dim.name = format!("d{d}");
    }
    schema.dims[0].labels = Some(Labels::Text((0..shape[0]).map(|i| format!("label {i}")).collect()));
    schema.attributes.insert("units".to_owned(), Value::from("K"));
    let codecs = if codec == "raw" { Vec::new() } else { vec![CodecSpec::new(codec)] };
    let mut session = Create::new().begin(path, "tet").unwrap();
    let id = session.add(&ArraySpec { schema, codecs: vec![codecs], text: None }).unwrap();
    let cells: Vec<u8> = (0..shape.iter().product::<u64>() as i32).flat_map(i32::to_le_bytes).collect();
    session.write(id, &cells).unwrap();
    session.commit().unwrap();
}

fn same(a: &Path, b: &Path) -> bool {
    let (a, b) = (tesseral::open(a).unwrap(), tesseral::open(b).unwrap());
    tesseral::diff(&a, &b, &DiffOptions::default()).unwrap().is_same()
}

#[test]
fn every_transfer_strategy_gives_the_same_cells() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.tet");
    counting(&source, &[24, 30, 14], &[1, 30, 14], "zstd");
    let opened = tesseral::open(&source).unwrap();
    let mut ways = Vec::new();
    for (i, (chunk, memory)) in
        [("4,30,14", 1 << 20), ("24,5,7", 1 << 20), ("24,4,3", 8 << 10), ("7,11,5", 12 << 10)]
            .into_iter()
            .enumerate()
    {
        let out = folder.path().join(format!("{i}.tet"));
        let options = ConvertOptions::new()
            .execution(Options::default().with_memory(memory).with_threads(2).unwrap())
            .check();
        let done = tesseral::rechunk(&opened, &out, chunk.parse().unwrap(), &options).unwrap();
        assert!(done.checked && done.arrays[0].rechunk.as_ref().unwrap().memory <= memory);
        ways.push(match done.arrays[0].rechunk.as_ref().unwrap().way {
            TransferMethod::PerChunk => 'c',
            TransferMethod::PerBlock { .. } => 'b',
            TransferMethod::ScratchFile { .. } => 't',
        });
        assert!(same(&source, &out), "{chunk}");
    }
    for way in ['c', 'b', 't'] {
        assert!(ways.contains(&way), "{ways:?}");
    }
}

#[test]
fn stored_chunks_are_copied_unless_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("a.tet"), folder.path().join("b.tet"));
    counting(&source, &[64, 64], &[16, 64], "zstd");
    let done =
        tesseral::convert(&tesseral::open(&source).unwrap(), &out, &ConvertOptions::default()).unwrap();
    assert!(done.arrays[0].pass_through);
    assert!(same(&source, &out));
    let stored = |path: &Path| {
        let array = tesseral::open(path).unwrap().array("a").unwrap();
        array.chunks(&array.all().unwrap()).unwrap().iter().map(|c| c.stored_len).collect::<Vec<_>>()
    };
    assert_eq!(stored(&source), stored(&out));
    // A changed byte of a stored chunk: its digest differs, and nothing is published.
    let array = tesseral::open(&source).unwrap().array("a").unwrap();
    let at = array.chunks(&array.all().unwrap()).unwrap()[2].offset as usize + 9;
    let mut bytes = std::fs::read(&source).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&source, bytes).unwrap();
    let lost = folder.path().join("c.tet");
    let error =
        tesseral::convert(&tesseral::open(&source).unwrap(), &lost, &ConvertOptions::default()).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn unsupported_conversions_write_nothing_and_name_alternatives() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.tet");
    counting(&source, &[4], &[2], "raw");
    let opened = tesseral::open(&source).unwrap();
    let refused = |options: ConvertOptions, name: &str| {
        tesseral::convert(&opened, folder.path().join(name), &options).unwrap_err()
    };
    let bool_cast = ConvertOptions::new().cast("bool".parse().unwrap());
    let error = refused(bool_cast, "b.tgm");
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    let unknown = ConvertOptions::new().array("b");
    assert!(matches!(refused(unknown, "b.tet").kind(), ErrorKind::NotFound { .. }));
    let chunk = ConvertOptions::new().chunk("x=2".parse().unwrap());
    assert!(matches!(refused(chunk, "b.tet").kind(), ErrorKind::NotFound { .. }));
    let foreign = refused(ConvertOptions::default(), "b.tiff");
    assert!(matches!(foreign.kind(), ErrorKind::Unsupported { .. }));
    let small = ConvertOptions::new().execution(Options::default().with_memory(8));
    assert!(matches!(refused(small, "b.tet").kind(), ErrorKind::Limit { allowed: 8, .. }));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn differences_are_located() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two, three] = ["1.tet", "2.tet", "3.tgm"].map(|name| folder.path().join(name));
    counting(&one, &[10, 7], &[3, 3], "raw");
    let opened = tesseral::open(&one).unwrap();
    let part = ConvertOptions::new().select("d0=1:");
    tesseral::convert(&opened, &two, &part).unwrap();
    let found = tesseral::diff(&opened, &tesseral::open(&two).unwrap(), &DiffOptions::default()).unwrap();
    assert!(found.notes.iter().any(|note| note.what == "shape") && found.values.is_empty());
    let wide = ConvertOptions::new().cast("float64".parse().unwrap());
    tesseral::convert(&opened, &three, &wide).unwrap();
    let found = tesseral::diff(&opened, &tesseral::open(&three).unwrap(), &DiffOptions::default()).unwrap();
    assert_eq!(found.notes.iter().map(|note| note.what.as_str()).collect::<Vec<_>>(), ["dtype"]);
}

/// A file of messages with a title each; message `n` has the arrays `a` and `b` of `n + 1` cells.
fn messages(path: &Path, count: u64) {
    let mut file = Vec::new();
    for n in 0..count {
        let mut session = Create::new().overwrite().begin(path, "tgm").unwrap();
        let cells: Vec<u8> = (0..=n as i32).flat_map(i32::to_le_bytes).collect();
        let ids = ["a", "b"].map(|name| {
            let mut schema = ArraySchema::dense(name, DType::Int32, &[n + 1], &[n + 1]);
            schema.dims[0].name = format!("d{n}");
            schema.attributes.insert("number".to_owned(), Value::Int(n as i64));
            session.add(&ArraySpec { schema, codecs: vec![Vec::new()], text: None }).unwrap()
        });
        session.set_attributes([("title".to_owned(), Value::from(format!("message {n}")))].into()).unwrap();
        ids.iter().for_each(|id| session.write(*id, &cells).unwrap());
        session.commit().unwrap();
        file.extend(std::fs::read(path).unwrap());
    }
    std::fs::write(path, file).unwrap();
}

/// Options that replace the output, changed.
fn replacing(change: impl FnOnce(&mut ConvertOptions)) -> ConvertOptions {
    let mut options = ConvertOptions::new().overwrite();
    change(&mut options);
    options
}

#[test]
fn messages_stay_messages() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("a.tgm"), folder.path().join("b.tgm"));
    messages(&source, 5);
    let opened = tesseral::open(&source).unwrap();
    let done = tesseral::convert(&opened, &out, &ConvertOptions::new().check()).unwrap();
    assert!(done.checked);
    assert_eq!((done.array_count, done.arrays.len(), done.raw_bytes), (10, 10, 2 * 4 * 15));
    assert!(same(&source, &out));
    let written = tesseral::open(&out).unwrap();
    assert_eq!(written.names().collect::<Vec<_>>(), opened.names().collect::<Vec<_>>());
    assert_eq!(written.inner().parts(), 5);
    for n in 0..5 {
        let (ours, theirs) = (written.inner().part(n).unwrap(), opened.inner().part(n).unwrap());
        assert_eq!((&ours.arrays, &ours.attributes), (&theirs.arrays, &theirs.attributes));
        let ops: Vec<_> = ours.history.iter().map(|row| row.op.as_str()).collect();
        assert_eq!(ops, if n == 0 { vec!["convert"] } else { Vec::new() });
    }
    // A conversion of one message is as before.
    messages(&source, 1);
    tesseral::convert(&tesseral::open(&source).unwrap(), &out, &ConvertOptions::new().overwrite()).unwrap();
    let written = tesseral::open(&out).unwrap();
    assert_eq!((written.inner().parts(), written.history().len()), (1, 1));
    assert_eq!(written.attributes()["title"], Value::from("message 0"));
}

#[test]
fn named_arrays_of_messages_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("a.tgm"), folder.path().join("b.tgm"));
    messages(&source, 4);
    let opened = tesseral::open(&source).unwrap();
    let only = replacing(|options| options.arrays = vec!["3/1".to_owned(), "1/0".to_owned()]);
    tesseral::convert(&opened, &out, &only).unwrap();
    let written = tesseral::open(&out).unwrap();
    assert_eq!((written.inner().parts(), written.len()), (2, 2));
    assert_eq!(written.array("0/0").unwrap().attributes()["number"], Value::Int(1));
    assert_eq!(written.array("1/0").unwrap().attributes()["name"], Value::from("b"));
    // Casts and selections of arrays and dimensions that only some messages have.
    let cast = replacing(|options| options.casts = vec!["2/0=float64".parse().unwrap()]);
    tesseral::convert(&opened, &out, &cast).unwrap();
    let written = tesseral::open(&out).unwrap();
    let dtypes = (0..8).map(|i| written.array_at(i).unwrap().schema().fields[0].dtype).collect::<Vec<_>>();
    let expected = (0..8).map(|i| if i == 4 { DType::Float64 } else { DType::Int32 }).collect::<Vec<_>>();
    assert_eq!(dtypes, expected);
    let part = replacing(|options| options.select = vec!["d3=1:3".to_owned()]);
    tesseral::convert(&opened, &out, &part).unwrap();
    let written = tesseral::open(&out).unwrap();
    let shape = |name: &str| written.array(name).unwrap().schema().shape().unwrap();
    assert_eq!((shape("3/0").to_vec(), shape("2/1").to_vec()), (vec![2], vec![3]));
    // Names that no message has.
    for wrong in [
        replacing(|options| options.casts = vec!["9/0=float64".parse().unwrap()]),
        replacing(|options| options.select = vec!["d9=0:1".to_owned()]),
        replacing(|options| options.arrays = vec!["9/0".to_owned()]),
    ] {
        let none = folder.path().join("none.tgm");
        assert!(tesseral::convert(&opened, &none, &wrong).is_err());
        assert!(!none.exists());
    }
}

#[test]
fn a_message_that_does_not_fit_is_found_before_the_first_write() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("a.tgm"), folder.path().join("b.tgm"));
    messages(&source, 3);
    let options = replacing(|options| options.codecs = Some(vec![CodecSpec::new("no such codec")]));
    let error = tesseral::convert(&tesseral::open(&source).unwrap(), &out, &options).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unsupported { .. } | ErrorKind::InvalidRequest { .. }),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
}

/// The digest of the source is computed while its cells are converted, if formats can record it later.
#[test]
fn digests_of_sources_do_not_depend_on_when_they_are_computed() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.tet");
    counting(&source, &[24, 30, 14], &[3, 30, 14], "raw");
    let opened = tesseral::open(&source).unwrap();
    for format in ["tet", "tensogram", "tiledb", "zarr", "hdf5", "netcdf3", "npz"] {
        let mut digests = Vec::new();
        for threads in [1, 2] {
            let out = folder.path().join(format!("{format}{threads}"));
            let options = ConvertOptions::new()
                .format(format)
                .execution(Options::default().with_threads(threads).unwrap());
            let done = tesseral::convert(&opened, &out, &options).unwrap();
            let history = tesseral::open(&out).unwrap().history().to_vec();
            assert_eq!(history.last().unwrap().parents, [done.digest.as_str()], "{format} {threads}");
            digests.push(done.digest);
        }
        assert!(digests[0] == digests[1] && !digests[0].ends_with("0000000000000000"), "{digests:?}");
    }
}
