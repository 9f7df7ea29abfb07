//! Converts a dataset to another format, and compares every cell with the source.
//!
//! `convert_dataset SOURCE TARGET [CODEC]`: `convert_dataset sst.nc sst.tet zstd:9`

use tesseral::ConvertOptions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (source, target) = match arguments.as_slice() {
        [source, target, ..] => (source, target),
        _ => return Err("usage: convert_dataset SOURCE TARGET [CODEC]".into()),
    };
    let mut options = ConvertOptions::new();
    options.check = true;
    if let Some(codec) = arguments.get(2) {
        options.codecs = Some(tesseral::parse_codecs(codec)?);
    }
    let done = tesseral::convert(&tesseral::open(source)?, target, &options)?;
    for array in &done.arrays {
        println!("{} {:?} in chunks of {:?}", array.name, array.shape, array.chunk_shape);
    }
    println!("{} bytes as {}", done.stored_bytes, done.format.title());
    Ok(())
}
