//! Arrays to test with, and the naive oracle: cells in one flat vector, sliced one cell at a time.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use proptest::prelude::*;
use tesseral::{
    Array, ArraySchema, ArraySpec, Container, CreateOptions, DType, MemoryBudget, Open, Options, Overwrite,
    Selection, Slice,
};
use tesseral_engine::WriteSession;
use tesseral_store::test_wrappers::{CallHook, Wrapped};
use tesseral_store::{Bytes, MemoryStore, Store, StoreExt};

/// Dtypes of `.tet`.
pub const DTYPES: [DType; 10] = [
    DType::Float16,
    DType::Float32,
    DType::Float64,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
];

/// One array and its storage.
#[derive(Clone, Debug)]
pub struct Case {
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub chunk: Vec<u64>,
    pub codec: &'static str,
    pub cells: Vec<u8>,
}

impl Case {
    /// An array of distinct numbers.
    pub fn counting(dtype: DType, shape: &[u64], chunk: &[u64], codec: &'static str) -> Self {
        let count = shape.iter().product::<u64>();
        let cells = (0..count).flat_map(|i| number(dtype, i as i64)).collect();
        Self { dtype, shape: shape.to_vec(), chunk: chunk.to_vec(), codec, cells }
    }

    pub fn size(&self) -> usize {
        self.dtype.size().unwrap()
    }

    pub fn spec(&self, name: &str) -> ArraySpec {
        let schema = ArraySchema::dense(name, self.dtype, &self.shape, &self.chunk);
        ArraySpec { schema, codecs: vec![vec![self.codec.parse().unwrap()]], text: None }
    }

    pub fn chunks(&self) -> u64 {
        self.shape.iter().zip(&self.chunk).map(|(n, c)| n.div_ceil(*c)).product()
    }

    /// The file, written by `options`.
    pub fn write_with(&self, options: &CreateOptions, execution: Options) -> Bytes {
        let store = Arc::new(MemoryStore::new("case.tet"));
        let writer = tesseral::format("tet").unwrap().create(store.clone(), options).unwrap();
        let mut session = WriteSession::new(writer, execution);
        let array = session.add(&self.spec("a")).unwrap();
        session.write(array, &self.cells).unwrap();
        session.commit().unwrap();
        store.read_all("", u64::MAX).unwrap()
    }

    pub fn write(&self) -> Bytes {
        self.write_with(&CreateOptions::default(), Options::default())
    }

    /// The cells of a selection, one by one.
    pub fn slice(&self, selection: &Selection) -> Vec<u8> {
        let mut places = vec![0_u64];
        for (slice, extent) in selection.slices().iter().zip(&self.shape) {
            let axis: Vec<u64> = (slice.start..slice.end).step_by(slice.step as usize).collect();
            places = places.iter().flat_map(|p| axis.iter().map(move |i| p * extent + i)).collect();
        }
        let size = self.size();
        places.iter().flat_map(|&p| &self.cells[p as usize * size..][..size]).copied().collect()
    }
}

/// A number of a dtype as its bytes, wrapping.
pub fn number(dtype: DType, value: i64) -> Vec<u8> {
    match dtype {
        DType::Float16 => tesseral_core::element::f16::from_f64((value % 2048) as f64).to_ne_bytes().to_vec(),
        DType::Float32 => (value as f32).to_ne_bytes().to_vec(),
        DType::Float64 => (value as f64).to_ne_bytes().to_vec(),
        other => value.to_le_bytes()[..other.size().unwrap()].to_vec(),
    }
}

pub fn options(digests: bool, statistics: bool, memory_budget: Option<MemoryBudget>) -> CreateOptions {
    CreateOptions {
        digests,
        statistics,
        memory_budget,
        overwrite: Overwrite::Refuse,
        ..CreateOptions::default()
    }
}

pub fn memory(bytes: &Bytes) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_object("case.tet", bytes.clone()))
}

/// Wraps bytes so that they are not resident: every cell must be read.
pub fn behind<A: CallHook>(bytes: &Bytes, around: &Arc<A>) -> Arc<dyn Store> {
    Arc::new(Wrapped::new(memory(bytes), Arc::clone(around)))
}

pub fn open(store: Arc<dyn Store>) -> Container {
    Open::new().open_store(store).unwrap()
}

pub fn array(store: Arc<dyn Store>) -> Array {
    open(store).array("a").unwrap()
}

pub fn threads(n: usize) -> Options {
    Options::default().with_threads(n).unwrap()
}

/// A selection from `(start, end, step)` of each dimension.
pub fn select(shape: &[u64], slices: &[(u64, u64, u64)]) -> Selection {
    Selection::new(slices.iter().map(|&(start, end, step)| Slice { start, end, step }), shape).unwrap()
}

/// Any small array of any dtype, rank 1 to 8, with any bits in its cells.
pub fn any_case() -> impl Strategy<Value = Case> {
    let extents = (1_usize..=8).prop_flat_map(|rank| {
        let most: u64 = [0, 60, 13, 7, 5, 4, 3, 3, 2][rank];
        proptest::collection::vec((1..=most, 0..=most + 1), rank)
    });
    let codec = prop_oneof![Just("raw"), Just("zstd"), Just("zstd:9")];
    (proptest::sample::select(&DTYPES[..]), extents, codec, any::<u64>()).prop_map(
        |(dtype, extents, codec, seed)| {
            let shape: Vec<u64> = extents.iter().map(|e| e.0).collect();
            // Chunks can be longer than the array.
            let chunk: Vec<u64> = extents.iter().map(|e| e.1.max(1)).collect();
            let bytes = shape.iter().product::<u64>() as usize * dtype.size().unwrap();
            let cells = noise(seed).take(bytes).collect();
            Case { dtype, shape, chunk, codec, cells }
        },
    )
}

/// An endless byte sequence, deterministic by seed.
pub fn noise(seed: u64) -> impl Iterator<Item = u8> {
    (0_u64..).flat_map(move |i| {
        let mut x = seed.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)).to_le_bytes()
    })
}

/// Any selection of an array of that shape, including empty ones.
pub fn any_selection(shape: &[u64]) -> impl Strategy<Value = Selection> + use<> {
    let shape = shape.to_vec();
    let axes: Vec<_> = shape.iter().map(|&n| (0..=n, 0..=n, 1..=n + 1, any::<bool>())).collect();
    axes.prop_map(move |axes| {
        let slices = axes.iter().zip(&shape).map(|(&(a, b, step, whole), &n)| {
            if whole { Slice::new(0, n) } else { Slice { start: a.min(b), end: a.max(b), step } }
        });
        Selection::new(slices, &shape).unwrap()
    })
}

pub fn any_case_and_selections() -> impl Strategy<Value = (Case, Vec<Selection>)> {
    any_case().prop_flat_map(|case| {
        let selections = proptest::collection::vec(any_selection(&case.shape), 4);
        (Just(case), selections)
    })
}
