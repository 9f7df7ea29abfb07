//! Parser of conditions: `temperature > 5 and name in ("a", "b")`.
//!
//! ```text
//! condition   := and ("or" and)*            and := not ("and" not)*          not := "not" not | "(" condition ")" | test
//! test        := name op value | value op name | name ["not"] "in" "(" value, … ")" | name "is" ["not"] ("null" | "nan" | "finite")
//! op          := < <= > >= == = !=
//! value       := number | 'text' | "text" | true | false | date in quotes
//! ```
//! A dimension with labels is compared by them, as in selections. Names with characters other than letters, digits, `_`, `.`
//! and `-` must be quoted by backquotes. A comparison with a missing cell neither holds nor fails, nor does its negation; NaN follows
//! IEEE 754, so `not v > 3` is true for NaN. Enumerations are compared by label, not by code; `<` and `>` use the order of labels
//! if the enumeration is ordered.

use tesseral_core::condition::{Condition, Op};
use tesseral_core::dtype::Class;
use tesseral_core::schema::{Enumeration, Labels};
use tesseral_core::{ArraySchema, DType, Error, Field, Result, Scalar, Slice};

use crate::{select, time_condition};

/// Maximum nesting depth of conditions.
const DEPTH: usize = 64;

/// Parses a condition on the fields and dimensions of an array.
///
/// # Errors
/// `InvalidRequest` with the position of a syntax error; `NotFound` for unknown names.
pub(crate) fn parse(schema: &ArraySchema, text: &str) -> Result<Condition> {
    let mut parser = Parser { schema, text, tokens: tokens(text)?, at: 0 };
    let tree = parser.either(0)?;
    if let Some((at, token)) = parser.peek() {
        return Err(parser.unexpected(at, &format!("unexpected {token:?} after the condition")));
    }
    resolve(schema, &tree)
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    /// A keyword or a name.
    Word(String),
    Number(String),
    Text(String),
    Op(Op),
    Open,
    Close,
    Comma,
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>> {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let refuse = |detail: &str| Error::invalid(format!("condition {text:?}, at {start}: {detail}"));
        let token = match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' => {
                at += 1;
                continue;
            }
            b'(' | b'[' => Token::Open,
            b')' | b']' => Token::Close,
            b',' => Token::Comma,
            b'<' | b'>' | b'=' | b'!' => {
                let equal = bytes.get(at + 1) == Some(&b'=');
                let op = match (bytes[at], equal) {
                    (b'<', true) => Op::Le,
                    (b'<', false) => Op::Lt,
                    (b'>', true) => Op::Ge,
                    (b'>', false) => Op::Gt,
                    (b'=', _) => Op::Eq,
                    (_, true) => Op::Ne,
                    _ => return Err(refuse("unexpected `!`; use `!=` or `not`")),
                };
                at += usize::from(equal);
                Token::Op(op)
            }
            quote @ (b'"' | b'\'' | b'`') => {
                let mut held = Vec::new();
                at += 1;
                loop {
                    match bytes.get(at) {
                        None => return Err(refuse("unterminated quote")),
                        Some(b'\\') if quote != b'`' && bytes.get(at + 1).is_some() => {
                            held.push(bytes[at + 1]);
                            at += 2;
                        }
                        Some(byte) if *byte == quote => break,
                        Some(byte) => {
                            held.push(*byte);
                            at += 1;
                        }
                    }
                }
                let held = String::from_utf8(held).map_err(|_| refuse("invalid UTF-8 in quoted text"))?;
                if quote == b'`' { Token::Name(held) } else { Token::Text(held) }
            }
            b'0'..=b'9' | b'+' | b'-' | b'.' => {
                let part = |i: usize| {
                    let sign = matches!(bytes[i], b'+' | b'-')
                        && (i == start || matches!(bytes[i - 1], b'e' | b'E'));
                    bytes[i].is_ascii_alphanumeric() || bytes[i] == b'.' || bytes[i] == b'_' || sign
                };
                let end = (at..bytes.len()).find(|&i| !part(i)).unwrap_or(bytes.len());
                at = end - 1;
                Token::Number(text[start..end].to_owned())
            }
            _ => {
                let letter = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
                let end = text[at..].find(|c: char| !letter(c)).map_or(text.len(), |n| at + n);
                if end == at {
                    return Err(refuse(
                        "unexpected character; quote names with special characters by backquotes",
                    ));
                }
                at = end - 1;
                Token::Word(text[start..end].to_owned())
            }
        };
        at += 1;
        out.push((start, token));
    }
    Ok(out)
}

/// A parsed condition with unresolved names and values.
enum ConditionTree {
    And(Vec<ConditionTree>),
    Or(Vec<ConditionTree>),
    Not(Box<ConditionTree>),
    Compare(String, Op, Literal),
    In(String, Vec<Literal>),
    Is(String, CellTest),
}

/// The test of a cell after `is`.
#[derive(Clone, Copy, Debug)]
enum CellTest {
    Null,
    Nan,
    Finite,
}

#[derive(Clone, Debug)]
enum Literal {
    Number(String),
    Text(String),
}

impl Literal {
    fn text(&self) -> &str {
        match self {
            Self::Number(text) | Self::Text(text) => text,
        }
    }
}

struct Parser<'a> {
    schema: &'a ArraySchema,
    text: &'a str,
    tokens: Vec<(usize, Token)>,
    at: usize,
}

impl Parser<'_> {
    fn unexpected(&self, at: usize, detail: &str) -> Error {
        Error::invalid(format!("condition {:?}, at {at}: {detail}", self.text)).in_array(&self.schema.name)
    }

    fn peek(&self) -> Option<(usize, &Token)> {
        self.tokens.get(self.at).map(|(at, token)| (*at, token))
    }

    fn next(&mut self) -> Option<(usize, Token)> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    /// Consumes a keyword.
    fn word(&mut self, keyword: &str) -> bool {
        let found = matches!(self.peek(), Some((_, Token::Word(word))) if word.eq_ignore_ascii_case(keyword));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &Token, what: &str) -> Result<()> {
        match self.next() {
            Some((_, found)) if found == *token => Ok(()),
            Some((at, _)) => Err(self.unexpected(at, &format!("missing {what}"))),
            None => Err(self.unexpected(self.text.len(), &format!("missing {what}"))),
        }
    }

    fn either(&mut self, depth: usize) -> Result<ConditionTree> {
        let mut parts = vec![self.both(depth)?];
        while self.word("or") {
            parts.push(self.both(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { ConditionTree::Or(parts) })
    }

    fn both(&mut self, depth: usize) -> Result<ConditionTree> {
        let mut parts = vec![self.parse_operand(depth)?];
        while self.word("and") {
            parts.push(self.parse_operand(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { ConditionTree::And(parts) })
    }

    fn parse_operand(&mut self, depth: usize) -> Result<ConditionTree> {
        if depth > DEPTH {
            return Err(Error::limit("the depth of a condition", depth as u64, DEPTH as u64));
        }
        if self.word("not") {
            return Ok(ConditionTree::Not(Box::new(self.parse_operand(depth + 1)?)));
        }
        match self.next() {
            Some((_, Token::Open)) => {
                let inner = self.either(depth + 1)?;
                self.expect(&Token::Close, "`)`")?;
                Ok(inner)
            }
            Some((at, token)) => self.test(at, token),
            None => Err(self.unexpected(self.text.len(), "unexpected end of expression")),
        }
    }

    fn test(&mut self, at: usize, first: Token) -> Result<ConditionTree> {
        let name = match first {
            Token::Name(name) | Token::Word(name) => name,
            Token::Number(_) | Token::Text(_) => {
                // `5 < a` means `a > 5`.
                let value = self.value(at, first)?;
                let Some((_, Token::Op(op))) = self.next() else {
                    return Err(self.unexpected(at, "missing comparison after a value"));
                };
                return match self.next() {
                    Some((_, Token::Name(name) | Token::Word(name))) => {
                        Ok(ConditionTree::Compare(name, turned(op), value))
                    }
                    _ => Err(self.unexpected(at, "expected a name after the comparison")),
                };
            }
            other => return Err(self.unexpected(at, &format!("unexpected {other:?}"))),
        };
        if self.word("is") {
            let negated = self.word("not");
            let kinds = [("null", CellTest::Null), ("nan", CellTest::Nan), ("finite", CellTest::Finite)];
            let Some((_, kind)) = kinds.into_iter().find(|(word, _)| self.word(word)) else {
                return Err(self.unexpected(at, "expected `null`, `nan` or `finite` after `is`"));
            };
            let test = ConditionTree::Is(name, kind);
            return Ok(if negated { ConditionTree::Not(Box::new(test)) } else { test });
        }
        let negated = self.word("not");
        if self.word("in") {
            self.expect(&Token::Open, "`(`")?;
            let mut values = Vec::new();
            loop {
                match self.next() {
                    Some((_, Token::Close)) => break,
                    Some((_, Token::Comma)) => {}
                    Some((at, token)) => values.push(self.value(at, token)?),
                    None => return Err(self.unexpected(self.text.len(), "missing `)`")),
                }
            }
            let member = ConditionTree::In(name, values);
            return Ok(if negated { ConditionTree::Not(Box::new(member)) } else { member });
        }
        if negated {
            return Err(self.unexpected(at, "expected `in` after `not`"));
        }
        match self.next() {
            Some((_, Token::Op(op))) => match self.next() {
                Some((at, token)) => Ok(ConditionTree::Compare(name, op, self.value(at, token)?)),
                None => Err(self.unexpected(self.text.len(), "missing value")),
            },
            _ => Err(self.unexpected(at, &format!("missing comparison after {name:?}"))),
        }
    }

    fn value(&self, at: usize, token: Token) -> Result<Literal> {
        match token {
            Token::Number(text) => Ok(Literal::Number(text)),
            Token::Text(text) => Ok(Literal::Text(text)),
            Token::Word(word)
                if ["true", "false", "nan", "inf"].iter().any(|w| word.eq_ignore_ascii_case(w)) =>
            {
                Ok(Literal::Number(match word.to_ascii_lowercase().as_str() {
                    "true" => "1".to_owned(),
                    "false" => "0".to_owned(),
                    other => other.to_owned(),
                }))
            }
            _ => Err(self.unexpected(at, "expected a number or a quoted text")),
        }
    }
}

/// Returns the comparison with exchanged sides.
fn turned(op: Op) -> Op {
    match op {
        Op::Lt => Op::Gt,
        Op::Le => Op::Ge,
        Op::Gt => Op::Lt,
        Op::Ge => Op::Le,
        same => same,
    }
}

/// Resolves names and values.
fn resolve(schema: &ArraySchema, tree: &ConditionTree) -> Result<Condition> {
    let all =
        |parts: &[ConditionTree]| parts.iter().map(|part| resolve(schema, part)).collect::<Result<Vec<_>>>();
    Ok(match tree {
        ConditionTree::And(parts) => Condition::And(all(parts)?),
        ConditionTree::Or(parts) => Condition::Or(all(parts)?),
        ConditionTree::Not(part) => Condition::Not(Box::new(resolve(schema, part)?)),
        ConditionTree::Is(name, kind) => {
            let (name, dtype, _) = column(schema, name)?;
            match kind {
                CellTest::Null => Condition::IsNull { name: name.to_owned() },
                CellTest::Nan => Condition::Not(Box::new(Condition::is_number(name, dtype))),
                CellTest::Finite => Condition::is_finite(name, dtype),
            }
        }
        ConditionTree::Compare(name, op, value) => {
            if let Some(dim) = labeled(schema, name) {
                return placed(schema, dim, &select::meeting(schema, dim, *op, value.text())?);
            }
            if let (Some((name, units)), Literal::Text(text)) = (time_condition::units(schema, name), value) {
                return time_condition::compare(name, units, *op, text).map_err(|e| e.in_array(&schema.name));
            }
            let (name, dtype, labels) = column(schema, name)?;
            compare(name, *op, value, dtype, labels).map_err(|e| e.in_array(&schema.name))?
        }
        ConditionTree::In(name, values) => {
            if let Some(dim) = labeled(schema, name) {
                let mut runs = Vec::new();
                for value in values {
                    runs.extend(select::meeting(schema, dim, Op::Eq, value.text())?);
                }
                return placed(schema, dim, &runs);
            }
            if let Some((name, units)) = time_condition::units(schema, name)
                && values.iter().any(|value| matches!(value, Literal::Text(_)))
            {
                let parts =
                    values.iter().map(|value| time_condition::compare(name, units, Op::Eq, value.text()));
                let parts = parts.collect::<Result<Vec<_>>>().map_err(|e| e.in_array(&schema.name))?;
                return Ok(Condition::Or(parts));
            }
            let (name, dtype, labels) = column(schema, name)?;
            let mut found = Vec::new();
            for value in values {
                let equal =
                    compare(name, Op::Eq, value, dtype, labels).map_err(|e| e.in_array(&schema.name))?;
                // Otherwise no cell equals the value.
                if let Condition::Compare { value, .. } = equal {
                    found.push(value);
                }
            }
            Condition::In { name: name.to_owned(), values: found }
        }
    })
}

/// A field or dimension: its name, dtype and labels. The only field also has the name of its array.
fn column<'a>(schema: &'a ArraySchema, name: &str) -> Result<(&'a str, DType, Option<&'a Enumeration>)> {
    let only = |_: &&Field| schema.fields.len() == 1 && schema.name == name;
    let field = schema.fields.iter().find(|f| f.name == name);
    if let Some(field) = field.or_else(|| schema.fields.first().filter(only)) {
        return Ok((&field.name, field.dtype, field.enumeration.as_ref()));
    }
    let named = || schema.dims.iter().filter(|d| !d.name.is_empty());
    if let Some(dim) = named().find(|d| d.name == name) {
        return Ok((&dim.name, dim.dtype, None));
    }
    let names = schema.fields.iter().map(|f| f.name.clone()).chain(named().map(|d| d.name.clone()));
    Err(Error::not_found("field or dimension", name, names.collect()).in_array(&schema.name))
}

/// A dimension that is compared by its labels: of a dense array, with one for each position.
fn labeled(schema: &ArraySchema, name: &str) -> Option<usize> {
    let dim = schema.dims.iter().position(|d| !d.name.is_empty() && d.name == name)?;
    let count = schema.dims[dim].labels.as_ref().map(|labels| labels.len() as u64);
    let whole = count.is_some() && count == schema.dims[dim].extent;
    (whole && !schema.sparse && schema.fields.iter().all(|f| f.name != name)).then_some(dim)
}

/// Condition of the cells at runs of positions along a dimension.
fn placed(schema: &ArraySchema, dim: usize, runs: &[Slice]) -> Result<Condition> {
    let dim = &schema.dims[dim];
    let first = dim.domain.as_ref().and_then(|(first, _)| first.as_i128()).unwrap_or(0);
    let compare = |op: Op, position: u64| -> Result<Condition> {
        let value = first.checked_add(i128::from(position)).and_then(|at| Scalar::from_i128(dim.dtype, at));
        let value = value.ok_or_else(|| {
            Error::invalid(format!("position {position} of {:?} is out of bounds", dim.name))
        })?;
        Ok(Condition::Compare { name: dim.name.clone(), op, value })
    };
    let run = |run: &Slice| -> Result<Condition> {
        Ok(Condition::And(vec![compare(Op::Ge, run.start)?, compare(Op::Lt, run.end)?]))
    };
    runs.iter().map(run).collect::<Result<Vec<_>>>().map(Condition::Or)
}

fn compare(
    name: &str,
    op: Op,
    value: &Literal,
    dtype: DType,
    labels: Option<&Enumeration>,
) -> Result<Condition> {
    let Some(labels) = labels else { return compare_value(name, op, value, dtype) };
    if !labels.ordered && !matches!(op, Op::Eq | Op::Ne) {
        return Err(Error::invalid(format!("the labels of {name:?} are unordered: use `==`, `!=` or `in`")));
    }
    match code(dtype, labels, value) {
        Some(value) => Ok(Condition::Compare { name: name.to_owned(), op, value }),
        // No cell has an unknown label; every cell that is not missing has another.
        None if op == Op::Eq => Ok(Condition::never(name)),
        None if op == Op::Ne => Ok(Condition::always(name)),
        None => Err(Error::invalid(format!("unknown label of {name:?}"))),
    }
}

/// Returns the code of a label.
fn code(dtype: DType, enumeration: &Enumeration, value: &Literal) -> Option<Scalar> {
    let place = match (&enumeration.labels, value) {
        (Labels::Text(labels), Literal::Text(text)) => labels.iter().position(|label| label == text),
        (labels @ Labels::Numbers { dtype, .. }, Literal::Number(text) | Literal::Text(text)) => {
            let wanted = Scalar::parse(*dtype, text).ok()?;
            (0..labels.len()).find(|&i| {
                labels.get(i).is_some_and(|l| l.compare(&wanted) == Some(std::cmp::Ordering::Equal))
            })
        }
        _ => None,
    }?;
    Scalar::parse(dtype, &place.to_string()).ok()
}

/// A comparison with a value of the compared dtype; numbers compare with any numeric dtype.
fn compare_value(name: &str, op: Op, value: &Literal, dtype: DType) -> Result<Condition> {
    let refuse = || {
        Error::invalid(format!("{name:?} has dtype {dtype}, which is not comparable with {:?}", value.text()))
    };
    let with = |value: Scalar| Condition::Compare { name: name.to_owned(), op, value };
    match (value, dtype.class()) {
        (Literal::Text(text), Class::Text) => Scalar::from_le_bytes(dtype, text.as_bytes()).map(with),
        (Literal::Text(text), Class::Time) => match date(dtype, text) {
            Some(date) => Ok(with(date)),
            None => Scalar::parse(dtype, text).map(with),
        },
        (Literal::Number(text), _) => Condition::with_number(name, dtype, op, text).ok_or_else(refuse),
        _ => Err(refuse()),
    }
}

/// A quoted date; a year alone is a date, not a number.
fn date(dtype: DType, text: &str) -> Option<Scalar> {
    let DType::DateTime(unit) = dtype else { return None };
    tesseral_core::time::parse(text.trim(), unit).map(|count| Scalar::from_element(count).with_dtype(dtype))
}

#[cfg(test)]
mod tests {
    use tesseral_core::{ErrorKind, Field};

    use super::*;

    fn schema() -> ArraySchema {
        let mut schema = ArraySchema::dense("x", DType::Int32, &[4], &[4]);
        let labels = Labels::Text(["low", "mid", "high"].map(str::to_owned).to_vec());
        let level = Enumeration { name: "levels".into(), ordered: true, labels };
        schema.fields = vec![
            Field { nullable: true, ..Field::new("a", DType::Int32) },
            Field::new("t", DType::Float32),
            Field::new("two words", DType::Utf8),
            Field { enumeration: Some(level), ..Field::new("level", DType::UInt8) },
        ];
        schema.dims[0].name = "d".into();
        schema
    }

    fn less(name: &str, op: Op, value: Scalar) -> Condition {
        Condition::Compare { name: name.into(), op, value }
    }

    fn not(condition: Condition) -> Condition {
        Condition::Not(Box::new(condition))
    }

    #[test]
    fn parses_every_form() {
        let parse = |text: &str| parse(&schema(), text).unwrap();
        let five = || Scalar::from_element(5_i32);
        assert_eq!(parse("a > 5"), less("a", Op::Gt, five()));
        assert_eq!(parse("5 < a"), less("a", Op::Gt, five()));
        assert_eq!(parse("not (a > 5)"), not(less("a", Op::Gt, five())));
        assert_eq!(parse("a=5"), parse("a == 5"));
        assert_eq!(
            parse("a > 5 and t < 0.1 or d >= 2"),
            Condition::Or(vec![
                Condition::And(vec![
                    less("a", Op::Gt, five()),
                    less("t", Op::Le, Scalar::from_element(0.1_f32.next_down()))
                ]),
                less("d", Op::Ge, Scalar::from_element(2_u64)),
            ])
        );
        // No coordinate is negative.
        let never = not(Condition::always("d"));
        assert_eq!(
            parse("not (a > 5 and not d != -1)"),
            not(Condition::And(vec![less("a", Op::Gt, five()), never]))
        );
        assert_eq!(parse("a is not null"), not(Condition::IsNull { name: "a".into() }));
        assert_eq!(parse("t is nan"), not(less("t", Op::Ge, Scalar::from_element(f32::NEG_INFINITY))));
        assert_eq!(parse("a is finite"), Condition::And(vec![Condition::always("a"); 2]));
        assert_eq!(
            parse(r#"`two words` in ("x", 'y\'')"#),
            Condition::In { name: "two words".into(), values: ["x", "y'"].map(Scalar::from_text).to_vec() }
        );
        assert_eq!(parse(r#"level >= "mid""#), less("level", Op::Ge, Scalar::from_element(1_u8)));
        assert_eq!(parse(r#"level == "none""#), Condition::never("level"));
        // A fraction is comparable with integers.
        assert_eq!(parse("a > 2.5"), less("a", Op::Gt, Scalar::from_element(2_i32)));
        assert_eq!(parse("a in (2.5, 5, 1e10)"), Condition::In { name: "a".into(), values: vec![five()] });
    }

    #[test]
    fn dimensions_are_compared_by_their_labels() {
        let mut schema = schema();
        schema.dims[0].labels = Some(Labels::Text(["10", "0", "-10", "5"].map(str::to_owned).to_vec()));
        let place = |op, at: u64| less("d", op, Scalar::from_element(at));
        let run = |first, end| Condition::And(vec![place(Op::Ge, first), place(Op::Lt, end)]);
        let parse = |text: &str| parse(&schema, text);
        assert_eq!(parse("d > 1").unwrap(), Condition::Or(vec![run(0, 1), run(3, 4)]));
        assert_eq!(parse("not d > 1").unwrap(), not(Condition::Or(vec![run(0, 1), run(3, 4)])));
        assert_eq!(parse("d == 7").unwrap(), Condition::Or(Vec::new()));
        assert!(parse("d == 'x'").is_err());
        // With a missing label, dimensions are not compared by labels.
        let mut short = schema.clone();
        short.dims[0].labels = Some(Labels::Text(vec!["10".to_owned()]));
        assert_eq!(super::parse(&short, "d > 1").unwrap(), less("d", Op::Gt, Scalar::from_element(1_u64)));
    }

    #[test]
    fn the_only_field_is_found_by_the_name_of_its_array() {
        let mut schema = ArraySchema::dense("v", DType::Int32, &[4], &[4]);
        schema.fields[0].name = "t".to_owned();
        for text in ["t > 5", "v > 5"] {
            assert_eq!(parse(&schema, text).unwrap(), less("t", Op::Gt, Scalar::from_element(5_i32)));
        }
        let error = parse(&schema, "x > 5").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound { candidates, .. } if *candidates == ["t"]));
    }

    #[test]
    fn rejects_invalid_conditions() {
        for text in [
            "",
            "a",
            "a >",
            "a > > 5",
            "(a > 5",
            "a > 5)",
            "a > 5 d < 2",
            "a ! 5",
            "a in 5",
            "a is 5",
            "a > 'x'",
            "\"x",
            "a not 5",
            "%",
        ] {
            let error = parse(&schema(), text).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{text:?}: {error}");
        }
        assert!(matches!(parse(&schema(), "b > 5").unwrap_err().kind(), ErrorKind::NotFound { .. }));
        let deep = format!("{}a > 5", "not ".repeat(1000));
        assert!(matches!(parse(&schema(), &deep).unwrap_err().kind(), ErrorKind::Limit { .. }));
        let deep = format!("{}a > 5", "(".repeat(100_000));
        assert!(parse(&schema(), &deep).is_err());
    }
}
