use serde_json::{Value as Json, json};
use tesseral::DType;

use crate::support::{Folder, Made, fixture, json, tet, write};

#[test]
fn one_array_is_a_flat_document() {
    let document = json(["stat", &fixture("labels_v1.tet")]);
    for (key, value) in [
        ("schema", json!("tesseral.stat/1")),
        ("array", json!("temp")),
        ("field", json!("temp")),
        ("count", json!(36)),
        ("nulls", json!(6)),
        ("nan", json!(1)),
        ("inf", json!(0)),
        ("min", json!(6.0)),
        ("max", json!(35.0)),
        ("sum", json!(603.0)),
        ("from_statistics", json!(false)),
    ] {
        assert_eq!(document[key], value, "{key}");
    }
    let mean = document["mean"].as_f64().unwrap();
    assert!((mean - 603.0 / 29.0).abs() < 1e-12);
    assert!((document["std"].as_f64().unwrap() - 8.655_790_608_503_88).abs() < 1e-12);
}

#[test]
fn integers_stay_exact() {
    let folder = Folder::new();
    let path = folder.text("a.tet");
    let values = [u64::MAX, u64::MAX - 1, 3];
    let cells = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    write(path.as_ref(), &[Made::new("a", DType::UInt64, &[3], &[2], cells)]);
    let document = json(["stat", &path]);
    assert_eq!(document["max"], "18446744073709551615");
    assert_eq!(document["min"], 3);
    assert_eq!(document["sum"], "36893488147419103232");
    assert!(tet(["stat", &path]).ended(0).text().contains("36893488147419103232"));
}

#[test]
fn an_empty_selection_has_no_mean() {
    let document = json(["stat", &fixture("labels_v1.tet"), "time=1:1"]);
    assert_eq!(document["count"], 0);
    for key in ["min", "max", "mean", "std"] {
        assert_eq!(document[key], Json::Null, "{key}");
    }
}

#[test]
fn several_arrays_are_a_list() {
    let document = json(["stat", &fixture("ranks_raw_v1.tet")]);
    let arrays = document["arrays"].as_array().unwrap();
    assert_eq!(arrays.len(), 8);
    assert_eq!(arrays[1]["array"], "rank2");
    let alone = json(["stat", &fixture("ranks_raw_v1.tet"), "rank2"]);
    for (key, value) in arrays[1].as_object().unwrap() {
        assert_eq!(&alone[key], value, "{key}");
    }
}

/// Rows must equal single queries of each position, for both strategies.
#[test]
fn rows_by_a_dimension_agree_with_single_positions() {
    let (labels, ranks) = (fixture("labels_v2.tet"), fixture("ranks_zstd_v1.tet"));
    let cases: [(&str, &[&str], &str, u64); 5] = [
        (&labels, &["temp"], "time", 3),
        (&labels, &["temp"], "lat", 4),
        (&labels, &["temp", "time=1:", "lat=::3"], "lat", 2),
        (&ranks, &["rank4"], "3", 3),
        (&ranks, &["rank7"], "6", 3),
    ];
    for (path, words, by, rows) in cases {
        let document = json([&["stat", path], words, &["--by", by]].concat());
        let small = json([&["stat", path], words, &["--by", by, "--memory", "20kB"]].concat());
        assert_eq!(document["by"], by);
        let listed = document["rows"].as_array().unwrap();
        assert_eq!(listed.len() as u64, rows);
        for (row, other) in listed.iter().zip(small["rows"].as_array().unwrap()) {
            let position = format!("{by}={}", row["position"]);
            let others: Vec<&str> =
                words.iter().copied().filter(|w| !w.starts_with(&format!("{by}="))).collect();
            let alone = json([&["stat", path], others.as_slice(), &[&position]].concat());
            for key in ["count", "nulls", "nan", "inf", "min", "max"] {
                assert_eq!(
                    (&row[key], &other[key]),
                    (&alone[key], &alone[key]),
                    "{words:?} {position} {key}"
                );
            }
            for key in ["sum", "mean", "std"] {
                let close = |a: &Json, b: &Json| match (a.as_f64(), b.as_f64()) {
                    (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * a.abs().max(1.0),
                    _ => a == b,
                };
                assert!(close(&row[key], &alone[key]) && close(&other[key], &alone[key]), "{position} {key}");
            }
        }
    }
    let text = tet(["stat", &labels, "--by", "time"]).ended(0);
    assert!(text.text().contains("2024-01-03"));
}

#[test]
fn stored_statistics_are_used_without_standard_deviation() {
    let folder = Folder::new();
    let path = folder.path("a.tet");
    let mut session = tesseral::Create::new().statistics().begin(&path, "tet").unwrap();
    let array = Made::counting("a", &[100], &[10]);
    let id = session.add(&array.spec).unwrap();
    session.write(id, &array.cells).unwrap();
    session.commit().unwrap();
    let path = path.to_str().unwrap();
    let quick = json(["stat", path, "--quick"]);
    assert_eq!((&quick["min"], &quick["max"], &quick["std"]), (&json!(0.0), &json!(49.5), &Json::Null));
    assert_eq!(json(["stat", path])["sum"], quick["sum"]);
}

/// Rows in the order of a statistic, missing ones last, and only some of them.
#[test]
fn rows_are_sorted_by_a_statistic() {
    let folder = Folder::new();
    let cells = [3.0_f32, 1.0, f32::NAN, 2.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let days = ["2001-01-01T00", "2001-01-02T00", "2001-01-03T00", "2001-01-04T00"];
    let array = Made::new("a", DType::Float32, &[4], &[4], cells).dims(&["time"]).labels(0, &days);
    write(&folder.path("a.tet"), &[array]);
    let path = folder.text("a.tet");
    let order = |sort: &str| -> Vec<String> {
        let found = json(["stat", &path, "--mean", "--by", "time", "--sort", sort]);
        let rows = found["rows"].as_array().unwrap().iter();
        rows.map(|row| row["coordinates"][0].as_str().unwrap()[8..10].to_owned()).collect()
    };
    assert_eq!(order("mean"), ["02", "04", "01", "03"]);
    assert_eq!(order("-mean"), ["01", "04", "02", "03"]);
    let two = tet(["stat", &path, "--mean", "--by", "time", "--sort", "mean", "-n", "1"]);
    assert_eq!((two.code, two.stderr.as_str()), (0, "… 3 more rows\n"));
    assert_eq!(two.text().lines().count(), 2);
}
