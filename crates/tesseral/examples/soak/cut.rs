//! A file that another process truncates while a reader has it open: an error, never a signal.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tesseral::{Container, Open, Result, Selection, StatSet};

use crate::random::Random;

/// Maximum microseconds until a truncation: a few reads of a small file.
const WAIT: usize = 3000;

#[derive(Default)]
struct Counts {
    errors: usize,
    answers: usize,
    wrong: usize,
}

impl Counts {
    fn json(&self) -> Json {
        json!({"errors": self.errors, "answers": self.answers, "wrong": self.wrong})
    }

    /// Counts the result of a read, compared with the content of the whole file.
    fn count(&mut self, told: Result<Vec<u8>>, right: &[u8]) {
        match told {
            Err(_) => self.errors += 1,
            Ok(cells) if cells == right => self.answers += 1,
            Ok(_) => self.wrong += 1,
        }
    }
}

/// Truncates a file `count` times to random lengths: between operations of a reader that has it mapped, and during them.
pub fn run(file: &Path, count: usize, seed: u64) -> std::result::Result<Json, Box<dyn std::error::Error>> {
    let whole = fs::read(file)?;
    let container = Open::new().open(file)?;
    let right = (0..container.len()).map(|i| read(&container, i)).collect::<Result<Vec<_>>>()?;
    let cut = |len: usize| OpenOptions::new().write(true).open(file).and_then(|f| f.set_len(len as u64));
    let mut random = Random::new(seed, "cut");
    let (mut between, mut during) = (Counts::default(), Counts::default());
    for _ in 0..count {
        fs::write(file, &whole)?;
        let container = Open::new().open(file)?;
        cut(random.below(whole.len()))?;
        right.iter().enumerate().for_each(|(i, right)| between.count(read(&container, i), right));
        drop(container);

        fs::write(file, &whole)?;
        let (wait, len) = (random.below(WAIT), random.below(whole.len()));
        std::thread::scope(|scope| {
            let cutter = scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(wait as u64));
                cut(len)
            });
            while !cutter.is_finished() {
                match Open::new().without_digests().open(file) {
                    Ok(container) => right
                        .iter()
                        .enumerate()
                        .for_each(|(i, right)| during.count(read(&container, i), right)),
                    Err(_) => during.errors += 1,
                }
            }
            cutter.join().unwrap_or(Ok(()))
        })?;
    }
    fs::write(file, &whole)?;
    Ok(json!({"cuts": 2 * count, "between": between.json(), "during": during.json()}))
}

/// Every cell of an array, aggregated and read.
fn read(container: &Container, index: usize) -> Result<Vec<u8>> {
    let array = container.array_at(index)?;
    let all = Selection::all(&array.schema().shape().unwrap_or_default());
    array.summary(&all, StatSet::ALL)?;
    Ok(tesseral_engine::read_owned(array.handle(), &array.request(&all), array.options())?.bytes().to_vec())
}
