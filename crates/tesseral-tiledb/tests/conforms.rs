//! The conformance suite on arrays of the reference.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use tesseral_conformance::{Fixture, read_suite};
use tesseral_tiledb::TileDbFormat;

#[test]
fn reference_arrays_pass_the_read_suite() {
    for (seed, name) in (1..).zip(common::arrays()) {
        let mut fixture = Fixture::new(common::store(&name), seed);
        fixture.options = common::options(&name);
        fixture.effort.damages = 6;
        read_suite(&TileDbFormat, &fixture).unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
}
