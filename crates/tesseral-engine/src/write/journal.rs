//! Journal of encoded chunks, so that an interrupted write can resume.
//!
//! ```text
//! "tessjrn2"  key 16  note 240 │ record …          record: length 8, XXH3 of the body 8, body
//! ```
//!
//! Records are appended by any thread as chunks are encoded. A record is used only if its hash matches: a truncated record, or
//! one overwritten by another process, is ignored.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use smallvec::SmallVec;
use tesseral_core::{ChunkStats, Coords, Cursor, DType, Error, Result, Scalar, Stat, Sum};
use tesseral_format::{Column, EncodedChunk, EncodedPart, Role};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"tessjrn2";
const NOTE: usize = 240;
const HEADER: u64 = 8 + 16 + NOTE as u64;
/// Size of length and hash before the body of a record.
const RECORD: u64 = 16;

/// Encoded chunks of a write, possibly of an earlier attempt.
#[derive(Debug)]
pub struct Journal {
    file: File,
    /// Offsets of the record bodies of an earlier attempt.
    found: HashMap<(u32, Coords), (u64, u64)>,
    end: Mutex<u64>,
    /// Arrays whose chunks are stored.
    kept: Vec<bool>,
}

fn io(op: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |e| Error::io(op, "the journal", e)
}

impl Journal {
    /// Opens the journal of an earlier attempt with the same key, or empties it. `note` is stored with it; the earlier note is
    /// returned. Chunks of the arrays in `kept` are stored.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(file: File, key: u128, note: &str, kept: Vec<bool>) -> Result<(Self, Option<String>)> {
        let len = file.metadata().map_err(io("look at"))?.len();
        let mut header = vec![0; 8 + 16 + NOTE];
        let known = len >= HEADER
            && file.read_exact_at(&mut header, 0).is_ok()
            && header.starts_with(MAGIC)
            && header[8..24] == key.to_le_bytes();
        let earlier = known.then(|| {
            let note = header[24..].split(|b| *b == 0).next().unwrap_or_default();
            String::from_utf8_lossy(note).into_owned()
        });
        let mut journal = Self { file, found: HashMap::new(), end: Mutex::new(HEADER), kept };
        let end = if known { journal.scan(len)? } else { HEADER };
        journal.file.set_len(end.max(HEADER)).map_err(io("cut"))?;
        journal.end = Mutex::new(end);
        let mut header = [MAGIC.as_slice(), &key.to_le_bytes()].concat();
        header.extend(note.bytes().chain(std::iter::repeat(0)).take(NOTE));
        journal.file.write_all_at(&header, 0).map_err(io("write"))?;
        Ok((journal, earlier))
    }

    /// Number of chunks of an earlier attempt.
    pub fn found(&self) -> usize {
        self.found.len()
    }

    /// Finds the valid records of a file of that length; returns the end of the last one.
    fn scan(&mut self, len: u64) -> Result<u64> {
        let mut at = HEADER;
        while at + RECORD <= len {
            let mut head = [0; 8];
            self.file.read_exact_at(&mut head, at).map_err(io("read"))?;
            let body = u64::from_le_bytes(head);
            let end = at.checked_add(RECORD).and_then(|n| n.checked_add(body)).filter(|end| *end <= len);
            let Some(end) = end.filter(|_| body > 0) else { break };
            if let Some((array, chunk)) = self.read(at, body)? {
                self.found.insert((array, chunk.coords), (at, body));
            }
            at = end;
        }
        Ok(at)
    }

    /// Array and chunk of a record; `None` if it is invalid.
    fn read(&self, at: u64, len: u64) -> Result<Option<(u32, EncodedChunk<'static>)>> {
        let mut record = vec![0; usize::try_from(RECORD + len).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut record, at).map_err(io("read"))?;
        let (head, body) = record.split_at(16);
        if head[8..] != xxh3_64(body).to_le_bytes() {
            return Ok(None);
        }
        // A record that cannot be parsed is written again.
        Ok(RecordCursor(Cursor::new("journal", body)).chunk().ok())
    }

    /// Returns whether an earlier attempt stored a chunk.
    pub(super) fn has(&self, array: usize, coords: &[u64]) -> bool {
        self.found.contains_key(&key(array, coords))
    }

    /// Returns the chunk of an earlier attempt.
    pub(super) fn find(&self, array: usize, coords: &[u64]) -> Result<Option<EncodedChunk<'static>>> {
        let Some(&(at, len)) = self.found.get(&key(array, coords)) else { return Ok(None) };
        // It was valid before, and its cells were not read from the source.
        let changed = || Error::corrupt("record", "the journal", Some(at), "changed while it was in use");
        self.read(at, len)?.map(|(_, chunk)| chunk).ok_or_else(changed).map(Some)
    }

    /// Stores an encoded chunk.
    pub(super) fn note(&self, array: usize, chunk: &EncodedChunk<'_>) -> Result<()> {
        if !self.kept.get(array).copied().unwrap_or(false) {
            return Ok(());
        }
        let body = body(array, chunk);
        let mut record = (body.len() as u64).to_le_bytes().to_vec();
        record.extend_from_slice(&xxh3_64(&body).to_le_bytes());
        record.extend_from_slice(&body);
        let at = {
            let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            let at = *end;
            *end += record.len() as u64;
            at
        };
        self.file.write_all_at(&record, at).map_err(io("write"))
    }
}

fn key(array: usize, coords: &[u64]) -> (u32, Coords) {
    (u32::try_from(array).unwrap_or(u32::MAX), Coords::from_slice(coords))
}

/// Serializes a chunk: array and rank, coordinates, parts, statistics.
fn body(array: usize, chunk: &EncodedChunk<'_>) -> Vec<u8> {
    let (array, _) = key(array, &[]);
    let mut out = array.to_le_bytes().to_vec();
    out.extend_from_slice(&(chunk.coords.len() as u32).to_le_bytes());
    chunk.coords.iter().for_each(|c| out.extend_from_slice(&c.to_le_bytes()));
    put(&mut out, chunk.parts.len() as u64);
    for part in &chunk.parts {
        let column = match part.column {
            Column::Field(n) => u64::from(n),
            Column::Dim(n) => 1 << 16 | u64::from(n),
            Column::Timestamp => 2 << 16,
            Column::DeletedBy => 3 << 16,
        };
        put(&mut out, column);
        put(&mut out, part.role as u64);
        put(&mut out, part.codec.into());
        put(&mut out, part.raw_len);
        put_bytes(&mut out, &part.bytes);
    }
    put(&mut out, chunk.stats.len() as u64);
    for stats in &chunk.stats {
        put(&mut out, stats.cells);
        put_stat(&mut out, &stats.nulls, |out, n| put(out, *n));
        put_stat(&mut out, &stats.nans, |out, n| put(out, *n));
        put_stat(&mut out, &stats.min, put_scalar);
        put_stat(&mut out, &stats.max, put_scalar);
        put_stat(&mut out, &stats.sum, |out, sum| match sum {
            Sum::Int(sum) => {
                put(out, 0);
                out.extend_from_slice(&sum.to_le_bytes());
            }
            Sum::Float(sum) => {
                put(out, 1);
                put(out, sum.to_bits());
            }
        });
        put_bytes(&mut out, stats.partial_sum.as_deref().unwrap_or_default());
        put(&mut out, stats.missing.len() as u64);
        stats.missing.iter().for_each(|value| put_scalar(&mut out, value));
    }
    out
}

fn put(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_scalar(out: &mut Vec<u8>, scalar: &Scalar) {
    put_bytes(out, scalar.dtype().to_string().as_bytes());
    put_bytes(out, scalar.bytes());
}

fn put_stat<T>(out: &mut Vec<u8>, stat: &Stat<T>, value: impl Fn(&mut Vec<u8>, &T)) {
    match stat {
        Stat::Absent => put(out, 0),
        Stat::Exact(known) => {
            put(out, 1);
            value(out, known);
        }
        Stat::Bound(known) => {
            put(out, 2);
            value(out, known);
        }
    }
}

/// Parses a record.
struct RecordCursor<'a>(Cursor<'a>);

impl RecordCursor<'_> {
    fn number(&mut self, what: &str) -> Result<u64> {
        self.0.u64(what)
    }

    fn bytes(&mut self, what: &str) -> Result<Vec<u8>> {
        let len = self.number(what)?;
        self.0.take64(len, what).map(<[u8]>::to_vec)
    }

    fn scalar(&mut self, what: &str) -> Result<Scalar> {
        let dtype: DType = self.0.text64(what)?.parse()?;
        Scalar::from_le_bytes(dtype, &self.bytes(what)?)
    }

    fn stat<T>(&mut self, what: &str, value: impl Fn(&mut Self, &str) -> Result<T>) -> Result<Stat<T>> {
        Ok(match self.number(what)? {
            0 => Stat::Absent,
            1 => Stat::Exact(value(self, what)?),
            _ => Stat::Bound(value(self, what)?),
        })
    }

    fn part(&mut self) -> Result<EncodedPart<'static>> {
        let column = self.number("column")?;
        let number = u16::try_from(column & 0xffff).unwrap_or(u16::MAX);
        let column = match column >> 16 {
            0 => Column::Field(number),
            1 => Column::Dim(number),
            2 => Column::Timestamp,
            _ => Column::DeletedBy,
        };
        let roles = [Role::Values, Role::Offsets, Role::Validity, Role::Mask];
        let role = usize::try_from(self.number("role")?).ok().and_then(|role| roles.get(role));
        let role = *role.ok_or_else(|| self.0.corrupt("role", "unknown number"))?;
        let codec = self.number("codec")?;
        let codec = u32::try_from(codec).map_err(|_| self.0.corrupt("codec", "number out of range"))?;
        let raw_len = self.number("decoded length")?;
        Ok(EncodedPart { column, role, codec, raw_len, bytes: self.bytes("part")?.into() })
    }

    fn stats(&mut self) -> Result<ChunkStats> {
        Ok(ChunkStats {
            cells: self.number("cell count")?,
            nulls: self.stat("null count", Self::number)?,
            nans: self.stat("NaN count", Self::number)?,
            min: self.stat("minimum", Self::scalar)?,
            max: self.stat("maximum", Self::scalar)?,
            sum: self.stat("sum", |reader, what| {
                Ok(match reader.number(what)? {
                    0 => Sum::Int(reader.0.array(what).map(i128::from_le_bytes)?),
                    _ => Sum::Float(f64::from_bits(reader.number(what)?)),
                })
            })?,
            partial_sum: Some(self.bytes("partial sum")?).filter(|bytes| !bytes.is_empty()).map(Into::into),
            missing: {
                let count = self.number("missing values")?;
                (0..count).map(|_| self.scalar("missing value")).collect::<Result<_>>()?
            },
        })
    }

    fn chunk(mut self) -> Result<(u32, EncodedChunk<'static>)> {
        let first = self.number("array and rank")?;
        let (array, rank) = (first as u32, first >> 32);
        let coords = (0..rank).map(|_| self.number("coordinate")).collect::<Result<Coords>>()?;
        let parts = self.number("part count")?;
        let parts = (0..parts).map(|_| self.part()).collect::<Result<SmallVec<[_; 1]>>>()?;
        let stats = self.number("field count")?;
        let stats = (0..stats).map(|_| self.stats()).collect::<Result<Vec<_>>>()?;
        Ok((array, EncodedChunk { coords, parts, stats }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(n: u64) -> EncodedChunk<'static> {
        let part = |column, role, bytes: &[u8]| EncodedPart {
            column,
            role,
            bytes: bytes.to_vec().into(),
            raw_len: 99 + n,
            codec: 7,
        };
        let stats = ChunkStats {
            nulls: Stat::Exact(3),
            min: Stat::Exact(Scalar::from_element(-0.0_f64)),
            max: Stat::Bound(Scalar::from_text("β").with_dtype(DType::Utf8)),
            sum: Stat::Exact(Sum::Int(-(1_i128 << 100))),
            partial_sum: Some([1, 2, 3].into()),
            missing: vec![Scalar::from_element(9.5_f64)],
            ..ChunkStats::unknown(12)
        };
        EncodedChunk {
            coords: Coords::from_slice(&[n, 2 * n]),
            parts: SmallVec::from_vec(vec![
                part(Column::Field(2), Role::Values, b"values"),
                part(Column::Dim(1), Role::Offsets, &[]),
            ]),
            stats: vec![stats, ChunkStats::unknown(1)],
        }
    }

    fn shown(chunk: &EncodedChunk<'_>) -> String {
        format!("{chunk:?}")
    }

    #[test]
    fn chunks_round_trip_unless_their_record_is_damaged() {
        let file = tempfile::tempfile().unwrap();
        let open =
            |key, note| Journal::open(file.try_clone().unwrap(), key, note, vec![true, false]).unwrap();
        let (journal, earlier) = open(5, "first");
        assert_eq!((journal.found(), earlier), (0, None));
        (0..4).for_each(|n| journal.note(0, &chunk(n)).unwrap());
        journal.note(1, &chunk(9)).unwrap();
        let (journal, earlier) = open(5, "second");
        assert_eq!((journal.found(), earlier.as_deref()), (4, Some("first")));
        for n in 0..4 {
            let found = journal.find(0, &[n, 2 * n]).unwrap().unwrap();
            assert_eq!(shown(&found), shown(&chunk(n)));
        }
        assert!(journal.find(0, &[9, 18]).unwrap().is_none());
        // A flipped bit, and a missing tail.
        let len = file.metadata().unwrap().len();
        let mut byte = [0];
        file.read_exact_at(&mut byte, HEADER + RECORD + 60).unwrap();
        file.write_all_at(&[byte[0] ^ 1], HEADER + RECORD + 60).unwrap();
        file.set_len(len - 5).unwrap();
        let (journal, _) = open(5, "third");
        assert_eq!(journal.found(), 2);
        assert!(journal.find(0, &[0, 0]).unwrap().is_none());
        assert!(journal.find(0, &[2, 4]).unwrap().is_some());
        journal.note(0, &chunk(3)).unwrap();
        assert_eq!(open(5, "").0.found(), 3);
        assert_eq!(open(6, "another source").0.found(), 0);
    }
}
