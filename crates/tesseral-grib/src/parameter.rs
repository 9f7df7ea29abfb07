//! Names of parameters by the codes of the GRIB tables.
//!
//! The tables hold facts of the WMO's and ECMWF's public code tables, in two files of tab-separated text: rules, which lead from
//! codes to an ECMWF parameter number, and the names of these numbers. Of the rules that hold, the one with the most conditions
//! decides.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A parameter: the physical quantity of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// ECMWF's number; 0 if it is unknown.
    pub id: u32,
    pub short_name: &'static str,
    /// Name of the variable.
    pub variable: Cow<'static, str>,
    pub units: &'static str,
    pub name: &'static str,
    /// Standard name of the CF conventions; empty if there is none.
    pub standard_name: &'static str,
}

/// Identification of a parameter in edition 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Codes2 {
    pub discipline: u8,
    pub category: u8,
    pub number: u8,
    /// Type, scaled value and scale factor of both surfaces; `None` if the value is missing.
    pub surfaces: [Option<i64>; 6],
    /// Statistical process of the innermost time range, its unit and length.
    pub process: [Option<i64>; 3],
    /// The parameter tables of ECMWF before table version 34.
    pub earlier: bool,
    /// The local tables of ECMWF are in use.
    pub local: bool,
}

/// A condition on a number: any, missing, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CodeCondition {
    Any,
    Missing,
    Is(i64),
}

impl CodeCondition {
    fn parse(text: &str) -> Self {
        match text {
            "" => Self::Any,
            "m" => Self::Missing,
            text => text.parse().map_or(Self::Missing, Self::Is),
        }
    }

    fn holds(self, value: Option<i64>) -> bool {
        match self {
            Self::Any => true,
            Self::Missing => value.is_none(),
            Self::Is(expected) => value == Some(expected),
        }
    }
}

#[derive(Debug)]
struct Rule {
    /// The tables it belongs to: `o` the earlier ones, `n` the present ones, `l` the local ones; empty for earlier and present ones.
    tables: &'static str,
    conditions: Vec<CodeCondition>,
    id: u32,
    standard_name: &'static str,
}

type Names = [&'static str; 4];

#[derive(Debug, Default)]
struct Tables {
    names: HashMap<u32, Names>,
    /// By discipline, category and number.
    edition2: HashMap<[u8; 3], Vec<Rule>>,
    /// By table and number.
    edition1: HashMap<[u8; 2], Vec<Rule>>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let mut tables = Tables::default();
    for line in include_str!("parameter_names.tsv").lines() {
        if let [id, rest @ ..] = &*line.split('\t').collect::<Vec<_>>()
            && let (Ok(id), Ok(names)) = (id.parse(), Names::try_from(rest))
        {
            tables.names.insert(id, names);
        }
    }
    for line in include_str!("parameter_rules.tsv").lines() {
        let columns: Vec<&'static str> = line.split('\t').collect();
        let byte = |text: &str| text.parse().unwrap_or(u8::MAX);
        let rule = |tables, conditions: &[&'static str], id: &str, standard_name| Rule {
            tables,
            conditions: conditions.iter().map(|text| CodeCondition::parse(text)).collect(),
            id: id.parse().unwrap_or(0),
            standard_name,
        };
        match &*columns {
            ["2", set, discipline, category, number, conditions @ .., id, standard] => {
                let key = [discipline, category, number].map(|text| byte(text));
                tables.edition2.entry(key).or_default().push(rule(set, conditions, id, standard));
            }
            ["1", table, number, conditions @ .., id, standard] => {
                let key = [table, number].map(|text| byte(text));
                tables.edition1.entry(key).or_default().push(rule("", conditions, id, standard));
            }
            _ => {}
        }
    }
    tables
});

/// The rule with the most conditions of those that hold; the last of several.
fn best<'a>(rules: &'a [Rule], tables: [bool; 2], values: &[Option<i64>]) -> Option<&'a Rule> {
    let [earlier, local] = tables;
    let holds = |rule: &&Rule| {
        let own = match rule.tables {
            "o" => earlier,
            "n" => !earlier,
            "l" => local,
            _ => true,
        };
        own && rule.conditions.iter().zip(values).all(|(condition, value)| condition.holds(*value))
    };
    // That the local tables are in use is a condition as well.
    let strength = |rule: &&Rule| {
        let conditions = rule.conditions.iter().filter(|condition| **condition != CodeCondition::Any);
        conditions.count() + usize::from(rule.tables == "l")
    };
    rules.iter().filter(holds).max_by_key(strength)
}

impl Parameter {
    fn of_rule(rule: &Rule) -> Option<Self> {
        let [short_name, variable, units, name] = *TABLES.names.get(&rule.id)?;
        let variable = Cow::Borrowed(variable);
        Some(Self { id: rule.id, short_name, variable, units, name, standard_name: rule.standard_name })
    }

    /// A parameter that the tables lack.
    fn unknown(variable: String) -> Self {
        Self {
            id: 0,
            short_name: "unknown",
            variable: Cow::Owned(variable),
            units: "unknown",
            name: "unknown",
            standard_name: "",
        }
    }

    /// The parameter of codes of edition 2.
    pub(crate) fn of_edition2(codes: &Codes2) -> Self {
        let Codes2 { discipline, category, number, .. } = *codes;
        if discipline == 192 {
            // ECMWF's tables of edition 1.
            return Self::of_edition1(category, number, 0, 0);
        }
        let values: Vec<Option<i64>> = codes.surfaces.into_iter().chain(codes.process).collect();
        let rules = TABLES.edition2.get(&[discipline, category, number]);
        let rule = rules.and_then(|rules| best(rules, [codes.earlier, codes.local], &values));
        rule.and_then(Self::of_rule)
            .unwrap_or_else(|| Self::unknown(format!("param_{discipline}_{category}_{number}")))
    }

    /// The parameter of codes of edition 1. Tables 1 to 127 are the WMO's.
    pub(crate) fn of_edition1(table: u8, number: u8, level_type: u8, level: i64) -> Self {
        let key = [if (1..=3).contains(&table) { 3 } else { table }, number];
        let values = [Some(i64::from(level_type)), Some(level)];
        let rule = TABLES.edition1.get(&key).and_then(|rules| best(rules, [false; 2], &values));
        rule.and_then(Self::of_rule).unwrap_or_else(|| Self::unknown(format!("param_{table}_{number}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(discipline: u8, category: u8, number: u8) -> Codes2 {
        Codes2 { discipline, category, number, ..Codes2::default() }
    }

    #[test]
    fn the_most_specific_rule_decides() {
        let plain = Parameter::of_edition2(&codes(0, 0, 0));
        assert_eq!((plain.id, plain.short_name, &*plain.variable), (130, "t", "t"));
        let surfaces = [Some(103), Some(2), Some(0), Some(255), None, None];
        let near = Parameter::of_edition2(&Codes2 { surfaces, ..codes(0, 0, 0) });
        assert_eq!((near.id, near.short_name, &*near.variable), (167, "2t", "t2m"));
        // Total precipitation of ECMWF's local tables.
        let surfaces = [Some(1), None, None, Some(255), None, None];
        let process = [Some(1), Some(1), Some(6)];
        let total = Codes2 { surfaces, process, earlier: true, local: true, ..codes(0, 1, 193) };
        assert_eq!(Parameter::of_edition2(&total).variable, "tp");
        assert_eq!(Parameter::of_edition2(&Codes2 { local: false, ..total }).id, 0);
        assert_eq!(Parameter::of_edition1(128, 167, 1, 0).id, 167);
        assert_eq!(Parameter::of_edition1(2, 11, 105, 2).id, 167);
        assert_eq!(Parameter::of_edition1(2, 11, 100, 500).id, 130);
        assert_eq!(Parameter::of_edition2(&codes(192, 128, 130)).id, 130);
    }

    #[test]
    fn unknown_codes_are_named_by_their_numbers() {
        let unknown = Parameter::of_edition2(&codes(0, 200, 17));
        assert_eq!((unknown.id, &*unknown.variable), (0, "param_0_200_17"));
        assert_eq!(Parameter::of_edition1(250, 3, 1, 0).variable, "param_250_3");
    }

    /// Every rule leads to a number that has names, and names of variables are unique per short name.
    #[test]
    fn the_tables_are_consistent() {
        let rules = TABLES.edition2.values().chain(TABLES.edition1.values()).flatten();
        assert!(rules.clone().count() > 1000);
        for rule in rules {
            assert!(TABLES.names.contains_key(&rule.id), "{rule:?}");
            assert!(!rule.conditions.is_empty());
        }
        for names in TABLES.names.values() {
            assert!(names.iter().all(|name| !name.is_empty()));
            assert!(!names[1].contains(['/', ' ']), "{names:?}");
        }
    }
}
