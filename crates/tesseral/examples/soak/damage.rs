//! Kinds of damage and their outcomes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::random::Random;
use crate::sample::{Files, Outcome, Sample};

/// A changed or removed file.
type Damage = (String, Option<Vec<u8>>);

/// Tests `count` damaged copies of a kind. Copies that are neither harmless nor rejected are listed, and kept in `folder` if
/// given; with the environment variable `SOAK_COPIES` every copy is kept.
pub fn run(
    source: &Path,
    kind: &str,
    count: usize,
    seed: u64,
    folder: Option<&Path>,
) -> Result<Json, Box<dyn std::error::Error>> {
    let sample = Sample::load(source)?;
    let mut random = Random::new(seed, kind);
    let all = std::env::var_os("SOAK_COPIES").is_some();
    let number = watch();
    std::panic::set_hook(Box::new(|_| ()));
    let mut outcomes = BTreeMap::<String, u64>::new();
    let mut bad = Vec::new();
    for (i, damage) in damages(kind, &sample, &mut random, count)?.enumerate() {
        number.store(i as u64, Ordering::Relaxed);
        let files = apply(&sample.files, damage.clone());
        if all {
            keep(folder, i, &files)?;
            continue;
        }
        let outcome = match kind {
            "missing" => sample.judge_missing(&damage.0, files.clone()),
            _ => sample.judge(files.clone()),
        };
        *outcomes.entry(format!("{outcome:?}").to_lowercase()).or_default() += 1;
        if !matches!(outcome, Outcome::Harmless | Outcome::Refused | Outcome::Warned | Outcome::Undefined) {
            keep(folder, i, &files)?;
            bad.push(json!({"number": i, "outcome": format!("{outcome:?}"), "file": damage.0}));
        }
    }
    Ok(json!({"outcomes": outcomes, "bad": bad}))
}

/// Ends the process when one copy takes a minute: an infinite loop cannot be caught otherwise.
fn watch() -> &'static AtomicU64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    std::thread::spawn(|| {
        let mut last = u64::MAX;
        loop {
            std::thread::sleep(Duration::from_secs(60));
            let now = NUMBER.load(Ordering::Relaxed);
            if now == last {
                eprintln!("damage {now} takes more than a minute");
                std::process::exit(9);
            }
            last = now;
        }
    });
    &NUMBER
}

fn apply(files: &Files, (name, content): Damage) -> Files {
    let mut files = files.clone();
    match content {
        Some(content) => files.insert(name, content),
        None => files.remove(&name),
    };
    files
}

fn keep(folder: Option<&Path>, number: usize, files: &Files) -> std::io::Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    for (name, bytes) in files {
        let path = folder.join(format!("{number:06}")).join(name);
        let path = if name.is_empty() { folder.join(format!("{number:06}")) } else { path };
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, bytes)?;
    }
    Ok(())
}

fn damages<'a>(
    kind: &str,
    sample: &'a Sample,
    random: &'a mut Random,
    count: usize,
) -> Result<Box<dyn Iterator<Item = Damage> + 'a>, Box<dyn std::error::Error>> {
    let files = &sample.files;
    Ok(match kind {
        "flips" => Box::new((0..count).map(|_| flip(files, random))),
        "mutations" => Box::new((0..count).map(|_| mutate(files, random))),
        "truncations" => Box::new(truncations(files, random, count)),
        "missing" => Box::new(missing(files)),
        "swaps" => Box::new(swaps(sample, random, count)?.into_iter()),
        _ => return Err(format!("no kind {kind}").into()),
    })
}

/// A random file, weighted by size.
fn pick<'a>(files: &'a Files, random: &mut Random) -> (&'a String, Vec<u8>) {
    let total: usize = files.values().map(|bytes| bytes.len().max(1)).sum();
    let mut at = random.below(total);
    for (name, bytes) in files {
        let len = bytes.len().max(1);
        if at < len {
            return (name, bytes.clone());
        }
        at -= len;
    }
    unreachable!("a place below the sum of the lengths lies in a file")
}

fn flip(files: &Files, random: &mut Random) -> Damage {
    let (name, mut bytes) = pick(files, random);
    let at = random.below(bytes.len());
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << random.below(8);
    }
    (name.clone(), Some(bytes))
}

/// Fields set to values that break arithmetic; byte ranges cleared, removed, repeated, moved.
fn mutate(files: &Files, random: &mut Random) -> Damage {
    let (name, mut bytes) = pick(files, random);
    let len = bytes.len();
    let at = random.below(len);
    let end = len.min(at + random.of(&[1, 8, 64, 4096]));
    match random.below(6) {
        0 | 1 => {
            let len = len as u64;
            let edges =
                [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, u64::MAX >> 1, 1 << 63, u64::MAX, len, len + 1];
            let (value, width) = (random.of(&edges), random.of(&[1, 2, 4, 8]));
            let mut value = value.to_le_bytes()[..width].to_vec();
            if random.below(2) == 0 {
                value.reverse();
            }
            let end = bytes.len().min(at + width);
            bytes[at..end].copy_from_slice(&value[..end - at]);
        }
        2 => bytes[at..end].fill(0),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let run = bytes[at..end].to_vec();
            bytes.splice(at..at, run);
        }
        _ => {
            let to = random.below(len).min(len - (end - at));
            bytes.copy_within(at..end, to);
        }
    }
    (name.clone(), Some(bytes))
}

/// Every length if there are few, else evenly spaced ones. A single file keeps at least one byte: an empty one is a valid file of no messages.
fn truncations<'a>(files: &'a Files, random: &mut Random, count: usize) -> impl Iterator<Item = Damage> + 'a {
    let places = files.values().map(Vec::len).sum::<usize>();
    let step = (places / count.max(1)).max(1);
    let lengths = files
        .iter()
        .flat_map(|(name, bytes)| (usize::from(name.is_empty())..bytes.len()).map(move |n| (name, n)));
    lengths
        .skip(random.below(step))
        .step_by(step)
        .map(|(name, n)| (name.clone(), Some(files[name][..n].to_vec())))
}

/// Every file of a folder in turn.
fn missing(files: &Files) -> impl Iterator<Item = Damage> {
    files.keys().filter(|name| !name.is_empty()).map(|name| (name.clone(), None))
}

/// Swapped chunks of equal length; swapped files of a folder; else swapped byte ranges.
fn swaps(sample: &Sample, random: &mut Random, count: usize) -> tesseral::Result<Vec<Damage>> {
    let Some(bytes) = sample.files.get("") else { return Ok(foreign(&sample.files, random, count)) };
    let chunks = sample.chunks()?;
    let pairs = chunks.iter().enumerate().flat_map(|(i, a)| chunks[..i].iter().map(move |b| (*a, *b)));
    let mut out: Vec<Damage> = pairs
        .filter(|(a, b)| a.1 == b.1 && a.0 != b.0)
        .take(count)
        .map(|((a, len), (b, _))| (String::new(), Some(exchange(bytes, a, b, len))))
        .collect();
    while out.len() < count {
        let len = random.of(&[8, 64, 512]);
        let [a, b] = [0, 1].map(|_| random.below(bytes.len() / len) * len);
        out.push((String::new(), Some(exchange(bytes, a, b, len))));
    }
    Ok(out)
}

fn exchange(bytes: &[u8], a: usize, b: usize, len: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[a..a + len].copy_from_slice(&bytes[b..b + len]);
    out[b..b + len].copy_from_slice(&bytes[a..a + len]);
    out
}

fn foreign(files: &Files, random: &mut Random, count: usize) -> Vec<Damage> {
    let held: Vec<_> = files.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    let mut one = || held[random.below(held.len())];
    (0..count).map(|_| (one().0.clone(), Some(one().1.clone()))).collect()
}
