//! Group files: the members of a group.

use std::collections::HashMap;

use tesseral_core::{Cursor, Error, Result};

use super::primitive::{put_text64, put_u64};

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Whether it is a group itself.
    pub group: bool,
    /// Whether `uri` is relative to the group's folder.
    pub relative: bool,
    /// URI of the member.
    pub uri: String,
    /// Its name, if it has one.
    pub name: Option<String>,
}

/// Members in the order they were added. A later member replaces an earlier one with the same URI or name.
#[derive(Clone, Debug, Default)]
pub struct Members {
    list: Vec<Option<Member>>,
    by_uri: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
}

impl Members {
    /// Returns the current members.
    pub fn into_vec(self) -> Vec<Member> {
        self.list.into_iter().flatten().collect()
    }

    fn remove(&mut self, uri: &str, name: Option<&str>) {
        let places = [self.by_uri.remove(uri), name.and_then(|name| self.by_name.remove(name))];
        for place in places.into_iter().flatten() {
            let Some(old) = self.list.get_mut(place).and_then(Option::take) else { continue };
            self.by_uri.remove(&old.uri);
            old.name.map(|name| self.by_name.remove(&name));
        }
    }

    fn push(&mut self, member: Member) {
        self.by_uri.insert(member.uri.clone(), self.list.len());
        if let Some(name) = &member.name {
            self.by_name.insert(name.clone(), self.list.len());
        }
        self.list.push(Some(member));
    }
}

/// Applies one file on top of earlier ones.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub fn apply(object: &str, bytes: &[u8], to: &mut Members) -> Result<()> {
    let cursor = &mut Cursor::new(object, bytes);
    let version = cursor.u32("the group's version")?;
    if !matches!(version, 1 | 2) {
        return Err(Error::unsupported(format!("TileDB group version {version}")));
    }
    let count = cursor.u64("the group's members")?;
    let count = cursor.count(count, 15, "the group's members")?;
    for _ in 0..count {
        let version = cursor.u32("a member's version")?;
        if !matches!(version, 1 | 2) {
            return Err(Error::unsupported(format!("TileDB group member version {version}")));
        }
        let kind = cursor.u8("a member's type")?;
        let relative = cursor.flag("whether a member's address is relative")?;
        let uri = cursor.text64("a member's address")?;
        let named = cursor.flag("whether a member has a name")?;
        let name = if named { Some(cursor.text64("a member's name")?) } else { None };
        let deleted = version >= 2 && cursor.flag("whether a member was removed")?;
        to.remove(&uri, name.as_deref());
        if deleted {
            continue;
        }
        match kind {
            1 | 2 => to.push(Member { group: kind == 1, relative, uri, name }),
            other => return Err(cursor.corrupt("a group member", format!("type {other}"))),
        }
    }
    cursor.finish("the group")
}

/// Encodes members to add.
pub fn write(members: &[Member], out: &mut Vec<u8>) {
    let version = 2_u32.to_le_bytes();
    out.extend_from_slice(&version);
    put_u64(members.len() as u64, out);
    for member in members {
        out.extend_from_slice(&version);
        out.extend_from_slice(&[if member.group { 1 } else { 2 }, u8::from(member.relative)]);
        put_text64(&member.uri, out);
        out.push(u8::from(member.name.is_some()));
        if let Some(name) = &member.name {
            put_text64(name, out);
        }
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_members_store_no_name() {
        // As in the reference: version, count, then version, type, relative, URI, named, deleted.
        let mut bytes = vec![2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 1, 5, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(b"plain\0\0");
        let mut members = Members::default();
        apply("group", &bytes, &mut members).unwrap();
        let members = members.into_vec();
        assert_eq!(members, [Member { group: false, relative: true, uri: "plain".to_owned(), name: None }]);
        let mut written = Vec::new();
        write(&members, &mut written);
        assert_eq!(written, bytes);
    }
}
