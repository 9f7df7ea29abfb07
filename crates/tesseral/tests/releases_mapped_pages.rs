//! Operations on large mapped files keep few of their pages in memory.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs;

use tesseral::{ArraySchema, ArraySpec, Create, DType, Durability, StatSet};

const SHAPE: [u64; 3] = [48, 1024, 1024];
const BYTES: u64 = 48 << 22;
/// Pages in use besides the result.
const ALLOWED: u64 = 64 << 20;

fn status(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Peak of the memory of this process during `work`, without what it held before.
fn growth<T>(work: impl FnOnce() -> T) -> (u64, T) {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    let result = work();
    (status("VmHWM:").saturating_sub(before), result)
}

#[test]
fn reductions_and_full_reads_do_not_hold_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for (number, chunk) in [[6, 128, 1024], [48, 64, 64], [1, 1024, 1024]].into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.tet"));
        {
            let mut session = Create::new()
                .durability(Durability::None)
                .chunk_statistics(false)
                .begin(&path, "tet")
                .unwrap();
            let array = session.add(&ArraySpec::raw(ArraySchema::dense("a", DType::Float32, &SHAPE, &chunk)));
            let array = array.unwrap();
            let cells = vec![1.5_f32; (BYTES / 4) as usize];
            session.write(array, bytemuck::cast_slice(&cells)).unwrap();
            session.commit().unwrap();
        }
        let array = tesseral::open(&path).unwrap().array_at(0).unwrap();
        let all = array.all().unwrap();
        for _ in 0..2 {
            let (grown, sum) = growth(|| array.summary(&all, StatSet::SUM).unwrap().sum().unwrap().to_f64());
            assert_eq!(sum, (BYTES / 4) as f64 * 1.5);
            assert!(grown <= ALLOWED, "{grown} bytes for a sum over chunks of {chunk:?}");
        }
        // Chunks of one plane are a view of the file.
        if chunk[0] > 1 {
            let (grown, cells) = growth(|| array.read(&all).unwrap());
            assert!(cells.as_slice::<f32>().unwrap().iter().all(|cell| *cell == 1.5));
            assert!(grown <= BYTES + ALLOWED, "{grown} bytes for all cells of chunks of {chunk:?}");
        }
        // Pages of a file that is read again and again stay.
        let before = status("VmRSS:");
        (0..6).for_each(|_| drop(array.summary(&all, StatSet::SUM).unwrap()));
        let kept = status("VmRSS:").saturating_sub(before);
        assert!(kept >= BYTES / 2, "{kept} bytes are kept of chunks of {chunk:?}");
    }
}
