//! The groups of a dataset with their dimensions, as CDL nests them.

use std::collections::HashSet;

use indexmap::IndexMap;
use tesseral::{Attributes, Container, Error, Result, Variable, Variables};

use super::notation::CdlType;

/// Deepest nesting of groups that is printed.
const DEPTH: usize = 64;

/// A group.
#[derive(Default)]
pub(super) struct CdlGroup {
    /// Dimensions that are declared here.
    pub dims: IndexMap<String, u64>,
    /// Dimensions of its variables, declared here or in an outer group.
    used: HashSet<String>,
    pub variables: Vec<CdlVariable>,
    pub attributes: Attributes,
    pub groups: IndexMap<String, CdlGroup>,
}

/// A variable and the names of its dimensions.
pub(super) struct CdlVariable {
    pub name: String,
    pub dims: Vec<String>,
    pub kind: CdlType,
    pub variable: Variable,
}

impl CdlGroup {
    /// The tree of a container.
    ///
    /// # Errors
    /// `Unsupported` for sparse arrays, dimensions without an extent, cells that CDL has no type for, and groups that are nested
    /// too deep.
    pub(super) fn of_container(container: &Container) -> Result<Self> {
        let variables = Variables::select(container, &[])?;
        let mut root = Self { attributes: variables.attributes.clone(), ..Self::default() };
        for (path, attributes) in container.groups() {
            root.open(path)?.attributes.extend(attributes.clone());
        }
        // Outer groups first: inner ones use their dimensions.
        let mut list = variables.list;
        list.sort_by_key(|variable| variable.name.matches('/').count());
        for variable in list {
            root.add(variable)?;
        }
        Ok(root)
    }

    /// The group of a path, created if necessary.
    fn open(&mut self, path: &str) -> Result<&mut Self> {
        let mut group = self;
        for (depth, part) in path.split('/').filter(|part| !part.is_empty()).enumerate() {
            if depth >= DEPTH {
                return Err(Error::limit("nested groups", depth as u64 + 1, DEPTH as u64));
            }
            group = group.groups.entry(part.to_owned()).or_default();
        }
        Ok(group)
    }

    fn add(&mut self, variable: Variable) -> Result<()> {
        let (path, name) = variable.name.rsplit_once('/').unwrap_or(("", &variable.name));
        let schema = variable.array.schema();
        let unsupported = |what: String| Error::unsupported(what).in_array(&variable.name);
        if schema.sparse {
            return Err(unsupported("a sparse array in CDL".to_owned()));
        }
        let field = variable.array.selected_field();
        let kind = CdlType::of_field(field)
            .ok_or_else(|| unsupported(format!("cells of type {} in CDL", field.type_name())))?;
        let mut dims = Vec::with_capacity(schema.dims.len());
        for (d, dim) in schema.dims.iter().enumerate() {
            let extent =
                dim.extent.ok_or_else(|| unsupported("a dimension without an extent in CDL".to_owned()))?;
            let wanted = if dim.name.is_empty() { format!("{name}_{d}") } else { dim.name.clone() };
            dims.push(self.declare(path, &wanted, extent)?);
        }
        let (path, name) = (path.to_owned(), name.to_owned());
        self.open(&path)?.variables.push(CdlVariable { name, dims, kind, variable });
        Ok(())
    }

    /// Name of a dimension of this extent that is visible in a group, declared there if necessary. A dimension of the same name
    /// and another extent is hidden if it is an outer one that no variable of the group has; otherwise names are numbered.
    fn declare(&mut self, path: &str, wanted: &str, extent: u64) -> Result<String> {
        let mut number = 1_u64;
        loop {
            let name = if number == 1 { wanted.to_owned() } else { format!("{wanted}_{number}") };
            let outer = self.visible(path, &name);
            let group = self.open(path)?;
            match group.dims.get(&name).copied().or(outer) {
                Some(found) if found == extent => {
                    group.used.insert(name.clone());
                    return Ok(name);
                }
                Some(_) if group.used.contains(&name) => number += 1,
                _ => {
                    group.used.insert(name.clone());
                    group.dims.insert(name.clone(), extent);
                    return Ok(name);
                }
            }
        }
    }

    /// Extent of the innermost dimension of a name around a group.
    fn visible(&self, path: &str, name: &str) -> Option<u64> {
        let mut found = self.dims.get(name).copied();
        let mut group = self;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let Some(inner) = group.groups.get(part) else { break };
            group = inner;
            found = group.dims.get(name).copied().or(found);
        }
        found
    }
}
