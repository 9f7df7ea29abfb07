//! Timestamped names: `__T1_T2_UUID[_VER]`.

/// What a name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// First moment, milliseconds since 1970.
    pub start: u64,
    /// Last moment.
    pub end: u64,
    /// Format version, where the name has one.
    pub version: Option<u32>,
}

/// Reads a name without its ending; `None` when it is something else.
pub fn parse(name: &str) -> Option<Name> {
    let mut parts = name.strip_prefix("__")?.split('_');
    let start = decimal(parts.next()?)?;
    let end = decimal(parts.next()?)?;
    let uuid = parts.next()?;
    if uuid.len() != 32 || !uuid.bytes().all(|b| b.is_ascii_hexdigit()) || end < start {
        return None;
    }
    let version = match parts.next() {
        Some(text) => Some(u32::try_from(decimal(text)?).ok()?),
        None => None,
    };
    parts.next().is_none().then_some(Name { start, end, version })
}

fn decimal(text: &str) -> Option<u64> {
    // `parse` would take a sign too.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse(&format!("__1_1_{uuid}_22_3")), None);
    }
}
