//! Opening, reading and closing many times: memory and handles do not grow.

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};

/// Opens a source `count` times, mapped and read in turn; returns what the process held after a tenth and at the end.
pub fn run(source: &Path, count: u64) -> Result<Json, Box<dyn std::error::Error>> {
    let mut first = (0, 0);
    for i in 0..count {
        let access = if i % 2 == 0 { tesseral_store::ReadMode::Map } else { tesseral_store::ReadMode::Read };
        let container = tesseral::Open::new().access(access).open(source)?;
        let array = container.array_at(0)?;
        if array.schema().sparse {
            array.cells()?.read()?;
        } else {
            let rank = array.schema().dims.len();
            let window: Vec<String> = (0..rank).map(|d| format!("{d}=0:1")).collect();
            array.read(&array.select(window.iter().map(String::as_str))?)?;
        }
        if i == count / 10 {
            first = held()?;
        }
    }
    let last = held()?;
    Ok(json!({"opened": count, "rss_kib": [first.0, last.0], "handles": [first.1, last.1]}))
}

/// Resident memory in KiB, and open handles.
fn held() -> Result<(u64, usize), Box<dyn std::error::Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok((kib, fs::read_dir("/proc/self/fd")?.count()))
}
