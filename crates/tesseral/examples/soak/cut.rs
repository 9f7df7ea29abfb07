//! A file that another process cuts while a reader has it open: an error, never a signal.

use std::fs::{self, OpenOptions};
use std::path::Path;

use serde_json::{Value as Json, json};
use tesseral::{Open, Selection, Wanted};

use crate::random::Random;

/// Cuts a file between operations of a reader that has it mapped, `count` times at random lengths.
pub fn run(file: &Path, count: usize, seed: u64) -> Result<Json, Box<dyn std::error::Error>> {
    let whole = fs::read(file)?;
    let mut random = Random::new(seed, "cut");
    let (mut errors, mut answers) = (0, 0);
    for _ in 0..count {
        fs::write(file, &whole)?;
        let container = Open::new().open(file)?;
        OpenOptions::new().write(true).open(file)?.set_len(random.below(whole.len()) as u64)?;
        for i in 0..container.len() {
            let told = container.array_at(i).and_then(|array| {
                let shape = array.schema().shape().unwrap_or_default();
                let all = Selection::all(&shape);
                array.summary(&all, Wanted::ALL).map(drop).and(array.read(&all).map(drop))
            });
            *(if told.is_err() { &mut errors } else { &mut answers }) += 1;
        }
    }
    fs::write(file, &whole)?;
    Ok(json!({"cuts": count, "errors": errors, "answers": answers}))
}
