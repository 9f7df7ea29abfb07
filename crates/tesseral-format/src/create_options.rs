//! Options of creation: those of all formats, and those that each format declares for itself.
//!
//! A format has a type for its own options and a table of their names, types and setters. Interfaces parse named values
//! with the table ([`OptionSet::parse`]) without knowing the format; programs that know it pass a value of its type
//! ([`FormatOptions::new`]). Either way the format receives its own type.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use tesseral_core::{Attributes, DType, Error, Result, Value};
use tesseral_store::Overwrite;

use crate::{Format, MemoryBudget};

/// Options of creation. The debug output does not contain the key.
#[derive(Clone)]
pub struct CreateOptions {
    /// Whether an existing output can be replaced.
    pub overwrite: Overwrite,
    /// The container is a folder, as [`Format::is_folder`] says of its name.
    pub folder: bool,
    /// Store a digest per chunk, if the format supports it.
    pub digests: bool,
    /// Store exact statistics of chunks where other readers of the format ignore them; `None` where digests are stored.
    pub chunk_statistics: Option<bool>,
    /// Store chunk statistics also in the form that other readers of the format use, if it makes them optional (zone maps).
    pub statistics: bool,
    /// Memory budget to store for readers, if the format supports it.
    pub memory_budget: Option<MemoryBudget>,
    /// Memory limit of the writer in bytes.
    pub work_space: Option<u64>,
    /// Write time in milliseconds since 1970, for [versioned](Format::versioned) formats; `None` for now.
    pub timestamp: Option<u64>,
    /// Create arrays without cells, to be filled by appends, for [versioned](Format::versioned) formats.
    pub empty: bool,
    /// Encryption key, for formats that support encryption.
    pub key: Option<Vec<u8>>,
    /// The format's own options.
    pub format: FormatOptions,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            overwrite: Overwrite::Refuse,
            folder: false,
            digests: true,
            chunk_statistics: None,
            statistics: false,
            memory_budget: None,
            work_space: None,
            timestamp: None,
            empty: false,
            key: None,
            format: FormatOptions::default(),
        }
    }
}

impl Debug for CreateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateOptions")
            .field("overwrite", &self.overwrite)
            .field("folder", &self.folder)
            .field("digests", &self.digests)
            .field("chunk_statistics", &self.chunk_statistics)
            .field("statistics", &self.statistics)
            .field("memory_budget", &self.memory_budget)
            .field("work_space", &self.work_space)
            .field("timestamp", &self.timestamp)
            .field("empty", &self.empty)
            .field("key", &self.key.as_ref().map(|_| "hidden"))
            .field("format", &self.format)
            .finish()
    }
}

impl CreateOptions {
    /// Whether to store exact statistics of chunks where other readers of the format ignore them.
    pub fn stores_chunk_statistics(&self) -> bool {
        self.chunk_statistics.unwrap_or(self.digests)
    }

    /// Checks that a format supports the options of all formats that are set. [`Format::create`] need not check them again.
    ///
    /// # Errors
    /// `Unsupported` with the option.
    pub fn check(&self, format: &dyn Format) -> Result<()> {
        let needs = [
            (self.timestamp.is_some() && format.versioned().is_none(), "a timestamp"),
            (self.empty && format.versioned().is_none(), "an empty array"),
            (self.key.is_some() && format.key_len().is_none(), "encryption"),
        ];
        match needs.into_iter().find(|(unsupported, _)| *unsupported) {
            Some((_, what)) => Err(Error::unsupported(format!("{what} in {}", format.title()))),
            None => Ok(()),
        }
    }
}

/// Options of one format, in that format's own type; unset by default.
#[derive(Clone, Default)]
pub struct FormatOptions(Option<Arc<dyn AnyOptions>>);

/// Objects of any type that can be displayed.
trait AnyOptions: Any + Debug + Send + Sync {}
impl<T: Any + Debug + Send + Sync> AnyOptions for T {}

impl FormatOptions {
    /// Wraps the options of a format.
    pub fn new<T: Any + Debug + Send + Sync>(options: T) -> Self {
        Self(Some(Arc::new(options)))
    }

    /// Returns the options as the format's type; the default of that type if unset.
    ///
    /// # Errors
    /// `InvalidRequest` if these are options of another format.
    pub fn get<T: Any + Clone + Default>(&self) -> Result<T> {
        let Some(options) = &self.0 else { return Ok(T::default()) };
        let options: &dyn Any = &**options;
        let typed = options.downcast_ref::<T>().cloned();
        typed.ok_or_else(|| Error::invalid("the creation options belong to another format"))
    }
}

impl Debug for FormatOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(options) => options.fmt(f),
            None => f.write_str("default"),
        }
    }
}

/// Domains of dimensions by name; `None` for dimensions without limits.
pub type Domains = BTreeMap<String, Option<(String, String)>>;

/// A label of a dimension: an array of coordinates that is created with an array, and filled by appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredLabel {
    /// Name of the dimension.
    pub dim: String,
    /// Name of the label, which is not that of a dimension or field.
    pub name: String,
    /// dtype of the labels.
    pub dtype: DType,
    /// Whether labels decrease instead of increasing.
    pub decreasing: bool,
}

/// Type of an option, with the function that stores its value in the format's options `T`.
pub enum OptionType<T> {
    /// An unsigned integer.
    Integer(fn(&mut T, u64)),
    /// Text that the function parses.
    Text(fn(&mut T, &str) -> Result<()>),
    /// One of several words.
    Choice(&'static [&'static str], fn(&mut T, &str)),
    /// First and last coordinate of dimensions.
    Domains(fn(&mut T, Domains)),
    /// Labels of dimensions.
    Labels(fn(&mut T, Vec<DeclaredLabel>)),
}

/// An option that a format declares.
pub struct CreateOption<T> {
    /// Name in documents and dictionaries.
    pub name: &'static str,
    /// Type, and where the value goes.
    pub kind: OptionType<T>,
    /// Description of the default.
    pub default: &'static str,
    /// Effect of the option.
    pub description: &'static str,
}

/// Description of an option, for interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// Name in documents and dictionaries.
    pub name: &'static str,
    /// Type, such as `integer` or `row-major | col-major`.
    pub kind: String,
    /// Description of the default.
    pub default: &'static str,
    /// Effect of the option.
    pub description: &'static str,
}

/// The options that a format declares.
pub trait OptionSet: Sync {
    /// Describes the options, in the order of declaration.
    fn describe(&self) -> Vec<OptionInfo>;

    /// Converts named values to the format's own type. Values are applied in the order of declaration.
    ///
    /// # Errors
    /// `InvalidRequest` for unknown names, with the known ones, and for values of another type.
    fn parse(&self, given: &Attributes) -> Result<FormatOptions>;
}

/// The [`OptionSet`] of a format with options of type `T`.
pub struct OptionTable<T: 'static>(pub &'static [CreateOption<T>]);

impl<T: Any + Default + Debug + Send + Sync> OptionSet for OptionTable<T> {
    fn describe(&self) -> Vec<OptionInfo> {
        let info = |option: &CreateOption<T>| OptionInfo {
            name: option.name,
            kind: option.kind.name(),
            default: option.default,
            description: option.description,
        };
        self.0.iter().map(info).collect()
    }

    fn parse(&self, given: &Attributes) -> Result<FormatOptions> {
        if let Some(name) = given.keys().find(|name| !self.0.iter().any(|option| option.name == **name)) {
            let known: Vec<&str> = self.0.iter().map(|option| option.name).collect();
            let hint = match known[..] {
                [] => "the format has no specific creation options".to_owned(),
                _ => format!("available: {}", known.join(", ")),
            };
            return Err(Error::invalid(format!("unknown creation option {name:?}")).hint(hint));
        }
        let mut options = T::default();
        for option in self.0 {
            if let Some(value) = given.get(option.name) {
                option.set(&mut options, value)?;
            }
        }
        Ok(FormatOptions::new(options))
    }
}

impl<T> OptionType<T> {
    fn name(&self) -> String {
        match self {
            Self::Integer(_) => "integer".to_owned(),
            Self::Text(_) => "text".to_owned(),
            Self::Choice(words, _) => words.join(" | "),
            Self::Domains(_) => "map of [first, last] by dimension".to_owned(),
            Self::Labels(_) => "list of [dimension, name, dtype, increasing | decreasing]".to_owned(),
        }
    }
}

impl<T> CreateOption<T> {
    fn set(&self, options: &mut T, value: &Value) -> Result<()> {
        match (&self.kind, value) {
            (OptionType::Integer(set), Value::Int(n)) => {
                set(options, u64::try_from(*n).map_err(|_| self.invalid(value))?)
            }
            (OptionType::Integer(set), Value::UInt(n)) => set(options, *n),
            (OptionType::Text(set), Value::Text(text)) => set(options, text)?,
            (OptionType::Text(set), Value::Int(n)) => set(options, &n.to_string())?,
            (OptionType::Choice(words, set), Value::Text(word)) if words.contains(&word.as_str()) => {
                set(options, word)
            }
            (OptionType::Domains(set), Value::Map(map)) => {
                let domains = map.iter().map(|(name, ends)| Ok((name.clone(), self.domain(ends)?)));
                set(options, domains.collect::<Result<_>>()?);
            }
            (OptionType::Labels(set), Value::List(labels)) => {
                set(options, labels.iter().map(|label| self.label(label)).collect::<Result<_>>()?);
            }
            _ => return Err(self.invalid(value)),
        }
        Ok(())
    }

    fn label(&self, value: &Value) -> Result<DeclaredLabel> {
        let Value::List(parts) = value else { return Err(self.invalid(value)) };
        let [Value::Text(dim), Value::Text(name), Value::Text(dtype), Value::Text(order)] = parts.as_slice()
        else {
            return Err(self.invalid(value));
        };
        let decreasing = match order.as_str() {
            "increasing" => false,
            "decreasing" => true,
            _ => return Err(self.invalid(value)),
        };
        Ok(DeclaredLabel { dim: dim.clone(), name: name.clone(), dtype: dtype.parse()?, decreasing })
    }

    fn domain(&self, value: &Value) -> Result<Option<(String, String)>> {
        match value {
            Value::List(ends) => match &ends[..] {
                [] => Ok(None),
                [first, last] => Ok(Some((first.to_string(), last.to_string()))),
                _ => Err(self.invalid(value)),
            },
            _ => Err(self.invalid(value)),
        }
    }

    fn invalid(&self, value: &Value) -> Error {
        let detail = format!("invalid value {value} of creation option {:?}", self.name);
        Error::invalid(detail).hint(format!("expected: {}", self.kind.name()))
    }
}

#[cfg(test)]
mod tests {
    use tesseral_core::ErrorKind;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Own {
        size: u64,
        order: String,
        domains: Domains,
    }

    static OWN: OptionTable<Own> = OptionTable(&[
        CreateOption {
            name: "size",
            kind: OptionType::Integer(|own, n| own.size = n),
            default: "0",
            description: "A size.",
        },
        CreateOption {
            name: "order",
            kind: OptionType::Choice(&["up", "down"], |own, word| word.clone_into(&mut own.order)),
            default: "up",
            description: "An order.",
        },
        CreateOption {
            name: "domains",
            kind: OptionType::Domains(|own, domains| own.domains = domains),
            default: "none",
            description: "Domains.",
        },
    ]);

    fn given(name: &str, value: Value) -> Attributes {
        Attributes::from([(name.to_owned(), value)])
    }

    #[test]
    fn named_values_become_the_type_of_the_format() {
        let mut named = given("size", Value::Int(3));
        named.insert("order".to_owned(), Value::from("down"));
        let ends = Value::List(vec![Value::Int(1), Value::from("12")]);
        named.insert("domains".to_owned(), Value::Map(given("x", ends).into()));
        let own: Own = OWN.parse(&named).unwrap().get().unwrap();
        assert_eq!((own.size, &own.order[..]), (3, "down"));
        assert_eq!(own.domains["x"], Some(("1".to_owned(), "12".to_owned())));
        assert_eq!(FormatOptions::default().get::<Own>().unwrap(), Own::default());
        assert_eq!(OWN.describe()[1].kind, "up | down");
    }

    #[test]
    fn unknown_names_and_wrong_types_are_errors_that_list_what_is_known() {
        let error = OWN.parse(&given("sizes", Value::Int(3))).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }));
        assert!(error.advice().unwrap().to_string().contains("size, order, domains"));
        let wrong = [
            ("size", Value::Int(-1)),
            ("size", Value::from("3")),
            ("order", Value::from("left")),
            ("domains", Value::Map(given("x", Value::List(vec![Value::Int(1)])).into())),
        ];
        for (name, value) in wrong {
            let error = OWN.parse(&given(name, value)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{name}");
        }
    }

    #[test]
    fn options_of_another_format_are_rejected() {
        let error = FormatOptions::new(7_u32).get::<Own>().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }));
    }
}
