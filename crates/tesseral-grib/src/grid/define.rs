//! Grid definitions of both editions.

use tesseral_core::{DType, Error, Result, Value, alloc};

use super::projection::MapFrame;
use super::{
    Angles, Ellipsoid, Grid, GridKind, I_NEGATIVE, J_CONSECUTIVE, J_POSITIVE, Lambert, Mercator,
    PolarStereographic, Pole, Row,
};
use crate::wire::octets::Octets;

type Keys = Vec<(&'static str, Value)>;

/// Numbers that both editions state of a grid by parallels and meridians.
struct Common {
    ni: Option<u64>,
    nj: u64,
    angles: Angles,
    /// Increments in degrees as stated.
    increments: (Option<f64>, Option<f64>),
    scanning: u8,
    flags: u8,
}

fn int(value: u64) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn flag(scanning: u8, flag: u8) -> Value {
    Value::Int(i64::from(scanning & flag != 0))
}

impl Common {
    fn keys(&self) -> Keys {
        let Angles { latitudes, longitudes, .. } = self.angles;
        let mut keys = vec![
            ("iScansNegatively", flag(self.scanning, I_NEGATIVE)),
            ("jPointsAreConsecutive", flag(self.scanning, J_CONSECUTIVE)),
            ("jScansPositively", flag(self.scanning, J_POSITIVE)),
            ("latitudeOfFirstGridPointInDegrees", Value::Float(latitudes.0)),
            ("latitudeOfLastGridPointInDegrees", Value::Float(latitudes.1)),
            ("longitudeOfFirstGridPointInDegrees", Value::Float(longitudes.0)),
            ("longitudeOfLastGridPointInDegrees", Value::Float(longitudes.1)),
        ];
        keys.extend(self.increments.0.map(|di| ("iDirectionIncrementInDegrees", Value::Float(di))));
        keys
    }

    fn pole_keys(pole: &Pole) -> Keys {
        vec![
            ("angleOfRotationInDegrees", Value::Float(pole.angle)),
            ("latitudeOfSouthernPoleInDegrees", Value::Float(pole.latitude)),
            ("longitudeOfSouthernPoleInDegrees", Value::Float(pole.longitude)),
        ]
    }

    fn size(&self, section: &Octets<'_>, points: Option<u64>) -> Result<(u64, u64)> {
        let ni = self.ni.ok_or_else(|| Error::unsupported("a reduced grid by equal latitudes"))?;
        let count = ni.checked_mul(self.nj).filter(|count| points.is_none_or(|points| points == *count));
        let count = count.ok_or_else(|| {
            section.corrupt(format!("{ni} × {} points contradict {}", self.nj, points.unwrap_or(0)))
        })?;
        Ok((ni, count))
    }

    fn latlon(
        self,
        section: &Octets<'_>,
        points: Option<u64>,
        pole: Option<Pole>,
        description: &'static str,
    ) -> Result<Grid> {
        let (ni, points) = self.size(section, points)?;
        let mut keys = self.keys();
        keys.extend([("Nx", int(ni)), ("Ny", int(self.nj))]);
        keys.extend(self.increments.1.map(|dj| ("jDirectionIncrementInDegrees", Value::Float(dj))));
        keys.extend(pole.iter().flat_map(Self::pole_keys));
        Ok(Grid {
            kind: GridKind::LatLon { angles: self.angles, pole },
            ni,
            nj: self.nj,
            points,
            scanning: self.scanning,
            uv_relative: self.flags & 8 != 0,
            description,
            keys,
        })
    }

    fn gaussian(
        self,
        section: &Octets<'_>,
        points: Option<u64>,
        order: u64,
        list: Option<&[u64]>,
        pole: Option<Pole>,
        description: &'static str,
    ) -> Result<Grid> {
        let Common { nj, angles, scanning, flags, .. } = self;
        let uv_relative = flags & 8 != 0;
        if let Some(list) = list {
            let rows = rows(section, &angles, list, points)?;
            let points = rows.last().map_or(0, |row| row.start + row.count);
            let mut bytes = alloc::with_capacity("a list of parallels", list.len().saturating_mul(8))?;
            list.iter().for_each(|count| bytes.extend(count.to_le_bytes()));
            let mut keys: Keys =
                vec![("N", int(order)), ("pl", Value::Numbers { dtype: DType::Int64, bytes })];
            keys.extend(pole.iter().flat_map(Self::pole_keys));
            let kind = GridKind::ReducedGaussian { angles, order, rows, pole };
            return Ok(Grid { kind, ni: 0, nj, points, scanning, uv_relative, description, keys });
        }
        let (ni, points) = self.size(section, points)?;
        let mut keys = self.keys();
        keys.push(("N", int(order)));
        keys.extend(match pole {
            None => [("Ni", int(ni)), ("Nj", int(nj))],
            Some(_) => [("Nx", int(ni)), ("Ny", int(nj))],
        });
        keys.extend(pole.iter().flat_map(Self::pole_keys));
        let kind = GridKind::Gaussian { angles, order, pole };
        Ok(Grid { kind, ni, nj, points, scanning, uv_relative, description, keys })
    }
}

/// The points of the parallels of a reduced grid: all of each, or those between the first and the last longitude.
fn rows(section: &Octets<'_>, angles: &Angles, list: &[u64], points: Option<u64>) -> Result<Vec<Row>> {
    let mut out = alloc::with_capacity("a list of parallels", list.len())?;
    let sum = list.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
    let beyond = || section.corrupt("the points of a reduced grid exceed 2^64");
    let whole = points.is_none_or(|points| sum == Some(points));
    let (west, mut east) = (angles.longitudes.0.rem_euclid(360.0), angles.longitudes.1.rem_euclid(360.0));
    if east < west {
        east += 360.0;
    }
    let mut start = 0_u64;
    for &parallel in list {
        let (first, count) = if whole {
            (0, parallel)
        } else {
            let step = 360.0 / parallel.max(1) as f64;
            // Longitudes are stated to a thousandth or a millionth of a degree.
            let first = ((west - 5e-4) / step).ceil();
            (first as i64, (((east + 5e-4) / step).floor() - first + 1.0).max(0.0) as u64)
        };
        out.push(Row { start, count, parallel, first });
        start = start.checked_add(count).ok_or_else(beyond)?;
    }
    match points {
        Some(points) if points != start => {
            Err(section.corrupt(format!("the parallels have {start} points instead of {points}")))
        }
        _ => Ok(out),
    }
}

/// Corner, size and scanning mode of a projected grid.
struct Projected {
    nx: u64,
    ny: u64,
    scanning: u8,
    flags: u8,
    frame: MapFrame,
}

impl Projected {
    /// Steps in the direction of scanning.
    fn frame(&self) -> MapFrame {
        let sign = |negative: bool| if negative { -1.0 } else { 1.0 };
        MapFrame {
            dx: self.frame.dx * sign(self.scanning & I_NEGATIVE != 0),
            dy: self.frame.dy * sign(self.scanning & J_POSITIVE == 0),
            ..self.frame
        }
    }

    fn grid(
        self,
        section: &Octets<'_>,
        points: Option<u64>,
        kind: GridKind,
        mut keys: Keys,
        description: &'static str,
    ) -> Result<Grid> {
        let Self { nx, ny, scanning, flags, frame } = self;
        if !(frame.earth.major.is_finite() && frame.earth.major > 0.0 && frame.earth.minor > 0.0) {
            return Err(section.corrupt("the radius of the earth is not a positive number"));
        }
        let count = nx.checked_mul(ny).filter(|count| points.is_none_or(|points| points == *count));
        let points = count.ok_or_else(|| section.corrupt(format!("{nx} × {ny} contradict the points")))?;
        if matches!(kind, GridKind::Lambert(_)) {
            keys.extend([
                ("DxInMetres", Value::Float(frame.dx)),
                ("DyInMetres", Value::Float(frame.dy)),
                ("LoVInDegrees", Value::Float(frame.orientation)),
                ("Nx", int(nx)),
                ("Ny", int(ny)),
                ("iScansNegatively", flag(scanning, I_NEGATIVE)),
                ("jPointsAreConsecutive", flag(scanning, J_CONSECUTIVE)),
                ("jScansPositively", flag(scanning, J_POSITIVE)),
                ("latitudeOfFirstGridPointInDegrees", Value::Float(frame.latitude)),
                ("longitudeOfFirstGridPointInDegrees", Value::Float(frame.longitude)),
            ]);
        }
        let uv_relative = flags & 8 != 0;
        Ok(Grid { kind, ni: nx, nj: ny, points, scanning, uv_relative, description, keys })
    }
}

fn lambert_keys(standard: Option<f64>, parallels: (f64, f64), pole: (f64, f64)) -> Keys {
    let mut keys = vec![
        ("Latin1InDegrees", Value::Float(parallels.0)),
        ("Latin2InDegrees", Value::Float(parallels.1)),
        ("latitudeOfSouthernPoleInDegrees", Value::Float(pole.0)),
        ("longitudeOfSouthernPoleInDegrees", Value::Float(pole.1)),
    ];
    keys.extend(standard.map(|standard| ("LaDInDegrees", Value::Float(standard))));
    keys
}

/// The grid of section 2 of edition 1.
///
/// # Errors
/// `Corrupt`, `Unsupported` with the representation type.
pub(crate) fn edition1(section: &Octets<'_>) -> Result<Grid> {
    let kind = section.u8(6)?;
    let angle = |at: usize| section.i24(at).map(|n| f64::from(n) / 1000.0);
    let scanning = section.u8(28)?;
    let flags = section.u8(17)?;
    let earth = if flags & 0x40 == 0 {
        Ellipsoid::sphere(6_367_470.0)
    } else {
        Ellipsoid { major: 6_378_160.0, minor: 6_356_775.0 }
    };
    let (nx, ny) = (section.u16(7)?, section.u16(9)?);
    let metres = |at: usize| section.u24(at).map(f64::from);
    let projected = |orientation: f64, dx: f64, dy: f64| -> Result<Projected> {
        let frame = MapFrame { earth, latitude: angle(11)?, longitude: angle(14)?, orientation, dx, dy };
        Ok(Projected { nx: u64::from(nx), ny: u64::from(ny), scanning, flags, frame })
    };
    match kind {
        0 | 4 | 10 | 14 => {
            let given = flags & 0x80 != 0;
            let increment = |at: usize| {
                let n = section.u16(at)?;
                Ok::<_, Error>((given && n != u16::MAX).then(|| f64::from(n) / 1000.0))
            };
            let (latitudes, longitudes) = ((angle(11)?, angle(18)?), (angle(14)?, angle(21)?));
            let nj = u64::from(ny);
            let dj = if kind == 0 || kind == 10 { increment(26)? } else { None };
            let ni = (nx != u16::MAX).then_some(u64::from(nx));
            let common = common(ni, nj, latitudes, longitudes, (increment(24)?, dj), scanning, flags);
            let pole = if kind >= 10 {
                Some(Pole { latitude: angle(33)?, longitude: angle(36)?, angle: section.ibm(39)? })
            } else {
                None
            };
            match kind {
                0 => common.latlon(section, None, pole, "Latitude/Longitude Grid"),
                10 => common.latlon(section, None, pole, "Rotated Latitude/Longitude grid"),
                _ => {
                    let order = u64::from(section.u16(26)?);
                    let list = (nx == u16::MAX).then(|| parallels1(section, nj)).transpose()?;
                    let title =
                        if kind == 4 { "Gaussian Latitude/Longitude Grid" } else { "Rotated Gaussian" };
                    common.gaussian(section, None, order, list.as_deref(), pole, title)
                }
            }
        }
        1 => {
            let projected = projected(0.0, metres(29)?, metres(32)?)?;
            let kind = GridKind::Mercator(Mercator::new(projected.frame(), angle(24)?));
            projected.grid(section, None, kind, Vec::new(), "Mercator Projection Grid")
        }
        3 => {
            let projected = projected(angle(18)?, metres(21)?, metres(24)?)?;
            let parallels = (angle(29)?, angle(32)?);
            let keys = lambert_keys(Some(parallels.0), parallels, (angle(35)?, angle(38)?));
            let kind = GridKind::Lambert(Lambert::new(projected.frame(), parallels));
            projected.grid(
                section,
                None,
                kind,
                keys,
                "Lambert Conformal, secant or tangent, conical or bipolar",
            )
        }
        5 => {
            let south = section.u8(27)? & 0x80 != 0;
            let projected = projected(angle(18)?, metres(21)?, metres(24)?)?;
            let kind = GridKind::PolarStereographic(PolarStereographic::new(projected.frame(), 60.0, south));
            projected.grid(section, None, kind, Vec::new(), "Polar Stereographic Projection Grid")
        }
        other => Err(Error::unsupported(format!("grids of data representation type {other} of edition 1"))),
    }
}

fn common(
    ni: Option<u64>,
    nj: u64,
    latitudes: (f64, f64),
    longitudes: (f64, f64),
    increments: (Option<f64>, Option<f64>),
    scanning: u8,
    flags: u8,
) -> Common {
    let spread = || (latitudes.1 - latitudes.0).abs() / (nj.max(2) - 1) as f64;
    let dj = increments.1.unwrap_or_else(spread);
    Common { ni, nj, angles: Angles { latitudes, longitudes, dj }, increments, scanning, flags }
}

/// The numbers of points of parallels, after the vertical coordinate parameters.
fn parallels1(section: &Octets<'_>, count: u64) -> Result<Vec<u64>> {
    let at = usize::from(section.u8(5)?) + 4 * usize::from(section.u8(4)?);
    parallels(section.slice(at, count as usize * 2)?, 2)
}

fn parallels(bytes: &[u8], width: usize) -> Result<Vec<u64>> {
    let mut out = alloc::with_capacity("a list of parallels", bytes.len() / width.max(1))?;
    for number in bytes.chunks_exact(width.max(1)) {
        out.push(number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    Ok(out)
}

/// The shape of the earth of edition 2.
fn earth(section: &Octets<'_>) -> Result<Ellipsoid> {
    let scaled =
        |at: usize| -> Result<f64> { Ok(f64::from(section.u32(at + 1)?) / 10_f64.powi(section.i8(at)?)) };
    let axes = |major, minor| Ellipsoid { major, minor };
    Ok(match section.u8(15)? {
        0 => Ellipsoid::sphere(6_367_470.0),
        1 => Ellipsoid::sphere(scaled(16)?),
        2 => axes(6_378_160.0, 6_356_775.0),
        3 => axes(scaled(21)? * 1000.0, scaled(26)? * 1000.0),
        4 => axes(6_378_137.0, 6_356_752.314),
        5 => axes(6_378_137.0, 6_356_752.314_2),
        6 => Ellipsoid::sphere(6_371_229.0),
        7 => axes(scaled(21)?, scaled(26)?),
        8 => Ellipsoid::sphere(6_371_200.0),
        9 => axes(6_377_563.396, 6_356_256.909),
        other => return Err(Error::unsupported(format!("shape {other} of the earth"))),
    })
}

/// The grid of section 3 of edition 2.
///
/// # Errors
/// `Corrupt`, `Unsupported` with the template.
pub(crate) fn edition2(section: &Octets<'_>) -> Result<Grid> {
    let points = Some(u64::from(section.u32(7)?));
    let template = section.u16(13)?;
    let millionths = |at: usize| section.i32(at).map(|n| f64::from(n) / 1e6);
    let size = |at: usize| section.u32(at).map(u64::from);
    match template {
        0 | 1 | 40 | 41 => {
            let (basic, parts) = (section.u32(39)?, section.u32(43)?);
            let angle = |at: usize| -> Result<f64> {
                if basic == 0 || basic == u32::MAX || parts == 0 || parts == u32::MAX {
                    return millionths(at);
                }
                Ok(f64::from(section.i32(at)?) * f64::from(basic) / f64::from(parts))
            };
            let flags = section.u8(55)?;
            let increment = |at: usize, flag: u8| -> Result<Option<f64>> {
                let given = flags & flag != 0 && section.u32(at)? != u32::MAX;
                if given { angle(at).map(Some) } else { Ok(None) }
            };
            let (latitudes, longitudes) = ((angle(47)?, angle(56)?), (angle(51)?, angle(60)?));
            let ni = Some(size(31)?).filter(|ni| *ni != u64::from(u32::MAX));
            let nj = size(35)?;
            let rotated = matches!(template, 1 | 41);
            let dj = if template < 40 { increment(68, 0x10)? } else { None };
            let increments = (increment(64, 0x20)?, dj);
            let common = common(ni, nj, latitudes, longitudes, increments, section.u8(72)?, flags);
            let pole = if rotated {
                Some(Pole { latitude: angle(73)?, longitude: angle(77)?, angle: section.ieee(81)? })
            } else {
                None
            };
            match template {
                0 => common.latlon(section, points, pole, "Latitude/longitude"),
                1 => common.latlon(section, points, pole, "Rotated latitude/longitude"),
                _ => {
                    let width = usize::from(section.u8(11)?);
                    let list = if common.ni.is_none() && width > 0 {
                        let first = if rotated { 85 } else { 73 };
                        let count = usize::try_from(nj).ok().and_then(|nj| nj.checked_mul(width));
                        let count =
                            count.ok_or_else(|| section.corrupt("the list of parallels exceeds memory"))?;
                        Some(parallels(section.slice(first, count)?, width)?)
                    } else {
                        None
                    };
                    let title = if rotated {
                        "Rotated Gaussian latitude/longitude"
                    } else {
                        "Gaussian latitude/longitude"
                    };
                    common.gaussian(section, points, size(68)?, list.as_deref(), pole, title)
                }
            }
        }
        10 | 20 | 30 => {
            let steps = |at: usize| section.u32(at).map(|n| f64::from(n) / 1000.0);
            let (scan, orientation, dx, dy) = match template {
                10 => (section.u8(60)?, millionths(61)?, steps(65)?, steps(69)?),
                _ => (section.u8(65)?, millionths(52)?, steps(56)?, steps(60)?),
            };
            let (latitude, longitude) = (millionths(39)?, millionths(43)?);
            let frame = MapFrame { earth: earth(section)?, latitude, longitude, orientation, dx, dy };
            let (nx, ny, flags) = (size(31)?, size(35)?, section.u8(47)?);
            let projected = Projected { nx, ny, scanning: scan, flags, frame };
            let standard = millionths(48)?;
            match template {
                10 => {
                    let kind = GridKind::Mercator(Mercator::new(projected.frame(), standard));
                    projected.grid(section, points, kind, Vec::new(), "Mercator")
                }
                20 => {
                    let south = section.u8(64)? & 0x80 != 0 || standard < 0.0;
                    let kind = GridKind::PolarStereographic(PolarStereographic::new(
                        projected.frame(),
                        standard,
                        south,
                    ));
                    let title = "Polar stereographic";
                    projected.grid(section, points, kind, Vec::new(), title)
                }
                _ => {
                    let parallels = (millionths(66)?, millionths(70)?);
                    let keys = lambert_keys(Some(standard), parallels, (millionths(74)?, millionths(78)?));
                    let kind = GridKind::Lambert(Lambert::new(projected.frame(), parallels));
                    let title = "Lambert Conformal";
                    projected.grid(section, points, kind, keys, title)
                }
            }
        }
        other => Err(Error::unsupported(format!("grid definition template {other}"))),
    }
}
