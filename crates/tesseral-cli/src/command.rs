//! The commands there are.

use clap::Subcommand;

use crate::context::Context;
use crate::failure::Outcome;
use crate::messages::{copy, dump, get, merge, reshuffle, set, split};
use crate::output;
use crate::{
    advise, append, cat, completions, convert, create, diff, doctor, evolve, info, log, maintain, man, plot,
    qhist, query, recover, repair, stat, verify,
};

/// One command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows what is in a source: arrays, layout, metadata, history
    #[command(visible_alias = "ls")]
    Info(info::Arguments),
    /// Prints values
    Cat(cat::Arguments),
    /// Lists the writes a source keeps, oldest first
    Log(log::Arguments),
    /// Prints minimum, maximum, mean and other statistics
    Stat(stat::Arguments),
    /// Writes the same data in another format, other chunks, another dtype
    #[command(visible_aliases = ["import", "export"])]
    Convert(convert::Arguments),
    /// Writes the same data in other chunks, within a memory limit
    Rechunk(convert::RechunkArguments),
    /// Tells which chunks suit the way an array is read
    Advise(advise::Arguments),
    /// Compares two sources: exit 0 when they hold the same, 1 when not
    Diff(diff::Arguments),
    /// Draws a line or a field, in the terminal or as PNG
    Plot(plot::Arguments),
    /// Answers a query document: select, filter, group, window, reduce
    #[command(visible_alias = "q")]
    Query(query::Arguments),
    /// Lists queries asked before, and asks one again
    #[command(visible_alias = "hist")]
    Qhist(qhist::Arguments),
    /// Checks a source: exit 0 when it is sound, 1 when it is damaged
    #[command(visible_alias = "validate")]
    Verify(verify::Arguments),
    /// Lists the fixes a source needs and applies them
    Repair(repair::Arguments),
    /// Saves every whole chunk of a torn source
    Recover(recover::Arguments),
    /// Makes an array without a cell
    Create(create::Arguments),
    /// Adds cells from .npy or .csv files to an array, or messages to a file of messages
    Append(append::Arguments),
    /// Removes the cells of a sparse array that meet a condition
    Delete(maintain::DeleteArguments),
    /// Changes what an array is: adds or drops fields, adds labels, widens dimensions
    Evolve(evolve::Arguments),
    /// Makes one version of several
    Consolidate(maintain::ConsolidateArguments),
    /// Removes versions that consolidated ones replace
    Vacuum(maintain::VacuumArguments),
    /// Prints values of keys, one line per message
    Get(get::Arguments),
    /// Prints everything that messages say
    Dump(dump::Arguments),
    /// Sets keys of messages, whose objects are copied as they are stored, or attributes of an array
    Set(set::Arguments),
    /// Copies messages, into one file or one per value of a key
    Copy(copy::Arguments),
    /// Joins the objects of all messages into one message
    Merge(merge::Arguments),
    /// Parts messages into one file per object
    Split(split::Arguments),
    /// Puts the lists of objects before the objects of messages
    Reshuffle(reshuffle::Arguments),
    /// Tells what this build can do and what machine it runs on
    Doctor(doctor::Arguments),
    /// Prints a completion script for a shell
    Completions(completions::Arguments),
    /// Prints the manual page, or writes those of all commands
    Man(man::Arguments),
}

/// How often a command that reads starts again when its source was cleaned up meanwhile.
const ATTEMPTS: usize = 10;

impl Command {
    /// Runs the command; again from the start when another process removed what it was about to read, and nothing was printed yet.
    pub(crate) fn run_to_the_end(&self, context: &Context) -> Outcome {
        for _ in 1..ATTEMPTS {
            match self.run(context) {
                Err(failure) if failure.is_stale() && self.only_reads() && !output::has_begun() => {}
                outcome => return outcome,
            }
        }
        self.run(context)
    }

    /// Whether the command leaves its sources as they are.
    fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Info(_)
                | Self::Cat(_)
                | Self::Log(_)
                | Self::Stat(_)
                | Self::Convert(_)
                | Self::Rechunk(_)
                | Self::Advise(_)
                | Self::Diff(_)
                | Self::Plot(_)
                | Self::Query(_)
                | Self::Verify(_)
                | Self::Recover(_)
        )
    }

    fn run(&self, context: &Context) -> Outcome {
        match self {
            Self::Info(arguments) => info::run(context, arguments),
            Self::Cat(arguments) => cat::run(context, arguments),
            Self::Log(arguments) => log::run(context, arguments),
            Self::Stat(arguments) => stat::run(context, arguments),
            Self::Convert(arguments) => convert::run(context, arguments),
            Self::Rechunk(arguments) => convert::run_rechunk(context, arguments),
            Self::Advise(arguments) => advise::run(context, arguments),
            Self::Diff(arguments) => diff::run(context, arguments),
            Self::Plot(arguments) => plot::run(context, arguments),
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
