use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, Made, command, write};

/// Sends a signal with the shell's builtin: not every machine has a `kill` program.
fn signal(name: &str, process: u32) {
    let kill = format!("kill {name} {process}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn an_interrupt_leaves_no_partial_files() {
    let folder = Folder::new();
    let (source, out) = (folder.text("a.tet"), folder.text("out.csv"));
    write(source.as_ref(), &[Made::counting("a", &[4_000_000], &[100_000])]);
    std::fs::write(&out, "old").unwrap();
    for name in ["-INT", "-TERM"] {
        let child = command()
            .args(["cat", &source, "--format", "csv", "-f", "-o", &out])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while folder.names().len() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing was staged");
            std::thread::sleep(Duration::from_millis(1));
        }
        signal(name, child.id());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(folder.names(), ["a.tet", "out.csv"]);
        assert_eq!(std::fs::read(&out).unwrap(), b"old");
    }
}
