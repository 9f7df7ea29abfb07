use serde_json::json;

use crate::support::{Folder, Made, fixture, json, tet, write};

#[test]
fn intact_files_verify() {
    let folder = Folder::new();
    let path = folder.text("a.tet");
    write(path.as_ref(), &[Made::counting("a", &[100], &[10]).zstd()]);
    for deep in [&[][..], &["--deep"]] {
        let document = json([&["verify", &path], deep].concat());
        assert_eq!((&document["schema"], &document["ok"]), (&json!("tesseral.verify/1"), &json!(true)));
        assert_eq!(document["format"], "tet");
        assert!(document["covered_bytes"].as_u64().unwrap() > 0);
    }
    tet(["verify", &path]).ended(0);
    let line = tet(["verify", "-q", &path]).ended(0);
    assert!(line.text().starts_with(&format!("path={path} status=ok errors=0 ")), "{}", line.text());
    let theirs = json(["verify", &fixture("zstd_v2.tet")]);
    assert_eq!(theirs["covered_bytes"], 0);
    assert!(theirs["uncovered_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn each_damaged_chunk_is_named() {
    let folder = Folder::new();
    let path = folder.text("a.tet");
    write(path.as_ref(), &[Made::counting("a", &[100], &[10])]);
    let mut bytes = std::fs::read(&path).unwrap();
    let list = json(["info", &path, "--chunks"]);
    let offset = list["arrays"][0]["chunk_list"][3]["offset"].as_u64().unwrap();
    bytes[usize::try_from(offset).unwrap() + 5] ^= 0x40;
    std::fs::write(&path, &bytes).unwrap();
    let document = json(["verify", &path]);
    assert_eq!(document["ok"], false);
    let failed: Vec<_> =
        document["findings"].as_array().unwrap().iter().filter(|f| f["ok"] == false).collect();
    assert_eq!(failed.len(), 1, "{document:#}");
    assert_eq!(failed[0]["severity"], "error");
    assert_eq!((&failed[0]["array"], &failed[0]["chunk"]), (&json!("a"), &json!([3])));
    assert_eq!((&failed[0]["offset"], &failed[0]["length"]), (&json!(offset), &json!(40)));
    let text = tet(["verify", &path]).ended(1);
    assert!(text.text().contains("status: failed") && text.text().contains("FAIL"));
    assert!(tet(["verify", "-q", &path]).ended(1).text().contains("status=failed errors=1"));

    let saved = folder.text("saved.tet");
    let report = json(["recover", &path, &saved]);
    assert_eq!((&report["schema"], &report["chunks_saved"]), (&json!("tesseral.recover/1"), &json!(9)));
    assert_eq!(report["chunks_lost"], 1);
    tet(["verify", &saved]).ended(0);
    let cells = tet(["cat", &saved, "--format", "csv", "0=29:31"]).ended(0);
    assert_eq!(cells.text(), "dim_0,a\n29,14.5\n30,\n");
    tet(["recover", &path, &saved]).ended(2);
    assert!(tet(["recover", &path, &saved, "-f"]).ended(0).text().contains("9 chunks saved, 1 lost"));
}

#[test]
fn recovering_nothing_is_an_error() {
    let folder = Folder::new();
    let truncated = folder.text("truncated.tet");
    std::fs::write(&truncated, b"TETR").unwrap();
    tet(["recover", &truncated, &folder.text("saved.tet")]).ended(4);
    assert_eq!(folder.names(), ["truncated.tet"]);
}

#[test]
fn repairs_are_listed_then_applied() {
    let folder = Folder::new();
    let path = folder.text("footer.tet");
    std::fs::copy(fixture("corrupt/footer_json_broken.tet"), &path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let plan = json(["repair", &path]);
    assert_eq!(plan["schema"], "tesseral.repair/1");
    assert_eq!(plan["repairs"][0]["code"], "footer_invalid");
    assert_eq!(plan["repairs"][0]["outcome"], "available");
    let trial = json(["repair", &path, "--apply", "footer_invalid", "--dry-run"]);
    assert_eq!(trial["repairs"][0]["outcome"], "would apply");
    assert!(tet(["repair", &path]).ended(0).text().contains("--apply footer_invalid"));
    tet(["repair", &path, "--apply", "no_such_fix"]).ended(2);
    assert_eq!(std::fs::read(&path).unwrap(), before, "listing changes nothing");
    let done = json(["repair", &path, "--apply", "footer_invalid"]);
    assert_eq!(done["repairs"][0]["outcome"], "applied");
    assert_eq!(done["verify_after"]["ok"], true);
    tet(["verify", &path]).ended(0);
    assert!(tet(["repair", &path]).ended(0).text().contains("nothing to repair"));
    assert_eq!(json(["repair", &path])["repairs"], json!([]));
}

#[test]
fn the_build_describes_itself() {
    let facts = json(["doctor"]);
    assert_eq!(facts["schema"], "tesseral.doctor/1");
    assert!(facts["formats"].as_array().unwrap().iter().any(|f| f["id"] == "tet"));
    assert!(tet(["doctor"]).ended(0).text().contains("zstd"));
}
