//! The server over its own connections: access control, and the responses for arrays of every kind.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use tesseral::{ArraySchema, ArraySpec, Cancel, Create, DType, Scalar, Value};
use tesseral_serve::{Opener, Server, ServerSettings};

/// A running server; it stops when it is dropped.
struct Running {
    address: SocketAddr,
    cancel: Cancel,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

const TOKEN: &str = "0123456789abcdef";

fn serve(paths: &[&Path], change: impl FnOnce(&mut ServerSettings)) -> Running {
    let (address, server) = bound(paths, change);
    let cancel = Cancel::default();
    let stop = cancel.clone();
    let thread = std::thread::spawn(move || server.run(&stop).unwrap());
    Running { address, cancel, thread: Some(thread) }
}

/// A server that does not run yet.
fn bound(paths: &[&Path], change: impl FnOnce(&mut ServerSettings)) -> (SocketAddr, Server) {
    let open = |path: &&Path| {
        let owned = path.to_path_buf();
        let opener: Opener = Arc::new(move |at| {
            let open = tesseral::Open::new();
            let open = match at {
                Some(at) => open.as_of(tesseral::as_of(at)?),
                None => open,
            };
            open.open(&owned)
        });
        (path.to_string_lossy().into_owned(), opener)
    };
    let mut settings = ServerSettings::default();
    settings.token = Some(TOKEN.to_owned());
    change(&mut settings);
    let server = Server::bind(paths.iter().map(open).collect(), settings).unwrap();
    (server.address(), server)
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Json {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Sends a request as it is.
fn raw(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = bytes[end + 4..].to_vec();
    if head.contains("transfer-encoding: chunked") {
        let (mut rest, mut whole) = (&body[..], Vec::new());
        loop {
            let line = rest.windows(2).position(|w| w == b"\r\n").unwrap();
            let n = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            if n == 0 {
                break;
            }
            whole.extend(&rest[line + 2..line + 2 + n]);
            rest = &rest[line + 4 + n..];
        }
        body = whole;
    }
    Answer { status, head, body }
}

impl Running {
    fn get(&self, target: &str) -> Answer {
        let host = self.address;
        raw(
            host,
            &format!(
                "GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
            ),
        )
    }

    fn json(&self, target: &str) -> Json {
        self.get(target).json()
    }

    /// Header and points of a map.
    fn plane(&self, parameters: &str) -> (Json, Vec<f32>, Vec<u8>) {
        let answer = self.get(&format!("/api/plane?{parameters}"));
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        let length = u32::from_le_bytes(answer.body[..4].try_into().unwrap()) as usize;
        let header: Json = serde_json::from_slice(&answer.body[4..4 + length]).unwrap();
        let n = (header["width"].as_u64().unwrap() * header["height"].as_u64().unwrap()) as usize;
        let rest = &answer.body[4 + length..];
        assert_eq!(rest.len(), 5 * n);
        let values = rest[..4 * n].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        (header, values, rest[4 * n..].to_vec())
    }
}

/// Writes dense arrays of int32, whose cells are their numbers.
fn write(path: &Path, arrays: &[ArraySchema]) {
    let mut session = Create::new().overwrite().begin(path, "").unwrap();
    let mut ids = Vec::new();
    for schema in arrays {
        ids.push((session.add(&ArraySpec::raw(schema.clone())).unwrap(), schema));
    }
    for (id, schema) in ids {
        let cells: u64 = schema.shape().unwrap().iter().product();
        let size = schema.fields[0].cell_size().unwrap();
        let number = |i: u64| {
            let mut cell = vec![0; size];
            cell[0] = (i % 120) as u8;
            if schema.fields[0].dtype == DType::Int32 { (i as i32).to_ne_bytes().to_vec() } else { cell }
        };
        session.write(id, &(0..cells).flat_map(number).collect::<Vec<u8>>()).unwrap();
    }
    session.commit().unwrap();
}

fn int32(name: &str, shape: &[u64], chunk: &[u64]) -> ArraySchema {
    ArraySchema::dense(name, DType::Int32, shape, chunk)
}

#[test]
fn only_requests_with_token_and_host_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tet");
    write(&path, &[int32("a", &[4, 6], &[2, 3])]);
    let server = serve(&[&path], |_| ());
    let host = server.address;
    let ask = |target: &str, headers: &str| {
        raw(host, &format!("GET {target} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"))
    };
    let own = format!("Host: {host}\r\n");
    assert_eq!(ask("/api/sources", &own).status, 401);
    assert_eq!(ask("/", &own).status, 401);
    assert_eq!(ask("/main.js", &own).status, 401);
    assert_eq!(ask("/?token=wrong", &own).status, 401);
    assert_eq!(ask(&format!("/?token={TOKEN}x"), &own).status, 401);
    assert_eq!(ask(&format!("/api/sources?token={TOKEN}"), &own).status, 401);
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(ask("/api/sources", &format!("{own}{bearer}")).status, 200);
    for wrong in ["Host: evil.example\r\n", "Host: 127.0.0.1\r\n", ""] {
        let answer = ask("/api/sources", &format!("{wrong}{bearer}"));
        assert!(matches!(answer.status, 400 | 421), "{wrong} {}", answer.status);
    }
    assert_eq!(ask("/api/sources", &format!("{own}{bearer}Sec-Fetch-Site: cross-site\r\n")).status, 403);
    let first = ask(&format!("/?token={TOKEN}"), &own);
    assert_eq!(first.status, 303);
    let cookie = format!("set-cookie: tesseral-{}={TOKEN}; path=/; httponly; samesite=strict", host.port());
    assert!(first.head.contains(&cookie), "{}", first.head);
    let page = ask("/", &format!("{own}Cookie: x=1; tesseral-{}={TOKEN}\r\n", host.port()));
    assert_eq!(page.status, 200);
    for header in [
        "default-src 'none'",
        "script-src 'self'",
        "x-content-type-options: nosniff",
        "frame-ancestors 'none'",
    ] {
        assert!(page.head.contains(header), "{header}");
    }
    assert!(!page.head.contains("access-control") && !page.head.contains("unsafe-inline"));
    let post = raw(
        host,
        &format!("POST /api/sources HTTP/1.1\r\n{own}{bearer}Content-Length: 0\r\nConnection: close\r\n\r\n"),
    );
    assert_eq!(post.status, 405);
    assert_eq!(ask(&format!("/api/value?at={}", "1,".repeat(5000)), &format!("{own}{bearer}")).status, 414);
    assert_eq!(ask("/none", &format!("{own}{bearer}")).status, 404);
}

#[test]
fn the_page_has_no_inline_code_and_no_address_of_others() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    for entry in std::fs::read_dir(page).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let addresses =
            text.match_indices("://").map(|(i, _)| &text[i.saturating_sub(6)..(i + 20).min(text.len())]);
        assert!(addresses.into_iter().all(|found| found.contains("www.w3.org")), "{}", path.display());
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
        ] {
            assert!(!text.contains(sink), "{sink} in {}", path.display());
        }
        if path.extension().is_some_and(|e| e == "html") {
            assert!(!text.contains("<style") && !text.contains(" style=") && !text.contains(" onclick"));
            assert_eq!(text.matches("<script").count(), text.matches("src=\"/main.js\"").count());
        }
    }
}

#[test]
fn every_rank_has_values_maps_and_statistics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ranks.tet");
    let shapes: Vec<Vec<u64>> = (1..=8).map(|rank| (0..rank).map(|d| 2 + d as u64 % 2).collect()).collect();
    let arrays: Vec<ArraySchema> =
        shapes.iter().enumerate().map(|(i, s)| int32(&format!("r{}", i + 1), s, s)).collect();
    let mut all = vec![int32("r0", &[], &[])];
    all.extend(arrays);
    write(&path, &all);
    let server = serve(&[&path], |_| ());
    let listed = server.json("/api/arrays?source=0");
    assert_eq!(listed["total"], 9);
    for array in listed["arrays"].as_array().unwrap() {
        let (index, name) = (&array["index"], array["name"].as_str().unwrap());
        let rank: usize = name[1..].parse().unwrap();
        let shape: Vec<u64> =
            array["dims"].as_array().unwrap().iter().map(|d| d["extent"].as_u64().unwrap()).collect();
        assert_eq!(
            server.json(&format!("/api/array?array={index}"))["dimensions"].as_array().unwrap().len(),
            shape.len()
        );
        let last: Vec<String> = shape.iter().map(|n| (n - 1).to_string()).collect();
        let cells: u64 = shape.iter().product();
        let value = server.json(&format!("/api/value?array={index}&at={}", last.join(",")));
        assert_eq!(value["value"], cells - 1, "{name}");
        let stats = server.json(&format!("/api/statistics?array={index}"));
        assert_eq!((&stats["count"], &stats["max"]), (&cells.into(), &(cells - 1).into()), "{name}");
        let histogram = server.json(&format!("/api/histogram?array={index}&bins=4"));
        let counts: u64 = histogram["counts"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(counts, cells, "{name}");
        if rank >= 2 {
            let mut at: Vec<String> = vec!["1".to_owned(); rank];
            (at[rank - 1], at[rank - 2]) = (":".to_owned(), ":".to_owned());
            let at = at.join(",");
            let (header, values, kinds) =
                server.plane(&format!("array={index}&at={at}&width=64&height=64&x={}", rank - 1));
            assert_eq!(
                (header["width"].as_u64(), header["height"].as_u64()),
                (Some(shape[rank - 1]), Some(shape[rank - 2]))
            );
            assert!(kinds.iter().all(|k| *k == 0) && values[0] == 0.0 && *values.last().unwrap() == 1.0);
            let (turned, across, _) =
                server.plane(&format!("array={index}&at={at}&width=64&height=64&x={}", rank - 2));
            assert_eq!(turned["width"], header["height"]);
            let (w, h) = (shape[rank - 1] as usize, shape[rank - 2] as usize);
            assert!((0..h).all(|r| (0..w).all(|c| values[r * w + c] == across[c * h + r])), "{name}");
        }
        let series_at =
            last.iter().enumerate().map(|(d, p)| if d == 0 { ":" } else { p }).collect::<Vec<_>>().join(",");
        let series = server.json(&format!("/api/series?array={index}&at={series_at}&width=100"));
        assert_eq!(
            series["values"].as_array().unwrap().last().unwrap().as_f64(),
            Some((cells - 1) as f64),
            "{name}"
        );
        assert!(
            server.json(&format!("/api/rows?array={index}"))["rows"].as_array().unwrap().len() as u64
                == cells.min(200)
        );
        assert!(server.json(&format!("/api/chunks?array={index}"))["chunks"].as_array().is_some());
    }
}

#[test]
fn every_dtype_is_shown_or_rejected_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dtypes.tet");
    let dtypes = [
        DType::Bool,
        DType::Int8,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::UInt8,
        DType::UInt16,
        DType::UInt32,
        DType::UInt64,
        DType::Float16,
        DType::Float32,
        DType::Float64,
        DType::Complex64,
        DType::Complex128,
    ];
    let schemas: Vec<ArraySchema> = dtypes
        .iter()
        .map(|dtype| ArraySchema::dense(format!("a_{dtype}"), *dtype, &[3, 2], &[3, 2]))
        .collect();
    let mut written = Vec::new();
    for schema in schemas {
        let mut session = Create::new().overwrite().begin(&path, "").unwrap();
        if session.add(&ArraySpec::raw(schema.clone())).is_ok() {
            written.push(schema);
        }
    }
    assert!(written.len() >= 6);
    for schema in &mut written {
        if schema.fields[0].dtype == DType::Bool {
            schema.chunk_shape = schema.shape();
        }
    }
    write(&path, &written.iter().filter(|s| s.fields[0].dtype != DType::Bool).cloned().collect::<Vec<_>>());
    let server = serve(&[&path], |_| ());
    for array in server.json("/api/arrays")["arrays"].as_array().unwrap() {
        let index = &array["index"];
        let value = server.json(&format!("/api/value?array={index}&at=1,1"));
        assert!(value["missing"] == false && value["text"].is_string(), "{array}");
        let map = server.get(&format!("/api/plane?array={index}&width=8&height=8&x=1"));
        assert!(matches!(map.status, 200 | 422), "{array} {}", map.status);
        if map.status == 422 {
            let error: Json = serde_json::from_slice(&map.body).unwrap();
            assert_eq!(error["kind"], "not supported");
        }
        assert_eq!(server.json(&format!("/api/rows?array={index}"))["rows"].as_array().unwrap().len(), 6);
    }
}

#[test]
fn missing_cells_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing.tet");
    let mut schema = int32("m", &[2, 3], &[2, 3]);
    schema.attributes.insert(
        "_FillValue".to_owned(),
        Value::Scalar(Scalar::from_le_bytes(DType::Int32, &0_i32.to_le_bytes()).unwrap()),
    );
    let mut all = int32("all", &[1, 1], &[1, 1]);
    all.attributes = schema.attributes.clone();
    write(&path, &[schema, all]);
    let server = serve(&[&path], |_| ());
    let names = server.json("/api/arrays");
    let index = |name: &str| {
        let found = names["arrays"].as_array().unwrap().iter().find(|a| a["name"] == name).unwrap();
        found["index"].as_u64().unwrap()
    };
    let m = index("m");
    assert_eq!(server.json(&format!("/api/value?array={m}&at=0,0"))["missing"], true);
    let (header, _, kinds) = server.plane(&format!("array={m}&width=8&height=8&x=1"));
    assert_eq!((header["nulls"].as_u64(), kinds), (Some(1), vec![1, 0, 0, 0, 0, 0]));
    let empty = index("all");
    let (header, ..) = server.plane(&format!("array={empty}&width=8&height=8"));
    assert_eq!(header["empty"], true);
    let stats = server.json(&format!("/api/histogram?array={empty}&bins=4"));
    assert_eq!((&stats["statistics"]["min"], &stats["statistics"]["nulls"]), (&Json::Null, &1.into()));
    assert_eq!(stats["counts"], serde_json::json!([]));
}

#[test]
fn large_selections_are_sampled_within_the_work_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.tet");
    let mut schema = int32("a", &[1024, 1024], &[64, 64]);
    schema.fields[0].codecs = vec!["zstd".to_owned()];
    let mut session = Create::new().begin(&path, "").unwrap();
    let spec = ArraySpec { codecs: vec![vec!["zstd".parse().unwrap()]], ..ArraySpec::raw(schema) };
    let id = session.add(&spec).unwrap();
    session.write(id, &(0..1024 * 1024_i32).flat_map(i32::to_ne_bytes).collect::<Vec<u8>>()).unwrap();
    session.commit().unwrap();
    let server = serve(&[&path], |settings| settings.work = 256 << 10);
    let (header, values, kinds) = server.plane("width=256&height=256&x=1");
    assert_eq!(header["sampled"], true);
    assert!(header["cells"].as_u64().unwrap() * 4 <= 256 << 10);
    assert_eq!(header["selected"], 1 << 20);
    assert!(
        kinds.iter().all(|k| *k == 0)
            && values.windows(256).all(|w| w.iter().all(|v| (0.0..=1.0).contains(v)))
    );
    let (zoomed, ..) = server.plane("width=256&height=256&x=1&at=100:200,100:200");
    assert_eq!((zoomed["sampled"].as_bool(), zoomed["cells"].as_u64()), (Some(false), Some(10_000)));
    // Statistics of more than four times the work wait until they are requested.
    let deferred = server.json("/api/histogram?bins=4");
    assert_eq!(deferred["deferred"], serde_json::json!({"bytes": 4 << 20, "cells": 1 << 20}));
    let asked = server.json("/api/histogram?bins=4&all=true");
    assert_eq!(asked["statistics"]["max"], (1 << 20) - 1);
    assert_eq!(server.json("/api/histogram?bins=4&at=0:64,0:64")["statistics"]["count"], 4096);
    let means = server.get("/api/means?along=0&at=0:1024,0:64");
    assert_eq!(means.status, 200);
    assert_eq!(server.get("/api/means?along=0").status, 200, "sixteen times the work needs no request");
    let small = serve(&[&path], |settings| settings.work = 64 << 10);
    assert_eq!(small.json("/api/means?along=0")["deferred"]["bytes"], 4 << 20);
    assert_eq!(small.json("/api/means?along=0&all=true"), server.json("/api/means?along=0"));
}

/// An array of four terabytes, most of it unwritten, is shown as fast as a small one: everything but *Compute* is bounded.
#[test]
fn a_huge_array_opens_within_the_work_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge");
    let mut schema = int32("a", &[1 << 20, 1 << 20], &[1024, 1024]);
    schema.fields[0].codecs = vec!["zstd".to_owned()];
    let spec = ArraySpec { codecs: vec![vec!["zstd".parse().unwrap()]], ..ArraySpec::raw(schema) };
    let mut session = Create::new().empty().begin(&path, "tiledb").unwrap();
    session.add(&spec).unwrap();
    session.commit().unwrap();
    let region = tesseral::Region::new([(1024, 2048), (2048, 3072)]);
    let session = tesseral::Append::new().region(region.clone()).begin(&path).unwrap();
    let cells: Vec<u8> = (0..1 << 20).flat_map(i32::to_ne_bytes).collect();
    session.write_region(tesseral::ArrayId(0), &region, &cells).unwrap();
    session.commit().unwrap();
    let server = serve(&[&path], |_| ());
    let array = server.json("/api/array");
    assert_eq!(array["shape"], serde_json::json!([1 << 20, 1 << 20]));
    let (header, ..) = server.plane("width=512&height=512&x=1");
    assert!(header["cells"].as_u64().unwrap() <= 64 << 20, "{header}");
    assert_eq!(header["sampled"], true);
    assert!(server.json("/api/histogram?bins=10")["deferred"]["bytes"].as_u64() > Some(1 << 41));
    let (zoomed, ..) = server.plane("width=1024&height=1024&x=1&at=1024:2048,2048:3072");
    assert_eq!((zoomed["sampled"].as_bool(), zoomed["high"].as_f64()), (Some(false), Some(1_048_575.0)));
    assert_eq!(server.json("/api/value?at=1024,2049")["value"], 1);
    assert_eq!(server.json("/api/series?at=1024,2048:3072&width=900")["ends"]["high"]["value"], 1023);
    let chunks = server.json("/api/chunks");
    assert_eq!(chunks["total"], 1 << 20);
    assert_eq!(chunks["chunks"][0]["coords"], serde_json::json!([1, 2]), "absent chunks are not listed");
    assert_eq!((chunks["chunks"].as_array().unwrap().len(), chunks["next"].as_u64()), (1, Some(1 << 16)));
    assert!(server.json("/api/means?along=0")["deferred"]["bytes"].as_u64() > Some(1 << 41));
    assert_eq!(server.get("/api/means?along=0&all=true").status, 413);
    assert_eq!(
        server.json("/api/means?along=0&at=1024:1026,0:4096&all=true")["values"].as_array().unwrap().len(),
        2
    );
    assert_eq!(server.get("/api/rows?where=a%20%3E%205").status, 413);
    assert_eq!(server.json("/api/rows?at=1024:1026,2048:2050")["rows"].as_array().unwrap().len(), 4);
}

/// Means of the shown cells, for each position and for each part of the time, and the coordinates of a part.
#[test]
fn series_of_means_have_their_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tet");
    let mut schema = int32("a", &[6, 2, 3], &[4, 2, 2]);
    for (dim, name) in schema.dims.iter_mut().zip(["time", "lat", "lon"]) {
        dim.name = name.to_owned();
    }
    let labels = |texts: &[&str]| tesseral::Labels::Text(texts.iter().map(|t| (*t).to_owned()).collect());
    let times = [
        "2001-01-01",
        "2001-01-01T12:00",
        "2001-01-02",
        "2001-01-02T12:00",
        "2001-02-01",
        "2001-02-01T12:00",
    ];
    schema.dims[0].labels = Some(labels(&times));
    schema.dims[1].labels = Some(labels(&["50", "40"]));
    write(&path, &[schema]);
    let server = serve(&[&path], |_| ());
    let means = server.json("/api/means?along=0&at=0:6,0:2,1:3");
    // Positions 1, 2, 4 and 5 of the first plane, six more in each that follows.
    assert_eq!(means["values"], serde_json::json!([3.0, 9.0, 15.0, 21.0, 27.0, 33.0]));
    assert_eq!(means["ends"]["low"], serde_json::json!({"value": 3.0, "text": "2001-01-01", "position": 0}));
    assert_eq!(means["ends"]["high"]["text"], "2001-02-01T12:00");
    let at_one_time = server.json("/api/means?along=1&at=2,0:2,0:3");
    assert_eq!(at_one_time["values"], serde_json::json!([13.0, 16.0]));
    let series = server.json("/api/series?at=:,1,2&width=100");
    assert_eq!(series["ends"]["low"], serde_json::json!({"value": 5, "text": "2001-01-01", "position": 0}));
    assert_eq!(series["bands"], serde_json::json!([]), "each point is one cell");
    let narrow = server.json("/api/series?at=:,1,2&width=3");
    assert_eq!(narrow["values"], serde_json::json!([8.0, 20.0, 32.0]));
    assert_eq!(narrow["bands"], serde_json::json!([[5.0, 11.0], [17.0, 23.0], [29.0, 35.0]]));
    assert_eq!((narrow["low"].as_f64(), narrow["high"].as_f64()), (Some(5.0), Some(35.0)));
    assert_eq!(server.json("/api/between?dim=1&low=38&high=45"), serde_json::json!({"from": 1, "to": 2}));
    assert_eq!(server.json("/api/between?dim=1&low=&high="), serde_json::json!({"from": 0, "to": 2}));
    for (target, status) in [
        ("means?along=3", 400),
        ("means?along=0&by=week", 404),
        ("means?along=1&by=month", 400),
        ("between?dim=9", 404),
        ("between?dim=1&low=x", 400),
    ] {
        assert_eq!(server.get(&format!("/api/{target}")).status, status, "{target}");
    }
}

/// Files that clients do not read take places, which are limited.
#[test]
fn downloads_that_are_not_read_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tet");
    write(&path, &[int32("a", &[640, 640], &[64, 640])]);
    let server = serve(&[&path], |_| ());
    let host = server.address;
    let request = format!(
        "GET /api/download?kind=csv HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    let open = || {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (stream, String::from_utf8_lossy(&head).into_owned())
    };
    let held: Vec<_> = (0..8).map(|_| open()).collect();
    assert!(held.iter().all(|(_, head)| head.ends_with("200")));
    assert!(open().1.ends_with("503"));
    drop(held);
    for _ in 0..500 {
        if open().1.ends_with("200") {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the places of closed connections are free again");
}

#[test]
fn invalid_requests_are_errors_with_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tet");
    write(&path, &[int32("a", &[4, 6], &[2, 3])]);
    let server = serve(&[&path], |settings| settings.download = 10);
    for (target, status) in [
        ("/api/array?array=7", 404),
        ("/api/array?source=3", 404),
        ("/api/array?array=0&field=9", 400),
        ("/api/array?array=x", 400),
        ("/api/value?at=0,6", 400),
        ("/api/value?at=0", 400),
        ("/api/value?at=:,0", 400),
        ("/api/plane?at=5:2,:&width=4&height=4", 400),
        ("/api/series?at=:,:&width=4", 400),
        ("/api/rows?where=b%20%3E%201", 404),
        ("/api/rows?from=99999999", 413),
        ("/api/points?x=9", 400),
        ("/api/coordinates?dim=5", 404),
        ("/api/colors?map=none", 404),
        ("/api/download?kind=none&at=0,0", 404),
        ("/api/download?kind=csv", 413),
        ("/api/arrays?as_of=yesterday", 400),
    ] {
        let answer = server.get(target);
        assert_eq!(answer.status, status, "{target}: {}", String::from_utf8_lossy(&answer.body));
        if !answer.body.starts_with(b"Failed to deserialize") {
            let error: Json = serde_json::from_slice(&answer.body).unwrap();
            assert!(error["error"].as_str().is_some_and(|text| !text.is_empty()), "{target}");
        }
    }
}

/// Boundary values of every parameter of every request have an answer or an error, on dense and sparse arrays.
#[test]
fn no_query_panics() {
    let folder = tempfile::tempdir().unwrap();
    let dense = folder.path().join("a.tet");
    write(&dense, &[int32("a", &[4, 6], &[2, 3]), int32("b", &[], &[]), int32("c", &[5], &[2])]);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tiledb");
    let (sparse, enumerated) = (fixtures.join("sparse_history"), fixtures.join("enumerated"));
    let (_, server) = bound(&[&dense, &sparse, &enumerated], |_| ());
    let paths = [
        "sources",
        "colors",
        "arrays",
        "array",
        "coordinates",
        "between",
        "versions",
        "plane",
        "series",
        "means",
        "value",
        "rows",
        "points",
        "statistics",
        "histogram",
        "chunks",
        "formats",
        "none",
    ];
    let huge = u64::MAX.to_string();
    let at = format!("at={huge},{huge}:{huge}:{huge}");
    let others = [
        "",
        "at=",
        "at=,",
        "at=0:0,0:0",
        "at=3,5",
        "at=::2,::3",
        "at=0:4:7,5:6:9",
        "x=0&width=0&height=0",
        "x=1&width=9999&height=9999",
        "x=7&y=7",
        "field=65535",
        "as_of=0",
        "as_of=x",
        "dim=1&from=1&count=0",
        "dim=0&low=-1&high=99",
        "along=1&by=day",
        "along=0",
        "bins=0",
        "bins=4294967295&all=true",
        "where=a>0",
        "where=(((",
        "from=18446744073709551615",
        "stored=true",
        "map=magma",
        "map=",
        at.as_str(),
    ];
    for (path, other) in paths.iter().flat_map(|path| others.iter().map(move |other| (path, other))) {
        for (source, array) in [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (3, 9)] {
            let target = format!("/api/{path}?source={source}&array={array}&{other}");
            match server.answer(&target, Cancel::default()) {
                Ok(answer) => assert!(!answer.is_empty(), "{target}"),
                Err(error) => assert!(
                    !matches!(error.kind(), tesseral::ErrorKind::Internal { .. }),
                    "{target}: {error}"
                ),
            }
        }
    }
}

#[test]
fn hostile_names_stay_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.tet");
    let name = "<img src=x onerror=alert(1)>";
    let mut schema = int32(name, &[2, 2], &[2, 2]);
    schema.attributes.insert("units".to_owned(), Value::from("</script><script>alert(2)</script>"));
    write(&path, &[schema]);
    let server = serve(&[&path], |_| ());
    let answer = server.get("/api/arrays");
    assert!(answer.head.contains("content-type: application/json") && answer.head.contains("nosniff"));
    assert_eq!(answer.json()["arrays"][0]["name"], name);
    let file = server.get("/api/download?kind=csv");
    assert_eq!(file.status, 200);
    assert!(file.head.contains("attachment; filename=\"_img_src_x_onerror_alert_1__.csv\""), "{}", file.head);
}

#[test]
fn downloads_hold_the_shown_cells() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tet");
    write(&path, &[int32("a", &[4, 6], &[2, 3])]);
    let server = serve(&[&path], |_| ());
    let csv = server.get("/api/download?kind=csv&at=1,2:4");
    assert_eq!(csv.status, 200);
    assert!(String::from_utf8(csv.body).unwrap().ends_with("1,2,8\n1,3,9\n"));
    let png = server.get("/api/download?kind=png");
    assert_eq!(&png.body[..8], b"\x89PNG\r\n\x1a\n");
    let formats = server.json("/api/formats");
    let kinds = formats["formats"].as_array().unwrap();
    assert!(kinds.len() >= 3);
    for format in kinds {
        let kind = format["kind"].as_str().unwrap();
        let answer = server.get(&format!("/api/download?kind={kind}&at=1:3,2:4"));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 200 || answer.status == 422, "{kind}: {text}");
        if answer.status != 200 {
            continue;
        }
        if format["zipped"] == true {
            assert_eq!(&answer.body[..4], b"PK\x03\x04", "{kind}");
            continue;
        }
        let out = folder.path().join(format!("out-{kind}"));
        std::fs::write(&out, &answer.body).unwrap();
        let copied = tesseral::open(&out).unwrap();
        let index = copied.only_array().unwrap().unwrap();
        let array = copied.array_at(index).unwrap();
        assert_eq!(
            array.read(&array.all().unwrap()).unwrap().bytes(),
            [8, 9, 14, 15].map(i32::to_ne_bytes).concat(),
            "{kind}"
        );
    }
}

#[test]
fn a_thousand_requests_at_once_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tet");
    write(&path, &[int32("a", &[1000, 64, 64], &[10, 64, 64])]);
    let server = serve(&[&path], |settings| settings.cache = 1 << 20);
    std::thread::scope(|scope| {
        for worker in 0..50 {
            let server = &server;
            scope.spawn(move || {
                for i in 0..20 {
                    let (header, ..) =
                        server.plane(&format!("at={},:,:&width=64&height=64&x=2", worker * 20 + i));
                    assert_eq!(header["low"].as_f64(), Some(f64::from((worker * 20 + i) * 4096)));
                }
            });
        }
    });
}
