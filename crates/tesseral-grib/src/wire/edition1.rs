//! Sections 1 and 4 of edition 1.

use tesseral_core::{Error, Result};

use super::octets::Octets;
use crate::packing::{FieldPacking, PackingScale, SecondOrder};
use crate::parameter::Parameter;
use crate::product::{self, FieldProduct};

/// Content of section 1.
#[derive(Debug)]
pub(crate) struct Definition {
    pub product: FieldProduct,
    pub decimal_scale: i32,
}

/// Seconds of a unit of time; `None` for months and longer.
fn unit_seconds(unit: u8) -> Option<i64> {
    match unit {
        13 => Some(900),
        14 => Some(1800),
        254 => Some(1),
        unit => product::unit_seconds(unit),
    }
}

fn step_type(indicator: u8, centre: u16) -> &'static str {
    match indicator {
        2 if centre == 98 => "max",
        2 | 4 => "accum",
        3 => "avg",
        5 => "diff",
        113 => "avgfc",
        118 => "max",
        119 => "min",
        120 => "rms",
        121 => "sd",
        122 => "cov",
        123 => "avgua",
        124 => "avgia",
        128 => "avgas",
        130 => "avgad",
        133 => "avgid",
        _ => "instant",
    }
}

/// Number and size of the ensemble, and the type of data, of ECMWF's local definitions.
fn local(section: &Octets<'_>) -> Result<(Option<&'static str>, Option<i64>, Option<i64>)> {
    if section.len() < 51 {
        return Ok((None, None, None));
    }
    let data_type = product::mars_type(u16::from(section.u8(43)?));
    let byte = |at: usize| section.u8(at).map(|n| Some(i64::from(n)));
    let two = |at: usize| section.u16(at).map(|n| Some(i64::from(n)));
    let (number, total) = match section.u8(41)? {
        1 | 2 | 13 | 14 | 17 | 18 | 26..=28 | 30..=32 | 36 | 37 | 40 | 49 | 50 | 218 => {
            (byte(50)?, byte(51)?)
        }
        12 | 16 => (two(50)?, two(63)?),
        15 => (two(50)?, two(56)?),
        23 => (two(50)?, two(81)?),
        _ => (None, None),
    };
    Ok((data_type, number, total))
}

/// Parses section 1.
///
/// # Errors
/// `Corrupt`, `Unsupported` for steps in months.
pub(crate) fn definition(section: &Octets<'_>) -> Result<Definition> {
    let (centre, sub_centre) = (u16::from(section.u8(5)?), u16::from(section.u8(26)?));
    let level_kind = section.u8(10)?;
    let level = i64::from(if product::is_layer1(level_kind) {
        u16::from(section.u8(11)?)
    } else {
        section.u16(11)?
    });
    let century = i64::from(section.u8(25)?);
    let year = (century - 1) * 100 + i64::from(section.u8(13)?);
    let time = product::seconds(year, section.u8(14)?, section.u8(15)?, section.u8(16)?, section.u8(17)?, 0);
    let time = time.ok_or_else(|| section.corrupt("the reference time is not a date"))?;
    let indicator = section.u8(21)?;
    let step_type = step_type(indicator, centre);
    let steps = match indicator {
        10 => i64::from(section.u16(19)?),
        _ if step_type == "instant" => i64::from(section.u8(19)?),
        _ => i64::from(section.u8(20)?),
    };
    let unit = section.u8(18)?;
    let seconds = if steps == 0 { Some(0) } else { unit_seconds(unit) };
    let seconds = seconds.ok_or_else(|| Error::unsupported(format!("steps in units of code {unit}")))?;
    let ecmwf = centre == 98 || sub_centre == 98;
    let (data_type, number, total_number) = if ecmwf { local(section)? } else { (None, None, None) };
    let product = FieldProduct {
        edition: 1,
        centre,
        sub_centre,
        parameter: Parameter::of_edition1(section.u8(4)?, section.u8(9)?, level_kind, level),
        data_type,
        level_type: product::level_type1(level_kind),
        level: level as f64,
        step_type,
        number,
        total_number,
        time,
        step: steps * seconds,
        vertical_parameters: 0,
    };
    Ok(Definition { product, decimal_scale: section.i16(27)? })
}

/// Parses the header of section 4: the packing and the offset of the data.
///
/// # Errors
/// `Corrupt`, `Unsupported` with the packing.
pub(crate) fn packing(section: &Octets<'_>, decimal_scale: i32) -> Result<(FieldPacking, u64)> {
    let flags = section.u8(4)?;
    let scale = PackingScale::new(section.ibm(7)?, section.i16(5)?, decimal_scale);
    let bits = u32::from(section.u8(11)?);
    if flags & 0x80 != 0 {
        return Err(Error::unsupported("spherical harmonics"));
    }
    if flags & 0x40 == 0 {
        if flags & 0x10 != 0 {
            return Err(Error::unsupported("matrices of values at each point"));
        }
        if bits > 64 {
            return Err(section.corrupt(format!("{bits} bits per value exceed 64")));
        }
        return Ok((FieldPacking::Simple { scale, bits }, 11));
    }
    let (second, header) = SecondOrder::parse(section, bits)?;
    Ok((FieldPacking::SecondOrder { scale, second }, header))
}
