use std::io::Read;
use std::process::Stdio;

use serde_json::json;
use tesseral::DType;

use crate::support::{Folder, Made, command, fixture, json, tet, write};

/// Every array of every fixture in every output format, with a memory limit of a few cells.
#[test]
fn output_does_not_depend_on_the_memory_limit() {
    for name in
        ["ranks_raw_v1.tet", "ranks_zstd_v1.tet", "labels_v2.tet", "codecs_by_dataset_v1.tet", "zstd_v2.tet"]
    {
        let path = fixture(name);
        let container = tesseral::open(&path).unwrap();
        for array in container.names() {
            let opened = container.array(array).unwrap();
            let selection: Vec<String> =
                (0..opened.schema().dims.len()).map(|d| format!("{d}=::2")).collect();
            for selection in [&[][..], &selection] {
                let words: Vec<&str> = selection.iter().map(String::as_str).collect();
                let cells = opened.read(&opened.select(words.iter().copied()).unwrap()).unwrap();
                for format in ["raw", "npy", "csv", "json"] {
                    let arguments =
                        || ["cat", &path, array, "--format", format].into_iter().chain(words.iter().copied());
                    let whole = tet(arguments()).ended(0).stdout;
                    let pieces =
                        tet(arguments().chain(["--memory", "100kB", "--threads", "1"])).ended(0).stdout;
                    assert!(whole == pieces, "{name} {array} {format}");
                    match format {
                        "raw" => assert!(whole == cells.bytes(), "{name} {array}"),
                        "npy" => {
                            assert!(whole.ends_with(cells.bytes()) && whole.starts_with(b"\x93NUMPY\x01\x00"))
                        }
                        "csv" => {
                            let rows = whole.iter().filter(|b| **b == b'\n').count() - 1;
                            assert_eq!(rows as u64, cells.shape.iter().product::<u64>());
                        }
                        _ => {
                            let document: serde_json::Value = serde_json::from_slice(&whole).unwrap();
                            assert_eq!(document["shape"], json!(cells.shape));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn text_lines_up_and_names_planes() {
    let text = tet(["cat", &fixture("labels_v1.tet"), "time=1:", "lat=2:"]).ended(0);
    let expected = "\
# time=2024-01-02
           b     a     b
-10.25  18.0  19.0  20.0
-90     21.0  22.0  23.0

# time=2024-01-03
           b     a     b
-10.25  30.0  31.0  32.0
-90     33.0  34.0  35.0
";
    assert_eq!(text.text(), expected);
}

#[test]
fn text_of_few_dimensions() {
    let folder = Folder::new();
    let path = folder.path("few.tet");
    write(
        &path,
        &[
            Made::counting("line", &[3], &[2]),
            Made::counting("named", &[3], &[2]).dims(&["x"]).labels(0, &["a", "bb", "c"]),
            Made::counting("plane", &[2, 3], &[2, 2]),
        ],
    );
    let path = path.to_str().unwrap();
    assert_eq!(tet(["cat", path, "line"]).ended(0).text(), "0.0\n0.5\n1.0\n");
    assert_eq!(tet(["cat", path, "named"]).ended(0).text(), "a   0.0\nbb  0.5\nc   1.0\n");
    assert_eq!(tet(["cat", path, "plane"]).ended(0).text(), "0.0  0.5  1.0\n1.5  2.0  2.5\n");
    assert_eq!(tet(["cat", path, "plane", "1=0:0"]).ended(0).text(), "");
    assert_eq!(tet(["cat", path, "line", "0=1:1", "--raw"]).ended(0).stdout, b"");
}

#[test]
fn csv_has_one_row_per_cell() {
    let folder = Folder::new();
    let path = folder.path("t.tet");
    let labels = ["p", "q,r", "s\"t"];
    write(&path, &[Made::counting("a", &[3, 2], &[1, 2]).dims(&["y", "x"]).labels(0, &labels)]);
    let csv = tet(["cat", path.to_str().unwrap(), "1=1", "--format", "csv"]).ended(0);
    assert_eq!(csv.text(), "y,x,a\np,1,0.5\n\"q,r\",1,1.5\n\"s\"\"t\",1,2.5\n");
}

#[test]
fn json_preserves_special_values() {
    let folder = Folder::new();
    let path = folder.path("t.tet");
    let floats: Vec<u8> =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let longs: Vec<u8> = [u64::MAX, 1 << 53, (1 << 53) + 1].iter().flat_map(|v| v.to_le_bytes()).collect();
    write(
        &path,
        &[
            Made::new("f", DType::Float64, &[2, 2], &[1, 1], floats),
            Made::new("u", DType::UInt64, &[3], &[2], longs).dims(&["x"]),
        ],
    );
    let path = path.to_str().unwrap();
    let document = json(["cat", path, "f"]);
    assert_eq!(document["schema"], "tesseral.cat/1");
    assert_eq!(document["data"], json!([["NaN", "Infinity"], ["-Infinity", -0.0]]));
    let document = json(["cat", path, "u"]);
    let expected = json!({
        "schema": "tesseral.cat/1", "array": "u", "field": "u", "dtype": "uint64", "shape": [3], "dims": ["x"],
        "data": ["18446744073709551615", 9_007_199_254_740_992_u64, "9007199254740993"],
    });
    assert_eq!(document, expected);
    assert_eq!(json(["cat", path, "f", "1=2:2"])["data"], json!([[], []]));
}

#[test]
fn validity_is_one_byte_per_cell() {
    let ran = tet(["cat", &fixture("zstd_v2.tet"), "--validity", "0=3:20"]).ended(0);
    assert_eq!(ran.stdout, [1; 17]);
    let ran = tet(["cat", &fixture("zstd_v2.tet"), "--validity", "--format", "text", "0=:2"]).ended(0);
    assert_eq!(ran.text(), "1\n1\n");
}

#[test]
fn an_array_name_can_look_like_a_selection() {
    let folder = Folder::new();
    let path = folder.path("t.tet");
    write(&path, &[Made::counting("0=1", &[2, 2], &[2, 2])]);
    let path = path.to_str().unwrap();
    assert_eq!(tet(["cat", path, "0=1"]).ended(0).text(), "0.0  0.5\n1.0  1.5\n");
    assert_eq!(tet(["cat", path, "0=1", "0=1"]).ended(0).text(), "1.0  1.5\n");
    assert_eq!(tet(["cat", path, "0=0"]).ended(0).text(), "0.0  0.5\n");
}

#[test]
fn outputs_are_published_atomically() {
    let folder = Folder::new();
    let (source, out) = (folder.text("a.tet"), folder.text("out.bin"));
    write(source.as_ref(), &[Made::counting("a", &[1000], &[100])]);
    tet(["cat", &source, "--raw", "-o", &out]).ended(0);
    let cells = std::fs::read(&out).unwrap();
    assert_eq!(cells.len(), 4000);
    tet(["cat", &source, "--raw", "-o", &out]).ended(2);
    tet(["cat", &source, "--raw", "0=:10", "-o", &out, "-f"]).ended(0);
    assert_eq!(std::fs::read(&out).unwrap(), cells[..40]);
    tet(["cat", &source, "--raw", "-o", &folder.text("no/such/folder/f")]).ended(0);
    tet(["cat", &source, "--raw", "-f", "-o", &folder.text("no")]).ended(2);

    let mut bytes = std::fs::read(&source).unwrap();
    let at = bytes.windows(4000).position(|w| w == cells).unwrap();
    bytes[at + 3600] ^= 0x10;
    std::fs::write(&source, bytes).unwrap();
    // The damage is in the last chunk, long after the first bytes were written.
    tet(["cat", &source, "--raw", "--memory", "2kB", "-o", &folder.text("damaged.bin")]).ended(5);
    tet(["cat", &source, "--raw", "-f", "-o", &out]).ended(5);
    assert_eq!(std::fs::read(&out).unwrap(), cells[..40], "the old output is kept");
    assert_eq!(folder.names(), ["a.tet", "no", "out.bin"]);
}

#[test]
fn a_closed_pipe_ends_the_command_silently() {
    let folder = Folder::new();
    let path = folder.path("long.tet");
    write(&path, &[Made::counting("a", &[400_000], &[50_000])]);
    for format in ["text", "csv", "json", "raw", "npy"] {
        let mut child = command()
            .args(["cat", path.to_str().unwrap(), "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{format}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{format}");
    }
}

#[test]
fn an_early_failure_prints_nothing() {
    for format in ["text", "csv", "json", "raw", "npy"] {
        let ran = tet(["cat", &fixture("corrupt/zstd_garbage.tet"), "a", "--format", format]);
        assert_eq!((ran.code, ran.text()), (5, ""), "{format}: {}", ran.stderr);
    }
}

/// The first and the last lines of what `cat` prints, and the number of the others on standard error.
#[test]
fn head_and_tail_print_some_rows() {
    let folder = Folder::new();
    let path = folder.text("a.tet");
    write(&folder.path("a.tet"), &[Made::counting("a", &[3, 20, 4], &[2, 7, 4]).dims(&["t", "y", "x"])]);
    for (format, headings) in [("text", 1), ("csv", 1)] {
        let whole = tet(["cat", &path, "--format", format, "t=1"]).ended(0);
        let lines: Vec<&str> = whole.text().lines().skip(headings).collect();
        let total = lines.len();
        for n in [1, 3, 7, 19] {
            let count = n.to_string();
            let run = |command: &str| {
                tet([command, path.as_str(), "t=1", "--format", format, "-n", count.as_str()])
            };
            let (head, tail) = (run("head"), run("tail"));
            let rest = total - n;
            let rows = if rest == 1 { "row" } else { "rows" };
            assert_eq!(head.stderr, format!("… {rest} more {rows}\n"));
            assert_eq!(tail.stderr, format!("… {rest} earlier {rows}\n"));
            // Columns are as wide as the cells that are read.
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let body = |ran: &str| ran.lines().skip(headings).map(words).collect::<Vec<_>>();
            let whole: Vec<Vec<String>> = lines.iter().map(|line| words(line)).collect();
            assert_eq!(body(head.text()), whole[..n], "{format} {n}");
            assert_eq!(body(tail.text()), whole[rest..], "{format} {n}");
        }
        assert_eq!(tet(["head", &path, "--format", format, "t=1", "-n", "0"]).ended(0).stdout, whole.stdout);
    }
    // Planes keep their headings; ten rows by default.
    let tail = tet(["tail", &path, "-n", "22"]);
    assert_eq!(tail.stderr, "… 38 earlier rows\n");
    assert!(tail.text().starts_with("# t=1\n") && tail.text().contains("\n# t=2\n"), "{}", tail.text());
    assert_eq!(tet(["head", &path]).text().lines().count(), 11);
    // Rows of conditions and JSON; binary output is not limited.
    let found = tet(["cat", &path, "--where", "a > 10", "-n", "2", "--format", "csv"]);
    assert_eq!((found.text().lines().count(), found.stderr.as_str()), (3, "… more rows; -n 0 prints all\n"));
    let last = json(["tail", &path, "-n", "3"]);
    assert_eq!(last["rows"][2]["a"], 119.5);
    assert_eq!(last["count"], 3);
    tet(["cat", &path, "-n", "2", "--raw"]).ended(2);
}
