//! Groups: folders that list arrays and other groups.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_format::OpenOptions;
use tesseral_store::{Location, ObjectInfo, Rounds, StoreExt};

use crate::array::TileDbArray;
use crate::directory;
use crate::metadata_loader::{MetadataLoader, join};
use crate::open::{TileDbContainer, open_array, open_array_at_once, times};
use crate::portion::KEPT;
use crate::wire::group::{self, Member};

/// The empty file that marks a group.
pub(crate) const MARKER: &str = "__tiledb_group.tdb";
/// The folder of its lists of members.
pub(crate) const MEMBERS: &str = "__group";
/// Cost of listing a member in bytes.
const MEMBER_COST: u64 = 1 << 10;

/// Content of a group.
#[derive(Debug)]
pub(crate) struct Group {
    /// Its members and those of nested groups, in order.
    pub members: Vec<ListedMember>,
}

/// A member and its state.
#[derive(Clone, Debug)]
pub(crate) struct ListedMember {
    /// Its name, prefixed by the names of its groups.
    pub name: String,
    pub member: Member,
    /// Its folder, where that lies in the group.
    pub folder: Option<String>,
    pub state: MemberState,
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// Opened.
    Read,
    /// Its URI is outside the group: it is not followed, because an untrusted group could name any file.
    Outside,
    /// Its URI does not exist.
    Missing,
    /// Its folder exists, without an array in it.
    Empty,
    /// The nesting of groups exceeds the limit.
    TooDeep,
    /// Its folder is that of a member before it: groups that list each other's folders several times multiply them.
    Repeated,
    /// It is damaged and was skipped.
    Lost,
}

impl MemberState {
    /// Name of the state in JSON output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Outside => "outside",
            Self::Missing => "missing",
            Self::Empty => "empty",
            Self::TooDeep => "too_deep",
            Self::Repeated => "repeated",
            Self::Lost => "lost",
        }
    }

    /// Reason why the member is not read; `None` if it is.
    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Read => None,
            Self::Outside => Some("outside the group"),
            Self::Missing => Some("does not exist"),
            Self::Empty => Some("contains no array"),
            Self::TooDeep => Some("nested too deeply"),
            Self::Repeated => Some("the folder of another member"),
            Self::Lost => Some("damaged"),
        }
    }
}

impl Group {
    /// The members that are not read, each with its URI and the reason.
    pub(crate) fn unread(&self) -> impl Iterator<Item = (&ListedMember, String)> {
        self.members.iter().filter_map(|listed| {
            let reason = listed.state.reason()?;
            Some((listed, format!("{} ({}): {reason}", listed.name, listed.member.uri)))
        })
    }
}

/// Returns whether the store is a group.
pub(crate) fn is_group(reader: &MetadataLoader) -> Result<bool> {
    // Failing to access the file, for lack of handles or permissions, is an error, not the absence of a group.
    reader.store.exists(MARKER)
}

pub(crate) fn members(reader: &MetadataLoader, prefix: &str) -> Result<Vec<Member>> {
    let listed = directory::metadata(reader, &join(prefix, MEMBERS))?;
    reader.announce([], listed.iter().map(|(object, _)| object));
    let mut members = group::Members::default();
    for (object, _) in listed {
        let (bytes, _) = reader.object(&object)?;
        group::apply(&reader.store.describe(&object), &bytes, &mut members)?;
    }
    Ok(members.into_vec())
}

/// Returns the folder of a member or label in the store, if it is below the folder of its group or array, `prefix`.
pub(crate) fn folder_of(location: &str, prefix: &str, relative: bool, uri: &str) -> Option<String> {
    let below = |path: &str| !path.split('/').any(|part| matches!(part, "" | "." | ".."));
    let uri = uri.trim_end_matches('/');
    if relative {
        return below(uri).then(|| join(prefix, uri));
    }
    // An absolute URI can be inside the group.
    let root = match Location::parse(location).ok()? {
        Location::Path(path) => std::path::absolute(path).ok()?.to_str()?.to_owned(),
        Location::Url(url) => url,
    };
    let path = uri.strip_prefix("file://").unwrap_or(uri);
    let inside = path.strip_prefix(root.trim_end_matches('/'))?.strip_prefix('/')?;
    let in_group = prefix.is_empty() || inside.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
    (below(inside) && in_group).then(|| inside.to_owned())
}

/// Name of a member: its own, or the last component of its URI.
fn name_of(member: &Member) -> &str {
    match &member.name {
        Some(name) => name,
        None if member.relative => member.uri.trim_end_matches('/'),
        None => crate::open::folder_name(&member.uri),
    }
}

/// Returns the entries of a folder; `None` if it does not exist.
fn entries(reader: &MetadataLoader, folder: &str) -> Result<Option<Vec<ObjectInfo>>> {
    match reader.store.list(folder) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// Opens the member arrays below the group, including those of nested groups.
pub(crate) fn open(reader: &Arc<MetadataLoader>, options: &OpenOptions) -> Result<TileDbContainer> {
    open_with(reader, reader, options, |folder, name| open_array(reader, folder, name, options).map(Some))?
        .with_labels(reader, options)
}

/// As [`open`], across a network: what is needed of all members is requested together.
pub(crate) fn open_at_once(
    rounds: &MetadataLoader,
    reader: &Arc<MetadataLoader>,
    options: &OpenOptions,
) -> Result<TileDbContainer> {
    let mut left = KEPT;
    let array = |folder: &str, name: &str| {
        open_array_at_once(rounds, reader, folder, name, options, &mut left).map(Some)
    };
    open_with(rounds, reader, options, array)?.with_labels(rounds, options)
}

/// A member that still has to be opened.
struct Unopened {
    /// Folder and name of its group.
    prefix: String,
    path: String,
    member: Member,
    depth: usize,
}

impl Unopened {
    /// The members of a group, the first one last.
    fn members(reader: &MetadataLoader, prefix: &str, path: &str, depth: usize) -> Result<Vec<Self>> {
        let members = members(reader, prefix)?.into_iter().rev();
        let own = |member| Self { prefix: prefix.to_owned(), path: path.to_owned(), member, depth };
        Ok(members.map(own).collect())
    }
}

/// Opens the members with `array`, which gets the folder and the name of each and can skip it. Members that are not read are
/// listed with the reason. Lists and attributes are read from `metadata`.
pub(crate) fn open_with(
    metadata: &MetadataLoader,
    reader: &Arc<MetadataLoader>,
    options: &OpenOptions,
    mut array: impl FnMut(&str, &str) -> Result<Option<TileDbArray>>,
) -> Result<TileDbContainer> {
    let mut listed = Vec::new();
    let mut arrays = Vec::new();
    let mut names = Vec::new();
    let meaning = Rounds::later(TileDbContainer::group_meaning(metadata, times(options)))?;
    let mut todo = Unopened::members(metadata, "", "", 0)?;
    let mut waiting = false;
    let (mut folders, mut bytes) = (HashSet::new(), 0_u64);
    while let Some(Unopened { prefix, path, member, depth }) = todo.pop() {
        options.cancel.check()?;
        // Links in the folder can make any number of folders of one.
        bytes = bytes.saturating_add(member.uri.len() as u64);
        let cost = (folders.len() as u64).saturating_mul(MEMBER_COST);
        reader.limits.check_total("the members of a group", cost, bytes)?;
        let name = join(&path, name_of(&member));
        let folder = folder_of(reader.store.location(), &prefix, member.relative, &member.uri);
        let mut open = |folder: &str| {
            if member.group {
                metadata.announce([join(folder, MEMBERS)], []);
            } else {
                directory::announce(metadata, folder);
            }
            let Some(entries) = entries(metadata, folder)? else { return Ok(MemberState::Missing) };
            if member.group {
                todo.extend(Unopened::members(metadata, folder, &name, depth + 1)?);
                return Ok(MemberState::Read);
            }
            if !entries.iter().any(|entry| entry.name.starts_with("__")) {
                return Ok(MemberState::Empty);
            }
            let Some(array) = array(folder, &name)? else { return Ok(MemberState::Lost) };
            arrays.push(Arc::new(array));
            names.push(name.clone());
            Ok(MemberState::Read)
        };
        let state = match &folder {
            None => Some(MemberState::Outside),
            Some(_) if depth >= reader.limits.depth => Some(MemberState::TooDeep),
            Some(folder) if !folders.insert(folder.clone()) => Some(MemberState::Repeated),
            Some(folder) => Rounds::later(open(folder))?,
        };
        match state {
            Some(state) => listed.push(ListedMember { name, member, folder, state }),
            None => waiting = true,
        }
    }
    let meaning = meaning.filter(|_| !waiting).ok_or_else(Error::pending)?;
    Ok(TileDbContainer {
        reader: Arc::clone(reader),
        arrays,
        names,
        labels: Vec::new(),
        unread_labels: Vec::new(),
        group: Some(Group { members: listed }),
        attributes: meaning.attributes,
        history: meaning.history,
    })
}

/// Folders of arrays and groups in the folders of groups that no group lists: members that were removed from the list, or whose
/// list is lost.
pub(crate) fn unlisted(reader: &MetadataLoader, container: &TileDbContainer) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let members = || container.group.iter().flat_map(|group| &group.members);
    let listed: BTreeSet<&str> = members().filter_map(|member| member.folder.as_deref()).collect();
    let groups = members().filter(|listed| listed.member.group && listed.state == MemberState::Read);
    for prefix in std::iter::once("").chain(groups.filter_map(|group| group.folder.as_deref())) {
        for entry in reader.list(prefix)?.into_iter().filter(|e| e.is_folder()) {
            let folder = join(prefix, &entry.name);
            if listed.contains(folder.as_str()) || entry.name.starts_with("__") {
                continue;
            }
            let inside = reader.list(&folder)?;
            if inside.iter().any(|e| e.name == MARKER || (e.name == "__schema" && e.is_folder())) {
                found.push(folder);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uris_inside_the_group_have_a_folder() {
        let folder = |prefix: &str, relative: bool, uri: &str| {
            let member = Member { group: false, relative, uri: uri.to_owned(), name: None };
            folder_of("/data/g", prefix, member.relative, &member.uri)
        };
        assert_eq!(folder("", true, "a").as_deref(), Some("a"));
        assert_eq!(folder("inner", true, "a/b/").as_deref(), Some("inner/a/b"));
        assert_eq!(folder("", false, "file:///data/g/a").as_deref(), Some("a"));
        assert_eq!(folder("inner", false, "/data/g/inner/a").as_deref(), Some("inner/a"));
        for outside in ["file:///data/g", "/data/gg/a", "/data/g/../x", "file:///etc", "s3://data/g/a", "a"] {
            assert_eq!(folder("", false, outside), None, "{outside}");
        }
        assert_eq!(folder("inner", false, "/data/g/other"), None);
        let at_url = |uri: &str| folder_of("s3://data/g/", "", false, uri);
        assert_eq!(at_url("s3://data/g/a").as_deref(), Some("a"));
        for outside in ["s3://data/gg/a", "s3://data/g/../a", "/data/g/a", "a"] {
            assert_eq!(at_url(outside), None, "{outside}");
        }
        for outside in ["../a", "a/../../b", "/a", "", "."] {
            assert_eq!(folder("", true, outside), None, "{outside}");
        }
    }
}
