//! NumPy's file format, version 1.0: a text header, then row-major cells.

use tesseral::{CellLen, Error, numpy};

use super::block::Block;
use super::raw::put_cells;
use super::{Render, Task};
use crate::error::CliResult;
use crate::output::OutputStream;

pub(super) struct Npy {
    header: Vec<u8>,
    written: u64,
}

impl Npy {
    pub(super) fn new(task: &Task<'_>) -> CliResult<Self> {
        let descr = numpy::descr(task.field.dtype, task.field.cell).ok_or_else(|| {
            let feature = format!("{} in a NumPy file", task.field.type_name());
            Error::unsupported(feature).in_array(task.array.name()).hint("use --format raw, csv or json")
        })?;
        let mut shape = task.selection.shape().to_vec();
        if let (CellLen::Fixed(n), true) = (task.field.cell, !numpy::holds_cell(&descr)) {
            shape.push(n.into());
        }
        Ok(Self { header: numpy::file_header(&descr, &shape), written: 0 })
    }
}

impl Render for Npy {
    fn begin(&mut self, _: &Task<'_>, out: &mut OutputStream) -> CliResult<()> {
        out.put(&self.header)
    }

    fn block(&mut self, task: &Task<'_>, block: &Block, out: &mut OutputStream) -> CliResult<()> {
        let null =
            if block.plain().is_some() { None } else { (0..block.len()).find(|i| block.cell(*i).is_none()) };
        if let Some(cell) = null {
            let cell = self.written + cell as u64;
            let feature = format!("nulls in a NumPy file, first at cell {cell} of the selection");
            let hint = "use --format csv or json, or --raw together with --validity";
            return Err(Error::unsupported(feature).in_array(task.array.name()).hint(hint).into());
        }
        self.written += block.len() as u64;
        put_cells(task, block, out)
    }

    fn end(&mut self, _: &Task<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }
}
