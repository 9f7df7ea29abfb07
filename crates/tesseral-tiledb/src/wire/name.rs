//! Timestamped names: `__T1_T2_UUID[_VER]`.

/// A parsed timestamped name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// First timestamp in milliseconds since 1970.
    pub start: u64,
    /// Last timestamp in milliseconds since 1970.
    pub end: u64,
    /// Format version, if the name has one.
    pub version: Option<u32>,
}

/// Suffix of the identifier of files and fragments with digests. Identifiers of other writers are random: one in 2^32 has this
/// suffix.
pub const DIGEST_MARK: &str = "d16e5701";

/// Returns whether the name of a file or fragment announces a digest.
pub fn carries_digest(object: &str) -> bool {
    let file = object.rsplit('/').next().unwrap_or(object);
    let identifier = |part: &str| part.len() == 32 && part.bytes().all(|b| b.is_ascii_hexdigit());
    file.split(['_', '.']).any(|part| identifier(part) && part.ends_with(DIGEST_MARK))
}

/// Seed of the digest of a file or fragment: its own name, so that exchanged files are detected.
pub fn seed(object: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(object.rsplit('/').next().unwrap_or(object).as_bytes())
}

/// Parses a name without its extension; `None` for other names.
pub fn parse(name: &str) -> Option<Name> {
    let (start, rest) = decimal(name.as_bytes().strip_prefix(b"__")?)?;
    let (end, rest) = decimal(rest.strip_prefix(b"_")?)?;
    let (uuid, rest) = rest.strip_prefix(b"_")?.split_at_checked(32)?;
    if !uuid.iter().all(u8::is_ascii_hexdigit) || end < start {
        return None;
    }
    if rest.is_empty() {
        return Some(Name { start, end, version: None });
    }
    let (version, rest) = decimal(rest.strip_prefix(b"_")?)?;
    let version = Some(u32::try_from(version).ok()?);
    rest.is_empty().then_some(Name { start, end, version })
}

/// Parses the leading number and returns the rest.
fn decimal(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = bytes.split_at(digits);
    let digit = |n: u64, b: &u8| n.checked_mul(10)?.checked_add(u64::from(b - b'0'));
    let number = digits.iter().try_fold(0, digit).filter(|_| !digits.is_empty())?;
    Some((number, rest))
}

/// Parses the name of a fragment folder of versions 1 to 4, and returns its last version: `__UUID_T`, since version 3 `__T1_T2_UUID`.
/// In the former, a first timestamp before the last one is not used.
pub fn parse_before_5(name: &str) -> Option<Name> {
    if let Some(name) = parse(name).filter(|name| name.version.is_none()) {
        return Some(Name { version: Some(4), ..name });
    }
    let (uuid, rest) = name.as_bytes().strip_prefix(b"__")?.split_at_checked(32)?;
    if !uuid.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let (mut time, mut rest) = decimal(rest.strip_prefix(b"_")?)?;
    if let Some(last) = rest.strip_prefix(b"_") {
        (time, rest) = decimal(last)?;
    }
    rest.is_empty().then_some(Name { start: time, end: time, version: Some(2) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_announce_digests() {
        let ours = "0123456789abcdef01234567d16e5701";
        for name in [format!("__1_1_{ours}_22"), format!("a/__1_1_{ours}.vac"), format!("__{ours}_0")] {
            assert!(carries_digest(&name), "{name}");
        }
        assert!(!carries_digest("__1_1_0123456789abcdef0123456789abcdef_22"));
        assert!(!carries_digest(&format!("__1_1_{ours}_22/a0.tdb")));
    }

    #[test]
    fn reads_names_before_5() {
        let uuid = "0123456789abcdef0123456789abcdef";
        let name = |start, end, version| Some(Name { start, end, version: Some(version) });
        assert_eq!(parse_before_5(&format!("__{uuid}_17")), name(17, 17, 2));
        assert_eq!(parse_before_5(&format!("__{uuid}_17_18")), name(18, 18, 2));
        assert_eq!(parse_before_5(&format!("__17_18_{uuid}")), name(17, 18, 4));
        for other in [
            format!("__17_18_{uuid}_5"),
            format!("__{uuid}"),
            format!("__{uuid}_17_18_19"),
            "__schema".into(),
        ] {
            assert_eq!(parse_before_5(&other), None, "{other}");
        }
    }

    #[test]
    fn reads_names() {
        let uuid = "0123456789abcdef0123456789abcdef";
        assert_eq!(parse(&format!("__1_20_{uuid}")), Some(Name { start: 1, end: 20, version: None }));
        assert_eq!(parse(&format!("__1_1_{uuid}_22")), Some(Name { start: 1, end: 1, version: Some(22) }));
        for bad in [
            "__1_1",
            "_1_1_x",
            "__2_1_0123456789abcdef0123456789abcdef",
            "__+1_1_0123456789abcdef0123456789abcdef",
            "___1_0123456789abcdef0123456789abcdef",
            "__1_1_0123456789abcdef0123456789abcdeg",
            "__1_1_0123456789abcdef0123456789abcdef_",
            "__1_1_0123456789abcdef0123456789abcdefa",
            "__1_18446744073709551616_0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse(&format!("__1_1_{uuid}_22_3")), None);
    }
}
