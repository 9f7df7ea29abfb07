//! Memory and work of a plan itself, which depend on numbers of arrays that a small file can declare.

use tesseral_core::limits::EXPANSION_RATIO;
use tesseral_core::{Advice, Error, Result};
use tesseral_dataset::Container;
use tesseral_engine::available_memory;
use tesseral_store::{ObjectKind, Store};

use crate::convert::options::ConvertOptions;

/// Memory of the plan of one array of a conversion, in bytes.
const PLAN_COST: u64 = 20 << 10;
/// Work of a conversion for one group, in bytes: at most a document for it alone.
const GROUP_COST: u64 = 6 << 10;
/// Size of a plan that fits in addition to any memory limit, in bytes.
const FREE_PLAN: u64 = 8 << 20;

/// Rejects the planning of so many arrays and groups that it is much work for what the source stores.
pub(crate) fn check_work(source: &Container, arrays: usize) -> Result<()> {
    let groups = (source.groups().len() as u64).saturating_mul(GROUP_COST);
    let needed = plan_size(arrays).saturating_add(groups);
    let check = |stored| source.limits().check_total("the plan of a conversion", needed, stored);
    // Folders are listed only where that decides.
    if check(0).is_ok() {
        return Ok(());
    }
    let store = &**source.inner().store();
    check(store.len("").or_else(|_| stored_size(store, "", needed, source.limits().depth))?)
}

/// Size of the objects of a folder, or of enough of them to justify `needed` bytes.
fn stored_size(store: &dyn Store, folder: &str, needed: u64, depth: usize) -> Result<u64> {
    let mut size = 0_u64;
    for entry in store.list(folder)? {
        let path = if folder.is_empty() { entry.name.clone() } else { format!("{folder}/{}", entry.name) };
        size = size.saturating_add(match entry.kind {
            ObjectKind::File => entry.len.map_or_else(|| store.len(&path), Ok)?,
            ObjectKind::Folder if depth > 0 => stored_size(store, &path, needed, depth - 1)?,
            _ => 0,
        });
        if size.saturating_mul(EXPANSION_RATIO) >= needed {
            break;
        }
    }
    Ok(size)
}

/// Rejects a plan of so many arrays that it does not fit into the memory limit, or into what is free.
pub(crate) fn check_plan(arrays: usize, options: &ConvertOptions) -> Result<()> {
    let needed = plan_size(arrays);
    if needed <= FREE_PLAN {
        return Ok(());
    }
    let Some(memory) = options.execution.memory.or_else(available_memory).filter(|memory| needed > *memory)
    else {
        return Ok(());
    };
    let what = format!("the plan of a conversion of {arrays} arrays");
    let hint = Advice::RaiseMemory.or("convert parts of the arrays, one after another");
    Err(Error::limit(what, needed, memory).hint(hint))
}

fn plan_size(arrays: usize) -> u64 {
    (arrays as u64).saturating_mul(PLAN_COST)
}

/// A quarter of the free memory, at most two gibibytes.
pub(crate) fn default_memory() -> u64 {
    available_memory().map_or(512 << 20, |free| (free / 4).clamp(64 << 20, 2 << 30))
}
