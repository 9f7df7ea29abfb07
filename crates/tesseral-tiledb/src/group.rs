//! Groups: folders that name arrays and other groups.

use std::sync::Arc;

use tesseral_core::{ErrorKind, Result};
use tesseral_format::OpenOptions;
use tesseral_store::StoreExt;

use crate::array::TileDbArray;
use crate::directory;
use crate::open::{TileDbContainer, open_array, times};
use crate::reader::{Reader, join};
use crate::wire::group::{self, Member};

/// The empty file that marks a group.
pub(crate) const MARKER: &str = "__tiledb_group.tdb";

/// What a group names.
#[derive(Debug)]
pub(crate) struct Group {
    pub members: Vec<Member>,
}

/// Whether the store is a group.
pub(crate) fn is_group(reader: &Reader) -> Result<bool> {
    match reader.store.exists(MARKER) {
        // A single file has nothing in it.
        Err(e) if matches!(e.kind(), ErrorKind::Io { .. }) => Ok(false),
        other => other,
    }
}

pub(crate) fn members(reader: &Reader, prefix: &str) -> Result<Vec<Member>> {
    let folder = join(prefix, "__group");
    let mut members = group::Members::default();
    for (object, _) in directory::metadata(reader, &folder)? {
        let (bytes, _) = reader.object(&object)?;
        group::apply(&reader.store.describe(&object), &bytes, &mut members)?;
    }
    Ok(members.into_vec())
}

/// Opens the member arrays that lie below the group, those of groups in it too.
pub(crate) fn open(reader: &Arc<Reader>, options: &OpenOptions) -> Result<TileDbContainer> {
    open_with(reader, options, |folder, name| open_array(reader, folder, name, options).map(Some))
}

/// Opens the members by `array`, which is given the folder and the name of each and may leave it out.
pub(crate) fn open_with(
    reader: &Arc<Reader>,
    options: &OpenOptions,
    mut array: impl FnMut(&str, &str) -> Result<Option<TileDbArray>>,
) -> Result<TileDbContainer> {
    let top = members(reader, "")?;
    let mut arrays = Vec::new();
    let mut names = Vec::new();
    let mut todo: Vec<(String, String, Member, usize)> =
        top.iter().rev().map(|m| (String::new(), String::new(), m.clone(), 0)).collect();
    while let Some((prefix, path, member, depth)) = todo.pop() {
        // Members elsewhere are listed, not followed.
        let below = member.relative && !member.uri.split('/').any(|part| matches!(part, "" | "." | ".."));
        if !below || depth >= reader.limits.depth {
            continue;
        }
        let folder = join(&prefix, &member.uri);
        let name = join(&path, member.name.as_deref().unwrap_or(&member.uri));
        if member.group {
            let inner = members(reader, &folder)?;
            todo.extend(inner.into_iter().rev().map(|m| (folder.clone(), name.clone(), m, depth + 1)));
        } else if let Some(array) = array(&folder, &name)? {
            arrays.push(Arc::new(array));
            names.push(name);
        }
    }
    let meaning = TileDbContainer::group_meaning(reader, times(options))?;
    let group = Some(Group { members: top });
    Ok(TileDbContainer {
        reader: Arc::clone(reader),
        arrays,
        names,
        group,
        attributes: meaning.attributes,
        history: meaning.history,
    })
}
