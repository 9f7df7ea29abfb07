//! Writer of the data model through the storage conventions.

use std::borrow::Cow;

use tesseral_core::schema::Labels;
use tesseral_core::{
    ArraySchema, Attributes, CellLen, ChunkStats, Coords, DType, Error, HistoryRow, Order, Result, Value,
};

use super::Holds;
use super::attributes::{self, AttributeList};
use super::encoding::{self, ConventionEncoding};
use super::marker::{KEY, Marker};
use super::text::{TextExtent, TextLayout, pack, pad};
use crate::{
    ArraySpec, CellKeys, ColumnData, EncodedChunk, Groups, Pending, Scratch, StoredChunk, StoredForm, Writer,
};

/// Writes the data model through the storage conventions.
#[derive(Debug)]
pub struct ModelWriter {
    inner: Box<dyn Writer>,
    holds: Holds,
    arrays: Vec<EncodedArray>,
    /// Coordinates that were given as labels of dimensions.
    coordinates: Vec<(Labels, EncodedArray)>,
    attributes: Attributes,
    groups: Groups,
}

#[derive(Debug)]
struct EncodedArray {
    name: String,
    /// Its number among those of the format.
    number: usize,
    encoding: ConventionEncoding,
    /// Size of a stored cell of each field in bytes; `None` for variable-length cells.
    sizes: Vec<(Option<usize>, bool)>,
}

impl ModelWriter {
    /// Wraps a format's writer with the given capabilities.
    pub fn new(inner: Box<dyn Writer>, holds: Holds) -> Self {
        Self {
            inner,
            holds,
            arrays: Vec::new(),
            coordinates: Vec::new(),
            attributes: Attributes::new(),
            groups: Groups::new(),
        }
    }

    fn declared(&self, array: usize) -> Result<&EncodedArray> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    /// The number of an array among those of the format; one that the format does not have where it was not begun.
    fn number(&self, array: usize) -> usize {
        self.arrays.get(array).map_or(usize::MAX, |declared| declared.number)
    }

    fn plain(&self, array: usize) -> bool {
        self.declared(array).is_ok_and(|declared| declared.encoding.is_plain() && !declared.encoding.cast)
    }

    /// Writes the attributes of container and groups.
    fn put_attributes(&mut self) -> Result<()> {
        let order = |name: &String| self.holds.container_order.iter().position(|known| known == name);
        let known = self.attributes.keys().all(|name| order(name).is_some());
        let in_order = known && self.attributes.keys().is_sorted_by_key(order);
        let holds = Holds { ordered: self.holds.ordered || in_order, ..self.holds };
        let (mut native, list) = attributes::encode(&self.attributes, self.holds.container_attribute, &holds);
        if self.holds.groups {
            for (path, own) in &self.groups {
                let (mut native, list) = attributes::encode(own, self.holds.container_attribute, &holds);
                let marker = Marker { attributes: list, ..Marker::default() };
                if marker != Marker::default() {
                    native.insert(KEY.to_owned(), Value::Text(marker.to_text()));
                }
                self.inner.set_group(path, native)?;
            }
        }
        let beside = self.groups.iter().filter(|_| !self.holds.groups);
        let groups = beside.map(|(path, own)| (path.clone(), AttributeList::full(own)));
        let marker = Marker { attributes: list, groups: groups.collect(), ..Marker::default() };
        if marker != Marker::default() {
            native.insert(KEY.to_owned(), Value::Text(marker.to_text()));
        }
        self.inner.set_attributes(native)
    }

    /// Moves a chunk to its stored coordinates.
    fn stored<'a>(&self, array: usize, mut chunk: EncodedChunk<'a>) -> Result<EncodedChunk<'a>> {
        chunk.coords = self.declared(array)?.encoding.coords(&chunk.coords);
        Ok(chunk)
    }

    /// Stores the cell that encodes an empty array.
    fn put_placeholder(&self, declared: &EncodedArray) -> Result<()> {
        let cells: u64 = declared.encoding.shape.iter().product();
        let count = usize::try_from(cells).unwrap_or(usize::MAX);
        let valid = vec![1; count];
        let values: Vec<Vec<u8>> =
            declared.sizes.iter().map(|(size, _)| vec![0; size.unwrap_or(0).saturating_mul(count)]).collect();
        let ends = vec![0; count];
        let columns: Vec<ColumnData<'_>> = declared
            .sizes
            .iter()
            .zip(&values)
            .map(|((size, nullable), values)| {
                let validity = nullable.then_some(valid.as_slice());
                match size {
                    Some(_) => ColumnData::Fixed { values, validity },
                    None => ColumnData::Var { offsets: &ends, data: &[], validity },
                }
            })
            .collect();
        let coords = vec![0; declared.encoding.shape.len()];
        let number = declared.number;
        let chunk = self.inner.encode(number, &coords, &columns, Vec::new(), &mut Scratch::default())?;
        self.inner.push(number, chunk)
    }

    /// Begins an array of the format for one of the model.
    fn declare(&mut self, spec: &ArraySpec) -> Result<EncodedArray> {
        let name = &spec.schema.name;
        // Keys of several fields have the prefix rightly.
        let prefix = self.holds.field_attributes.filter(|_| spec.schema.fields.len() == 1);
        let renamed = attributes::set_aside(&spec.schema.attributes, prefix).map(|attributes| {
            let schema = ArraySchema { attributes, ..spec.schema.clone() };
            ArraySpec { schema, ..spec.clone() }
        });
        let spec = renamed.as_ref().unwrap_or(spec);
        let (native, encoding) = encoding::encode(spec, &self.holds).map_err(|e| e.in_array(name))?;
        let number = self.inner.begin(&native).map_err(|e| e.in_array(name))?;
        let sizes = native.schema.fields.iter().map(|field| {
            let size = if field.cell == CellLen::Var { None } else { field.cell_size() };
            (size, field.nullable)
        });
        Ok(EncodedArray { name: name.clone(), number, encoding, sizes: sizes.collect() })
    }

    /// Takes the labels that the format does not store with an array, and returns them with the specification of their own array.
    fn take_coordinates(&self, schema: &mut ArraySchema) -> Result<Vec<(Labels, ArraySpec)>> {
        let mut taken = Vec::new();
        let group = schema.name.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        let own = schema.name.clone();
        for (d, dim) in schema.dims.iter_mut().enumerate() {
            let beside = match &dim.labels {
                Some(Labels::Text(labels)) => labels.len() <= self.holds.labels,
                Some(Labels::Numbers { .. }) => false,
                None => true,
            };
            let Some(labels) = dim.labels.take_if(|_| !beside) else { continue };
            if dim.name.is_empty() {
                dim.name = format!("dim_{d}");
            }
            let name = if group.is_empty() { dim.name.clone() } else { format!("{group}/{}", dim.name) };
            if name == own || self.arrays.iter().any(|array| array.name == name) {
                continue;
            }
            if let Some((known, _)) = self.coordinates.iter().find(|(_, array)| array.name == name) {
                if *known == labels {
                    continue;
                }
                let detail = format!("two arrays have different labels of dimension {:?}", dim.name);
                return Err(Error::invalid(detail).in_array(&own));
            }
            let spec = coordinate(&name, &dim.name, &labels);
            taken.push((labels, spec));
        }
        Ok(taken)
    }

    /// Stores coordinates that were given as labels.
    fn put_coordinate(&self, labels: &Labels, declared: &EncodedArray) -> Result<()> {
        let scratch = &mut Scratch::default();
        let chunk = match labels {
            Labels::Numbers { dtype, bytes } => {
                let mut values = bytes.clone();
                if cfg!(target_endian = "big") {
                    values.chunks_mut(dtype.word()).for_each(<[u8]>::reverse);
                }
                let column = ColumnData::Fixed { values: &values, validity: None };
                self.encode_cells(declared, &[0], &[column], Vec::new(), scratch)?.into_owned()
            }
            Labels::Text(texts) => {
                let data = texts.concat().into_bytes();
                let mut end = 0;
                let ends = texts.iter().map(|text| {
                    end += text.len() as u64;
                    end
                });
                let ends: Vec<u64> = ends.collect();
                let column = ColumnData::Var { offsets: &ends, data: &data, validity: None };
                self.encode_cells(declared, &[0], &[column], Vec::new(), scratch)?.into_owned()
            }
        };
        let coords = declared.encoding.coords(&chunk.coords);
        self.inner.push(declared.number, EncodedChunk { coords, ..chunk })
    }

    /// Stores what the conventions add to the arrays.
    fn put_rest(&self) -> Result<()> {
        for declared in self.arrays.iter().filter(|declared| declared.encoding.empty) {
            self.put_placeholder(declared).map_err(|e| e.in_array(&declared.name))?;
        }
        for (labels, declared) in &self.coordinates {
            self.put_coordinate(labels, declared).map_err(|e| e.in_array(&declared.name))?;
        }
        Ok(())
    }

    fn encode_cells<'a>(
        &self,
        declared: &EncodedArray,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        stats: Vec<ChunkStats>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let (encoding, number) = (&declared.encoding, declared.number);
        let stored = encoding.coords(coords);
        let mut chunk = match encoding.text {
            None => self.inner.encode(number, &stored, columns, stats, scratch)?,
            Some(layout) => {
                let [ColumnData::Var { offsets, data, validity }] = columns else {
                    return Err(Error::invalid("expected one variable-length column"));
                };
                if validity.is_some_and(|validity| validity.contains(&0)) {
                    return Err(Error::unsupported("nulls in variable-length cells"));
                }
                let bytes = match layout {
                    TextLayout::Packed => pack(offsets, data, encoding.shape.iter().product())?,
                    TextLayout::Padded => {
                        pad(offsets, data, usize::try_from(encoding.elements()).unwrap_or(usize::MAX))?
                    }
                };
                let column = ColumnData::Fixed { values: &bytes, validity: None };
                self.inner.encode(number, &stored, &[column], stats, scratch)?.into_owned()
            }
        };
        chunk.coords = Coords::from_slice(coords);
        Ok(chunk)
    }
}

impl Writer for ModelWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        let mut spec = Cow::Borrowed(spec);
        let name = spec.schema.name.clone();
        if self.coordinates.iter().any(|(_, array)| array.name == name) {
            let detail = "the coordinates were already written with another array: declare them first, or omit the labels";
            return Err(Error::invalid(detail).in_array(&name));
        }
        let mut taken = Vec::new();
        if spec.schema.dims.iter().any(|dim| dim.labels.is_some()) && !spec.schema.sparse {
            taken = self.take_coordinates(&mut spec.to_mut().schema)?;
        }
        let declared = self.declare(&spec)?;
        self.arrays.push(declared);
        for (labels, spec) in taken {
            let array = self.declare(&spec)?;
            self.coordinates.push((labels, array));
        }
        Ok(self.arrays.len() - 1)
    }

    fn wants_stats(&self, array: usize) -> bool {
        self.plain(array) && self.inner.wants_stats(self.number(array))
    }

    fn excludes_missing(&self, array: usize) -> bool {
        self.inner.excludes_missing(self.number(array))
    }

    fn needs_order(&self, array: usize) -> bool {
        self.inner.needs_order(self.number(array))
    }

    fn buffered_bytes(&self, array: usize) -> u64 {
        self.inner.buffered_bytes(self.number(array))
    }

    fn chunk_order(&self, array: usize) -> Order {
        self.inner.chunk_order(self.number(array))
    }

    fn chunk_cells(&self, array: usize) -> Option<u64> {
        self.inner.chunk_cells(self.number(array))
    }

    fn cell_keys<'a>(&self, array: usize, columns: &[ColumnData<'a>]) -> Result<CellKeys<'a>> {
        self.inner.cell_keys(self.number(array), columns)
    }

    fn finish_run(&self, array: usize) -> Result<()> {
        self.inner.finish_run(self.number(array))
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        stats: Vec<ChunkStats>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        self.encode_cells(self.declared(array)?, coords, columns, stats, scratch)
    }

    fn accepts_encoded(&self, array: usize, form: StoredForm) -> bool {
        let text = self.declared(array).map_or(true, |declared| declared.encoding.text.is_some());
        !text && self.inner.accepts_encoded(self.number(array), form)
    }

    fn push_encoded<'a>(
        &self,
        array: usize,
        coords: &[u64],
        stored: &'a StoredChunk,
    ) -> Result<EncodedChunk<'a>> {
        let place = self.declared(array)?.encoding.coords(coords);
        let mut chunk = self.inner.push_encoded(self.number(array), &place, stored)?;
        chunk.coords = Coords::from_slice(coords);
        Ok(chunk)
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        self.inner.push(self.number(array), self.stored(array, chunk)?)
    }

    fn push_all(&self, array: usize, cells: &[u8], threads: usize) -> Result<bool> {
        Ok(self.plain(array) && self.inner.push_all(self.number(array), cells, threads)?)
    }

    fn place<'a>(&self, array: usize, chunk: EncodedChunk<'a>) -> Result<Pending<'a>> {
        self.inner.place(self.number(array), self.stored(array, chunk)?)
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        self.attributes = attributes;
        self.put_attributes()
    }

    fn set_group(&mut self, path: &str, attributes: Attributes) -> Result<()> {
        self.groups.insert(path.to_owned(), attributes);
        self.put_attributes()
    }

    /// Every change of a group encodes all of them again.
    fn set_groups(&mut self, groups: Groups) -> Result<()> {
        self.groups.extend(groups);
        self.put_attributes()
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.inner.add_history(row)
    }

    fn set_parents(&mut self, parents: &[String]) -> bool {
        self.inner.set_parents(parents)
    }

    fn finish_part(&mut self) -> Result<()> {
        self.put_rest()?;
        self.arrays.clear();
        self.coordinates.clear();
        self.attributes.clear();
        self.groups.clear();
        self.inner.finish_part()
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.put_rest()?;
        self.inner.commit()
    }
}

/// The variable that labels of a dimension are.
fn coordinate(name: &str, dim: &str, labels: &Labels) -> ArraySpec {
    let extent = labels.len() as u64;
    let dtype = match labels {
        Labels::Text(_) => DType::Utf8,
        Labels::Numbers { dtype, .. } => *dtype,
    };
    let mut schema = ArraySchema::dense(name, dtype, &[extent], &[extent.max(1)]);
    dim.clone_into(&mut schema.dims[0].name);
    let mut spec = ArraySpec::raw(schema);
    if let Labels::Text(texts) = labels {
        spec.schema.fields[0].cell = CellLen::Var;
        let mut extent = TextExtent::default();
        texts.iter().for_each(|text| extent.add(text.as_bytes()));
        spec.text = Some(extent);
    }
    spec
}
