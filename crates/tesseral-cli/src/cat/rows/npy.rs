//! NumPy's file format: one column as an array of one dimension.

use std::ops::Range;

use tesseral::{CellBatch, DType, Error, Field, numpy};

use super::raw::RawRowRenderer;
use super::{PrintedRows, RenderRows, single};
use crate::error::CliResult;
use crate::output::OutputStream;

pub(super) struct NpyRows {
    raw: RawRowRenderer,
    header: Vec<u8>,
    written: u64,
}

impl NpyRows {
    /// The header contains the number of rows, so they are counted first.
    pub(super) fn new(table: &PrintedRows<'_>, validity: bool) -> CliResult<Self> {
        let array = &table.target.array;
        let field = if validity { Field::new("validity", DType::UInt8) } else { table.fields[0].clone() };
        let descr = numpy::descr(field.dtype, field.cell).ok_or_else(|| {
            let feature = format!("{} in a NumPy file", field.type_name());
            Error::unsupported(feature).in_array(array.name()).hint("use --format raw, csv or json")
        })?;
        let mut rows = 0;
        for batch in table.query.clone().only(&[]).unordered().batches()? {
            rows += batch?.rows as u64;
        }
        let mut shape = vec![rows];
        if let (tesseral::CellLen::Fixed(n), true) = (field.cell, !numpy::holds_cell(&descr)) {
            shape.push(n.into());
        }
        Ok(Self { raw: RawRowRenderer { validity }, header: numpy::file_header(&descr, &shape), written: 0 })
    }
}

impl RenderRows for NpyRows {
    fn begin(&mut self, _: &PrintedRows<'_>, out: &mut OutputStream) -> CliResult<()> {
        out.put(&self.header)
    }

    fn batch(
        &mut self,
        table: &PrintedRows<'_>,
        batch: &CellBatch,
        rows: Range<usize>,
        out: &mut OutputStream,
    ) -> CliResult<()> {
        let cells = single(batch)?;
        if let (Some(validity), false) = (cells.validity(), self.raw.validity)
            && let Some(null) = validity.iter().position(|valid| *valid == 0)
        {
            let cell = self.written + null as u64;
            let feature = format!("nulls in a NumPy file, first at row {cell}");
            let hint = "use --format csv or json, or --raw together with --validity";
            return Err(Error::unsupported(feature).in_array(table.target.array.name()).hint(hint).into());
        }
        self.written += batch.rows as u64;
        self.raw.batch(table, batch, rows, out)
    }

    fn end(&mut self, _: &PrintedRows<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }
}
