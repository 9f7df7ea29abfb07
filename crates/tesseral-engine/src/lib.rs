//! One executor for every format: plan, fetch, decode in parallel, overlay, fill, reduce, write.
#![deny(unsafe_code)]

pub mod kernel;
