//! Arbitrary bytes as the stream of any codec, or of the codec in `FUZZ_CODEC` (`codec::NAMES`).
#![no_main]

use std::sync::OnceLock;

use tesseral_fuzz::codec;

fn selected_codec() -> Option<u8> {
    static SELECTED: OnceLock<Option<u8>> = OnceLock::new();
    *SELECTED.get_or_init(|| {
        let name = std::env::var("FUZZ_CODEC").ok()?;
        let number = codec::NAMES.iter().position(|known| *known == name);
        Some(number.unwrap_or_else(|| panic!("unknown codec {name}; available: {:?}", codec::NAMES)) as u8)
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    match (selected_codec(), data) {
        (Some(kind), [_, rest @ ..]) => codec::exercise(&[&[kind], rest].concat()),
        _ => codec::exercise(data),
    }
});
