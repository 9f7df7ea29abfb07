//! The list of commands.

use clap::Subcommand;

use crate::context::Context;
use crate::error::CliResult;
use crate::messages::{copy, dump, get, merge, reshuffle, set, split};
use crate::output;
#[cfg(feature = "serve")]
use crate::serve;
use crate::{
    advise, append, cat, cdl, completions, convert, cp, create, diff, doctor, evolve, index, info, log,
    maintain, man, plot, qhist, query, recover, repair, stat, verify,
};

/// One command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the content of a source: arrays, layout, metadata, history
    #[command(visible_alias = "ls")]
    Info(info::InfoArguments),
    /// Print values
    Cat(cat::CatArguments),
    /// Print the first rows of values
    Head(cat::EndArguments),
    /// Print the last rows of values
    Tail(cat::EndArguments),
    /// Print a dataset in CDL, the text form of NetCDF that `ncgen` reads
    Cdl(cdl::CdlArguments),
    /// List the stored versions of a source, oldest first
    Log(log::LogArguments),
    /// Print minimum, maximum, mean and other statistics
    Stat(Box<stat::StatArguments>),
    /// Convert a dataset to another format, chunking or data type
    #[command(visible_aliases = ["import", "export"])]
    Convert(convert::ConvertArguments),
    /// Rewrite a dataset with other chunks, within a memory limit
    Rechunk(convert::RechunkArguments),
    /// Copy a dataset to another path or URL, byte for byte, and verify its digests
    Cp(cp::CpArguments),
    /// Write an index of existing files, which can be opened as one dataset without copying them
    Index(index::IndexArguments),
    /// Join existing files along a dimension as one dataset without copying them
    #[command(visible_alias = "concat")]
    Mosaic(index::MosaicArguments),
    /// Recommend a chunk shape for given access patterns
    Advise(advise::AdviseArguments),
    /// Compare two sources: exit 0 if they are equal, 1 if not
    Diff(diff::DiffArguments),
    /// Draw a map, a line, a profile or a histogram in the terminal, as PNG or as SVG
    Plot(plot::PlotArguments),
    /// View datasets in a browser: a local web page with maps, series, tables and downloads
    #[cfg(feature = "serve")]
    Serve(serve::ServeArguments),
    /// Run a query document: select, filter, group, window, reduce
    #[command(visible_alias = "q")]
    Query(query::QueryArguments),
    /// List previous queries, or run one again
    #[command(visible_alias = "hist")]
    Qhist(qhist::QhistArguments),
    /// Verify a source: exit 0 if it is intact, 1 if it is damaged
    #[command(visible_alias = "validate")]
    Verify(verify::VerifyArguments),
    /// List and apply fixes of a source
    Repair(repair::RepairArguments),
    /// Copy the intact chunks of a damaged source to a new one
    Recover(recover::RecoverArguments),
    /// Create an empty array
    Create(create::CreateArguments),
    /// Append cells from .npy or .csv files to an array, or messages to a file of messages
    Append(append::AppendArguments),
    /// Delete the cells of a sparse array that match a condition
    Delete(maintain::DeleteArguments),
    /// Change the schema of an array: add or drop fields, add labels, expand dimensions
    Evolve(evolve::EvolveArguments),
    /// Merge versions of an array into one
    Consolidate(maintain::ConsolidateArguments),
    /// Remove versions that have been consolidated
    Vacuum(maintain::VacuumArguments),
    /// Print values of metadata keys, one line per message
    Get(get::GetArguments),
    /// Print all metadata of messages
    Dump(dump::DumpArguments),
    /// Set metadata keys of messages without re-encoding their objects, or attributes of an array
    Set(set::SetArguments),
    /// Copy messages into one file, or one file per value of a key
    Copy(copy::CopyArguments),
    /// Merge the objects of all messages into one message
    Merge(merge::MergeArguments),
    /// Split messages into one file per object
    Split(split::SplitArguments),
    /// Move the index of messages before their objects
    Reshuffle(reshuffle::ReshuffleArguments),
    /// Show the features of this build and of the machine
    Doctor(doctor::DoctorArguments),
    /// Print a shell completion script
    Completions(completions::CompletionsArguments),
    /// Print the manual page, or write those of all commands
    Man(man::ManArguments),
}

/// Maximum number of restarts of a read command whose source was cleaned up meanwhile.
const ATTEMPTS: usize = 10;

impl Command {
    /// Runs the command; restarts it if another process removed objects it was about to read and nothing was printed yet.
    pub(crate) fn run_to_the_end(&self, context: &Context) -> CliResult {
        for _ in 1..ATTEMPTS {
            match self.run(context) {
                Err(failure) if failure.is_stale() && self.only_reads() && !output::has_begun() => {}
                outcome => return outcome,
            }
        }
        self.run(context)
    }

    /// Returns whether the command is read-only.
    fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Info(_)
                | Self::Cat(_)
                | Self::Head(_)
                | Self::Tail(_)
                | Self::Cdl(_)
                | Self::Log(_)
                | Self::Stat(_)
                | Self::Convert(_)
                | Self::Rechunk(_)
                | Self::Cp(_)
                | Self::Advise(_)
                | Self::Diff(_)
                | Self::Plot(_)
                | Self::Query(_)
                | Self::Verify(_)
                | Self::Recover(_)
        )
    }

    fn run(&self, context: &Context) -> CliResult {
        match self {
            Self::Info(arguments) => info::run(context, arguments),
            Self::Cat(arguments) => cat::run(context, arguments),
            Self::Head(arguments) => cat::run_end(context, arguments, false),
            Self::Tail(arguments) => cat::run_end(context, arguments, true),
            Self::Cdl(arguments) => cdl::run(context, arguments),
            Self::Log(arguments) => log::run(context, arguments),
            Self::Stat(arguments) => stat::run(context, arguments),
            Self::Convert(arguments) => convert::run(context, arguments),
            Self::Rechunk(arguments) => convert::run_rechunk(context, arguments),
            Self::Cp(arguments) => cp::run(context, arguments),
            Self::Index(arguments) => index::run(context, arguments),
            Self::Mosaic(arguments) => index::run_mosaic(context, arguments),
            Self::Advise(arguments) => advise::run(context, arguments),
            Self::Diff(arguments) => diff::run(context, arguments),
            Self::Plot(arguments) => plot::run(context, arguments),
            #[cfg(feature = "serve")]
            Self::Serve(arguments) => serve::run(context, arguments),
            Self::Query(arguments) => query::run(context, arguments),
            Self::Qhist(arguments) => qhist::run(context, arguments),
            Self::Verify(arguments) => verify::run(context, arguments),
            Self::Repair(arguments) => repair::run(context, arguments),
            Self::Recover(arguments) => recover::run(context, arguments),
            Self::Create(arguments) => create::run(context, arguments),
            Self::Append(arguments) => append::run(context, arguments),
            Self::Delete(arguments) => maintain::delete(context, arguments),
            Self::Evolve(arguments) => evolve::run(context, arguments),
            Self::Consolidate(arguments) => maintain::consolidate(context, arguments),
            Self::Vacuum(arguments) => maintain::vacuum(context, arguments),
            Self::Get(arguments) => get::run(context, arguments),
            Self::Dump(arguments) => dump::run(context, arguments),
            Self::Set(arguments) => set::run(context, arguments),
            Self::Copy(arguments) => copy::run(context, arguments),
            Self::Merge(arguments) => merge::run(context, arguments),
            Self::Split(arguments) => split::run(context, arguments),
            Self::Reshuffle(arguments) => reshuffle::run(context, arguments),
            Self::Doctor(arguments) => doctor::run(context, arguments),
            Self::Completions(arguments) => completions::run(context, arguments),
            Self::Man(arguments) => man::run(context, arguments),
        }
    }
}
