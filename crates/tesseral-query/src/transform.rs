//! Transforms of cells: centering, scaling, normalizing. Non-finite cells are unchanged.

use std::time::{SystemTime, UNIX_EPOCH};

use tesseral_core::condition::Condition;
use tesseral_core::schema::Labels;
use tesseral_core::{
    ArraySchema, DType, Dimension, Error, HistoryRow, Region, Result, Selection, Slice, time,
};
use tesseral_engine::StatSet;
use tesseral_engine::exact::Moments;
use tesseral_engine::fold::{self, AxisRole, Fold, FoldState, Reducer};
use tesseral_format::ArraySpec;
use tesseral_store::Overwrite;

use super::document::{Method, Operation, WriteClause, WriteTarget};
use super::outcome::{Answer, QueryOutcome, Written};
use super::parse::bad;
use super::plan::Plan;
use super::{execution, spill};
use tesseral_dataset::Create;
use tesseral_registry::sidecar;

/// Maximum number of listed indexes of cells without a divisor.
const LISTED_CELLS: usize = 64;
const PIECE: u64 = 8 << 20;
const ONE_CHUNK: u64 = 64 << 20;

/// A transform with its parameters per group of cells.
struct PreparedTransform<'a> {
    plan: &'a Plan,
    method: Method,
    roles: Vec<AxisRole>,
    /// Offset and divisor of each group.
    numbers: Vec<(f64, f64)>,
}

pub(super) fn run(plan: &Plan, operation: &Operation) -> Result<QueryOutcome> {
    let dtype = plan.array.selected_field().dtype;
    if !matches!(dtype, DType::Float32 | DType::Float64) {
        return Err(bad("transform", format!("expected float32 or float64 cells, found {dtype}")));
    }
    let method = operation.method.ok_or_else(|| bad("transform.method", "missing key"))?;
    let fold = plan.fold.clone().ok_or_else(|| Error::internal("nothing to transform"))?;
    let (prepared, statistics) = PreparedTransform::new(plan, method, fold)?;
    let write = plan.document.write.clone();
    let write = write.unwrap_or(WriteClause { target: WriteTarget::Switch, path: None, timestamp: true });
    let bytes = plan.logical_bytes();
    if matches!(write.target, WriteTarget::Switch | WriteTarget::Ram) {
        plan.array.options().check_memory("the transformed cells", bytes).map_err(|_| {
            Error::limit("the transformed cells", bytes, plan.array.options().memory.unwrap_or(0))
                .hint("write them to a file: \"write\": \"spill\" or \"sidecar\"")
        })?;
    }
    let (preview, undivided) = prepared.preview()?;
    let (written, strategy) = match write.target {
        WriteTarget::Switch | WriteTarget::Ram => (None, "transform_ram"),
        WriteTarget::Spill => {
            let path = write.path.unwrap_or_else(|| prepared.name("", "bin"));
            let cells = |part: &Selection| prepared.cells(part, &mut |_| {});
            (Some(spill::write_with(plan, "write.path", &path, &cells)?), "transform_spill")
        }
        WriteTarget::Sidecar => {
            let extension = sidecar()?.extensions().first().copied().unwrap_or_default();
            let path = write.path.unwrap_or_else(|| {
                let stamp = if write.timestamp { stamp() } else { String::new() };
                prepared.name(&stamp, extension)
            });
            (Some(prepared.sidecar(&path)?), "transform_sidecar")
        }
    };
    let scalar = prepared.roles.iter().all(|role| *role == AxisRole::Reduce);
    Ok(QueryOutcome {
        shape: (!scalar).then(|| plan.result_shape()),
        statistics,
        elements: plan.selection.cells(),
        preview: Some(preview),
        undivided: (undivided.0 > 0).then_some(undivided),
        written,
        strategy,
        ..QueryOutcome::default()
    })
}

impl<'a> PreparedTransform<'a> {
    /// Computes the statistics of the method.
    #[allow(clippy::type_complexity)]
    fn new(plan: &'a Plan, method: Method, fold: Fold) -> Result<(Self, Vec<(&'static str, Vec<Answer>)>)> {
        let norms = matches!(method, Method::L1 | Method::L2);
        let reducer = if norms { Reducer::Norms } else { Reducer::Summary(StatSet::RANGE | StatSet::SPREAD) };
        let fold = Fold { reducers: vec![reducer], ..fold };
        let field = plan.array.selected_field();
        let finite = Condition::is_finite(&field.name, field.dtype);
        let mut request = plan.request();
        request.condition = Some(Condition::And(request.condition.into_iter().chain([finite]).collect()));
        let folded = fold::fold(plan.array.handle(), &request, &fold, plan.array.options())?.single()?;
        let value = |state: &FoldState, key: &str| match (state, key) {
            (FoldState::Summary(summary), "mean") => summary.mean(),
            (FoldState::Summary(summary), "std") => summary.std(),
            (FoldState::Summary(summary), "min") => summary.min().and_then(|v| v.as_f64()),
            (FoldState::Summary(summary), "max") => summary.max().and_then(|v| v.as_f64()),
            (FoldState::Norms(norms), "norm_l1") => Some(norms.l1(true).to_f64()),
            (FoldState::Norms(norms), _) => Some(norms.l2()),
            _ => None,
        };
        let keys: &[&'static str] = match method {
            Method::Center => &["mean"],
            Method::Scale => &["std"],
            Method::Zscore => &["mean", "std"],
            Method::Minmax => &["min", "max"],
            Method::L1 => &["norm_l1"],
            Method::L2 => &["norm_l2"],
            Method::Log1p | Method::Sqrt => &["min"],
            Method::Softmax => &["max"],
        };
        let statistics = keys
            .iter()
            .map(|key| (*key, folded.iter().map(|state| value(state, key).into()).collect::<Vec<Answer>>()));
        let statistics: Vec<(&'static str, Vec<Answer>)> = statistics.collect();
        let numbers = folded.iter().map(|state| {
            let statistic = |key: &str| value(state, key).unwrap_or(f64::NAN);
            match method {
                Method::Center => (statistic("mean"), 1.0),
                Method::Scale => (0.0, statistic("std")),
                Method::Zscore => (statistic("mean"), statistic("std")),
                Method::Minmax => (statistic("min"), statistic("max") - statistic("min")),
                Method::L1 => (0.0, statistic("norm_l1")),
                Method::L2 => (0.0, statistic("norm_l2")),
                Method::Log1p | Method::Sqrt => (statistic("min"), 1.0),
                Method::Softmax => (statistic("max"), 0.0),
            }
        });
        let mut prepared = Self { plan, method, roles: fold.roles, numbers: numbers.collect() };
        if method == Method::Softmax {
            prepared.add_exponentials()?;
        }
        Ok((prepared, statistics))
    }

    /// The divisors of softmax: exact sums of the exponentials in each group.
    fn add_exponentials(&mut self) -> Result<()> {
        let mut sums = vec![Moments::default(); self.numbers.len()];
        for part in self.blocks()? {
            let (values, out, slots) = self.read(&part)?;
            for (i, &value) in values.iter().enumerate() {
                if value.is_finite() && !out.as_ref().is_some_and(|out| out[i]) {
                    sums[slots[i]].add_float((value - self.numbers[slots[i]].0).exp(), 1, false);
                }
            }
        }
        self.numbers.iter_mut().zip(&sums).for_each(|(numbers, sum)| numbers.1 = sum.sum());
        Ok(())
    }

    fn blocks(&self) -> Result<tesseral_engine::Blocks> {
        let piece = self.plan.array.options().memory.map_or(PIECE, |memory| PIECE.min(memory / 8));
        self.plan.array.blocks(&self.plan.selection, piece)
    }

    /// Cells of a part of the selection, which of them are excluded, and the group of each.
    #[allow(clippy::type_complexity)]
    fn read(&self, part: &Selection) -> Result<(Vec<f64>, Option<Vec<bool>>, Vec<usize>)> {
        self.plan.array.options().cancel.check()?;
        let block = self.plan.array.read(part)?;
        let first = execution::selection_offset(self.plan, part);
        let out = execution::left_out(self.plan, &block, &first)?;
        let values: Vec<f64> = match self.plan.array.selected_field().dtype {
            DType::Float32 => {
                let cells = block.bytes().chunks_exact(4);
                cells.map(|c| f64::from(bytemuck::pod_read_unaligned::<f32>(c))).collect()
            }
            _ => block.bytes().chunks_exact(8).map(bytemuck::pod_read_unaligned).collect(),
        };
        let whole = self.plan.selection.shape();
        let mut slots = vec![0_usize; values.len()];
        let (mut stride, mut slot_stride) = (1_u64, 1_u64);
        for d in (0..block.shape.len()).rev() {
            if self.roles[d] == AxisRole::Keep {
                for (i, slot) in slots.iter_mut().enumerate() {
                    let position = i as u64 / stride % block.shape[d] + first[d];
                    *slot += usize::try_from(position * slot_stride).unwrap_or(0);
                }
                slot_stride *= whole[d];
            }
            stride *= block.shape[d].max(1);
        }
        Ok((values, out, slots))
    }

    /// Transforms a part of the selection; `undivided` is called for each cell without a divisor.
    fn cells(&self, part: &Selection, undivided: &mut dyn FnMut(u64)) -> Result<Vec<u8>> {
        let (values, out, slots) = self.read(part)?;
        let single = self.plan.array.selected_field().dtype == DType::Float32;
        let mut bytes = Vec::with_capacity(values.len() * if single { 4 } else { 8 });
        for (i, &value) in values.iter().enumerate() {
            let (shift, divisor) = self.numbers[slots[i]];
            let result = if out.as_ref().is_some_and(|out| out[i]) {
                f64::NAN
            } else if !value.is_finite() {
                value
            } else if divisor == 0.0 || !divisor.is_finite() {
                undivided(i as u64);
                f64::NAN
            } else {
                match self.method {
                    Method::Log1p => (value - shift).ln_1p(),
                    Method::Sqrt => (value - shift).sqrt(),
                    Method::Softmax => (value - shift).exp() / divisor,
                    _ => (value - shift) / divisor,
                }
            };
            if single {
                bytes.extend_from_slice(&(result as f32).to_le_bytes());
            } else {
                bytes.extend_from_slice(&result.to_le_bytes());
            }
        }
        Ok(bytes)
    }

    /// Returns the first transformed cells, and those without a divisor.
    #[allow(clippy::type_complexity)]
    fn preview(&self) -> Result<((Vec<u8>, bool), (u64, Vec<u64>))> {
        let size = self.plan.array.selected_field().cell_size().unwrap_or(8);
        let wanted = self.plan.settings.preview * size;
        let (mut preview, mut count, mut listed_cells, mut done) = (Vec::new(), 0, Vec::new(), 0_u64);
        for part in self.blocks()? {
            let cells = self.cells(&part, &mut |i| {
                count += 1;
                if listed_cells.len() < LISTED_CELLS {
                    listed_cells.push(done + i);
                }
            })?;
            done += (cells.len() / size) as u64;
            if preview.len() < wanted {
                preview.extend_from_slice(&cells[..cells.len().min(wanted - preview.len())]);
            }
        }
        let more = (preview.len() as u64) < self.plan.logical_bytes();
        Ok(((preview, more), (count, listed_cells)))
    }

    fn name(&self, stamp: &str, ending: &str) -> String {
        let stem = self.plan.source.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let dot = if stamp.is_empty() { "" } else { "." };
        format!("{stem}.{}{dot}{stamp}.{ending}", self.method.name())
    }

    /// Writes a new file with the transformed cells as its only array.
    fn sidecar(&self, path: &str) -> Result<Written> {
        let path = spill::target(self.plan, "write.path", path)?;
        let (array, selection) = (&self.plan.array, &self.plan.selection);
        let shape = selection.shape();
        let name = format!("{}-{}", self.plan.document.dataset, self.method.name());
        let chunk: Vec<u64> = match &array.schema().chunk_shape {
            Some(chunk) if self.plan.logical_bytes() > ONE_CHUNK => {
                chunk.iter().zip(&shape).map(|(c, n)| (*c).min(*n)).collect()
            }
            _ => shape.to_vec(),
        };
        let mut schema = ArraySchema::dense(name, array.selected_field().dtype, &shape, &chunk);
        for (d, slice) in selection.slices().iter().enumerate() {
            schema.dims[d] = dimension(&array.schema().dims[d], slice);
        }
        let mut create = Create::new().source(&self.plan.source);
        if self.plan.settings.overwrite == Overwrite::Replace {
            create = create.overwrite();
        }
        let mut session = create.begin(&path, sidecar()?.id())?;
        let id = session.add(&ArraySpec::raw(schema))?;
        session.fill(id, |region, out| {
            let cells = self.cells(&part(selection, region)?, &mut |_| {})?;
            if cells.len() != out.len() {
                return Err(Error::internal("the size of a chunk differs"));
            }
            out.copy_from_slice(&cells);
            Ok(())
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        session.add_history(HistoryRow {
            op: "transform".into(),
            source: self.plan.source.display().to_string(),
            at: now.to_string(),
            ..HistoryRow::default()
        })?;
        session.commit()?;
        Ok(Written { path, bytes: self.plan.logical_bytes() })
    }
}

/// Region of a selection's own positions.
fn part(selection: &Selection, region: &Region) -> Result<Selection> {
    let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
    let slices = selection.slices().iter().zip(region.bounds()).map(|(slice, &(start, end))| Slice {
        start: slice.start + start * slice.step,
        end: (slice.start + (end - 1) * slice.step + 1).min(slice.end),
        step: slice.step,
    });
    Selection::new(slices, &bounds)
}

/// A dimension of the selected positions.
fn dimension(source: &Dimension, slice: &Slice) -> Dimension {
    let positions = (0..slice.count()).map(|i| slice.start + i * slice.step);
    let labels = source.labels.as_ref().and_then(|labels| {
        let texts = positions.map(|p| super::plan::text(labels, p)).collect::<Option<Vec<String>>>()?;
        Some(Labels::Text(texts))
    });
    Dimension { labels, ..Dimension::new(source.name.clone(), slice.count()) }
}

/// Current time as part of a file name.
fn stamp() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut text = String::new();
    // Writing to a `String` is infallible.
    let _ = time::write(&mut text, i64::try_from(now).unwrap_or(0), tesseral_core::TimeUnit::Second);
    let digits: String = text.chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    format!("{digits}Z")
}
