//! Tests many damaged copies, openings and truncations in one process, for `scripts/soak`.
//!
//! ```text
//! soak damage SOURCE KIND COUNT SEED [FOLDER]   outcomes of damaged copies; FOLDER receives the copies
//! soak handles SOURCE COUNT                     open, read, close: memory and handles before and after
//! soak cut FILE COUNT SEED                      the file is truncated between operations of a reader, and during them
//! soak fragments FOLDER COUNT dense|sparse      write a TileDB array of COUNT fragments
//! ```
//! KIND is flips, mutations, truncations, swaps or missing. Prints one JSON document.

mod cut;
mod damage;
mod fragments;
mod handles;
mod random;
mod sample;

use std::path::Path;

use serde_json::Value as Json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer: Json = match arguments.as_slice() {
        ["damage", source, kind, count, seed, rest @ ..] => {
            let folder = rest.first().map(Path::new);
            damage::run(Path::new(source), kind, count.parse()?, seed.parse()?, folder)?
        }
        ["handles", source, count] => handles::run(Path::new(source), count.parse()?)?,
        ["cut", file, count, seed] => cut::run(Path::new(file), count.parse()?, seed.parse()?)?,
        ["fragments", folder, count, kind] => fragments::run(Path::new(folder), count.parse()?, kind)?,
        _ => return Err("usage: soak damage|handles|cut|fragments …".into()),
    };
    println!("{answer}");
    Ok(())
}
