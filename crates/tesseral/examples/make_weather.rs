//! Writes a small weather dataset: a year of temperature and precipitation around the globe, and some stations.
//!
//! `make_weather OUT [FORMAT]`: FORMAT is the id of a format, such as `tet`; without it the ending of OUT decides.

use tesseral::core::schema::Labels;
use tesseral::{ArraySchema, ArraySpec, Create, DType, HistoryRow, Region, Scalar, Value};

const HOURS: u64 = 4;
const SHAPE: [u64; 3] = [12 * HOURS, 36, 60];
const MISSING: i16 = -32768;
const STATIONS: [(&str, i16); 6] =
    [("Bergen", 12), ("Davos", 1594), ("Jericho", -258), ("Kiel", 5), ("La Paz", 3640), ("Nairobi", 1795)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().ok_or("usage: make_weather OUT [FORMAT]")?;
    let format = arguments.next().unwrap_or_default();

    let mut session = Create::new().overwrite().begin(&out, &format)?;
    let temperature = session.add(&on_the_globe("temperature", DType::Float32, &[("units", "K"), ("cell_methods", "time: point")]))?;
    let packed = [("units", "mm/day"), ("scale_factor", "0.1"), ("long_name", "precipitation, packed")];
    let mut spec = on_the_globe("precipitation", DType::Int16, &packed);
    spec.schema.fields[0].fill = Some(Scalar::from_element(MISSING));
    spec.codecs = vec![vec!["zstd:3".parse()?]];
    let precipitation = session.add(&spec)?;
    let mut stations = ArraySchema::dense("elevation", DType::Int16, &[STATIONS.len() as u64], &[STATIONS.len() as u64]);
    label(&mut stations, 0, "station", STATIONS.iter().map(|(name, _)| (*name).to_owned()));
    stations.attributes.insert("units".to_owned(), Value::from("m"));
    let elevation = session.add(&ArraySpec::raw(stations))?;

    // Each chunk is asked for once, on any thread, by the box of positions it covers.
    session.fill(temperature, |region, cells| {
        for (cell, at) in cells.chunks_exact_mut(4).zip(positions(region)) {
            cell.copy_from_slice(&kelvin(at).to_ne_bytes());
        }
        Ok(())
    })?;
    session.fill(precipitation, |region, cells| {
        for (cell, at) in cells.chunks_exact_mut(2).zip(positions(region)) {
            cell.copy_from_slice(&tenths_of_mm(at).to_ne_bytes());
        }
        Ok(())
    })?;
    let heights: Vec<u8> = STATIONS.iter().flat_map(|(_, metres)| metres.to_ne_bytes()).collect();
    session.write(elevation, &heights)?;
    session.add_history(HistoryRow { op: "write".into(), source: "make_weather".into(), at: "1704067200".into(), ..HistoryRow::default() })?;
    session.commit()?;
    Ok(())
}

/// An array over time, latitude and longitude, each position labelled.
fn on_the_globe(name: &str, dtype: DType, attributes: &[(&str, &str)]) -> ArraySpec {
    let mut schema = ArraySchema::dense(name, dtype, &SHAPE, &[HOURS * 3, 18, 20]);
    label(&mut schema, 0, "time", (0..SHAPE[0]).map(|t| format!("2024-{:02}-15T{:02}:00", t / HOURS + 1, t % HOURS * 6)));
    label(&mut schema, 1, "lat", (0..SHAPE[1]).map(|y| format!("{}", degrees_north(y))));
    label(&mut schema, 2, "lon", (0..SHAPE[2]).map(|x| format!("{}", x * 6)));
    schema.attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    ArraySpec::raw(schema)
}

fn label(schema: &mut ArraySchema, dimension: usize, name: &str, labels: impl Iterator<Item = String>) {
    schema.dims[dimension].name = name.to_owned();
    schema.dims[dimension].labels = Some(Labels::Text(labels.collect()));
}

/// The positions of a box, the last dimension fastest.
fn positions(region: &Region) -> impl Iterator<Item = [u64; 3]> {
    let [time, lat, lon] = [0, 1, 2].map(|d| region.start(d)..region.end(d));
    time.flat_map(move |t| lat.clone().flat_map({ let lon = lon.clone(); move |y| lon.clone().map(move |x| [t, y, x]) }))
}

fn degrees_north(y: u64) -> f64 {
    87.5 - 5.0 * y as f64
}

/// Warm at the equator, in summer and in the afternoon.
fn kelvin([t, y, x]: [u64; 3]) -> f32 {
    let turn = std::f64::consts::TAU;
    let (season, day) = ((t / HOURS) as f64 / 12.0 * turn, ((t % HOURS) as f64 / HOURS as f64 + x as f64 / 60.0) * turn);
    let north = degrees_north(y).to_radians();
    (250.0 + 50.0 * north.cos() - 15.0 * north.sin() * season.cos() - 5.0 * north.cos() * day.cos()) as f32
}

/// Rain follows the sun; nobody measures near the poles.
fn tenths_of_mm([t, y, x]: [u64; 3]) -> i16 {
    if !(2..34).contains(&y) { MISSING } else { ((kelvin([t, y, x]) - 230.0).max(0.0) * 0.8) as i16 + (x * 7 % 13) as i16 }
}
