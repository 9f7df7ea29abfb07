//! The product of a field: parameter, level, time and ensemble member.

use crate::parameter::Parameter;

/// The description of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldProduct {
    pub edition: u8,
    pub centre: u16,
    pub sub_centre: u16,
    pub parameter: Parameter,
    /// Kind of processing (`an`, `fc`, `pf`).
    pub data_type: Option<&'static str>,
    /// Name of the level type; `None` if it is unknown.
    pub level_type: Option<&'static str>,
    /// The level in the units of its type.
    pub level: f64,
    /// Statistical process over time (`instant`, `accum`).
    pub step_type: &'static str,
    /// Number of the ensemble member.
    pub number: Option<i64>,
    /// Size of the ensemble.
    pub total_number: Option<i64>,
    /// Reference time in seconds since 1970.
    pub time: i64,
    /// Seconds from the reference time to the time of the field, or to the end of its interval.
    pub step: i64,
    /// Number of vertical coordinate parameters.
    pub vertical_parameters: u32,
}

/// Names of centers: number, abbreviation, name.
const CENTRES: [(u16, &str, &str); 17] = [
    (7, "kwbc", "US National Weather Service - NCEP (WMC)"),
    (8, "8", "US National Weather Service - NWSTG (WMC)"),
    (9, "9", "US National Weather Service - Other (WMC)"),
    (34, "rjtd", "Japanese Meteorological Agency - Tokyo (RSMC)"),
    (38, "babj", "Beijing (RSMC)"),
    (46, "sbsj", "Brasilian Space Agency - INPE"),
    (54, "cwao", "Canadian Meteorological Service - Montreal (RSMC)"),
    (74, "egrr", "U.K. Met Office - Exeter"),
    (78, "edzw", "Offenbach (RSMC)"),
    (80, "cnmc", "Rome (RSMC)"),
    (84, "lfpw", "French Weather Service - Toulouse"),
    (85, "lfpw", "French Weather Service - Toulouse"),
    (86, "efkl", "Helsinki"),
    (94, "ekmi", "Copenhagen"),
    (98, "ecmf", "European Centre for Medium-Range Weather Forecasts"),
    (173, "nasa", "US National Aeronautics and Space Administration (NASA)"),
    (250, "cosmo", "COnsortium for Small scale MOdelling (COSMO)"),
];

/// Abbreviation of a center: its number if it has none here.
pub(crate) fn centre_name(centre: u16) -> String {
    let known = CENTRES.iter().find(|(number, ..)| *number == centre);
    known.map_or_else(|| centre.to_string(), |(_, name, _)| (*name).to_owned())
}

/// Name of a center.
pub(crate) fn centre_description(centre: u16) -> Option<&'static str> {
    CENTRES.iter().find(|(number, ..)| *number == centre).map(|(.., description)| *description)
}

/// Abbreviations of ECMWF's types of data, by number.
const MARS_TYPES: [(u16, &str); 76] = [
    (1, "fg"),
    (2, "an"),
    (3, "ia"),
    (4, "oi"),
    (5, "3v"),
    (6, "4v"),
    (7, "3g"),
    (8, "4g"),
    (9, "fc"),
    (10, "cf"),
    (11, "pf"),
    (12, "ef"),
    (13, "ea"),
    (14, "cm"),
    (15, "cs"),
    (16, "fp"),
    (17, "em"),
    (18, "es"),
    (19, "fa"),
    (20, "cl"),
    (21, "si"),
    (22, "s3"),
    (23, "ed"),
    (24, "tu"),
    (25, "ff"),
    (26, "of"),
    (27, "efi"),
    (28, "efic"),
    (29, "pb"),
    (30, "ep"),
    (31, "bf"),
    (32, "cd"),
    (33, "4i"),
    (34, "go"),
    (35, "me"),
    (36, "pd"),
    (37, "ci"),
    (38, "sot"),
    (39, "eme"),
    (40, "im"),
    (42, "sim"),
    (43, "wem"),
    (44, "wes"),
    (45, "cr"),
    (46, "ses"),
    (47, "taem"),
    (48, "taes"),
    (50, "sg"),
    (52, "sf"),
    (60, "pa"),
    (61, "icp"),
    (62, "sv"),
    (63, "as"),
    (64, "svar"),
    (65, "cv"),
    (70, "or"),
    (71, "fx"),
    (72, "fu"),
    (73, "sfo"),
    (74, "tpa"),
    (75, "if"),
    (80, "fcmean"),
    (81, "fcmax"),
    (82, "fcmin"),
    (83, "fcstdev"),
    (86, "hcmean"),
    (87, "ssd"),
    (88, "gsd"),
    (89, "ga"),
    (90, "gai"),
    (91, "gbf"),
    (92, "pfc"),
    (93, "ppm"),
    (94, "gwt"),
    (95, "est"),
    (96, "mpp"),
];

/// Abbreviation of one of ECMWF's types of data.
pub(crate) fn mars_type(number: u16) -> Option<&'static str> {
    MARS_TYPES.iter().find(|(own, _)| *own == number).map(|(_, name)| *name)
}

/// Seconds of a unit of time of edition 2; `None` for months and longer, which have no fixed length.
pub(crate) fn unit_seconds(unit: u8) -> Option<i64> {
    Some(match unit {
        0 => 60,
        1 => 3600,
        2 => 86_400,
        10 => 10_800,
        11 => 21_600,
        12 => 43_200,
        13 => 1,
        14 => 900,
        15 => 1800,
        _ => return None,
    })
}

/// Seconds since 1970 of a date and time of the proleptic Gregorian calendar; `None` if there is no such date.
pub(crate) fn seconds(year: i64, month: u8, day: u8, hour: u8, minute: u8, second: u8) -> Option<i64> {
    use tesseral_core::TimeUnit;
    // Dates of averages over a month can have day 0 in edition 1.
    let day = day.max(1);
    if hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let date = tesseral_core::time::parse(&format!("{year:04}-{month:02}-{day:02}"), TimeUnit::Second)?;
    date.checked_add(i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second))
}

/// Name of a level type of edition 1.
pub(crate) fn level_type1(indicator: u8) -> Option<&'static str> {
    Some(match indicator {
        1 => "surface",
        2 => "cloudBase",
        3 => "cloudTop",
        4 => "isothermZero",
        5 => "adiabaticCondensation",
        6 => "maxWind",
        7 => "tropopause",
        8 => "nominalTop",
        9 => "seaBottom",
        100 => "isobaricInhPa",
        101 => "isobaricLayer",
        102 => "meanSea",
        103 => "heightAboveSea",
        104 => "heightAboveSeaLayer",
        105 => "heightAboveGround",
        106 => "heightAboveGroundLayer",
        107 => "sigma",
        108 => "sigmaLayer",
        109 => "hybrid",
        110 => "hybridLayer",
        111 => "depthBelowLand",
        112 => "depthBelowLandLayer",
        113 => "theta",
        114 => "thetaLayer",
        115 => "pressureFromGround",
        116 => "pressureFromGroundLayer",
        117 => "potentialVorticity",
        121 => "isobaricLayerHighPrecision",
        125 => "heightAboveGroundHighPrecision",
        128 => "sigmaLayerHighPrecision",
        141 => "isobaricLayerMixedPrecision",
        160 => "depthBelowSea",
        200 => "entireAtmosphere",
        201 => "entireOcean",
        203 => "abstractMultipleLevels",
        210 => "isobaricInPa",
        _ => return None,
    })
}

/// Whether the octets of the level of edition 1 are its top and bottom.
pub(crate) fn is_layer1(indicator: u8) -> bool {
    matches!(indicator, 101 | 104 | 106 | 108 | 110 | 112 | 114 | 116 | 120 | 121 | 128 | 141)
}

/// A surface of edition 2: type, scaled value and scale factor, where they are not missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Surface {
    pub kind: u8,
    pub value: Option<u32>,
    pub scale: Option<i32>,
}

impl Surface {
    /// The value in the units of the type; 0 if it is missing.
    fn level(&self) -> f64 {
        let Some(value) = self.value else { return 0.0 };
        // Potential vorticity is in units of 10^-9.
        let scale = self.scale.map_or(0, |scale| if self.kind == 109 { scale - 9 } else { scale });
        let (mut level, mut left) = (f64::from(value), scale);
        while left < 0 && level != 0.0 && level.is_finite() {
            level *= 10.0;
            left += 1;
        }
        while left > 0 && level != 0.0 {
            level /= 10.0;
            left -= 1;
        }
        level
    }

    fn is(&self, value: u32) -> bool {
        self.value == Some(value) && self.scale == Some(0)
    }
}

/// Name of the level type and the level of surfaces of edition 2.
pub(crate) fn level2(first: Surface, second: Surface) -> (Option<&'static str>, f64) {
    let level = first.level();
    let name = match (first.kind, second.kind) {
        (1, 255) => "surface",
        (1, 7) => "troposphere",
        (1, 8) => "entireAtmosphere",
        (1, 9) => "entireOcean",
        (1, 100) if second.is(80_000) => "lowCloudLayer",
        (1, 151) => "totalSoilLayer",
        (1, 162) => "entireLake",
        (2, 255) => "cloudBase",
        (3, 255) => "cloudTop",
        (4, 255) => "isothermZero",
        (5, 255) => "adiabaticCondensation",
        (6, 255) => "maxWind",
        (7, 255) => "tropopause",
        (7, 36) => "stratosphere",
        (8, 255) => "nominalTop",
        (9, 255) => "seaBottom",
        (10, 255) => "atmosphere",
        (11, 255) => "cumulonimbusBase",
        (12, 255) => "cumulonimbusTop",
        (14, 255) => "freeConvection",
        (15, 255) => "convectiveCondensation",
        (16, 255) => "neutralBuoyancy",
        (17, 255) => "mostUnstableParcel",
        (18, 255) => "mixedLayerParcel",
        (20, 255) => "isothermal",
        (100, 100) if first.is(80_000) && second.is(45_000) => "mediumCloudLayer",
        (100, 8) if first.is(45_000) => "highCloudLayer",
        // Levels of at least 1 hPa are in hPa, others in Pa.
        (100, 255) if level >= 100.0 => return (Some("isobaricInhPa"), level / 100.0),
        (100, 255) => "isobaricInPa",
        (100, 100) => return (Some("isobaricLayer"), level / 100.0),
        (101, 255) => "meanSea",
        (102, 255) => "heightAboveSea",
        (102, 102) => "heightAboveSeaLayer",
        (103, 255) => "heightAboveGround",
        (103, 103) => "heightAboveGroundLayer",
        (104, 255) => "sigma",
        (104, 104) => "sigmaLayer",
        (105, 255) => "hybrid",
        (105, 105) => "hybridLayer",
        (106, 255) => "depthBelowLand",
        (106, 106) => "depthBelowLandLayer",
        (107, 255) => "theta",
        (107, 107) => "thetaLayer",
        (108, 255) => "pressureFromGround",
        (108, 108) => "pressureFromGroundLayer",
        (109, 255) => "potentialVorticity",
        (111, 255) => "eta",
        (114, 255) => "snow",
        (114, 114) => "snowLayer",
        (117, 255) => "mixedLayerDepthGeneric",
        (118, 255) => "hybridHeight",
        (119, 255) => "hybridPressure",
        (151, 255) => "soil",
        (151, 151) => "soilLayer",
        (152, 255) => "seaIce",
        (152, 152) => "seaIceLayer",
        (160, 255) if first.is(0) => "oceanSurface",
        (160, 255) => "depthBelowSea",
        (160, 160) => "depthBelowSeaLayer",
        (160, 9) => "oceanSurfaceToBottom",
        (162, 255) => "lakeBottom",
        (166, 255) => "mixingLayer",
        (168, 255) => "oceanModel",
        (168, 168) => "oceanModelLayer",
        (169, 255) => "mixedLayerDepthByDensity",
        (170, 255) => "mixedLayerDepthByTemperature",
        (171, 255) => "mixedLayerDepthByDiffusivity",
        (174, 255) => "iceTopOnWater",
        (174, 176) => "iceLayerOnWater",
        _ => return (None, level),
    };
    (Some(name), level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_the_units_of_their_type() {
        let none = Surface { kind: 255, value: None, scale: None };
        let at = |kind, value, scale| Surface { kind, value: Some(value), scale: Some(scale) };
        assert_eq!(level2(at(100, 50_000, 0), none), (Some("isobaricInhPa"), 500.0));
        assert_eq!(level2(at(100, 5, -2), none), (Some("isobaricInhPa"), 5.0));
        assert_eq!(level2(at(100, 150, 0), none), (Some("isobaricInhPa"), 1.5));
        assert_eq!(level2(at(100, 50, 0), none), (Some("isobaricInPa"), 50.0));
        assert_eq!(level2(at(103, 2, 0), none), (Some("heightAboveGround"), 2.0));
        assert_eq!(level2(at(106, 7, 2), at(106, 28, 2)), (Some("depthBelowLandLayer"), 7.0 / 10.0 / 10.0));
        assert_eq!(level2(at(103, u32::MAX, i32::MIN + 9), none).1, f64::INFINITY);
        assert_eq!(level2(Surface { kind: 240, ..none }, none), (None, 0.0));
    }

    #[test]
    fn dates_are_checked() {
        assert_eq!(seconds(1970, 1, 2, 3, 4, 5), Some(86_400 + 3 * 3600 + 4 * 60 + 5));
        assert_eq!(seconds(1970, 1, 0, 0, 0, 0), Some(0));
        assert_eq!(seconds(2024, 2, 29, 0, 0, 0), Some(1_709_164_800));
        for (month, day, hour) in [(13, 1, 0), (2, 30, 0), (0, 1, 0), (1, 1, 25)] {
            assert_eq!(seconds(2023, month, day, hour, 0, 0), None);
        }
    }
}
