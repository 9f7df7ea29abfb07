//! Runs the binary as people and scripts do.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod cat;
mod exit_codes;
mod guide;
mod info;
mod interrupted;
mod mend;
mod stat;
mod support;
