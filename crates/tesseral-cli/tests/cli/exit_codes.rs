use crate::support::{Folder, Made, command, fixture, tet, write};

#[test]
fn every_outcome_has_its_exit_code() {
    let labels = fixture("labels_v1.tet");
    let ranks = fixture("ranks_raw_v1.tet");
    let (labels, ranks) = (labels.as_str(), ranks.as_str());
    for (code, arguments) in [
        (0, &["info", labels][..]),
        (0, &["help"]),
        (0, &["--version"]),
        (0, &["cat", "--help"]),
        (2, &["cat"]),
        (2, &["cat", labels, "--no-such-flag"]),
        (2, &["cat", labels, "--memory", "lots"]),
        (2, &["cat", labels, "--threads", "0"]),
        (2, &["cat", ranks]),
        (2, &["cat", labels, "time=9"]),
        (2, &["cat", labels, "time=x"]),
        (2, &["cat", labels, "temp", "loose"]),
        (2, &["cat", labels, "time=0", "0=1"]),
        (2, &["cat", labels, "--json", "--format", "csv"]),
        (2, &["cat", labels, "--raw", "--format", "csv"]),
        (2, &["query", ""]),
        (2, &["split", labels, "-o", "-"]),
        (7, &["plot", labels, "-o", "picture.jpg"]),
        (2, &["repair", labels, "--apply", "footer_invalid"]),
        (3, &["info", "no-such-file.tet"]),
        (3, &["no-such-file.tet"]),
        (2, &["nosuchcommand"]),
        (2, &["statistics", labels]),
        (2, &["stat", labels, "--sort", "mean"]),
        (3, &["stat", labels, "--mean", "--by", "time", "--sort", "max"]),
        (3, &["cat", ranks, "rnk1"]),
        (3, &["cat", labels, "depth=1"]),
        (3, &["cat", labels, "time=@2030-01-01"]),
        (3, &["stat", labels, "--by", "depth"]),
        (3, &["info", labels, "--dataset", "nope"]),
        (3, &["info", labels, "--key-file", "no-such-file"]),
        (6, &["cat", labels, "--memory", "1"]),
        (7, &["info", labels, "--as-of", "2024-01-01"]),
        (7, &["info", "ftp://host/key"]),
    ] {
        let ran = tet(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.is_empty(), code == 0, "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.stdout.is_empty(), code != 0, "{arguments:?} printed {}", ran.text());
    }
}

#[test]
fn no_arguments_show_the_help() {
    let ran = tet::<&str>([]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("Usage: tet") && ran.stdout.is_empty());
}

#[test]
fn damage_is_reported_when_it_is_read() {
    let opening = fixture("corrupt/index_truncated.tet");
    for command in ["info", "cat", "stat"] {
        tet([command, &opening]).ended(4);
    }
    tet(["verify", &opening]).ended(1);
    let folder = Folder::new();
    let other = folder.path("notes.txt");
    std::fs::write(&other, "no array in here").unwrap();
    for command in ["info", "cat", "stat", "verify", "repair"] {
        tet([command, other.to_str().unwrap()]).ended(4);
    }
    let damaged = folder.path("damaged.tet");
    write(&damaged, &[Made::counting("a", &[8], &[4]), Made::counting("b", &[8], &[4])]);
    // The first byte of the first payload: chunks follow the index.
    let mut bytes = std::fs::read(&damaged).unwrap();
    let at =
        bytes.windows(16).position(|w| w == [0_f32, 0.5, 1.0, 1.5].map(f32::to_le_bytes).concat()).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let damaged = damaged.to_str().unwrap();
    tet(["info", damaged]).ended(0);
    tet(["cat", damaged, "a"]).ended(5);
    tet(["stat", damaged, "a"]).ended(5);
    tet(["cat", damaged, "a", "0=4:"]).ended(0);
    tet(["cat", damaged, "b"]).ended(0);
    tet(["cat", damaged, "a", "--no-digests"]).ended(0);
    tet(["verify", damaged]).ended(1);
}

#[test]
fn features_of_later_versions_are_unsupported() {
    tet(["info", &fixture("corrupt/superblock_version_2.tet")]).ended(7);
}

#[test]
fn errors_have_hints() {
    let ran = tet(["cat", &fixture("ranks_raw_v1.tet"), "rnk3"]);
    assert!(ran.stderr.contains("did you mean \"rank3\"?"), "{}", ran.stderr);
    let ran = tet(["cat", &fixture("ranks_raw_v1.tet")]);
    assert!(ran.stderr.contains("\"rank8\""), "{}", ran.stderr);
    let ran = tet(["cat", &fixture("labels_v1.tet"), "time=9"]);
    assert!(ran.stderr.contains("time=9"), "{}", ran.stderr);
    let ran = tet(["verfy", "x"]);
    assert!(ran.code == 2 && ran.stderr.contains("verify"), "{}", ran.stderr);
}

#[test]
fn colors_are_used_only_if_requested() {
    let source = fixture("labels_v1.tet");
    let colored = |arguments: &[&str]| tet(arguments).stdout.contains(&0x1b);
    assert!(!colored(&["info", &source]));
    assert!(colored(&["info", &source, "--color", "always"]));
    assert!(!colored(&["info", &source, "--color", "never"]));
    let colored_errors = |choice: &str| {
        let done = command().args(["info", "no-such-file", "--color", choice]).output().unwrap();
        done.stderr.contains(&0x1b)
    };
    assert!(colored_errors("always") && !colored_errors("auto"));
}

#[test]
fn names_are_escaped_for_the_terminal() {
    let folder = Folder::new();
    let path = folder.path("odd.tet");
    let odd = "a\u{1b}[31m\u{202e}b\nc";
    write(&path, &[Made::counting(odd, &[2], &[2]).dims(&["x\u{7}"]).labels(0, &["p\u{1b}", "q"])]);
    let path = path.to_str().unwrap();
    for arguments in [
        &["info", path, "--all"][..],
        &["stat", path],
        &["cat", path],
        &["verify", path],
        &["cat", path, "nope\u{1b}"],
        &["info", path, "--json"],
        &["stat", path, "--json"],
        &["cat", path, "--format", "json"],
    ] {
        let ran = tet(arguments);
        let printed = String::from_utf8(ran.stdout).unwrap() + &ran.stderr;
        assert!(!printed.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{arguments:?}: {printed:?}");
    }
    assert_eq!(crate::support::json(["info", path])["arrays"][0]["name"], odd);
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(tet(["completions", shell]).ended(0).text().contains("verify"), "{shell}");
    }
    assert!(tet(["man"]).ended(0).text().starts_with(".ie"));
    let folder = Folder::new();
    let listed = tet(["man", "--dir", &folder.text("man")]).ended(0);
    assert!(folder.path("man/tet-cat.1").exists() && folder.path("man/tet.1").exists());
    assert_eq!(listed.text().lines().count(), std::fs::read_dir(folder.path("man")).unwrap().count());
}
