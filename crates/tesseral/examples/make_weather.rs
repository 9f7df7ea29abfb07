//! Writes a small weather dataset: a year of temperature and precipitation around the globe, and some stations.
//!
//! `make_weather OUT [FORMAT]`: FORMAT is the id of a format, such as `tet`; without it the extension of OUT decides.

use std::f64::consts::TAU;

use tesseral::{
    ArraySchema, ArraySpec, Create, DType, Error, ErrorKind, HistoryRow, Labels, Region, Scalar, Value,
};

/// Four times a day in the middle of each month, every 5 degrees north, every 6 degrees east.
const SHAPE: [u64; 3] = [48, 36, 60];
const MISSING: i16 = -32768;
/// Days from the start of 2024 to the 15th of each month.
const MIDDLES: [u16; 12] = [14, 45, 74, 105, 135, 166, 196, 227, 258, 288, 319, 349];
const STATIONS: [(&str, i16); 4] = [("Bergen", 12), ("Davos", 1594), ("Jericho", -258), ("La Paz", 3640)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().ok_or("usage: make_weather OUT [FORMAT]")?;
    let mut session = Create::new().overwrite().begin(&out, &arguments.next().unwrap_or_default())?;

    // All arrays are declared before the first chunk is written.
    let kelvins = session.add(&ArraySpec::raw(on_the_globe("temperature", DType::Float32, "K")))?;
    let mut rain = on_the_globe("precipitation", DType::Int16, "mm/day");
    rain.attributes.insert("scale_factor".to_owned(), Value::from("0.1"));
    rain.fields[0].missing = vec![Scalar::from_element(MISSING)];
    let stored = |codec: &str| -> Result<ArraySpec, Error> {
        Ok(ArraySpec { schema: rain.clone(), codecs: vec![vec![codec.parse()?]], text: None })
    };
    // NetCDF-4 has no zstd that every reader knows; NetCDF classic and NumPy archives are stored raw.
    let mut rain = session.add(&stored("zstd:3")?);
    for codec in ["gzip", "raw"] {
        if matches!(&rain, Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. })) {
            rain = session.add(&stored(codec)?);
        }
    }
    let rain = rain?;
    let mut elevation = ArraySchema::dense("elevation", DType::Int16, &[4], &[4]);
    label(&mut elevation, 0, "station", STATIONS.iter().map(|(name, _)| (*name).to_owned()));
    elevation.attributes.insert("units".to_owned(), Value::from("m"));
    let elevation = session.add(&ArraySpec::raw(elevation))?;
    // Hours of the middle of each month of 2024, and degrees.
    let hours = (0..48).map(|t| f64::from(MIDDLES[t / 4]) * 24.0 + (t % 4 * 6) as f64).collect();
    let coordinates: [(&str, &str, Vec<f64>); 3] = [
        ("time", "hours since 2024-01-01", hours),
        ("lat", "degrees_north", (0..SHAPE[1]).map(degrees_north).collect()),
        ("lon", "degrees_east", (0..SHAPE[2]).map(|x| (x * 6) as f64).collect()),
    ];
    let mut ids = Vec::new();
    for (name, units, values) in &coordinates {
        let len = values.len() as u64;
        let mut schema = ArraySchema::dense(*name, DType::Float64, &[len], &[len]);
        schema.dims[0].name = (*name).to_owned();
        schema.attributes.insert("units".to_owned(), Value::from(*units));
        ids.push(session.add(&ArraySpec::raw(schema))?);
    }

    // Each chunk is requested once, on any thread, by the box of positions it covers.
    session.fill(kelvins, |region, cells| {
        fill(region, cells, |t, y, x| kelvin(t, y, x).to_ne_bytes());
        Ok(())
    })?;
    session.fill(rain, |region, cells| {
        fill(region, cells, |t, y, x| tenths_of_mm(t, y, x).to_ne_bytes());
        Ok(())
    })?;
    let meters: Vec<u8> = STATIONS.iter().flat_map(|(_, meters)| meters.to_ne_bytes()).collect();
    session.write(elevation, &meters)?;
    for (id, (_, _, values)) in ids.into_iter().zip(&coordinates) {
        session.write(id, &values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>())?;
    }
    let (op, source, at) = ("write".to_owned(), "make_weather".to_owned(), "1704067200".to_owned());
    session.add_history(HistoryRow { op, source, at, ..HistoryRow::default() })?;
    Ok(session.commit()?)
}

/// An array over time, latitude and longitude.
fn on_the_globe(name: &str, dtype: DType, units: &str) -> ArraySchema {
    let mut schema = ArraySchema::dense(name, dtype, &SHAPE, &[12, 18, 20]);
    for (dim, name) in schema.dims.iter_mut().zip(["time", "lat", "lon"]) {
        dim.name = name.to_owned();
    }
    schema.attributes.insert("units".to_owned(), Value::from(units));
    schema
}

fn label(schema: &mut ArraySchema, dim: usize, name: &str, labels: impl Iterator<Item = String>) {
    schema.dims[dim].name = name.to_owned();
    schema.dims[dim].labels = Some(Labels::Text(labels.collect()));
}

/// Fills a box with a value per position, the last dimension fastest.
fn fill<const N: usize>(region: &Region, cells: &mut [u8], value: impl Fn(u64, u64, u64) -> [u8; N]) {
    let (rows, columns) = (region.extent(1), region.extent(2));
    for (i, cell) in (0..).zip(cells.chunks_exact_mut(N)) {
        let (t, y, x) = (i / columns / rows, i / columns % rows, i % columns);
        cell.copy_from_slice(&value(region.start(0) + t, region.start(1) + y, region.start(2) + x));
    }
}

fn degrees_north(y: u64) -> f64 {
    87.5 - 5.0 * y as f64
}

/// Warm at the equator, in summer and in the afternoon.
fn kelvin(t: u64, y: u64, x: u64) -> f32 {
    let north = degrees_north(y).to_radians();
    let season = (t / 4) as f64 / 12.0 * TAU;
    let hour = ((t % 4) as f64 / 4.0 + x as f64 / 60.0) * TAU;
    (250.0 + 50.0 * north.cos() - 15.0 * north.sin() * season.cos() - 5.0 * north.cos() * hour.cos()) as f32
}

/// Rain follows the sun; cells near the poles are missing.
fn tenths_of_mm(t: u64, y: u64, x: u64) -> i16 {
    if (2..34).contains(&y) { (0.8 * kelvin(t, y, x) - 180.0) as i16 + (x * 7 % 13) as i16 } else { MISSING }
}
