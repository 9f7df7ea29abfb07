//! Conditions of stored deletes.
//!
//! ```text
//! u8 0 │ u8 and/or/not │ u64 children │ children
//! u8 1 │ u8 comparison │ u32 length, field │ u64 length, value │ for in, not in: u64 bytes of offsets, offsets
//! ```
//! The stored tree is the condition of cells to *keep*.

use tesseral_core::{Cursor, Limits, Result};

use super::primitive::{put_bytes64, put_text32, put_u64};

/// A node of a stored condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// True if all children are true.
    And(Vec<Node>),
    /// True if any child is true.
    Or(Vec<Node>),
    /// True if the child is false.
    Not(Box<Node>),
    /// Comparison of a field with a value.
    Compare {
        /// Operator number: `<`, `<=`, `>`, `>=`, `==`, `!=`.
        op: u8,
        /// Name of the field.
        field: String,
        /// Bytes of the value; `None` means null.
        value: Vec<u8>,
    },
    /// Membership test of a field.
    Member {
        /// Whether the test is negated.
        negated: bool,
        /// Name of the field.
        field: String,
        /// Bytes of the values.
        values: Vec<Vec<u8>>,
    },
    /// A constant.
    Constant(bool),
}

impl Node {
    /// Parses a condition from its unfiltered bytes.
    ///
    /// # Errors
    /// `Corrupt`, `Limit`.
    pub fn parse(object: &str, bytes: &[u8], limits: &Limits) -> Result<Self> {
        let mut cursor = Cursor::new(object, bytes);
        let node = node(&mut cursor, limits.depth)?;
        cursor.finish("a condition")?;
        Ok(node)
    }
}

fn node(cursor: &mut Cursor<'_>, depth: usize) -> Result<Node> {
    let Some(below) = depth.checked_sub(1) else {
        return Err(tesseral_core::Error::limit("the nesting of a condition", 1, 0));
    };
    match cursor.u8("a condition's node")? {
        0 => {
            let op = cursor.u8("a condition's operator")?;
            let count = cursor.u64("a condition's children")?;
            let count = cursor.count(count, 2, "a condition's children")?;
            let mut children = (0..count).map(|_| node(cursor, below)).collect::<Result<Vec<_>>>()?;
            match (op, children.len()) {
                (0, 1..) => Ok(Node::And(children)),
                (1, 1..) => Ok(Node::Or(children)),
                (2, 1) => Ok(Node::Not(Box::new(children.remove(0)))),
                _ => Err(cursor.corrupt("a condition", format!("operator {op} of {count} children"))),
            }
        }
        1 => {
            let op = cursor.u8("a condition's comparison")?;
            let field = cursor.text32("a condition's field")?;
            let len = cursor.u64("a condition's value")?;
            let value = cursor.take64(len, "a condition's value")?.to_vec();
            match op {
                0..=5 => Ok(Node::Compare { op, field, value }),
                6 | 7 => Ok(Node::Member { negated: op == 7, field, values: members(cursor, &value)? }),
                253 => Ok(Node::Constant(true)),
                254 => Ok(Node::Constant(false)),
                _ => Err(cursor.corrupt("a condition", format!("comparison {op}"))),
            }
        }
        other => Err(cursor.corrupt("a condition", format!("a node of kind {other}"))),
    }
}

fn members(cursor: &mut Cursor<'_>, value: &[u8]) -> Result<Vec<Vec<u8>>> {
    let bytes = cursor.u64("a condition's offsets")?;
    let offsets = cursor.u64s(bytes / 8, "a condition's offsets")?;
    let ends = offsets.iter().skip(1).copied().chain([value.len() as u64]);
    let slice_value = |(start, end): (&u64, u64)| {
        value.get(usize::try_from(*start).ok()?..usize::try_from(end).ok()?).map(<[u8]>::to_vec)
    };
    let values: Option<Vec<Vec<u8>>> = offsets.iter().zip(ends).map(slice_value).collect();
    values.ok_or_else(|| cursor.corrupt("a condition", "value offsets are not ascending"))
}

impl Node {
    /// Encodes a condition.
    ///
    /// # Errors
    /// `Limit` for a name whose length exceeds `u32`.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut branch = |op: u8, children: &[Node]| {
            out.extend_from_slice(&[0, op]);
            put_u64(children.len() as u64, out);
            children.iter().try_for_each(|child| child.write(out))
        };
        match self {
            Self::And(children) => branch(0, children),
            Self::Or(children) => branch(1, children),
            Self::Not(child) => branch(2, std::slice::from_ref(child)),
            Self::Compare { op, field, value } => {
                out.extend_from_slice(&[1, *op]);
                put_text32(field, out)?;
                put_bytes64(value, out);
                Ok(())
            }
            Self::Member { negated, field, values } => {
                out.extend_from_slice(&[1, 6 + u8::from(*negated)]);
                put_text32(field, out)?;
                put_bytes64(&values.concat(), out);
                put_u64(values.len() as u64 * 8, out);
                let mut start = 0;
                for value in values {
                    put_u64(start, out);
                    start += value.len() as u64;
                }
                Ok(())
            }
            Self::Constant(value) => {
                out.extend_from_slice(&[1, if *value { 253 } else { 254 }]);
                put_text32("", out)?;
                put_bytes64(&[], out);
                Ok(())
            }
        }
    }
}
