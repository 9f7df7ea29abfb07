//! Sections 1, 2, 4 and 5 of edition 2.

use tesseral_core::{Error, Result};

use super::octets::Octets;
use crate::packing::{Ccsds, Complex, FieldPacking, PackingScale, RunLength};
use crate::parameter::{Codes2, Parameter};
use crate::product::{self, FieldProduct, Surface};

/// Content of section 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identification {
    pub centre: u16,
    pub sub_centre: u16,
    tables: u8,
    local_tables: u8,
    time: i64,
    /// Abbreviation of the type of data.
    data_type: Option<&'static str>,
}

impl Identification {
    /// Parses section 1.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn parse(section: &Octets<'_>) -> Result<Self> {
        let year = i64::from(section.u16(13)?);
        let [month, day, hour, minute, second] = [15, 16, 17, 18, 19].map(|at| section.u8(at));
        let time = product::seconds(year, month?, day?, hour?, minute?, second?);
        let data_type = match section.u8(21)? {
            0 => Some("an"),
            1 => Some("fc"),
            2 => Some("af"),
            3 => Some("cf"),
            4 => Some("pf"),
            5 => Some("cp"),
            6 => Some("sa"),
            7 => Some("ra"),
            8 => Some("ep"),
            _ => None,
        };
        Ok(Self {
            centre: section.u16(6)?,
            sub_centre: section.u16(8)?,
            tables: section.u8(10)?,
            local_tables: section.u8(11)?,
            time: time.ok_or_else(|| section.corrupt("the reference time is not a date"))?,
            data_type,
        })
    }

    /// Applies the local section of ECMWF, which has a more precise type of data.
    pub(crate) fn with_local(self, section: &Octets<'_>) -> Self {
        match section.u16(10) {
            Ok(number) if self.centre == 98 => {
                Self { data_type: product::mars_type(number).or(self.data_type), ..self }
            }
            _ => self,
        }
    }
}

/// Octets of a product definition template, counted in section 4.
struct Template {
    /// Shift of everything after the parameter.
    shift: usize,
    /// Octet of the perturbation number, followed by the size of the ensemble.
    ensemble: Option<usize>,
    /// Octet of the size of the ensemble, for products derived from all members.
    total: Option<usize>,
    /// First octet of the time intervals.
    statistics: Option<usize>,
}

fn template(number: u16) -> Result<Template> {
    let (shift, ensemble, total, statistics) = match number {
        0 | 5 | 6 | 7 | 15 => (0, None, None, None),
        1 => (0, Some(36), None, None),
        2 => (0, None, Some(36), None),
        8 => (0, None, None, Some(35)),
        9 => (0, None, None, Some(48)),
        10 => (0, None, None, Some(36)),
        11 => (0, Some(36), None, Some(38)),
        12 => (0, None, Some(36), Some(37)),
        40 => (2, None, None, None),
        41 => (2, Some(38), None, None),
        42 => (2, None, None, Some(37)),
        43 => (2, Some(38), None, Some(40)),
        60 => (0, Some(36), None, None),
        61 => (0, Some(36), None, Some(45)),
        other => return Err(Error::unsupported(format!("product definition template {other}"))),
    };
    Ok(Template { shift, ensemble, total, statistics })
}

fn surface(section: &Octets<'_>, at: usize) -> Result<Surface> {
    let (kind, scale, value) = (section.u8(at)?, section.u8(at + 1)?, section.u32(at + 2)?);
    let scale = if scale == u8::MAX { None } else { Some(section.i8(at + 1)?) };
    Ok(Surface { kind, value: Some(value).filter(|value| *value != u32::MAX), scale })
}

fn step_type(process: u8) -> &'static str {
    match process {
        0 => "avg",
        1 => "accum",
        2 => "max",
        3 => "min",
        4 => "diff",
        5 => "rms",
        6 => "sd",
        7 => "cov",
        8 => "sdiff",
        9 => "ratio",
        10 => "stdanom",
        11 => "sum",
        100 => "severity",
        101 => "mode",
        102 => "index",
        _ => "instant",
    }
}

/// Parses section 4.
///
/// # Errors
/// `Corrupt`, `Unsupported` with the template or the unit of time.
pub(crate) fn product(
    section: &Octets<'_>,
    discipline: u8,
    identification: &Identification,
) -> Result<FieldProduct> {
    let template = template(section.u16(8)?)?;
    let shift = template.shift;
    let seconds = |count: i64, unit: u8| match (count, product::unit_seconds(unit)) {
        (0, _) => Ok(0),
        (_, None) => Err(Error::unsupported(format!("steps in units of code {unit}"))),
        (count, Some(seconds)) => {
            count.checked_mul(seconds).ok_or_else(|| section.corrupt("the step overflows"))
        }
    };
    let start = seconds(i64::from(section.i32(19 + shift)?), section.u8(18 + shift)?)?;
    let (first, second) = (surface(section, 23 + shift)?, surface(section, 29 + shift)?);
    let mut process = [None; 3];
    let (mut step, mut kind) = (start, "instant");
    if let Some(at) = template.statistics {
        let ranges = section.u8(at + 7)?;
        let (code, unit, length) = (section.u8(at + 12)?, section.u8(at + 14)?, section.u32(at + 15)?);
        process = [Some(i64::from(code)), Some(i64::from(unit)), Some(i64::from(length))];
        kind = step_type(code);
        step = if ranges == 1 {
            start.saturating_add(seconds(i64::from(length), unit)?)
        } else {
            let year = i64::from(section.u16(at)?);
            let [month, day, hour, minute, second] = [2, 3, 4, 5, 6].map(|n| section.u8(at + n));
            let end = product::seconds(year, month?, day?, hour?, minute?, second?);
            end.ok_or_else(|| section.corrupt("the end of the interval is not a date"))? - identification.time
        };
    }
    let value = |surface: &Surface| {
        [Some(i64::from(surface.kind)), surface.value.map(i64::from), surface.scale.map(i64::from)]
    };
    let [a, b, c] = value(&first);
    let [d, e, f] = value(&second);
    let codes = Codes2 {
        discipline,
        category: section.u8(10)?,
        number: section.u8(11)?,
        surfaces: [a, b, c, d, e, f],
        process,
        earlier: (identification.centre == 98 || identification.sub_centre == 98)
            && identification.tables <= 33,
        local: identification.local_tables == 1,
    };
    let (level_type, level) = product::level2(first, second);
    let byte = |at: usize| section.u8(at).map(|n| Some(i64::from(n)));
    let total = template.total.or(template.ensemble.map(|at| at + 1));
    Ok(FieldProduct {
        edition: 2,
        centre: identification.centre,
        sub_centre: identification.sub_centre,
        parameter: Parameter::of_edition2(&codes),
        data_type: identification.data_type,
        level_type,
        level,
        step_type: kind,
        number: template.ensemble.map_or(Ok(None), byte)?,
        total_number: total.map_or(Ok(None), byte)?,
        time: identification.time,
        step,
        vertical_parameters: u32::from(section.u16(6)?),
    })
}

/// Parses section 5: the number of coded values and their packing.
///
/// # Errors
/// `Corrupt`, `Unsupported` with the template.
pub(crate) fn packing(section: &Octets<'_>) -> Result<(u64, FieldPacking)> {
    let coded = u64::from(section.u32(6)?);
    let template = section.u16(10)?;
    if template == 4 {
        return match section.u8(12)? {
            precision @ (1 | 2) => Ok((coded, FieldPacking::Ieee { double: precision == 2 })),
            other => Err(Error::unsupported(format!("IEEE numbers of precision {other}"))),
        };
    }
    if template == 200 {
        return Ok((coded, FieldPacking::RunLength(RunLength::parse(section)?)));
    }
    if !matches!(template, 0 | 2 | 3 | 40 | 41 | 42 | 40_000 | 40_010) {
        let feature = match template {
            1 => "matrices of values at each point".to_owned(),
            50 | 51 => "spherical harmonics".to_owned(),
            53 => "bi-Fourier coefficients".to_owned(),
            other => format!("data representation template {other}"),
        };
        return Err(Error::unsupported(feature));
    }
    let scale = PackingScale::new(section.ieee(12)?, section.i16(16)?, section.i16(18)?);
    let bits = u32::from(section.u8(20)?);
    if bits > 64 {
        return Err(section.corrupt(format!("{bits} bits per value exceed 64")));
    }
    let packing = match template {
        2 | 3 => FieldPacking::Complex { scale, complex: Complex::parse(section, bits, template == 3)? },
        _ if bits == 0 => FieldPacking::Simple { scale, bits },
        0 => FieldPacking::Simple { scale, bits },
        40 | 40_000 => FieldPacking::Jpeg2000 { scale, bits },
        41 | 40_010 => FieldPacking::Png { scale, bits },
        _ => FieldPacking::Ccsds { scale, ccsds: Ccsds::parse(section, bits)? },
    };
    Ok((coded, packing))
}
