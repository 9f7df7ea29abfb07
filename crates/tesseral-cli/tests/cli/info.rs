use serde_json::json;
use tesseral::DType;

use crate::support::{Folder, Made, fixture, json, tet, write};

#[test]
fn the_document_describes_the_content() {
    let document = json(["info", &fixture("labels_v1.tet")]);
    assert_eq!(document["schema"], "tesseral.info/1");
    assert_eq!(document["format"], "tet");
    assert!(document["source"].as_str().unwrap().ends_with("labels_v1.tet"));
    let [array] = document["arrays"].as_array().unwrap().as_slice() else { panic!("one array") };
    for (key, value) in [
        ("name", json!("temp")),
        ("dtype", json!("float32")),
        ("shape", json!([3, 4, 3])),
        ("dims", json!(["time", "lat", "station"])),
        ("chunk_shape", json!([1, 2, 3])),
        ("chunks", json!(6)),
        ("sparse", json!(false)),
        ("raw_bytes", json!(144)),
        ("stored_bytes", json!(184)),
    ] {
        assert_eq!(array[key], value, "{key}");
    }
    assert_eq!(array["fields"][0]["codecs"], json!(["zstd"]));
    assert_eq!(array["fields"][0]["nullable"], json!(false));
    assert_eq!(array["coords"]["lat"]["labels"], json!(["60.5", "55", "-10.25", "-90"]));
    assert_eq!(document["tet"]["superblock"]["layout_version"], 1);
    let history = json(["info", &fixture("history_v1.tet")]);
    assert_eq!(history["attributes"]["tool"], "fixture");
    assert_eq!(history["history"][0], json!({"op": "write", "source": "fixture", "at": "1700000000"}));
}

#[test]
fn a_source_alone_and_ls_are_info() {
    let path = fixture("labels_v1.tet");
    let info = tet(["info", &path]).ended(0).stdout;
    assert_eq!(tet([&path]).ended(0).stdout, info);
    assert_eq!(tet(["ls", &path]).ended(0).stdout, info);
    assert_eq!(tet(["--threads", "1", &path]).ended(0).stdout, info);
    assert_eq!(json([&path]), json(["info", &path]));
}

#[test]
fn one_line_for_scripts() {
    let path = fixture("labels_v1.tet");
    let expected = format!("path={path} file_len=1329 layout=1 datasets=1 chunks=6 history=1\n");
    assert_eq!(tet(["info", "-q", &path]).ended(0).text(), expected);
}

#[test]
fn arrays_are_filtered_by_name_and_part() {
    let path = fixture("ranks_raw_v1.tet");
    let names = |arguments: &[&str]| -> Vec<String> {
        let document = json([&["info", &path], arguments].concat());
        let arrays = document["arrays"].as_array().unwrap();
        arrays.iter().map(|a| a["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["--dataset", "rank3"]), ["rank3"]);
    assert_eq!(names(&["--grep", "k8"]), ["rank8"]);
    assert_eq!(names(&["--grep", "nothing"]), [""; 0]);
    assert_eq!(names(&[]).len(), 8);
}

#[test]
fn chunks_are_listed_up_to_a_number() {
    let folder = Folder::new();
    let path = folder.text("many.tet");
    write(path.as_ref(), &[Made::counting("a", &[40], &[1]), Made::counting("b", &[10], &[4])]);
    let rows = |arguments: &[&str]| {
        let text = tet([&["info", &path, "--chunks"], arguments].concat()).ended(0);
        text.text().lines().filter(|l| l.contains("raw   ")).count()
    };
    assert_eq!(rows(&[]), 32);
    assert_eq!(rows(&["-n", "0"]), 43);
    assert_eq!(rows(&["-n", "41"]), 41);
    assert_eq!(rows(&["-n", "5", "--dataset", "b"]), 3);
    let list = &json(["info", &path, "--chunks", "-n", "2"])["arrays"][0]["chunk_list"];
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(list[1]["coords"], json!([1]));
    assert_eq!(list[1]["raw_bytes"], json!(4));
    let offset = usize::try_from(list[1]["offset"].as_u64().unwrap()).unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[offset..offset + 4], 0.5_f32.to_le_bytes());
    assert!(json(["info", &path])["arrays"][0].get("chunk_list").is_none());
}

#[test]
fn sections_can_be_selected() {
    let path = fixture("history_v1.tet");
    let sections = |arguments: &[&str]| -> Vec<String> {
        let text = tet([&["info", &path], arguments].concat()).ended(0);
        let heads = ["layout", "metadata", "history", "chunks"];
        text.text().lines().filter(|l| heads.contains(l)).map(str::to_owned).collect()
    };
    assert_eq!(sections(&[]), [""; 0]);
    assert_eq!(sections(&["--history"]), ["history"]);
    assert_eq!(sections(&["--layout", "--metadata"]), ["layout", "metadata"]);
    assert_eq!(sections(&["--all"]), ["layout", "metadata", "history", "chunks"]);
    let text = tet(["info", &path, "--history"]).ended(0);
    assert!(text.text().contains("2023-11-14T22:13:20") && text.text().contains("1700000000"));
}

#[test]
fn attributes_and_fill_are_shown() {
    let folder = Folder::new();
    let path = folder.text("a.tet");
    let cells = [7_i16, -9999].iter().flat_map(|v| v.to_le_bytes()).collect();
    let array = Made::new("a", DType::Int16, &[2], &[2], cells)
        .attribute("units", "K")
        .attribute("_FillValue", "-9999");
    write(path.as_ref(), &[array]);
    let document = json(["info", &path]);
    assert_eq!(document["arrays"][0]["attributes"]["units"], "K");
    assert_eq!(document["arrays"][0]["fields"][0]["missing"], serde_json::json!([-9999]));
    assert!(tet(["info", &path]).ended(0).text().contains("digests"));
}

#[test]
fn one_invalid_array_does_not_hide_others() {
    let document = json(["info", &fixture("corrupt/directory_dtype_11.tet")]);
    let arrays = document["arrays"].as_array().unwrap();
    let broken = arrays.iter().filter(|a| a.get("error").is_some()).count();
    assert!(broken >= 1 && arrays.len() > broken, "{document:#}");
    tet(["info", &fixture("corrupt/directory_dtype_11.tet")]).ended(0);
}

#[test]
fn empty_files_have_no_arrays() {
    let path = fixture("empty.tet");
    assert_eq!(json(["info", &path])["arrays"], json!([]));
    assert!(tet(["info", &path]).ended(0).text().contains("no arrays"));
    tet(["cat", &path]).ended(2);
    assert_eq!(json(["stat", &path])["arrays"], json!([]));
}
