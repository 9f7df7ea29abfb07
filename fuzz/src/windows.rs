//! Windows of the arrays of a store, read by the engine: each must equal the same cells of the full array.

use std::sync::Arc;

use tesseral::{Array, Limits, Open, Options, Selection, Slice, StatSet};
use tesseral_store::Store;

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };
const MEMORY: u64 = 4 << 20;

/// Opens a store and reads windows selected by `choice`, with and without checksum verification.
pub fn exercise(store: &Arc<dyn Store>, choice: [u8; 4]) {
    let execution = Options::default().sequential().with_memory(MEMORY);
    let open = Open::new().limits(LIMITS).execution(execution);
    for open in [open.clone(), open.without_digests()] {
        let Ok(container) = open.open_store(Arc::clone(store)) else { continue };
        for i in 0..container.len().min(16) {
            let Ok(array) = container.array_at(i) else { continue };
            if array.schema().sparse { rows(&array, choice) } else { window(&array, choice) }
        }
    }
}

/// A few positions of each dimension, selected by `choice`.
fn select_window(shape: &[u64], choice: [u8; 4]) -> Option<Selection> {
    let slices = shape.iter().enumerate().map(|(d, &extent)| {
        let [at, len] = [0, 1].map(|i| u64::from(choice[(2 * d + i) % 4]));
        let start = (u128::from(extent) * u128::from(at) / 256) as u64;
        let end = (start + 1 + len % 9).min(extent);
        Slice { start: start.min(end), end, step: 1 + at % 3 }
    });
    Selection::new(slices, shape).ok()
}

fn window(array: &Array, choice: [u8; 4]) {
    let Some(shape) = array.schema().shape() else { return };
    let Some(part) = select_window(&shape, choice) else { return };
    let _ = array.summary(&part, StatSet::ALL);
    let _ = array.read_var(&part);
    let Some(size) = array.selected_field().cell_size() else { return };
    let (Ok(read), Ok(whole)) = (array.read(&part), array.read(&Selection::all(&shape))) else { return };
    let mut at: Vec<u64> = part.slices().iter().map(|s| s.start).collect();
    for cell in read.bytes().chunks_exact(size) {
        let position = at.iter().zip(&shape).fold(0, |sum, (at, extent)| sum * extent + at) as usize * size;
        assert_eq!(cell, &whole.bytes()[position..position + size], "a window differs from the full array");
        for (at, slice) in at.iter_mut().zip(part.slices()).rev() {
            *at += slice.step;
            if *at < slice.end {
                break;
            }
            *at = slice.start;
        }
    }
}

fn rows(array: &Array, choice: [u8; 4]) {
    let Ok(query) = array.cells() else { return };
    let Ok(all) = query.read() else { return };
    if let Some(name) = array.schema().dims.first().map(|d| d.name.clone()) {
        let argument = format!("{name}={}..{}", choice[0], u16::from(choice[0]) + u16::from(choice[1]));
        if let Ok(some) = array.cells().and_then(|q| q.select([argument.as_str()])).and_then(|q| q.read()) {
            assert!(some.rows <= all.rows, "more rows in a window than in the full array");
        }
    }
}
