//! The cases of `bench/compare`, done by other crates: `tesseral-bench-peers PEER CASE FILE [options]`.

#[path = "../../src/common.rs"]
#[allow(dead_code)]
mod common;
#[path = "../../src/messages.rs"]
mod messages;
#[cfg(feature = "tensogram")]
mod tensogram_crate;
mod tetration_crate;
mod zarrs_crate;

use std::process::ExitCode;

use common::{Args, report};

fn main() -> ExitCode {
    let peer = std::env::args().nth(1).unwrap_or_default();
    let args = match Args::parse(2) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("tesseral-bench-peers PEER CASE FILE [options]: {error}");
            return ExitCode::from(2);
        }
    };
    let outcome = match peer.as_str() {
        "tetration" => tetration_crate::run(&args),
        "zarrs" => zarrs_crate::run(&args),
        #[cfg(feature = "tensogram")]
        "tensogram" => messages::run(&tensogram_crate::Reference, &args),
        _ => Err(format!("no peer {peer}").into()),
    };
    if report(&peer, &args.label, outcome) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
