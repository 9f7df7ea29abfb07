//! The executor against the naive oracle, on adversarial formats: overlapping layers with gaps, big-endian and coded tiles
//! larger than their cover, sparse cells with duplicates, timestamps and deletes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use tesseral_conformance::oracle::{self, Cells};
use tesseral_conformance::testing::Random;
use tesseral_conformance::testing::cells::{self, CellsFormat};
use tesseral_conformance::testing::layered::{self, LayeredFormat};
use tesseral_core::condition::{Condition, Op};
use tesseral_core::{CellLen, Selection, Slice};
use tesseral_engine::fold;
use tesseral_engine::{
    CellBatch, CellOrder, Handle, Options, read, read_cells, read_into, read_valid_var, read_var, reduce,
};
use tesseral_engine::{StatSet, Summary};
use tesseral_format::{Column, ContainerSource, Format, OpenOptions, Request, Target};
use tesseral_store::Store;
use tesseral_store::test_wrappers::{Counting, Latency, Wrapped};

fn selection(random: &mut Random, shape: &[u64]) -> Selection {
    let slices = shape.iter().map(|&n| {
        let (a, b) = (random.below(n + 1), random.below(n + 1));
        match random.below(4) {
            0 => Slice::new(0, n),
            1 => Slice { start: a.min(b), end: a.max(b), step: random.within(1, 4) },
            2 if n > 0 => Slice::new(a.min(n - 1), a.min(n - 1) + 1),
            _ => Slice::new(a.min(b), a.max(b)),
        }
    });
    Selection::new(slices, shape).unwrap()
}

/// The same bytes as a resident store, and as a store that only reads ranges.
fn stores(inner: Arc<dyn Store>) -> [Arc<dyn Store>; 3] {
    let counted = Wrapped::new(Arc::clone(&inner), Arc::new(Counting::default()));
    let slow = Wrapped::new(Arc::clone(&inner), Arc::new(Latency(Duration::ZERO)));
    [inner, Arc::new(counted), Arc::new(slow)]
}

fn close(a: Option<f64>, b: Option<f64>, scale: f64) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * scale.max(b.abs())
        }
        _ => false,
    }
}

#[test]
fn overlapping_dense_layers() {
    let options = Options::default();
    for seed in 0..150 {
        let sample = layered::sample(seed).unwrap();
        for store in stores(sample.store()) {
            let container = LayeredFormat.open(store, &OpenOptions::default()).unwrap();
            for array in 0..container.len() {
                let handle = Handle::new(&*container, array, true).unwrap();
                let schema = handle.schema();
                let shape = schema.shape().unwrap();
                let mut random = Random::new(seed * 31 + array as u64);
                for field in 0..schema.fields.len() as u16 {
                    let truth = oracle::Dense::load(&*container, array, field).unwrap();
                    for _ in 0..6 {
                        let selection = selection(&mut random, &shape);
                        let context = format!("seed {seed} array {array} field {field} {selection:?}");
                        let want = truth.select(&selection).unwrap().normalized();
                        let request = Request::cells(selection.clone(), field);
                        check_dense(&handle, &request, &want, &options, &context);
                        let valid = truth.validity(&selection).unwrap();
                        check_validity(&handle, &request, &valid, &options, &context);
                        check_summary(&handle, &request, &container, array, field, &options, &context);
                        check_reduce(&handle, &request, &mut random, &options, &context);
                    }
                }
            }
        }
    }
}

fn check_dense(handle: &Handle, request: &Request, want: &Cells, options: &Options, context: &str) {
    let Column::Field(number) = request.columns[0] else { unreachable!() };
    let field = &handle.schema().fields[usize::from(number)];
    if field.cell == CellLen::Var {
        let got = read_var(handle, request, options).unwrap_or_else(|e| panic!("{context}: {e}"));
        let got = (0..got.len()).map(|i| got.is_valid(i).then(|| got.get(i).to_vec())).collect();
        assert_eq!(&Cells::Var(got), want, "{context}");
        return;
    }
    if field.cell_size().is_none() {
        return;
    }
    let got = read(handle, request, options).unwrap_or_else(|e| panic!("{context}: {e}"));
    let cells =
        Cells::Fixed { values: got.bytes().to_vec(), validity: got.stored_validity().map(<[u8]>::to_vec) };
    assert_eq!(&cells.normalized(), want, "{context}");
    // Memory of the caller, with previous content.
    let mut values = vec![0xA5; got.bytes().len()];
    let mut validity = got.stored_validity().map(|v| vec![7; v.len()]);
    read_into(handle, request, &mut values, validity.as_deref_mut(), options).unwrap();
    assert_eq!(&Cells::Fixed { values, validity }.normalized(), want, "{context}");
}

/// Which cells are missing, of fixed-size and of variable-length cells.
fn check_validity(handle: &Handle, request: &Request, want: &[u8], options: &Options, context: &str) {
    let Column::Field(number) = request.columns[0] else { unreachable!() };
    let field = &handle.schema().fields[usize::from(number)];
    let got = if field.cell == CellLen::Var {
        let cells = read_valid_var(handle, request, options).unwrap();
        (0..cells.len()).map(|i| u8::from(cells.is_valid(i))).collect()
    } else if field.cell_size().is_some() {
        let cells = read(handle, request, options).unwrap();
        cells.validity().map_or_else(|| vec![1; want.len()], <[u8]>::to_vec)
    } else {
        return;
    };
    assert_eq!(got, want, "{context}");
}

fn check_summary(
    handle: &Handle,
    request: &Request,
    container: &Arc<dyn ContainerSource>,
    array: usize,
    field: u16,
    options: &Options,
    context: &str,
) {
    let schema_field = &handle.schema().fields[usize::from(field)];
    if schema_field.cell != CellLen::One || summary_dtype(schema_field.dtype).is_none() {
        return;
    }
    let want = oracle::summary(&**container, array, field, request.selection().unwrap()).unwrap();
    let got = fold::summary(handle, request, StatSet::ALL, options)
        .unwrap_or_else(|e| panic!("{context}: {e}"))
        .summary;
    assert_eq!((got.count(), got.nulls(), got.nans()), (want.cells, want.nulls, want.nans), "{context}");
    assert_eq!(got.infinities(), Some(want.infs), "{context}");
    let same = |a: Option<tesseral_core::Scalar>, b: Option<tesseral_core::Scalar>| match (a, b) {
        (Some(a), Some(b)) => a.compare(&b) == Some(std::cmp::Ordering::Equal),
        (a, b) => a == b,
    };
    assert!(same(got.min(), want.min.clone()), "{context}: {:?} {:?}", got.min(), want.min);
    assert!(same(got.max(), want.max.clone()), "{context}");
    if let Some(sum) = want.sum {
        if matches!(sum, tesseral_core::Sum::Int(_)) && want.count > 0 {
            assert_eq!(got.sum(), Some(sum), "{context}");
        }
        assert!(close(got.mean(), want.mean, want.magnitude), "{context}: {:?} {:?}", got.mean(), want.mean);
    }
}

/// Along random axes, against a summary of the cells of each kept position.
fn check_reduce(handle: &Handle, request: &Request, random: &mut Random, options: &Options, context: &str) {
    let Column::Field(number) = request.columns[0] else { unreachable!() };
    let field = &handle.schema().fields[usize::from(number)];
    if field.cell != CellLen::One || summary_dtype(field.dtype).is_none() {
        return;
    }
    let size = field.cell_size().unwrap();
    let cells = read(handle, request, options).unwrap();
    let rank = cells.shape.len();
    let axes: Vec<usize> = (0..rank).filter(|_| random.chance(1, 2)).collect();
    let kept: Vec<usize> = (0..rank).filter(|d| !axes.contains(d)).collect();
    let got = reduce(handle, request, &axes, StatSet::SPREAD | StatSet::RANGE, options)
        .unwrap_or_else(|e| panic!("{context} axes {axes:?}: {e}"));
    assert_eq!(got.shape, kept.iter().map(|&d| cells.shape[d]).collect::<Vec<_>>(), "{context}");
    let positions: u64 = got.shape.iter().product();
    let mut want = vec![Summary::new(field.dtype, StatSet::ALL).unwrap(); positions as usize];
    let strides: Vec<u64> = (0..rank).map(|d| cells.shape[d + 1..].iter().product()).collect();
    for i in 0..cells.bytes().len() / size {
        let at = |d: usize| i as u64 / strides[d] % cells.shape[d];
        let flat = kept.iter().fold(0, |flat, &d| flat * cells.shape[d] + at(d)) as usize;
        let valid = cells.validity().map(|v| &v[i..=i]);
        want[flat].fold(&cells.bytes()[i * size..(i + 1) * size], valid, &[]).unwrap();
    }
    let counts = got.collect(|fold, i| (fold.count(i), fold.nulls(i), fold.nans(i)));
    let (min, max, mean, std) = (got.min(), got.max(), got.mean(), got.std());
    for (i, want) in want.iter().enumerate() {
        let context = format!("{context} axes {axes:?} position {i}");
        assert_eq!(counts[i], (want.count(), want.nulls(), want.nans()), "{context}");
        assert_eq!((&min[i], &max[i]), (&want.min(), &want.max()), "{context}");
        let scale = want.min().and_then(|v| v.as_f64()).unwrap_or(0.0).abs();
        let scale = scale.max(want.max().and_then(|v| v.as_f64()).unwrap_or(0.0).abs());
        assert!(close(mean[i], want.mean(), scale), "{context}: {:?} {:?}", mean[i], want.mean());
        assert!(close(std[i], want.std(), scale), "{context}: {:?} {:?}", std[i], want.std());
    }
}

fn summary_dtype(dtype: tesseral_core::DType) -> Option<()> {
    Summary::new(dtype, StatSet::ALL).ok().map(|_| ())
}

#[test]
fn sparse_cells_with_duplicates_by_layer() {
    let options = Options::default();
    for seed in 0..150 {
        let sample = cells::sample(seed).unwrap();
        for store in stores(sample.store()) {
            let container = CellsFormat.open(store, &OpenOptions::default()).unwrap();
            for array in 0..container.len() {
                let handle = Handle::new(&*container, array, true).unwrap();
                let schema = handle.schema();
                let truth = oracle::Sparse::load(&*container, array).unwrap();
                let mut random = Random::new(seed ^ 0xC0FFEE);
                for _ in 0..5 {
                    let ranges: Vec<_> = (0..schema.dims.len())
                        .map(|d| {
                            if truth.rows().is_empty() || random.chance(1, 3) {
                                return Vec::new();
                            }
                            let mut pick = || {
                                let row = &truth.rows()[random.index(truth.rows().len())];
                                tesseral_core::Scalar::from_le_bytes(schema.dims[d].dtype, &row.coords[d])
                                    .unwrap()
                            };
                            let (a, b) = (pick(), pick());
                            if a.compare(&b).is_some_and(std::cmp::Ordering::is_le) {
                                vec![(a, b)]
                            } else {
                                vec![(b, a)]
                            }
                        })
                        .collect();
                    let condition = random.chance(1, 2).then(|| condition(&mut random, &truth, 2)).flatten();
                    let all: Vec<u16> = (0..schema.fields.len() as u16).collect();
                    let mut want = truth.select(&all, &ranges).unwrap();
                    if let Some(condition) = &condition {
                        want.retain(|row| truth.meets(condition, row).unwrap());
                    }
                    // Any of the columns, in any order.
                    let mut columns: Vec<Column> = all.iter().map(|&f| Column::Field(f)).collect();
                    columns.extend((0..schema.dims.len() as u16).map(Column::Dim));
                    for i in (1..columns.len()).rev() {
                        columns.swap(i, random.index(i + 1));
                    }
                    columns.truncate(1 + random.index(columns.len()));
                    let request = Request { target: Target::Coordinates(ranges), columns, condition };
                    let context = format!("seed {seed} {request:?}");
                    let got = read_cells(&handle, &request, &options).unwrap();
                    check_rows(&[got], &request, &want, &context);
                    for memory in [None, Some([1 << 10, 4 << 10, 64 << 10][random.index(3)])] {
                        let mut options = Options::default();
                        options.memory = memory;
                        let batches: Result<Vec<CellBatch>, _> =
                            tesseral_engine::cells(&handle, &request, CellOrder::Sorted, &options)
                                .unwrap()
                                .collect();
                        match batches {
                            Ok(batches) => check_rows(&batches, &request, &want, &context),
                            // Cells of one position that exceed the memory.
                            Err(e) => assert!(
                                memory.is_some()
                                    && matches!(e.kind(), tesseral_core::ErrorKind::Limit { .. }),
                                "{e}"
                            ),
                        }
                    }
                    check_fold(&handle, &request, &want, &context);
                }
            }
        }
    }
}

/// A condition on values that rows have, or nearly have.
fn condition(random: &mut Random, truth: &oracle::Sparse, depth: u32) -> Option<Condition> {
    let schema = truth.schema();
    if depth > 0 && random.chance(1, 3) {
        let parts = [condition(random, truth, depth - 1)?, condition(random, truth, depth - 1)?];
        return Some(match random.below(3) {
            0 => Condition::And(parts.into()),
            1 => Condition::Or(parts.into()),
            _ => Condition::Not(Box::new(parts.into_iter().next()?)),
        });
    }
    if truth.rows().is_empty() {
        return None;
    }
    let row = &truth.rows()[random.index(truth.rows().len())];
    let place = random.index(schema.fields.len() + schema.dims.len());
    let (name, dtype, bytes) = match schema.fields.get(place) {
        Some(field) if field.cell == CellLen::One => (&field.name, field.dtype, row.fields[place].clone()?),
        Some(_) => return None,
        None => {
            let d = place - schema.fields.len();
            (&schema.dims[d].name, schema.dims[d].dtype, row.coords[d].clone())
        }
    };
    let name = name.clone();
    let value = tesseral_core::Scalar::from_le_bytes(dtype, &bytes).ok()?;
    let ops = [Op::Lt, Op::Le, Op::Gt, Op::Ge, Op::Eq, Op::Ne];
    Some(match random.below(8) {
        n @ 0..6 => Condition::Compare { name, op: ops[n as usize], value },
        6 => Condition::In { name, values: vec![value] },
        _ => Condition::IsNull { name },
    })
}

fn check_rows(batches: &[CellBatch], request: &Request, want: &[oracle::Row], context: &str) {
    let rows: usize = batches.iter().map(|b| b.rows).sum();
    assert_eq!(rows, want.len(), "{context}");
    let mut want = want.iter();
    for batch in batches {
        for i in 0..batch.rows {
            let row = want.next().unwrap();
            for ((column, cells), asked) in batch.columns.iter().zip(&request.columns) {
                assert_eq!(column, asked);
                let got = cells.is_valid(i).then(|| cells.get(i).to_vec());
                let want = match column {
                    Column::Field(f) => row.fields[usize::from(*f)].clone(),
                    Column::Dim(d) => Some(row.coords[usize::from(*d)].clone()),
                    _ => unreachable!(),
                };
                assert_eq!(got, want, "{context} row {i} {column:?}");
            }
        }
    }
}

/// Folds of each numeric column against the rows.
fn check_fold(handle: &Handle, request: &Request, want: &[oracle::Row], context: &str) {
    let schema = handle.schema();
    for column in &request.columns {
        let (dtype, missing) = match column {
            Column::Field(f) => {
                let field = &schema.fields[usize::from(*f)];
                if field.cell != CellLen::One {
                    continue;
                }
                (field.dtype, field.missing_values())
            }
            Column::Dim(d) => (schema.dims[usize::from(*d)].dtype, Vec::new()),
            _ => unreachable!(),
        };
        let Ok(mut naive) = Summary::new(dtype, StatSet::ALL) else { continue };
        for row in want {
            let cell = match column {
                Column::Field(f) => row.fields[usize::from(*f)].clone(),
                Column::Dim(d) => Some(row.coords[usize::from(*d)].clone()),
                _ => unreachable!(),
            };
            match cell {
                Some(cell) => naive.fold(&cell, None, &missing).unwrap(),
                None => naive.fold_nulls(1).unwrap(),
            }
        }
        let request = Request { columns: vec![*column], ..request.clone() };
        for wanted in [StatSet::ALL, StatSet::RANGE | StatSet::SUM] {
            let got = fold::summary(handle, &request, wanted, &Options::default()).unwrap().summary;
            assert_eq!(
                (got.count(), got.nulls(), got.nans()),
                (naive.count(), naive.nulls(), naive.nans()),
                "{context}"
            );
            assert_eq!((got.min(), got.max()), (naive.min(), naive.max()), "{context}");
            let scale = naive.min().and_then(|v| v.as_f64()).unwrap_or(0.0).abs();
            let scale = scale.max(naive.max().and_then(|v| v.as_f64()).unwrap_or(0.0).abs());
            let total = scale * naive.valid() as f64;
            let sum = |s: &Summary| s.sum().map(tesseral_core::Sum::to_f64);
            assert!(close(sum(&got), sum(&naive), total), "{context}");
        }
    }
}
