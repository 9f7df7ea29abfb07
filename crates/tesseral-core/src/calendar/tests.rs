use super::*;

/// Times that cftime 1.6 gives for numbers, units and calendars: calendar, units, number, year, month, day, microsecond of the day.
const CFTIME: &str = include_str!("cftime.tsv");

#[test]
fn times_are_those_of_cftime() {
    let mut rows = 0;
    for row in CFTIME.lines() {
        let columns: Vec<&str> = row.split('\t').collect();
        let [calendar, units, number, year, month, day, micros] = columns[..] else { panic!("{row}") };
        let units = TimeUnits::parse(units, Some(calendar)).unwrap().unwrap();
        let found = match number.parse::<i64>() {
            Ok(count) => units.at(&Scalar::from_element(count)),
            Err(_) => units.at(&Scalar::from_element::<f64>(number.parse().unwrap())),
        };
        let found = found.unwrap();
        assert_eq!(
            (found.year, found.month, found.day),
            (year.parse().unwrap(), month.parse().unwrap(), day.parse().unwrap()),
            "{row}"
        );
        let micros: u64 = micros.parse().unwrap();
        assert!(found.micros.abs_diff(micros) <= 1, "{row}: {}", found.micros);
        rows += 1;
    }
    assert!(rows > 200);
}

#[test]
fn every_day_follows_the_one_before() {
    use Calendar::*;
    for calendar in [Standard, ProlepticGregorian, Julian, NoLeap, AllLeap, Days360] {
        let (mut year, mut month, mut day) = (1580_i64, 1_u8, 1_i64);
        let mut number = calendar.day_number(year, month, day);
        while year < 1605 {
            let (y, m, d) = calendar.civil(number);
            assert_eq!((y, m, i64::from(d)), (year, month, day), "{calendar}");
            assert_eq!(calendar.day_number(year, month, day), number, "{calendar}");
            number += 1;
            day += 1;
            if calendar == Standard && (year, month, day) == (1582, 10, 5) {
                day = 15;
            }
            if day > calendar.days_in_month(year, month) {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }
}

#[test]
fn texts_name_ranges_in_their_calendar() {
    let units = |calendar| TimeUnits::parse("days since 2000-01-01", Some(calendar)).unwrap().unwrap();
    let range = |calendar, text| units(calendar).range(text).unwrap();
    assert_eq!(range("standard", "2000-02"), (31.0, 60.0));
    assert_eq!(range("noleap", "2000-02"), (31.0, 59.0));
    assert_eq!(range("360_day", "2000-02"), (30.0, 60.0));
    assert_eq!(range("360_day", "2000-02-30"), (59.0, 60.0));
    assert_eq!(range("360_day", "2001"), (360.0, 720.0));
    assert_eq!(range("all_leap", "2001"), (366.0, 732.0));
    assert_eq!(range("standard", "2000-01-01T06"), (0.25, 0.25 + 1.0 / 24.0));
    for (calendar, text) in [
        ("standard", "2001-02-29"),
        ("standard", "1582-10-10"),
        ("noleap", "2000-02-29"),
        ("360_day", "2000-01-31"),
        ("standard", "2000-13"),
        ("standard", "2000-01T06"),
        ("standard", "July"),
    ] {
        assert!(units(calendar).range(text).is_err(), "{calendar} {text}");
    }
}

#[test]
fn zones_are_understood_or_rejected() {
    let parse = |units: &str| TimeUnits::parse(units, None);
    let utc = parse("hours since 2000-01-01 00:00:00").unwrap().unwrap();
    for same in [
        "hours since 2000-01-01 01:00:00 +01:00",
        "hours since 2000-01-01T00:00Z",
        "hours since 1999-12-31 18:00 -6",
        "hours since 2000-01-01 00:00:00.0 UTC",
        "hours since 2000-01-01 05:30 +0530",
    ] {
        assert_eq!(parse(same).unwrap().unwrap(), utc, "{same}");
    }
    assert!(parse("hours since 2000-01-01 00:00:00 CET").is_err());
    assert!(parse("hours since 2000-01-01 00:00 +99").is_err());
    assert!(parse("hours since 2000-01-01 00:00 +1é€").is_err());
    assert!(parse("hours since 2000-01-01 00:00 -é").is_err());
    assert!(parse("fortnights since 2000-01-01").is_err());
    assert!(parse("months since 2000-01-01").is_err());
    assert!(TimeUnits::parse("days since 2000-01-01", Some("martian")).is_err());
    assert_eq!(parse("K").unwrap(), None);
    assert_eq!(parse("m s-1").unwrap(), None);
}

#[test]
fn numbers_without_a_time_have_none() {
    let units = TimeUnits::parse("days since 2000-01-01", None).unwrap().unwrap();
    assert_eq!(units.at(&Scalar::from_element(f64::NAN)), None);
    assert_eq!(units.at(&Scalar::from_element(1e300)), None);
    assert_eq!(units.at(&Scalar::from_element(i64::MAX)), None);
    assert_eq!(units.at(&Scalar::from_element(0.5)).unwrap().to_string(), "2000-01-01T12:00");
    assert_eq!(units.at(&Scalar::from_element(59_i64)).unwrap().to_string(), "2000-02-29");
}

#[test]
fn numbers_of_every_dtype_have_a_time() {
    let units = TimeUnits::parse("hours since 2000-01-01", Some("noleap")).unwrap().unwrap();
    for number in [Scalar::from_element(36_u8), Scalar::from_element(36_f32), Scalar::from_element(36_i64)] {
        assert_eq!(units.at(&number).unwrap().to_string(), "2000-01-02T12:00");
        assert!(units.span("2000-01-02").unwrap().contains(&units.instant(&number).unwrap()));
    }
    assert_eq!(units.at(&Scalar::from_element(f32::NAN)), None);
    assert_eq!(units.at(&Scalar::from_element(u64::MAX)), None);
}

#[test]
fn attributes_declare_units() {
    use crate::DType;
    let found = |dtype: DType, pairs: &[(&str, &str)]| {
        let attributes = pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect();
        let schema = ArraySchema { attributes, ..ArraySchema::dense("t", dtype, &[1], &[1]) };
        TimeUnits::of_field(&schema, &schema.fields[0])
    };
    let days = ("units", "days since 2000-01-01");
    let units = found(DType::Int32, &[days, ("calendar", "360_day")]).unwrap();
    assert_eq!(units.calendar(), Calendar::Days360);
    assert_eq!(found(DType::Float64, &[days]).unwrap().calendar(), Calendar::Standard);
    assert_eq!(found(DType::Float64, &[days, ("calendar", "martian")]), None);
    assert_eq!(
        found(DType::Float64, &[days, ("scale_factor", "2")]),
        None,
        "the units are those of physical values"
    );
    assert_eq!(found(DType::Utf8, &[days]), None);
    assert_eq!(found(DType::Float64, &[("units", "K")]), None);
}

#[test]
fn gregorian_times_are_those_of_numpy() {
    let units = |calendar| TimeUnits::parse("days since 1970-01-02", Some(calendar)).unwrap().unwrap();
    let day = 86_400_000_000;
    for calendar in ["standard", "proleptic_gregorian"] {
        assert_eq!(units(calendar).unix_micros(&Scalar::from_element(0.5_f64)), Some(day + day / 2));
    }
    let before = Scalar::from_element(-200_000_i32);
    assert_eq!(units("standard").unix_micros(&before), None, "before the reform");
    assert_eq!(units("proleptic_gregorian").unix_micros(&before), Some(-199_999 * day));
    assert_eq!(units("noleap").unix_micros(&Scalar::from_element(0_i8)), None);
    assert_eq!(units("standard").unix_micros(&Scalar::from_element(f64::NAN)), None);
}

/// Units are untrusted text: every truncation and every changed character gives units or an error.
#[test]
fn damaged_units_never_panic() {
    let samples = [
        "days since 1850-01-01",
        "hours since -0001-12-31T23:59:59.123456+05:30",
        "s since 2000-1-1 0:0:0 UTC",
    ];
    let numbers =
        [Scalar::from_element(i64::MIN), Scalar::from_element(f64::MAX), Scalar::from_element(-0.5_f32)];
    for sample in samples {
        for at in 0..=sample.len() {
            for change in ["", "é", "-", "+", ":", "9", "T", "999999999999"] {
                for text in [
                    format!("{}{change}", &sample[..at]),
                    format!("{}{change}{}", &sample[..at], &sample[at..]),
                ] {
                    for calendar in ["standard", "360_day", "", "é"] {
                        let Ok(Some(units)) = TimeUnits::parse(&text, Some(calendar)) else { continue };
                        for number in &numbers {
                            let _ = (units.at(number), units.unix_micros(number));
                        }
                        let _ = units.range(&text).is_ok() | units.span(&sample[..at]).is_ok();
                    }
                }
            }
        }
    }
}

#[test]
fn parts_of_times_in_every_calendar() {
    let at = |units: &str, calendar: &str, count: i64| {
        let units = TimeUnits::parse(units, Some(calendar)).unwrap().unwrap();
        let time = units.at(&Scalar::from_element(count)).unwrap();
        let part = |part: TimePart| part.text(part.index(&time, units.calendar()));
        [
            TimePart::Year,
            TimePart::Month,
            TimePart::Season,
            TimePart::Day,
            TimePart::DayOfYear,
            TimePart::Hour,
        ]
        .map(part)
        .join(" ")
    };
    assert_eq!(at("hours since 2000-01-01", "standard", 24 * 60 + 5), "2000 3 MAM 1 61 5");
    assert_eq!(at("hours since 2001-01-01", "standard", 24 * 59 + 23), "2001 3 MAM 1 60 23");
    assert_eq!(at("days since 2000-01-01", "noleap", 364), "2000 12 DJF 31 365 0");
    assert_eq!(at("days since 2001-01-01", "all_leap", 365), "2001 12 DJF 31 366 0");
    assert_eq!(at("days since 2000-01-01", "360_day", 59), "2000 2 DJF 30 60 0");
    assert_eq!(at("days since 1900-01-01", "julian", 59), "1900 2 DJF 29 60 0");
    // Ten days are left out in 1582.
    assert_eq!(at("days since 1582-10-04", "standard", 1), "1582 10 SON 15 278 0");
    for name in ["year", "month", "season", "day", "dayofyear", "hour", "date"] {
        assert_eq!(name.parse::<TimePart>().unwrap().to_string(), name);
    }
    assert!("week".parse::<TimePart>().is_err());
    let date = |year, month, day| CivilTime { year, month, day, micros: 5 };
    let mut last = i64::MIN;
    for (time, text) in [
        (date(-1, 12, 31), "-0001-12-31"),
        (date(0, 1, 1), "0000-01-01"),
        (date(1999, 12, 31), "1999-12-31"),
        (date(2000, 1, 1), "2000-01-01"),
        (date(2000, 2, 30), "2000-02-30"),
        (date(2000, 3, 1), "2000-03-01"),
    ] {
        let number = TimePart::Date.index(&time, Calendar::Standard);
        assert_eq!(TimePart::Date.text(number), text);
        assert!(number > last, "dates order as their numbers");
        last = number;
    }
}

#[test]
fn dates_of_numpy_have_the_same_parts() {
    use crate::TimeUnit::*;
    let part = |count: i64, unit| time::civil(count, unit).map(|time| time.to_string());
    assert_eq!(part(-1, Day).unwrap(), "1969-12-31");
    assert_eq!(part(-1, Nanosecond).unwrap(), "1969-12-31T23:59:59.999999");
    assert_eq!(part(13, Month).unwrap(), "1971-02-01");
    assert_eq!(part(-1, Year).unwrap(), "1969-01-01");
    assert_eq!(part(1, Week).unwrap(), "1970-01-08");
    assert_eq!(part(25, Hour).unwrap(), "1970-01-02T01:00");
    assert_eq!(part(time::NOT_A_TIME, Second), None);
    assert_eq!(part(i64::MAX, Year), None);
}
