//! No input panics, loops endlessly or causes allocations out of proportion to its size. This binary counts its allocations.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tesseral_core::{ArraySchema, DType, Selection, Slice};
use tesseral_format::{AuditOptions, CreateOptions, Format, OpenOptions, Request};
use tesseral_tet::{TetFormat, TetSummary};

struct Counting;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system allocator; the counters are thread-local numbers without allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = NOW.try_with(|now| {
            now.set(now.get().saturating_add(layout.size()));
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
        });
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let _ = NOW.try_with(|now| now.set(now.get().saturating_sub(layout.size())));
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the peak of memory allocated while `f` runs, beyond the initial amount.
fn peak<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    PEAK.set(before);
    let out = f();
    (out, PEAK.get() - before)
}

/// Opens, audits, recovers, plans and decodes the bytes.
fn try_everything(bytes: &[u8]) {
    let store = common::memory(bytes.to_vec());
    let options = OpenOptions::default();
    let _ = TetSummary::parse(bytes);
    TetFormat.audit(Arc::clone(&store), &AuditOptions::default(), &mut |_| {}).unwrap();
    TetFormat.repairs(Arc::clone(&store), &options).unwrap();
    let opened = TetFormat.open(Arc::clone(&store), &options).ok();
    let salvaged = TetFormat.salvage(store, &options).ok().map(|s| s.container);
    for container in opened.into_iter().chain(salvaged) {
        container.details();
        for i in 0..container.len() {
            let Ok(array) = container.array(i) else { continue };
            let shape = array.schema().shape().unwrap();
            let all = Selection::all(&shape);
            let Ok(plan) = tesseral_format::plan(&*array, container.store(), &Request::cells(all, 0)) else {
                continue;
            };
            for chunk in &plan.chunks {
                array.stats(chunk, tesseral_format::Column::Field(0));
                array.describe(chunk);
                array.digests(chunk);
            }
            if plan.chunks.iter().all(|c| c.cells < 1 << 16)
                && plan.uncovered == tesseral_format::Uncovered::Impossible
            {
                let _ = common::read_array(&*container, &*array);
            }
        }
    }
}

fn sample(options: &CreateOptions) -> Vec<u8> {
    let mut schema = ArraySchema::dense("ab", DType::Int16, &[3, 2], &[2, 2]);
    schema.dims[0].name = "x".into();
    let inputs = [
        common::Input::new(schema, "raw", (0..12).collect()),
        common::Input::new(ArraySchema::dense("z", DType::Float32, &[4], &[4]), "zstd", vec![0; 16]),
    ];
    common::write(&inputs, options).unwrap()
}

fn samples() -> [Vec<u8>; 2] {
    let statistics = CreateOptions { statistics: true, ..CreateOptions::default() };
    [sample(&common::plain()), sample(&statistics)]
}

#[test]
fn every_truncation_opens_or_fails() {
    for file in samples() {
        for len in 0..file.len() {
            try_everything(&file[..len]);
        }
    }
}

#[test]
fn every_field_takes_every_boundary_value() {
    for file in samples() {
        let head = {
            let s = TetSummary::parse(&file).unwrap().superblock;
            (s.chunk_index_offset + s.chunk_index_length) as usize
        };
        let tail = file.len() - 16;
        let places: Vec<usize> = (0..head).step_by(4).chain((tail..file.len()).step_by(4)).collect();
        for at in places {
            let word = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
            for value in [0, 1, word.wrapping_add(1), word.wrapping_sub(1), u32::MAX, u32::MAX - 1, 1 << 31] {
                let mut changed = file.clone();
                changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
                try_everything(&changed);
            }
            if at % 8 != 0 && at < tail || at + 8 > file.len() {
                continue;
            }
            let word = u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
            let len = file.len() as u64;
            for value in [
                0,
                1,
                word.wrapping_add(1),
                word.wrapping_sub(1),
                u64::MAX,
                u64::MAX - 7,
                1 << 63,
                len,
                len - 1,
            ] {
                let mut changed = file.clone();
                changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
                try_everything(&changed);
            }
        }
    }
}

#[test]
fn hostile_sizes_are_rejected_before_allocating() {
    let folder = common::fixtures().join("corrupt");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "tet") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let start = Instant::now();
        let ((), used) = peak(|| try_everything(&bytes));
        // Codec contexts take a few hundred kilobytes for any file.
        let allowed = 64 * bytes.len() + (1 << 20);
        assert!(used <= allowed, "{}: {used} bytes for a file of {}", path.display(), bytes.len());
        assert!(start.elapsed() < Duration::from_secs(5), "{}", path.display());
    }
    // Also with the boundary values of every field.
    for file in samples() {
        for at in (8..file.len().min(400)).step_by(4) {
            let mut changed = file.clone();
            changed[at..at + 4].copy_from_slice(&0x3fff_ffff_u32.to_le_bytes());
            let (_, used) = peak(|| try_everything(&changed));
            assert!(used <= 2 << 20, "{used} bytes for byte {at}");
        }
    }
}

/// A file of many small chunks: opening is one pass, and planning is proportional to the selection.
#[test]
fn the_cost_of_planning_is_proportional_to_the_selection() {
    let side = 400;
    let schema = ArraySchema::dense("many", DType::UInt8, &[side, side], &[1, 1]);
    let input = common::Input::new(schema, "raw", vec![3; (side * side) as usize]);
    let file = common::write(&[input], &common::plain()).unwrap();
    // The same chunks with two rows exchanged: not in canonical order.
    let index = TetSummary::parse(&file).unwrap().superblock.chunk_index_offset as usize + 32;
    let mut mixed = file.clone();
    mixed[index..index + 104].copy_from_slice(&file[index + 104..index + 208]);
    mixed[index + 104..index + 208].copy_from_slice(&file[index..index + 104]);

    for (file, canonical) in [(file, true), (mixed, false)] {
        let store = common::memory(file);
        let (container, used) = peak(|| TetFormat.open(store, &OpenOptions::default()).unwrap());
        assert!(used < 64 << 10, "opening allocated {used} bytes: the index is used in place");
        assert_eq!(container.details()["index"]["canonical"], canonical);
        let array = container.array(0).unwrap();
        let one = |i: u64| {
            let slices = [Slice::new(i, i + 1), Slice::new(side - 1 - i, side - i)];
            Request::cells(Selection::new(slices, &[side, side]).unwrap(), 0)
        };
        assert_eq!(tesseral_format::plan(&*array, container.store(), &one(0)).unwrap().chunks.len(), 1);
        let (_, used) = peak(|| tesseral_format::plan(&*array, container.store(), &one(1)).unwrap());
        assert!(used < 4096, "planning one chunk allocated {used} bytes");
        let start = Instant::now();
        for i in 0..side {
            assert_eq!(tesseral_format::plan(&*array, container.store(), &one(i)).unwrap().chunks.len(), 1);
        }
        // 400 plans that each scan 160 000 rows would take far longer.
        assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
        let all = tesseral_format::plan(
            &*array,
            container.store(),
            &Request::cells(Selection::all(&[side, side]), 0),
        )
        .unwrap();
        assert_eq!(all.chunks.len() as u64, side * side);
    }
}
