//! Checks of recognizing and opening.

use tesseral_store::StoreExt;

use super::{Check, Expected, Fixture, Violation, columns, full_request, open};
use crate::oracle::{Dense, Sparse};
use tesseral_format::{Format, Probe, Sniff, plan};

/// Maximum bytes of a probe.
const HEAD: u64 = 4096;

/// The source is recognized by its content regardless of its name, and no head of any source makes sniffing panic.
///
/// # Errors
/// The first violation.
pub fn sniffing(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("sniffing", fixture.seed);
    let mut random = fixture.random(1);
    let store = fixture.store.as_ref();
    let head = store.len("").and_then(|len| store.read("", 0..len.min(HEAD)));
    let head = head.unwrap_or_default();
    let entries = if head.is_empty() { store.list("").ok() } else { None };
    for name in ["x", "x.bin", store.location()] {
        let probe = Probe { name, head: &head, entries: entries.as_deref() };
        let found = check.guarded("sniff", || format.sniff(&probe))?;
        check.same("the source itself", &found, &Sniff::Content)?;
    }
    for i in 0..fixture.effort.damages {
        let mut bytes = if i % 2 == 0 { head.to_vec() } else { random.bytes(i) };
        bytes.truncate(random.index(bytes.len() + 1));
        if !bytes.is_empty() {
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        let endings: Vec<&str> = format.extensions().iter().copied().chain(["", "bin"]).collect();
        let name = format!("{}.{}", "n".repeat(i % 3), random.pick(&endings));
        let probe = Probe { name: &name, head: &bytes, entries: entries.as_deref().filter(|_| i % 3 == 0) };
        check.guarded("sniff", || format.sniff(&probe))?;
    }
    Ok(())
}

/// Opening twice gives the same result.
///
/// # Errors
/// The first violation.
pub fn open_is_deterministic(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("open_is_deterministic", fixture.seed);
    let (a, b) = (open(&check, format, fixture)?, open(&check, format, fixture)?);
    check.same("format", &a.format(), &format.id())?;
    check.same("arrays", &a.len(), &b.len())?;
    check.same_text("attributes", a.attributes(), b.attributes())?;
    check.same("details", &a.details(), &b.details())?;
    check.require(a.history() == b.history(), || "history differs".to_owned())?;
    check.require(a.array(a.len()).is_err(), || "array index past the end accepted".to_owned())?;
    for number in 0..a.len() {
        let location = format!("array {:?}", a.name(number));
        let check = check.at(&location);
        let (x, y) = (check.must("array", a.array(number))?, check.must("array", b.array(number))?);
        check.same("name", &a.name(number), &b.name(number))?;
        check.same_text("schema", x.schema(), y.schema())?;
        let found = check.must("find", a.find(a.name(number)))?;
        check.same("name of the found array", &a.name(found), &a.name(number))?;
        for column in columns(x.schema()) {
            let request = check.must("request", full_request(x.schema(), vec![column]))?;
            let plans = (
                check.must("plan", plan(&*x, a.store(), &request))?,
                check.must("plan", plan(&*y, b.store(), &request))?,
            );
            check.require(plans.0 == plans.1, || format!("plans of {column:?} differ between opens"))?;
            let again = check.must("plan", plan(&*x, a.store(), &request))?;
            check.require(plans.0 == again, || format!("repeated plans of {column:?} differ"))?;
            for chunk in &plans.0.chunks {
                check.same_text("statistics", &x.stats(chunk, column), &y.stats(chunk, column))?;
                check.same("description", &x.describe(chunk), &y.describe(chunk))?;
                check.same("digests", &x.digests(chunk), &y.digests(chunk))?;
            }
        }
    }
    Ok(())
}

/// The source has the expected content.
///
/// # Errors
/// The first violation.
pub fn expectations_hold(format: &dyn Format, fixture: &Fixture) -> Result<(), Violation> {
    let check = Check::new("expectations_hold", fixture.seed);
    let container = open(&check, format, fixture)?;
    for expected in &fixture.expected {
        match expected {
            Expected::Dense { array, field, cells } => {
                let location = format!("array {array}, field {field}");
                let check = check.at(&location);
                let dense = check.must("read", Dense::load(container.as_ref(), *array, *field))?;
                check.same("cells", &dense.painted().cells(), cells)?;
            }
            Expected::Sparse { array, rows } => {
                let location = format!("array {array}");
                let check = check.at(&location);
                let sparse = check.must("read", Sparse::load(container.as_ref(), *array))?;
                check.require(sparse.rows() == rows, || {
                    let differs = sparse.rows().iter().zip(rows).find(|(a, b)| a != b);
                    format!(
                        "{} rows, expected {}; first difference {differs:?}",
                        sparse.rows().len(),
                        rows.len()
                    )
                })?;
            }
        }
    }
    Ok(())
}
