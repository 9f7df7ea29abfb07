//! Audit of a file without decoding its payloads (`docs/formats/tet.md` §10).
//!
//! Checks run in the order of the reference, with its names, and stop where it stops. Payloads are decoded by the engine.
//! Additional checks follow those of the reference.

use std::sync::Arc;

use tesseral_core::{ChunkGrid, Error, ErrorKind, Finding, Limits, Result};
use tesseral_format::{AuditOptions, AuditReport, ContainerSource, Depth};
use tesseral_store::Store;

use crate::layout::{Digests, FileLayout};
use crate::open::{ChunkStatistics, TetCatalog, TetContainer};
use crate::package;
use crate::plan::row_offset;
use crate::source::FileBytes;
use crate::wire::chunk_index::{IndexRow, ROW_LEN};
use crate::wire::directory;
use crate::wire::footer::FileRange;
use crate::wire::metadata::{MAX_LABELS, check_history};
use crate::wire::secondary_index::SecondaryIndex;
use crate::wire::superblock::{self, FLAG_FOOTER};

type Report<'a> = dyn FnMut(Finding) + 'a;

/// Audits a file or package.
pub(crate) fn audit(
    store: Arc<dyn Store>,
    options: &AuditOptions,
    report: &mut Report<'_>,
) -> Result<AuditReport> {
    let limits = options.open.limits;
    let name = match package::locate(&store) {
        Ok(name) => name,
        Err(error) if error.is_damage() => {
            report(Finding::from_error("package", &error));
            return Ok(AuditReport::default());
        }
        Err(error) => return Err(error),
    };
    let source = FileBytes::open(&store, &name)?;
    let mut mismatch = None;
    let layout = match FileLayout::read(&source, &limits, options.open.digests) {
        Ok(layout) => layout,
        // A file that opens without digest checks is valid per the format; digest mismatches get their own finding.
        Err(failure) => match FileLayout::read(&source, &limits, false) {
            Ok(layout) => {
                mismatch = Some(failure.error);
                layout
            }
            Err(failure) => {
                return report_failure(failure.error, source.len, report);
            }
        },
    };
    if !name.is_empty() {
        let digests = options.open.digests && options.depth >= Depth::Digests;
        package::audit(&store, &name, &layout, digests, report)?;
    }
    let catalog = TetCatalog::new(store, name, layout, limits, false);
    let spans = Spans::new(catalog.layout.rows());
    let sound = check_catalog(&catalog.layout, &spans, report);
    let mut result = AuditReport::default();
    (result.covered_bytes, result.uncovered_bytes) = coverage(&catalog, &spans);
    if sound {
        check_footer(&catalog.layout, report);
        check_own(&catalog, &spans, mismatch, report);
        let container: Arc<dyn ContainerSource> = Arc::new(TetContainer::new(catalog));
        result.container = Some(container);
    }
    Ok(result)
}

/// Reports one `parse` finding and ends the audit; I/O errors are returned.
fn report_failure(error: Error, file_len: u64, report: &mut Report<'_>) -> Result<AuditReport> {
    match error.kind() {
        ErrorKind::Io { .. } | ErrorKind::NotFound { .. } | ErrorKind::Cancelled => Err(error),
        _ => {
            report(Finding::from_error("parse", &error));
            Ok(AuditReport { uncovered_bytes: file_len, ..AuditReport::default() })
        }
    }
}

/// Stored spans sorted by offset, with the row of each. Empty spans are excluded.
struct Spans(Vec<(u64, u64, u64)>);

impl Spans {
    fn new(rows: &[IndexRow]) -> Self {
        let spans = rows.iter().enumerate().filter_map(|(number, row)| {
            let (start, end) = (row.payload_offset.get(), row.payload_end()?);
            (end > start).then_some((start, end, number as u64))
        });
        let mut spans: Vec<_> = spans.collect();
        spans.sort_unstable();
        Self(spans)
    }

    /// Number of bytes in at least one span.
    fn bytes(&self) -> u64 {
        let mut reached = 0;
        self.0.iter().fold(0_u64, |sum, &(start, end, _)| {
            let new = end.saturating_sub(start.max(reached));
            reached = reached.max(end);
            sum.saturating_add(new)
        })
    }

    /// Returns the rows of the first pair with equal offsets.
    fn shared(&self) -> Option<(u64, u64)> {
        self.0.windows(2).find(|w| w[0].0 == w[1].0).map(|w| (w[0].2, w[1].2))
    }

    /// Returns the rows of the first overlapping pair with different offsets, and the overlap.
    fn overlap(&self) -> Option<(u64, u64, u64, u64)> {
        let mut last = *self.0.first()?;
        for &span in &self.0[1..] {
            if span.0 < last.1 && span.0 != last.0 {
                return Some((last.2, span.2, span.0, span.1.min(last.1)));
            }
            if span.1 > last.1 {
                last = span;
            }
        }
        None
    }
}

/// Creates a finding for a row, with its array and chunk if known.
fn in_row(finding: Finding, layout: &FileLayout, number: u64) -> Finding {
    let at = row_offset(layout.head.superblock.chunk_index_offset, number);
    let finding = finding.at(at, ROW_LEN);
    let row = usize::try_from(number).ok().and_then(|n| layout.rows().get(n));
    let dataset = row.and_then(|row| layout.head.datasets.get(usize::try_from(row.dataset_id.get()).ok()?));
    match row.zip(dataset) {
        Some((row, dataset)) => finding.in_array(&dataset.name).in_chunk(&row.coords(dataset.shape.len())),
        None => finding,
    }
}

/// Runs the checks that do not need payloads. Returns `false` if the reference stops here.
fn check_catalog(layout: &FileLayout, spans: &Spans, report: &mut Report<'_>) -> bool {
    let (head, rows) = (&layout.head, layout.rows());
    let count = head.datasets.len();
    let index = (head.superblock.chunk_index_offset, head.superblock.chunk_index_length);
    report(Finding::passed("superblock", "layout version 1").at(0, superblock::LEN));
    let directory = index.0.saturating_sub(directory::OFFSET);
    report(
        Finding::passed("dataset_directory", format!("{count} datasets")).at(directory::OFFSET, directory),
    );
    report(Finding::passed("chunk_index", format!("{} rows", rows.len())).at(index.0, index.1));
    report(Finding::passed("chunk_payloads", "all payloads are between the index and the footer"));
    if let Some(number) = rows.iter().position(|row| row.dataset_id.get() >= count as u64) {
        let id = rows[number].dataset_id.get();
        let detail = format!("row {number}: dataset index {id} is out of bounds for {count} datasets");
        report(in_row(Finding::failed("chunk_dataset_ids", detail), layout, number as u64));
        return false;
    }
    report(Finding::passed("chunk_dataset_ids", ""));
    if !check_tiles(layout, report) {
        return false;
    }
    if let Some((first, second)) = spans.shared() {
        let detail = format!("rows {first} and {second} have the same payload offset");
        report(in_row(Finding::failed("payload_offsets", detail), layout, second.max(first)));
    }
    match duplicate_row(layout) {
        Some((first, second)) => {
            let detail = format!("rows {first} and {second} are duplicates of the same chunk");
            report(in_row(Finding::failed("chunk_coords", detail), layout, second));
        }
        None => report(Finding::passed("chunk_coords", "")),
    }
    let abut = rows.windows(2).position(|w| w[0].payload_end() != Some(w[1].payload_offset.get()));
    if let Some(number) = abut {
        let detail = format!("the payload of row {} is not contiguous with that of row {number}", number + 1);
        report(in_row(Finding::warning("payload_order", detail), layout, number as u64 + 1));
    }
    true
}

/// Compares the rows of each dataset with its grid in one pass.
fn check_tiles(layout: &FileLayout, report: &mut Report<'_>) -> bool {
    struct Seen {
        geometry: Result<(u64, ChunkGrid)>,
        rows: u64,
        bytes: u128,
        odd: Option<(u64, u64)>,
    }
    let mut seen: Vec<Seen> = layout
        .head
        .datasets
        .iter()
        .map(|dataset| {
            let geometry = dataset.geometry(&layout.object);
            let geometry = geometry.map(|(dtype, grid)| (dtype.size().unwrap_or(1) as u64, grid));
            Seen { geometry, rows: 0, bytes: 0, odd: None }
        })
        .collect();
    for (number, row) in layout.rows().iter().enumerate() {
        let dataset = usize::try_from(row.dataset_id.get()).ok().and_then(|d| seen.get_mut(d));
        let Some(dataset) = dataset else { continue };
        dataset.rows += 1;
        dataset.bytes += u128::from(row.raw_byte_len.get());
        if let (Ok((cell, grid)), None) = (&dataset.geometry, dataset.odd) {
            // The tile of coordinates outside the grid has no cells.
            let tile = grid.region(&row.coords(grid.rank())).cells().unwrap_or(0).saturating_mul(*cell);
            if tile != row.raw_byte_len.get() || tile == 0 {
                dataset.odd = Some((number as u64, tile));
            }
        }
    }
    let mut sound = true;
    for (id, (dataset, seen)) in layout.head.datasets.iter().zip(seen).enumerate() {
        const CHECK: &str = "dataset_tensor_bytes";
        let finding = match (&seen.geometry, seen.odd) {
            (Err(error), _) => Finding::from_error(CHECK, error),
            (Ok((_, grid)), _) if grid.total() != seen.rows => {
                Finding::failed(CHECK, format!("{} rows for a grid of {} chunks", seen.rows, grid.total()))
            }
            (Ok(_), Some((number, tile))) => {
                let raw =
                    layout.rows().get(usize::try_from(number).unwrap_or(0)).map(|r| r.raw_byte_len.get());
                let detail =
                    format!("row {number} declares {} bytes for a tile of {tile} bytes", raw.unwrap_or(0));
                in_row(Finding::failed(CHECK, detail), layout, number)
            }
            (Ok(_), None) => {
                Finding::passed(CHECK, format!("dataset {id}: {} chunks, {} bytes", seen.rows, seen.bytes))
            }
        };
        sound &= finding.ok;
        report(finding.in_array(&dataset.name));
    }
    sound
}

/// Finds two rows of the same chunk. Compares all eight coordinates, as the reference does.
fn duplicate_row(layout: &FileLayout) -> Option<(u64, u64)> {
    if layout.first_row.is_some() {
        return None;
    }
    let rows = layout.rows();
    let key = |n: &usize| (rows[*n].dataset_id.get(), rows[*n].chunk_index.map(|c| c.get()), *n);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by_key(key);
    let pairs = order.windows(2).filter(|w| {
        let (a, b) = (key(&w[0]), key(&w[1]));
        (a.0, a.1) == (b.0, b.1)
    });
    pairs.map(|w| (w[0] as u64, w[1] as u64)).min_by_key(|pair| pair.1)
}

fn check_footer(layout: &FileLayout, report: &mut Report<'_>) {
    report(Finding::passed("dataset_count", format!("{}", layout.head.datasets.len())));
    let Some(footer) = &layout.footer else {
        report(Finding::passed("footer", "absent"));
        report(Finding::passed("footer_metadata", "absent"));
        return;
    };
    let len = layout.file_len - footer.json_offset;
    report(Finding::passed("footer", format!("version {}", footer.tail.version)).at(footer.json_offset, len));
    let checked =
        check_history(&footer.json.history).and_then(|()| layout.metadata().map_or(Ok(()), |m| m.check()));
    match checked {
        Err(error) => report(Finding::from_error("footer_metadata", &error)),
        Ok(()) => match layout.metadata().and_then(|m| m.long_axis()) {
            // A limit of the reference, not of the format: all labels are readable.
            Some((array, axis, count)) => {
                let detail =
                    format!("axis {axis:?} has {count} labels; the reference supports at most {MAX_LABELS}");
                report(Finding::warning("footer_metadata", detail).in_array(array));
            }
            None => report(Finding::passed("footer_metadata", "within the limits")),
        },
    }
}

/// Runs checks that the reference does not have.
fn check_own(catalog: &TetCatalog, spans: &Spans, mismatch: Option<Error>, report: &mut Report<'_>) {
    let layout = &catalog.layout;
    if let Some((first, second, start, end)) = spans.overlap() {
        let detail = format!("the payloads of rows {first} and {second} overlap");
        report(in_row(Finding::warning("payload_overlap", detail), layout, second).at(start, end - start));
    }
    let statistics = check_statistics(catalog, report);
    check_space(layout, spans, statistics, report);
    check_names(layout, report);
    check_labels(layout, report);
    check_reserved(layout, report);
    check_accelerators(catalog, report);
    let finding = match (mismatch, &layout.digests) {
        (Some(error), _) => Finding::from_error("digest_region", &error),
        (None, Digests::Present { region, .. }) => {
            let detail = format!("{} digests", layout.rows().len());
            Finding::passed("digest_region", detail).at(region.offset, region.len)
        }
        (None, Digests::Unusable { region, error }) => {
            Finding::warning("digest_region", format!("ignored: {error}")).at(region.offset, region.len)
        }
        (None, Digests::Absent) => Finding::passed("digest_region", "absent"),
    };
    report(finding);
}

/// Checks the statistics of chunks, and returns where they are. Only a comparison with a digest in the footer shows damage.
fn check_statistics(catalog: &TetCatalog, report: &mut Report<'_>) -> Option<FileRange> {
    let keyed =
        catalog.layout.json().is_some_and(|json| json.digests_ref.is_some_and(|d| d.statistics.is_some()));
    match catalog.read_statistics() {
        Ok(None) => None,
        Ok(Some(ChunkStatistics { place, region })) => {
            let rows = format!("{} chunks", region.count());
            report(Finding::passed("statistics", rows).at(place.offset, place.len));
            Some(place)
        }
        Err(error) if keyed && error.is_damage() => {
            report(Finding::from_error("statistics", &error));
            None
        }
        Err(error) => {
            report(Finding::warning("statistics", format!("ignored: {error}")));
            None
        }
    }
}

/// Checks the bytes between and after the payloads.
fn check_space(layout: &FileLayout, spans: &Spans, statistics: Option<FileRange>, report: &mut Report<'_>) {
    let last = layout.head.last_payload_end();
    let mut used = last;
    if let Digests::Present { region, .. } | Digests::Unusable { region, .. } = &layout.digests {
        let (start, end) = (region.offset, region.offset.saturating_add(region.len));
        if let Some(&(offset, stop, number)) = spans.0.iter().find(|span| span.0 < end && span.1 > start) {
            let finding = Finding::failed(
                "payload_in_metadata",
                format!("the payload of row {number} overlaps the digest region"),
            );
            let at = offset.max(start);
            report(in_row(finding, layout, number).at(at, stop.min(end) - at));
        }
        // Up to seven zeros of padding align the digest region.
        if start >= last && start - last < 8 {
            used = end;
        }
    }
    // Statistics are after the digests, or after the payloads, aligned as well.
    if let Some(place) = statistics.filter(|place| place.offset >= used && place.offset - used < 8) {
        used = place.end().unwrap_or(used);
    }
    if used < layout.payload_len {
        let detail = format!("{} unused bytes after the last payload", layout.payload_len - used);
        report(Finding::warning("trailing_bytes", detail).at(used, layout.payload_len - used));
    }
}

fn check_names(layout: &FileLayout, report: &mut Report<'_>) {
    let mut names: Vec<&str> = layout.head.datasets.iter().map(|d| d.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|w| w[0] == w[1]) {
        let detail = format!("duplicate dataset name {:?}; the name resolves to the first", pair[0]);
        report(Finding::warning("duplicate_names", detail).in_array(pair[0]));
    }
    if names.first().is_some_and(|name| name.is_empty()) {
        report(Finding::warning("duplicate_names", "empty dataset name"));
    }
}

fn check_labels(layout: &FileLayout, report: &mut Report<'_>) {
    let Some(metadata) = layout.metadata() else { return };
    for (name, entry) in &metadata.datasets {
        let mut warn = |detail: String| report(Finding::warning("label_counts", detail).in_array(name));
        let Some(dataset) = layout.head.datasets.iter().find(|d| d.name == *name) else {
            warn("metadata of an unknown dataset".to_owned());
            continue;
        };
        let rank = dataset.shape.len();
        if let Some(names) = entry.0.dim_names.as_ref().filter(|names| names.len() != rank) {
            warn(format!("{} names for {rank} dimensions", names.len()));
        }
        let found = |axis: &[String]| (0..rank).any(|d| entry.0.labels(d, &dataset.shape) == Some(axis));
        for (axis, labels) in entry.0.coords.iter().flatten() {
            if !found(&labels.0.labels) {
                warn(format!("labels of unknown dimension {axis:?}"));
            }
        }
        for (d, extent) in dataset.shape.iter().enumerate() {
            if let Some(labels) = entry.0.labels(d, &dataset.shape).filter(|l| l.len() as u64 != *extent) {
                warn(format!("{} labels for {extent} positions of dimension {d}", labels.len()));
            }
        }
    }
}

fn check_reserved(layout: &FileLayout, report: &mut Report<'_>) {
    let head = &layout.head;
    let mut warn = |detail: String, at: u64, len: u64| {
        report(Finding::warning("reserved_nonzero", detail).at(at, len));
    };
    if head.superblock.flags & !FLAG_FOOTER != 0 {
        warn(format!("flags {:#x}", head.superblock.flags), superblock::FLAGS_OFFSET, 4);
    }
    if let Some(dataset) = head.datasets.iter().find(|d| d.reserved != 0) {
        let detail = format!("the directory record of {:?}", dataset.name);
        warn(detail, directory::OFFSET, head.superblock.chunk_index_offset - directory::OFFSET);
    }
    if head.header.reserved != (0, 0) {
        warn("the header of the chunk index".to_owned(), head.superblock.chunk_index_offset + 18, 14);
    }
    let odd = |row: &IndexRow| {
        let dataset = usize::try_from(row.dataset_id.get()).ok().and_then(|d| head.datasets.get(d));
        let rank = dataset.map_or(0, |d| d.shape.len());
        row.reserved.get() != 0 || row.chunk_index.iter().skip(rank).any(|c| c.get() != 0)
    };
    let odd: Vec<usize> = layout.rows().iter().enumerate().filter(|(_, r)| odd(r)).map(|(n, _)| n).collect();
    if let Some(first) = odd.first() {
        let detail = format!("{} rows of the chunk index, the first one is row {first}", odd.len());
        warn(detail, row_offset(head.superblock.chunk_index_offset, *first as u64), ROW_LEN);
    }
}

/// Zone maps and secondary index are only used for speed. A damaged one is a warning, unless a digest mismatch shows that the
/// file was changed.
fn check_accelerators(catalog: &TetCatalog, report: &mut Report<'_>) {
    let layout = &catalog.layout;
    let [zones, secondary] = layout.accelerators();
    if let Some(span) = zones {
        let has_digest =
            layout.json().is_some_and(|json| json.digests_ref.is_some_and(|d| d.zone_maps.is_some()));
        let finding = match catalog.read_zones() {
            Ok(zones) => {
                let count = zones.iter().flatten().flatten().count();
                Finding::passed("zone_maps", format!("{count} chunks"))
            }
            Err(error) if has_digest && error.is_damage() => Finding::from_error("zone_maps", &error),
            Err(error) => Finding::warning("zone_maps", format!("ignored: {error}")),
        };
        report(finding.at(span.offset, span.len));
    }
    if let Some(span) = secondary {
        let (object, limits): (_, Limits) = (&layout.object, catalog.limits);
        let count = layout.head.datasets.len();
        let parsed = catalog
            .read_ref(span, "secondary index")
            .and_then(|text| SecondaryIndex::parse(&text, object, span.offset, limits.depth, count));
        let finding = match parsed {
            Ok(index) => Finding::passed("secondary_index", format!("{} postings", index.postings)),
            Err(error) => Finding::warning("secondary_index", format!("ignored: {error}")),
        };
        report(finding.at(span.offset, span.len));
    }
}

/// Counts the bytes of metadata that a digest covers, and all other bytes outside payloads.
fn coverage(catalog: &TetCatalog, spans: &Spans) -> (u64, u64) {
    let layout = &catalog.layout;
    let statistics = catalog.read_statistics().ok().flatten();
    let mut covered = statistics.map_or(0, |statistics| statistics.place.len);
    if let Digests::Present { region, .. } = &layout.digests {
        covered += region.len + (layout.head.end - superblock::LEN);
        if let Some((footer, digests)) = layout.footer.as_ref().and_then(|f| Some((f, f.json.digests_ref?))) {
            covered += footer.tail.json_len;
            let covered_len = |digest: Option<u64>, span: Option<crate::wire::footer::FileRange>| {
                digest.and(span).map_or(0, |span| span.len)
            };
            covered += covered_len(digests.spill, footer.json.metadata_ref);
            covered += covered_len(digests.zone_maps, layout.accelerators()[0]);
        }
    }
    (covered, layout.file_len.saturating_sub(covered).saturating_sub(spans.bytes()))
}
