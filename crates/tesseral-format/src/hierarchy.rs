//! Paths of arrays and groups in formats with a tree of groups.

use std::collections::BTreeSet;

use tesseral_core::{Error, Result};

/// The groups around a path, innermost first.
pub fn groups_around(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(path.rsplit_once('/'), |(outer, _)| outer.rsplit_once('/')).map(|(outer, _)| outer)
}

/// Rejects an array or group whose path is that of an array, or below one.
///
/// # Errors
/// `InvalidRequest` with both paths.
pub fn check_paths<'a>(
    arrays: impl Iterator<Item = &'a str>,
    groups: impl Iterator<Item = &'a str> + Clone,
) -> Result<()> {
    let arrays: BTreeSet<&str> = arrays.collect();
    for path in arrays.iter().copied().chain(groups.clone()) {
        if let Some(outer) = groups_around(path).find(|outer| arrays.contains(outer)) {
            return Err(Error::invalid(format!("{outer:?} is an array and cannot contain {path:?}")));
        }
    }
    match groups.into_iter().find(|path| arrays.contains(path)) {
        Some(path) => Err(Error::invalid(format!("{path:?} is both an array and a group"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_contain_nothing() {
        assert_eq!(groups_around("a/b/c").collect::<Vec<_>>(), ["a/b", "a"]);
        assert_eq!(groups_around("a").count(), 0);
        let check = |arrays: &[&'static str], groups: &[&'static str]| {
            check_paths(arrays.iter().copied(), groups.iter().copied()).is_ok()
        };
        assert!(check(&["a/b", "a/c"], &["a", "d"]));
        assert!(!check(&["a", "a/c"], &[]));
        assert!(!check(&["a"], &["a/b"]));
        assert!(!check(&["a"], &["a"]));
    }
}
