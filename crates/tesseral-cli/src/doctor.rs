//! `tet doctor`: features of the build and the machine.

use clap::Args;
use serde_json::{Map, Value as Json, json};

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::terminal_style::TerminalStyle;
use crate::text;

/// Arguments of `tet doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {}

/// Codecs and filters that this build decodes. Formats determine which of them they can write.
const CODECS: [&str; 21] = [
    "raw",
    "zstd",
    "lz4",
    "gzip",
    "bzip2",
    "szip",
    "blosc2",
    "zfp",
    "sz3",
    "simple_packing",
    "shuffle",
    "bitshuffle",
    "rle",
    "roaring",
    "dictionary",
    "delta",
    "double_delta",
    "positive_delta",
    "bit_width_reduction",
    "xor",
    "float_scale",
];

pub(crate) fn run(context: &Context, _: &DoctorArguments) -> CliResult {
    let facts = facts();
    if context.json() {
        output::print_json(&facts)?;
    } else {
        output::print(&view(&facts))?;
    }
    Ok(exit::OK)
}

fn facts() -> Json {
    let formats = tesseral::formats().map(|format| {
        let (can, holds) = (format.capabilities(), format.holds());
        let options = format.create_options().describe().into_iter().map(|option| {
            json!({
                "name": option.name, "type": option.kind, "default": option.default,
                "description": option.description,
            })
        });
        json!({
            "id": format.id(),
            "title": format.title(),
            "extensions": format.extensions(),
            "capabilities": {
                "read": true,
                "create": can.create,
                "many_arrays": can.many_arrays,
                "sparse": holds.sparse,
                "versions": format.versioned().is_some(),
                "nullable": holds.nullable,
                "attributes": can.attributes,
            },
            "create_options": options.collect::<Vec<_>>(),
        })
    });
    json!({
        "schema": "tesseral.doctor/1",
        "version": env!("CARGO_PKG_VERSION"),
        "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "formats": formats.collect::<Vec<_>>(),
        "codecs": CODECS,
        "cpu": {
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "features": cpu_features(),
        },
        "memory": {
            "total_bytes": memory("MemTotal:"),
            "available_bytes": memory("MemAvailable:"),
            "page_bytes": page_size(),
            "huge_pages": huge_pages(),
        },
    })
}

/// Instruction sets that hot loops are compiled for and that this machine supports.
fn cpu_features() -> Vec<&'static str> {
    let mut found = Vec::new();
    macro_rules! look {
        ($detected:ident: $($name:tt)*) => {
            $(if std::arch::$detected!($name) { found.push($name); })*
        };
    }
    #[cfg(target_arch = "x86_64")]
    look!(is_x86_feature_detected: "sse4.2" "avx" "avx2" "fma" "f16c" "bmi2" "avx512f" "avx512bw" "avx512vl");
    #[cfg(target_arch = "aarch64")]
    look!(is_aarch64_feature_detected: "neon" "fp16" "dotprod" "sve" "sve2");
    found
}

/// A line of `/proc/meminfo`, in bytes.
fn memory(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix(name))?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    kib.checked_mul(1024)
}

/// The page size, from the auxiliary vector: pairs of machine words, key 6.
fn page_size() -> Option<u64> {
    const PAGE_SIZE: usize = 6;
    const WORD: usize = size_of::<usize>();
    let pairs = std::fs::read("/proc/self/auxv").ok()?;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(usize::from_ne_bytes);
    pairs.chunks_exact(2 * WORD).find_map(|pair| {
        let (kind, value) = pair.split_at(WORD);
        (word(kind)? == PAGE_SIZE).then(|| word(value)).flatten().map(|size| size as u64)
    })
}

/// Huge page policy of the kernel: `always`, `madvise` or `never`.
fn huge_pages() -> Option<String> {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

fn view(facts: &Json) -> String {
    let paint = TerminalStyle::stdout();
    let at = |path: &str| facts.pointer(path);
    let string = |path: &str| at(path).and_then(Json::as_str).unwrap_or("unknown").to_owned();
    let size = |path: &str| at(path).and_then(Json::as_u64).map_or("unknown".to_owned(), text::size);
    let list = |path: &str| {
        let items = at(path).and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        items.collect::<Vec<_>>().join(" ")
    };
    let mut rows = vec![
        vec![
            "tet".to_owned(),
            format!("{} ({}, {} {})", string("/version"), string("/profile"), string("/os"), string("/arch")),
        ],
        vec!["codecs".to_owned(), list("/codecs")],
        vec!["cores".to_owned(), at("/cpu/cores").map_or_else(String::new, Json::to_string)],
        vec!["cpu features".to_owned(), list("/cpu/features")],
        vec![
            "memory".to_owned(),
            format!("{} ({} available)", size("/memory/total_bytes"), size("/memory/available_bytes")),
        ],
        vec!["page size".to_owned(), size("/memory/page_bytes")],
        vec!["huge pages".to_owned(), string("/memory/huge_pages")],
    ];
    for format in at("/formats").and_then(Json::as_array).into_iter().flatten() {
        let name = |key: &str| format.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
        let empty = Map::new();
        let can = format.get("capabilities").and_then(Json::as_object).unwrap_or(&empty);
        let can =
            can.iter().filter(|(_, able)| **able == Json::Bool(true)).map(|(what, _)| what.replace('_', " "));
        rows.push(vec![
            format!("format {}", name("id")),
            format!("{}: {}", name("title"), can.collect::<Vec<_>>().join(", ")),
        ]);
    }
    paint.table(&["fact", "value"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_known() {
        let facts = facts();
        assert!(facts.pointer("/cpu/cores").and_then(Json::as_u64).unwrap() >= 1);
        assert!(page_size().is_none_or(|n| n.is_power_of_two() && n >= 4096));
        assert!(memory("MemTotal:") >= memory("MemAvailable:"));
        assert!(memory("NoSuchLine:").is_none());
    }
}
