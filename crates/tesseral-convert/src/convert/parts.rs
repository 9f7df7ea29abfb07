//! Conversion of a file of messages into another one, message by message.
//!
//! A message refers to nothing outside it, so that the plan of one message at a time suffices, and memory does not depend on their
//! number. All messages are planned, with a dry run of the writer, before the first write; then each is planned again and written.

use std::collections::BTreeMap;
use std::path::Path;

use tesseral_core::{Error, HistoryRow, Result};
use tesseral_engine::Work;
use tesseral_format::{ContainerPart, Format};
use tesseral_store::StoreExt;

use super::options::ConvertOptions;
use super::plan::{self, ConvertPlan, PlanScope, check_plan, check_work, unknown_names};
use super::{Converted, check_all, checked, describe, move_cells, provenance, publish, stage, within};
use tesseral_dataset::Container;
use tesseral_dataset::variable::{VariableNames, Variables};

/// Number of arrays that the report lists.
const LISTED: usize = 10_000;

/// The parts of a source that are converted.
#[derive(Debug)]
struct Parts<'a> {
    source: &'a Container,
    format: &'static dyn Format,
    options: &'a ConvertOptions,
    /// The variables, and their indexes by part, if the options name some; names within one part would be others.
    named: Option<(VariableNames<'a>, BTreeMap<usize, Vec<usize>>)>,
}

/// Converts part by part.
pub(super) fn run(
    source: &Container,
    target: &Path,
    format: &'static dyn Format,
    options: &ConvertOptions,
    op: &str,
) -> Result<Converted> {
    let row = |digest: String| provenance::row(source, op, digest, options);
    let mut parts = Parts::new(source, format, options)?;
    let mut report = Converted::new(format, options);
    let threads = parts.check(&row(provenance::EMPTY.to_owned()), &mut report)?;
    if options.dry_run {
        return Ok(report);
    }
    let staged = stage(source, target, format, options)?;
    let execution = within(threads, options)?;
    report.digest = provenance::digest(&**source.inner().store(), &execution.cancel)?;
    let row = row(report.digest.clone());
    let create = plan::create_options(format, options)?;
    let mut session = plan::begin(format, staged.store(), &create, &execution)?;
    let mut lossy = false;
    parts.for_each_plan(|plan, part, first| {
        let ids = plan.declare(&mut session, &history(part, &row, first == 0))?;
        lossy |= plan.arrays.iter().any(|array| array.bound.is_some());
        move_cells(plan, &session, &ids, &execution, staged.path(), &mut [])?;
        session.finish_part()
    })?;
    session.commit()?;
    let check = |output: &Container| {
        parts.for_each_plan(|plan, _, first| {
            let listed = report.arrays.get_mut(first..).unwrap_or_default();
            check_all(plan, output, first, options, listed)
        })
    };
    report.checked = checked(staged.path(), lossy, execution, options, check)?;
    publish(staged, options, &mut report)?;
    Ok(report)
}

/// The history of a part: its own, and in the first one the conversion.
fn history(part: &ContainerPart, row: &HistoryRow, first: bool) -> Vec<HistoryRow> {
    part.history.iter().chain(first.then_some(row)).cloned().collect()
}

impl<'a> Parts<'a> {
    fn new(source: &'a Container, format: &'static dyn Format, options: &'a ConvertOptions) -> Result<Self> {
        check_work(source, if options.arrays.is_empty() { source.len() } else { options.arrays.len() })?;
        let names = options.casts.iter().any(|cast| cast.name.is_some())
            || options.fills.iter().any(|fill| fill.name.is_some());
        if options.arrays.is_empty() && !names {
            return Ok(Self { source, format, options, named: None });
        }
        let variables = VariableNames::new(source, &options.arrays)?;
        let mut wanted: Vec<(usize, usize)> =
            (0..variables.len()).filter_map(|index| Some((variables.number(index)?, index))).collect();
        wanted.sort_unstable();
        let (mut by_part, mut wanted) = (BTreeMap::new(), wanted.into_iter().peekable());
        for number in 0..source.inner().parts() {
            let arrays = part(source, number)?.arrays;
            let own = std::iter::from_fn(|| wanted.next_if(|(array, _)| arrays.contains(array)));
            let own: Vec<usize> = own.map(|(_, index)| index).collect();
            if !own.is_empty() || options.arrays.is_empty() {
                by_part.insert(number, own);
            }
        }
        Ok(Self { source, format, options, named: Some((variables, by_part)) })
    }

    /// Plans all parts, with a dry run of the writer; returns the number of threads that the memory allows.
    fn check(&mut self, row: &HistoryRow, report: &mut Converted) -> Result<usize> {
        let mut threads = self.options.execution.threads();
        let (mut work, mut unknown) = (Work::default(), None::<BTreeMap<String, Error>>);
        for number in self.numbers() {
            self.options.execution.cancel.check()?;
            let (part, scope) = self.scope(number)?;
            // A name is unknown if no part has it.
            let own = unknown_names(&scope.variables.list, self.options);
            match &mut unknown {
                None => unknown = Some(own),
                Some(unknown) => unknown.retain(|name, _| own.contains_key(name)),
            }
            let rows = history(&part, row, report.array_count == 0);
            let again = || Ok(scope.clone());
            let plan = ConvertPlan::new(self.source, &again, self.format, self.options, &rows, &mut work)?;
            threads = threads.min(plan.threads);
            report.list(describe(&plan), LISTED);
        }
        match unknown.into_iter().flatten().next() {
            Some((_, error)) => Err(error),
            None => Ok(threads),
        }
    }

    /// Calls `visit` with the plan of each part, the part, and the number of arrays before it.
    fn for_each_plan(
        &mut self,
        mut visit: impl FnMut(&ConvertPlan, &ContainerPart, usize) -> Result<()>,
    ) -> Result<()> {
        let (mut work, mut first) = (Work::default(), 0);
        for number in self.numbers() {
            self.options.execution.cancel.check()?;
            let (part, scope) = self.scope(number)?;
            let plan = ConvertPlan::without_check(self.source, scope, self.format, self.options, &mut work)?;
            visit(&plan, &part, first)?;
            first += plan.arrays.len();
        }
        Ok(())
    }

    /// The numbers of the parts that are converted.
    fn numbers(&self) -> Vec<usize> {
        match &self.named {
            Some((_, by_part)) => by_part.keys().copied().collect(),
            None => (0..self.source.inner().parts()).collect(),
        }
    }

    /// A part and its plan.
    fn scope(&mut self, number: usize) -> Result<(ContainerPart, PlanScope)> {
        let part = part(self.source, number)?;
        check_plan(part.arrays.len(), self.options)?;
        let variables = match &mut self.named {
            None => Variables::of_part(self.source, &part)?,
            Some((variables, by_part)) => {
                let own = by_part.get(&number).into_iter().flatten();
                let list = own.map(|index| variables.variable(*index)).collect::<Result<_>>()?;
                Variables { list, attributes: part.attributes.clone() }
            }
        };
        let groups = part.groups.clone();
        Ok((part, PlanScope { variables, groups }))
    }
}

fn part(source: &Container, number: usize) -> Result<ContainerPart> {
    let inner = source.inner();
    inner.store().guarded(|| inner.part(number))
}
