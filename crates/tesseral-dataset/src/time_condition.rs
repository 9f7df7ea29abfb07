//! Comparisons of numbers that count time with dates: a partial date is its whole period.

use tesseral_core::calendar::TimeUnits;
use tesseral_core::condition::{Condition, Op};
use tesseral_core::{ArraySchema, Result, Scalar};

/// The units of a field that counts time, with its name. The only field of a numbered array also has its user-defined name.
pub(crate) fn units<'a>(schema: &'a ArraySchema, name: &str) -> Option<(&'a str, TimeUnits)> {
    let field = schema.fields.iter().find(|field| field.name == name)?;
    Some((&field.name, field.time?))
}

/// The condition that numbers of these units are before, in or after the period of a date.
///
/// # Errors
/// `InvalidRequest` when the text is not a date of the calendar; `Unsupported` for unknown time zones.
pub(crate) fn compare(name: &str, units: TimeUnits, op: Op, text: &str) -> Result<Condition> {
    let (start, end) = units.range(text)?;
    let side = |op: Op, value: f64| Condition::Compare {
        name: name.to_owned(),
        op,
        value: Scalar::from_element(value),
    };
    Ok(match op {
        Op::Lt => side(Op::Lt, start),
        Op::Ge => side(Op::Ge, start),
        Op::Le => side(Op::Lt, end),
        Op::Gt => side(Op::Ge, end),
        Op::Eq => Condition::And(vec![side(Op::Ge, start), side(Op::Lt, end)]),
        Op::Ne => Condition::Or(vec![side(Op::Lt, start), side(Op::Ge, end)]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_two_ends() {
        let units = TimeUnits::parse("days since 2000-01-01", Some("360_day")).unwrap().unwrap();
        let number = |op: Op, value: f64| Condition::Compare {
            name: "t".to_owned(),
            op,
            value: Scalar::from_element(value),
        };
        let found = |op: Op| compare("t", units, op, "2000-02").unwrap();
        assert_eq!(found(Op::Lt), number(Op::Lt, 30.0));
        assert_eq!(found(Op::Le), number(Op::Lt, 60.0));
        assert_eq!(found(Op::Gt), number(Op::Ge, 60.0));
        assert_eq!(found(Op::Eq), Condition::And(vec![number(Op::Ge, 30.0), number(Op::Lt, 60.0)]));
        assert!(compare("t", units, Op::Eq, "2000-01-31").is_err());
    }
}
