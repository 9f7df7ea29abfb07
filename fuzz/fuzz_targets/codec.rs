//! Any bytes as the stream of any codec, or of the one that `FUZZ_CODEC` names (`codec::NAMES`).
#![no_main]

use std::sync::OnceLock;

use tesseral_fuzz::codec;

fn wanted() -> Option<u8> {
    static WANTED: OnceLock<Option<u8>> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let name = std::env::var("FUZZ_CODEC").ok()?;
        let number = codec::NAMES.iter().position(|known| *known == name);
        Some(number.unwrap_or_else(|| panic!("no codec {name}; there are {:?}", codec::NAMES)) as u8)
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    match (wanted(), data) {
        (Some(kind), [_, rest @ ..]) => codec::exercise(&[&[kind], rest].concat()),
        _ => codec::exercise(data),
    }
});
