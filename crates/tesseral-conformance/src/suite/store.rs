//! The contract of stores: functions over [`&dyn Store`](Store) without knowledge of a specific store.

use std::sync::Arc;

use tesseral_core::{ErrorKind, Result};
use tesseral_store::{ByteRange, ObjectKind, Overwrite, Store, StoreExt, Upcoming};

use super::{Check, Violation};

type StoreCheck = fn(&Check<'_>, &dyn Fn() -> Arc<dyn Store>) -> Result<(), Violation>;

/// Checks a store that is empty at first. `make` returns a store of the same objects each time, as a program that starts again
/// would see them.
///
/// # Errors
/// The first violation of the contract.
pub fn store_suite(make: &dyn Fn() -> Arc<dyn Store>) -> Result<(), Violation> {
    let checks: [(&'static str, StoreCheck); 6] = [
        ("store: writing", published_objects_appear_whole),
        ("store: reading", ranges_are_exact),
        ("store: several objects", parts_of_several_objects),
        ("store: listing", listings_have_names_and_kinds),
        ("store: announcements", announcements_change_nothing),
        ("store: removal", removal_is_idempotent),
    ];
    let location = make().location().to_owned();
    checks.into_iter().try_for_each(|(name, run)| run(&Check { name, seed: 0, location: &location }, make))
}

const TEXT: &[u8] = b"0123456789";

fn expect_error<T>(
    check: &Check<'_>,
    what: &str,
    result: Result<T>,
    kind: impl Fn(&ErrorKind) -> bool,
) -> Result<(), Violation> {
    match result {
        Ok(_) => check.fail(format!("{what}: no error")),
        Err(e) if kind(e.kind()) => Ok(()),
        Err(e) => check.fail(format!("{what}: another kind of error: {e:?}")),
    }
}

fn is_missing(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound { .. })
}

fn published_objects_appear_whole(
    check: &Check<'_>,
    make: &dyn Fn() -> Arc<dyn Store>,
) -> Result<(), Violation> {
    let store = make();
    let staged = check.must("stage", store.stage("a/b", Overwrite::Refuse))?;
    check.must("write", staged.write_at(4, &TEXT[4..]))?;
    check.must("write", staged.write_at(0, &TEXT[..4]))?;
    let mut back = [0; 3];
    check.must("read back", staged.read_at(3, &mut back))?;
    check.same("bytes read back", &&back[..], &&TEXT[3..6])?;
    check.same("existence before publishing", &check.must("exists", make().exists("a/b"))?, &false)?;
    check.must("publish", staged.publish())?;
    check.same("content", &&check.must("read", make().read_all("a/b", 100))?[..], &TEXT)?;

    let refused = |result: Result<()>| {
        expect_error(check, "an existing object", result, |k| matches!(k, ErrorKind::InvalidRequest { .. }))
    };
    refused(make().put("a/b", b"x", Overwrite::Refuse))?;
    // Of two that create an object at the same time, one wins.
    let (one, two) = (make(), make());
    let first = check.must("stage", one.stage("a/c", Overwrite::Refuse))?;
    let second = check.must("stage", two.stage("a/c", Overwrite::Refuse))?;
    check.must("write", first.write_at(0, b"first"))?;
    check.must("write", second.write_at(0, b"second"))?;
    check.must("publish", first.publish())?;
    refused(second.publish())?;
    check.same("the winner", &&check.must("read", make().read_all("a/c", 100))?[..], &&b"first"[..])?;
    check.must("replace", make().put("a/c", b"", Overwrite::Replace))?;
    check.same("an empty object", &check.must("length", make().len("a/c"))?, &0)?;
    drop(check.must("stage", store.stage("a/d", Overwrite::Refuse))?);
    check.same("existence of a dropped object", &check.must("exists", make().exists("a/d"))?, &false)?;
    check.must("remove", store.remove("a/c"))
}

fn ranges_are_exact(check: &Check<'_>, make: &dyn Fn() -> Arc<dyn Store>) -> Result<(), Violation> {
    let store = make();
    check.same("length", &check.must("length", store.len("a/b"))?, &10)?;
    let parts = check.must("ranges", make().read_many("a/b", &[1..3, 0..0, 8..10, 0..10]))?;
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    check.same("ranges", &parts, &vec![&TEXT[1..3], b"", &TEXT[8..], TEXT])?;
    for range in [5..11, 10..12, 20..30, u64::MAX - 1..u64::MAX] {
        let what = format!("the range {range:?} of 10 bytes");
        let damaged = |kind: &ErrorKind| matches!(kind, ErrorKind::Corrupt { .. });
        expect_error(check, &what, store.read_many("a/b", std::slice::from_ref(&range)), damaged)?;
    }
    expect_error(check, "a missing object", make().len("a/none"), is_missing)?;
    expect_error(check, "a missing object", make().read("a/none", 0..1), is_missing)?;
    for outside in ["../x", "a/../../x", "/x", "a//b"] {
        let what = format!("the name {outside:?}");
        expect_error(check, &what, store.len(outside), |k| {
            matches!(k, ErrorKind::InvalidRequest { .. } | ErrorKind::NotFound { .. })
        })?;
    }
    Ok(())
}

fn parts_of_several_objects(check: &Check<'_>, make: &dyn Fn() -> Arc<dyn Store>) -> Result<(), Violation> {
    let store = make();
    check.must("put", store.put("e", b"", Overwrite::Refuse))?;
    let reads = [
        ("a/b", ByteRange::Suffix(3)),
        ("a/b", ByteRange::Suffix(30)),
        ("a/b", ByteRange::Whole),
        ("e", ByteRange::Suffix(5)),
        ("a/b", ByteRange::Exact(2..4)),
        ("e", ByteRange::Whole),
    ];
    let found = check.must("parts", make().read_objects(&reads))?;
    let found: Vec<(u64, u64, &[u8])> = found.iter().map(|f| (f.start, f.len, &f.bytes[..])).collect();
    let expected: Vec<(u64, u64, &[u8])> = vec![
        (7, 10, &TEXT[7..]),
        (0, 10, TEXT),
        (0, 10, TEXT),
        (0, 0, b""),
        (2, 10, &TEXT[2..4]),
        (0, 0, b""),
    ];
    check.same("parts", &found, &expected)?;
    let missing = [("a/b", ByteRange::Whole), ("a/none", ByteRange::Whole)];
    expect_error(check, "a missing object", make().read_objects(&missing), is_missing)?;
    let past = [("a/b", ByteRange::Exact(9..11))];
    expect_error(check, "a range past the end", make().read_objects(&past), |k| {
        matches!(k, ErrorKind::Corrupt { .. })
    })
}

fn listings_have_names_and_kinds(
    check: &Check<'_>,
    make: &dyn Fn() -> Arc<dyn Store>,
) -> Result<(), Violation> {
    let entries = check.must("list", make().list(""))?;
    let names: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.kind)).collect();
    check.same("the root", &names, &vec![("a", ObjectKind::Folder), ("e", ObjectKind::File)])?;
    let entries = check.must("list", make().list("a"))?;
    check.same("a folder", &entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), &vec!["b"])?;
    let stated = entries.iter().all(|e| e.len.is_none_or(|len| len == 10));
    check.same("lengths in listings, where stated", &stated, &true)?;
    expect_error(check, "a missing folder", make().list("none"), is_missing)?;
    let directory = |kind: &ErrorKind| matches!(kind, ErrorKind::Io { .. } | ErrorKind::NotFound { .. });
    expect_error(check, "a folder as an object", make().len("a"), directory)
}

fn announcements_change_nothing(
    check: &Check<'_>,
    make: &dyn Fn() -> Arc<dyn Store>,
) -> Result<(), Violation> {
    let store = make();
    store.prefetch(&[
        Upcoming::Listing("a".into()),
        Upcoming::Listing("none".into()),
        Upcoming::Bytes("a/b".into(), ByteRange::Exact(0..4)),
        Upcoming::Bytes("a/b".into(), ByteRange::Exact(5..40)),
        Upcoming::Bytes("a/none".into(), ByteRange::Whole),
        Upcoming::Bytes("../x".into(), ByteRange::Whole),
    ]);
    check.same("a listing", &check.must("list", store.list("a"))?.len(), &1)?;
    check.same("bytes", &&check.must("read", store.read("a/b", 1..3))?[..], &&TEXT[1..3])?;
    check.same("other bytes", &&check.must("read", store.read("a/b", 3..6))?[..], &&TEXT[3..6])?;
    expect_error(check, "a missing folder", store.list("none"), is_missing)?;
    expect_error(check, "a missing object", store.len("a/none"), is_missing)?;
    // A listing is not answered from memory twice: others may have written meanwhile.
    check.must("put", make().put("a/new", b"1", Overwrite::Refuse))?;
    check.same("a later listing", &check.must("list", store.list("a"))?.len(), &2)
}

fn removal_is_idempotent(check: &Check<'_>, make: &dyn Fn() -> Arc<dyn Store>) -> Result<(), Violation> {
    let store = make();
    check.must("remove", store.remove("e"))?;
    check.must("remove again", store.remove("e"))?;
    check.same("existence after removal", &check.must("exists", make().exists("e"))?, &false)?;
    check.must("remove a folder", store.remove_all("a"))?;
    check.must("remove a missing folder", store.remove_all("a"))?;
    expect_error(check, "an object of a removed folder", make().len("a/b"), is_missing)?;
    let rest = match make().list("") {
        Err(e) if is_missing(e.kind()) => 0,
        other => check.must("list", other)?.len(),
    };
    check.same("entries left", &rest, &0)
}
