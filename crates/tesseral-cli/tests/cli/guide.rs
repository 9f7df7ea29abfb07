//! Runs the transcripts of the guides. `TET_GUIDE=overwrite` updates them.

use std::path::Path;

use tesseral::{Create, DType, HistoryRow, Value};

use crate::support::{Folder, Made, command};

/// The file used by the guide.
fn ocean(path: &Path) {
    let sst: Vec<u8> = (0..4 * 3 * 4)
        .map(|i| if i % 12 == 5 { -999.0 } else { 10.0 + (i % 12) as f32 * 1.25 + (i / 12) as f32 * 0.5 })
        .flat_map(f32::to_le_bytes)
        .collect();
    let depth: Vec<u8> = (0..12_i16).map(|i| -100 * i).flat_map(i16::to_le_bytes).collect();
    let (lat, lon) = (["10", "0", "-10"], ["0", "90", "180", "270"]);
    let arrays = [
        Made::new("sst", DType::Float32, &[4, 3, 4], &[1, 3, 4], sst)
            .dims(&["time", "lat", "lon"])
            .labels(0, &["2015-06-01", "2015-06-16", "2015-07-01", "2015-07-16"])
            .labels(1, &lat)
            .labels(2, &lon)
            .attribute("units", "degC")
            .attribute("_FillValue", "-999"),
        Made::new("depth", DType::Int16, &[3, 4], &[2, 2], depth)
            .dims(&["lat", "lon"])
            .labels(0, &lat)
            .labels(1, &lon)
            .attribute("units", "m"),
    ];
    let mut session = Create::new().begin(path, "tet").unwrap();
    let ids: Vec<_> = arrays.iter().map(|array| session.add(&array.spec).unwrap()).collect();
    for (id, array) in ids.into_iter().zip(&arrays) {
        session.write(id, &array.cells).unwrap();
    }
    let tool = ("tool".to_owned(), Value::from("buoys"));
    session.set_attributes([tool].into_iter().collect()).unwrap();
    let row = HistoryRow {
        op: "import".into(),
        source: "buoys.csv".into(),
        at: "1700000000".into(),
        ..HistoryRow::default()
    };
    session.add_history(row).unwrap();
    session.commit().unwrap();
}

/// Splits a line like a shell, as far as the guide needs it.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// Output of a command, and its exit code if it is not 0.
fn run(folder: &Path, line: &str) -> String {
    let (line, rest) = line.split_once(" | head -n ").map_or((line, None), |(line, n)| (line, Some(n)));
    let words = words(line);
    assert_eq!(words[0], "tet", "{line}");
    let done = command().args(&words[1..]).current_dir(folder).output().unwrap();
    let mut out = String::from_utf8(done.stdout).unwrap();
    if let Some(n) = rest {
        out = out.lines().take(n.parse().unwrap()).map(|l| format!("{l}\n")).collect();
    }
    out.push_str(&String::from_utf8(done.stderr).unwrap());
    if done.status.code() != Some(0) {
        out.push_str(&format!("(exit {})\n", done.status.code().unwrap()));
    }
    out
}

/// Runs the commands of a guide and compares their output. Blocks of `csv NAME` are input files.
fn check(path: &Path, guide: &str, folder: &Folder) {
    let mut made = String::new();
    let (mut inside, mut commands) = (false, 0);
    let mut file: Option<(String, String)> = None;
    for line in guide.lines() {
        if line.starts_with("```") {
            inside = !inside && line == "```console";
            if let Some((name, text)) = file.take() {
                std::fs::write(folder.path(&name), text).unwrap();
            } else if let Some(name) = line.strip_prefix("```csv ") {
                file = Some((name.to_owned(), String::new()));
            }
        } else if inside {
            let Some(command) = line.strip_prefix("$ ") else { continue };
            made.push_str(&format!("{line}\n{}", run(&folder.path("."), command)));
            commands += 1;
            continue;
        } else if let Some((_, text)) = &mut file {
            text.push_str(&format!("{line}\n"));
        }
        made.push_str(line);
        made.push('\n');
    }
    assert!(commands > 2, "the guide shows commands");
    if std::env::var_os("TET_GUIDE").is_some_and(|v| v == "overwrite") {
        std::fs::write(path, made).unwrap();
    } else {
        assert!(made == guide, "the guide differs; TET_GUIDE=overwrite updates it:\n{made}");
    }
}

fn guide(name: &str) -> (std::path::PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

#[test]
fn the_guide_to_versions_is_current() {
    let (path, text) = guide("tiledb.md");
    check(&path, &text, &Folder::new());
}

/// A larger file: eight maps of 64 by 96.
fn wind(path: &Path) {
    let cells: Vec<u8> = (0..8 * 64 * 96)
        .map(|i: i32| f64::from(i / 96 % 64) * 0.25 + f64::from(i % 96) * 0.125 - f64::from(i / 6144))
        .flat_map(f64::to_le_bytes)
        .collect();
    let array = Made::new("wind", DType::Float64, &[8, 64, 96], &[1, 64, 96], cells)
        .dims(&["time", "lat", "lon"])
        .attribute("units", "m s-1");
    crate::support::write(path, &[array]);
}

#[test]
fn the_guides_to_moving_data_are_current() {
    for name in ["convert.md", "rechunk.md"] {
        let (path, text) = guide(name);
        let folder = Folder::new();
        ocean(&folder.path("ocean.tet"));
        wind(&folder.path("wind.tet"));
        check(&path, &text, &folder);
    }
}

#[test]
fn the_guide_to_queries_is_current() {
    let (path, text) = guide("query.md");
    let folder = Folder::new();
    ocean(&folder.path("ocean.tet"));
    check(&path, &text, &folder);
}

#[test]
fn the_guide_is_current() {
    let (path, guide) = guide("cli.md");
    let folder = Folder::new();
    ocean(&folder.path("ocean.tet"));
    // A second one with a flipped bit in a chunk of sst.
    ocean(&folder.path("damaged.tet"));
    let mut bytes = std::fs::read(folder.path("damaged.tet")).unwrap();
    let at = bytes.windows(4).position(|w| w == 10.5_f32.to_le_bytes()).unwrap();
    bytes[at + 1] ^= 4;
    std::fs::write(folder.path("damaged.tet"), bytes).unwrap();

    check(&path, &guide, &folder);
}

/// Files of messages used by the other guide.
fn forecasts(folder: &Folder) {
    use tesseral_tensogram::wire::cbor::{CborItem, Map};
    use tesseral_tensogram::{
        DataObjectDescriptor, EncodeOptions, GlobalMetadata, Provenance, StreamingEncoder, encode,
    };
    let options = EncodeOptions { provenance: Provenance::reproducible(), ..EncodeOptions::default() };
    let text = |text: &str| CborItem::Text(text.to_owned());
    let message = |param: &str, step: u64| {
        let mars = CborItem::map([("param", text(param)), ("step", CborItem::UInt(step))]);
        let entry = Map::from([("mars".to_owned(), mars)]);
        let extra = Map::from([("centre".to_owned(), text("ecmf"))]);
        let metadata = GlobalMetadata { base: vec![entry], extra, ..GlobalMetadata::default() };
        let cells: Vec<u8> =
            (0..6).flat_map(|i| (280.0_f32 + step as f32 + i as f32 * 0.5).to_le_bytes()).collect();
        (metadata, cells)
    };
    let descriptor = DataObjectDescriptor::raw(DType::Float32, &[2, 3]);
    let mut file = Vec::new();
    for (param, step) in [("2t", 0), ("msl", 0), ("2t", 6), ("msl", 6)] {
        let (metadata, cells) = message(param, step);
        file.extend(encode(&metadata, &[(&descriptor, &cells)], &options).unwrap());
    }
    std::fs::write(folder.path("forecast.tgm"), &file).unwrap();
    // The same with a truncated tail, and with a flipped bit in the last message.
    std::fs::write(folder.path("truncated.tgm"), &file[..file.len() - 100]).unwrap();
    let at = file.windows(4).rposition(|w| w == 287.0_f32.to_le_bytes()).unwrap();
    file[at] ^= 1;
    std::fs::write(folder.path("damaged.tgm"), &file).unwrap();
    let (metadata, cells) = message("2t", 12);
    let mut stream = StreamingEncoder::new(Vec::new(), &metadata, &options).unwrap();
    stream.write_object(&descriptor, &cells).unwrap();
    std::fs::write(folder.path("streamed.tgm"), stream.finish().unwrap()).unwrap();
}

#[test]
fn the_guide_to_messages_is_current() {
    let (path, guide) = guide("tensogram.md");
    let folder = Folder::new();
    forecasts(&folder);
    check(&path, &guide, &folder);
}
