//! Reads an array block by block in an asynchronous program: `read_async SOURCE ARRAY [SELECTION…]`.
//!
//! The source can be a path or a URL. Any runtime can poll the stream; this program has one without threads.

use std::env;

use futures_util::StreamExt;
use tesseral::{Error, Open, Result};

/// Memory of one block in bytes.
const BLOCK: u64 = 16 << 20;

async fn read(source: &str, array: &str, selection: &[String]) -> Result<(u64, u64)> {
    let container = Open::new().open_async(source).await?;
    let array = container.array(array)?;
    let selection = array.select(selection.iter().map(String::as_str))?;
    let mut blocks = array.blocks_async(&selection, BLOCK);
    let (mut count, mut bytes) = (0, 0);
    while let Some(block) = blocks.next().await {
        let (_, cells) = block?;
        count += 1;
        bytes += cells.bytes().len() as u64;
    }
    Ok((count, bytes))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [source, array, selection @ ..] = arguments.as_slice() else {
        eprintln!("usage: read_async SOURCE ARRAY [SELECTION…]");
        std::process::exit(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|e| Error::io("start", "a runtime", e))?;
    let (blocks, bytes) = runtime.block_on(read(source, array, selection))?;
    println!("{bytes} bytes in {blocks} block(s)");
    Ok(())
}
