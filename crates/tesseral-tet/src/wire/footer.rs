//! The footer: history and metadata as JSON at the end of the file (`docs/formats/tet.md` §6).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize};
use tesseral_core::{Error, HistoryRow, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Cursor;
use super::json::{JsonObject, depth, hex_into, write_hex};
use super::metadata::{FooterMetadata, MAX_PARAMS, MAX_PARENTS, check_count, check_text};

/// Size of the tail in bytes.
pub const TAIL_LEN: u64 = 16;
/// Magic at the end of a file with a footer.
pub const MAGIC: [u8; 4] = *b"THST";
/// Maximum size of the JSON for writers in bytes; larger metadata goes to a spill.
pub const MAX_JSON: usize = 65_536;
/// Maximum size of a spill for writers in bytes.
pub const MAX_SPILL: usize = 16 << 20;

const WHAT: &str = "footer";

/// The tail of a file with a footer.
///
/// | offset from the tail's start | size | field |
/// |---|---|---|
/// | 0 | 8 | length of the JSON before the tail |
/// | 8 | 4 | footer version, 1 or 2 |
/// | 12 | 4 | magic `THST` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterTail {
    /// Length of the JSON in bytes.
    pub json_len: u64,
    /// Footer version: 1, or 2 if zone maps and a secondary index can precede the JSON.
    pub version: u32,
}

impl FooterTail {
    /// Parses the tail.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for another version.
    pub fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        let start = cursor.at();
        let json_len = cursor.u64(WHAT)?;
        let version = cursor.u32(WHAT)?;
        cursor.magic(&MAGIC, WHAT)?;
        if !(1..=2).contains(&version) {
            return Err(Error::unsupported(format!(".tet footer version {version}")));
        }
        // The JSON is between the superblock and the tail.
        if json_len > start.saturating_sub(super::superblock::LEN) {
            let detail = format!("JSON of {json_len} bytes does not fit before byte {start}");
            return Err(cursor.corrupt_at(start, WHAT, detail));
        }
        Ok(Self { json_len, version })
    }

    /// Appends the encoded tail.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.json_len.to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend(MAGIC);
    }
}

/// A byte range of the file. Unknown keys are rejected: the reference does not open files that have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRange {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl FileRange {
    /// End of the range; `None` if it exceeds `u64`.
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}

/// Reference to the digest region, and digests of the footer texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestsRef {
    /// The digest region.
    pub region: FileRange,
    /// XXH3-64 of the JSON with the 16 digits of this field replaced by zeros.
    pub json: u64,
    /// XXH3-64 of the metadata spill.
    pub spill: Option<u64>,
    /// XXH3-64 of the zone maps.
    pub zone_maps: Option<u64>,
    /// XXH3-64 of the statistics region, which follows the digest region.
    pub statistics: Option<u64>,
}

/// One row of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HistoryEvent {
    /// Name of the operation.
    pub op: String,
    /// Source of the data.
    pub source: String,
    /// Time in decimal seconds since 1970.
    pub at: String,
    /// Names of the inputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
    /// Parameters of the operation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// Person or program that ran the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Workflow run of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Host of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
}

impl<'de> Deserialize<'de> for HistoryEvent {
    /// Accepts an object, or an array of operation, source and time as in old files.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            op: String,
            source: String,
            at: String,
            #[serde(default)]
            parents: Vec<String>,
            #[serde(default)]
            params: BTreeMap<String, String>,
            #[serde(default)]
            agent: Option<String>,
            #[serde(default)]
            activity: Option<String>,
            #[serde(default)]
            entity: Option<String>,
        }

        struct HistoryVisitor;

        impl<'de> Visitor<'de> for HistoryVisitor {
            type Value = HistoryEvent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a history row")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<HistoryEvent, A::Error> {
                let f = Fields::deserialize(MapAccessDeserializer::new(map))?;
                let Fields { op, source, at, parents, params, agent, activity, entity } = f;
                Ok(HistoryEvent { op, source, at, parents, params, agent, activity, entity })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<HistoryEvent, A::Error> {
                let mut next =
                    |i| seq.next_element()?.ok_or_else(|| de::Error::invalid_length(i, &"three texts"));
                let (op, source, at) = (next(0)?, next(1)?, next(2)?);
                if seq.next_element::<de::IgnoredAny>()?.is_some() {
                    return Err(de::Error::invalid_length(4, &"three texts"));
                }
                Ok(HistoryEvent { op, source, at, ..HistoryEvent::default() })
            }
        }

        deserializer.deserialize_any(HistoryVisitor)
    }
}

impl HistoryEvent {
    fn named(&self) -> [(&'static str, &Option<String>); 3] {
        [("agent", &self.agent), ("activity", &self.activity), ("entity", &self.entity)]
    }

    /// Converts to the common history row.
    pub fn to_row(&self) -> HistoryRow {
        let extra =
            self.named().into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.clone()?)));
        HistoryRow {
            op: self.op.clone(),
            source: self.source.clone(),
            at: self.at.clone(),
            parents: self.parents.clone(),
            params: self.params.clone(),
            extra: extra.collect(),
        }
    }

    /// Converts from the common history row.
    ///
    /// # Errors
    /// `Unsupported` for named texts that the format cannot store; as [`check`](Self::check).
    pub fn from_row(row: HistoryRow) -> Result<Self> {
        let HistoryRow { op, source, at, parents, params, mut extra } = row;
        let mut take = |name| extra.remove(name);
        let (agent, activity, entity) = (take("agent"), take("activity"), take("entity"));
        if let Some(name) = extra.keys().next() {
            return Err(Error::unsupported(format!("the history field {name:?} in .tet")));
        }
        let event = Self { op, source, at, parents, params, agent, activity, entity };
        event.check()?;
        Ok(event)
    }

    /// Checks the limits of the format for one row.
    ///
    /// # Errors
    /// `Limit`, or `InvalidRequest` for an empty text.
    pub fn check(&self) -> Result<()> {
        for (name, text) in [("op", &self.op), ("source", &self.source), ("at", &self.at)] {
            check_text(&format!("the history field {name}"), text)?;
        }
        check_count("parents of a history row", self.parents.len(), MAX_PARENTS)?;
        check_count("parameters of a history row", self.params.len(), MAX_PARAMS)?;
        let texts = self.parents.iter().chain(self.params.keys()).chain(self.params.values());
        texts
            .chain(self.named().into_iter().filter_map(|(_, text)| text.as_ref()))
            .try_for_each(|text| check_text("a text of a history row", text))
    }
}

/// The JSON of the footer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FooterJson {
    /// Provenance rows.
    pub history: Vec<HistoryEvent>,
    /// Metadata, if inline.
    pub metadata: Option<FooterMetadata>,
    /// Reference to the metadata spill.
    pub metadata_ref: Option<FileRange>,
    /// Zone maps (footer version 2).
    pub zone_maps_ref: Option<FileRange>,
    /// Secondary index (footer version 2).
    pub secondary_index_ref: Option<FileRange>,
    /// Reference to the digests.
    pub digests_ref: Option<DigestsRef>,
    /// Computed digest of the JSON with the digits of [`DigestsRef::json`] replaced by zeros, if it has them.
    pub actual_digest: Option<u64>,
}

#[derive(Deserialize)]
struct DigestsJson<'a> {
    offset: u64,
    len: u64,
    #[serde(borrow)]
    json: &'a str,
    #[serde(borrow, default)]
    spill: Option<&'a str>,
    #[serde(borrow, default)]
    zone_maps: Option<&'a str>,
    #[serde(borrow, default)]
    statistics: Option<&'a str>,
}

#[derive(Deserialize)]
struct FooterKeys<'a> {
    #[serde(default)]
    history: Vec<HistoryEvent>,
    #[serde(default)]
    metadata: Option<JsonObject<FooterMetadata>>,
    #[serde(default)]
    metadata_ref: Option<JsonObject<FileRange>>,
    #[serde(default)]
    zone_maps_ref: Option<JsonObject<FileRange>>,
    #[serde(default)]
    secondary_index_ref: Option<JsonObject<FileRange>>,
    #[serde(borrow, default)]
    digests_ref: Option<JsonObject<DigestsJson<'a>>>,
}

fn digest_of_hex(text: &str) -> Option<u64> {
    let mut bytes = [0; 8];
    (hex_into(text, &mut bytes)? == 8).then(|| u64::from_be_bytes(bytes))
}

impl FooterJson {
    /// Parses the JSON at offset `at` of `object`.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(text: &[u8], object: &str, at: u64, max_depth: usize) -> Result<Self> {
        let corrupt = |detail: String| Error::corrupt("footer JSON", object, at, detail);
        let deepest = depth(text);
        if deepest > max_depth {
            return Err(corrupt(format!("nested {deepest} levels deep, the limit is {max_depth}")));
        }
        let JsonObject(keys) =
            serde_json::from_slice::<JsonObject<FooterKeys<'_>>>(text).map_err(|e| corrupt(e.to_string()))?;
        if keys.metadata.is_some() && keys.metadata_ref.is_some() {
            return Err(corrupt("metadata is both inline and in a spill".to_owned()));
        }
        let digest = |text: &str| {
            digest_of_hex(text)
                .ok_or_else(|| corrupt(format!("invalid digest {text:?}: expected 16 hex digits")))
        };
        let mut actual_digest = None;
        let digests_ref = keys
            .digests_ref
            .map(|JsonObject(d)| -> Result<_> {
                let json = digest(d.json)?;
                // The digits are borrowed from the text, so their offset is the difference of the addresses.
                let start = d.json.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
                actual_digest = json_digest(text, start);
                Ok(DigestsRef {
                    region: FileRange { offset: d.offset, len: d.len },
                    json,
                    spill: d.spill.map(digest).transpose()?,
                    zone_maps: d.zone_maps.map(digest).transpose()?,
                    statistics: d.statistics.map(digest).transpose()?,
                })
            })
            .transpose()?;
        Ok(Self {
            history: keys.history,
            metadata: keys.metadata.map(|m| m.0),
            metadata_ref: keys.metadata_ref.map(|r| r.0),
            zone_maps_ref: keys.zone_maps_ref.map(|r| r.0),
            secondary_index_ref: keys.secondary_index_ref.map(|r| r.0),
            digests_ref,
            actual_digest,
        })
    }

    /// Appends the compact JSON, with keys in the order of the reference and extensions last. Computes the digest of the text;
    /// ignores [`DigestsRef::json`].
    ///
    /// # Errors
    /// `InvalidRequest`, which does not occur for maps with text keys.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        #[derive(Serialize)]
        struct WrittenKeys<'a> {
            history: &'a [HistoryEvent],
            #[serde(skip_serializing_if = "Option::is_none")]
            metadata: Option<&'a FooterMetadata>,
            #[serde(skip_serializing_if = "Option::is_none")]
            metadata_ref: Option<FileRange>,
            #[serde(skip_serializing_if = "Option::is_none")]
            zone_maps_ref: Option<FileRange>,
            #[serde(skip_serializing_if = "Option::is_none")]
            secondary_index_ref: Option<FileRange>,
        }
        let keys = WrittenKeys {
            history: &self.history,
            metadata: self.metadata.as_ref(),
            metadata_ref: self.metadata_ref,
            zone_maps_ref: self.zone_maps_ref,
            secondary_index_ref: self.secondary_index_ref,
        };
        let start = out.len();
        serde_json::to_writer(&mut *out, &keys)
            .map_err(|e| Error::internal(format!("cannot serialize the footer as JSON: {e}")))?;
        let Some(digests) = &self.digests_ref else { return Ok(()) };
        // Reopen the object that was closed.
        out.pop();
        let FileRange { offset, len } = digests.region;
        out.extend(format!(r#","digests_ref":{{"offset":{offset},"len":{len},"json":""#).as_bytes());
        let digits = out.len();
        out.extend([b'0'; 16]);
        out.push(b'"');
        let others =
            [("spill", digests.spill), ("zone_maps", digests.zone_maps), ("statistics", digests.statistics)];
        for (name, digest) in others {
            if let Some(digest) = digest {
                out.extend(format!(r#","{name}":""#).as_bytes());
                write_hex(&digest.to_be_bytes(), out);
                out.push(b'"');
            }
        }
        out.extend(b"}}");
        let digest = xxhash_rust::xxh3::xxh3_64(&out[start..]);
        let mut hex = Vec::with_capacity(16);
        write_hex(&digest.to_be_bytes(), &mut hex);
        out[digits..digits + 16].copy_from_slice(&hex);
        Ok(())
    }

    /// The text of this JSON as it was before zone maps and a secondary index were added, with the metadata spill at `spill`; `None`
    /// unless it is written as the reference writes it.
    pub fn without_accelerators(&self, text: &[u8], spill: u64) -> Option<Vec<u8>> {
        let mut text = std::str::from_utf8(text).ok()?.to_owned();
        let mut replace = |from: &str, to: &str| -> Option<()> {
            let at = text.find(from)?;
            text.replace_range(at..at + from.len(), to);
            Some(())
        };
        let reference = |name: &str, range: FileRange| {
            format!(r#","{name}":{{"offset":{},"len":{}}}"#, range.offset, range.len)
        };
        for (name, range) in
            [("zone_maps_ref", self.zone_maps_ref), ("secondary_index_ref", self.secondary_index_ref)]
        {
            if let Some(range) = range {
                replace(&reference(name, range), "")?;
            }
        }
        if let Some(range) = self.metadata_ref {
            let moved = FileRange { offset: spill, len: range.len };
            replace(&reference("metadata_ref", range), &reference("metadata_ref", moved))?;
        }
        let hex = |digest: u64| format!("{digest:016x}");
        if let Some(digests) = &self.digests_ref {
            if let Some(zones) = digests.zone_maps {
                replace(&format!(r#","zone_maps":"{}""#, hex(zones)), "")?;
            }
            let zeros = format!(r#""json":"{}""#, hex(0));
            replace(&format!(r#""json":"{}""#, hex(digests.json)), &zeros)?;
            let digest = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
            text = text.replacen(&zeros, &format!(r#""json":"{}""#, hex(digest)), 1);
        }
        Some(text.into_bytes())
    }

    /// References to bytes between the payloads and the JSON, for a footer of this version.
    pub fn spills(&self, version: u32) -> impl Iterator<Item = FileRange> {
        let extended =
            if version >= 2 { [self.zone_maps_ref, self.secondary_index_ref] } else { [None, None] };
        extended.into_iter().chain([self.metadata_ref]).flatten()
    }
}

/// XXH3-64 of a text with 16 digits at `start` replaced by zeros.
fn json_digest(text: &[u8], start: usize) -> Option<u64> {
    let before = text.get(..start)?;
    let after = text.get(start.checked_add(16)?..)?;
    let mut hash = Xxh3::new();
    hash.update(before);
    hash.update(&[b'0'; 16]);
    hash.update(after);
    Some(hash.digest())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FooterJson> {
        FooterJson::parse(text.as_bytes(), "f", 0, 64)
    }

    #[test]
    fn round_trips() {
        let event = HistoryEvent {
            op: "write".into(),
            source: "x\"\n\u{7f}é".into(),
            at: "0".into(),
            parents: vec!["p".into()],
            params: [("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())].into(),
            agent: Some("me".into()),
            ..HistoryEvent::default()
        };
        let footer = FooterJson {
            history: vec![event],
            zone_maps_ref: Some(FileRange { offset: 1, len: 2 }),
            metadata_ref: Some(FileRange { offset: 3, len: 4 }),
            digests_ref: Some(DigestsRef {
                region: FileRange { offset: 8, len: 48 },
                json: 0,
                spill: Some(7),
                zone_maps: Some(u64::MAX),
                statistics: Some(8),
            }),
            ..FooterJson::default()
        };
        let mut text = Vec::new();
        footer.write(&mut text).unwrap();
        let read = FooterJson::parse(&text, "f", 0, 64).unwrap();
        let digests = read.digests_ref.unwrap();
        assert_eq!(read.actual_digest, Some(digests.json));
        assert_eq!(
            (digests.spill, digests.zone_maps, digests.statistics),
            (Some(7), Some(u64::MAX), Some(8))
        );
        assert_eq!((&read.history, read.zone_maps_ref), (&footer.history, footer.zone_maps_ref));
        assert_eq!(HistoryEvent::from_row(read.history[0].to_row()).unwrap(), footer.history[0]);

        for i in 0..text.len() {
            let mut flipped = text.clone();
            flipped[i] ^= 1;
            let fooled = FooterJson::parse(&flipped, "f", 0, 64)
                .is_ok_and(|f| f.digests_ref.is_some_and(|d| f.actual_digest == Some(d.json)));
            assert!(!fooled, "undetected flip of byte {i}");
        }
    }

    #[test]
    fn old_history_rows_are_arrays() {
        let footer =
            parse(r#"{"history":[["write","x","1"],{"op":"a","source":"b","at":"c","else":[1]}]}"#).unwrap();
        assert_eq!(footer.history[0].source, "x");
        assert_eq!(footer.history.len(), 2);
        for bad in [
            r#"{"history":[["write","x"]]}"#,
            r#"{"history":[["write","x","1","y"]]}"#,
            r#"{"history":{"op":"a"}}"#,
            r#"{"history":[{"op":"a"}]}"#,
            r#"{"history":["a"]}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn references_reject_unknown_keys() {
        assert!(parse(r#"{"unknown":{"deep":[[1]]},"metadata":{"else":1,"file":{"x":2}}}"#).is_ok());
        for bad in [
            r#"{"metadata_ref":{"offset":0,"len":0,"x":1}}"#,
            r#"{"metadata_ref":[0,0]}"#,
            r#"{"metadata_ref":{"offset":-1,"len":0}}"#,
            r#"{"zone_maps_ref":{"offset":0}}"#,
            r#"{"metadata":{},"metadata_ref":{"offset":0,"len":0}}"#,
            r#"{"metadata":[]}"#,
            r#"{"history":[],"history":[]}"#,
            r#"{"digests_ref":{"offset":0,"len":0,"json":"00"}}"#,
            r#"[[]]"#,
            r#"{} x"#,
            "",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse(&format!("{}{}", r#"{"x":"#, "[".repeat(100_000))).is_err());
    }
}
