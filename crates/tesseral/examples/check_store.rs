//! Checks that a store keeps the contract of stores: `check_store URL…`, of prefixes that are empty at first.
//!
//! Settings and credentials are those of the environment.

use std::env;
use std::process::{self, ExitCode};

use tesseral::Result;
use tesseral::store::{Location, ReadMode, StorageOptions};
use tesseral_conformance::store_suite;

fn check(url: &str) -> Result<bool> {
    let (location, options) = (Location::parse(url)?, StorageOptions::new());
    // Fails here for URLs that no store has.
    location.store(ReadMode::Read, &options)?;
    let checked = store_suite(&|| match location.store(ReadMode::Read, &options) {
        Ok(store) => store,
        Err(error) => {
            eprintln!("{url}: {error}");
            process::exit(1)
        }
    });
    match &checked {
        Ok(()) => println!("{url}: keeps the contract"),
        Err(violation) => eprintln!("{url}: {violation}"),
    }
    Ok(checked.is_ok())
}

fn main() -> Result<ExitCode> {
    let mut kept = true;
    for url in env::args().skip(1) {
        kept &= check(&url)?;
    }
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
