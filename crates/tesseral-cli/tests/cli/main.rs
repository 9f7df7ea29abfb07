//! Tests that run the binary.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod cat;
mod exit_codes;
mod guide;
mod info;
mod interrupted;
mod repair;
mod stat;
mod support;
