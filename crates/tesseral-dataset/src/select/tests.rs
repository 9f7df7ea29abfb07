use tesseral_core::schema::Labels;
use tesseral_core::{ArraySchema, DType, ErrorKind, Scalar, Slice, TimeUnit};

use super::{parse, ranges};

fn schema(shape: &[u64]) -> ArraySchema {
    ArraySchema::dense("a", DType::Float32, shape, &vec![1; shape.len()])
}

fn labeled(labels: Labels) -> ArraySchema {
    let mut schema = schema(&[labels.len() as u64]);
    schema.dims[0].name = "x".to_owned();
    schema.dims[0].labels = Some(labels);
    schema
}

fn words(labels: &[&str]) -> ArraySchema {
    labeled(Labels::Text(labels.iter().map(|l| (*l).to_owned()).collect()))
}

fn numbers(dtype: DType, labels: &[&str]) -> ArraySchema {
    let bytes = labels.iter().flat_map(|l| Scalar::parse(dtype, l).unwrap().bytes().to_vec()).collect();
    labeled(Labels::Numbers { dtype, bytes })
}

fn selected_positions(schema: &ArraySchema, argument: &str) -> Vec<u64> {
    let (selection, _) = parse(schema, [argument]).unwrap_or_else(|e| panic!("{argument}: {e}"));
    let Slice { start, end, step } = selection.slices()[0];
    (start..end).step_by(step as usize).collect()
}

#[track_caller]
fn invalid(schema: &ArraySchema, argument: &str) {
    let error = parse(schema, [argument]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{argument}: {error:?}");
    assert!(error.to_string().contains(&format!("{argument:?}")), "{argument} is not named: {error}");
}

#[track_caller]
fn missing(schema: &ArraySchema, argument: &str, wanted: &str) {
    match parse(schema, [argument]).unwrap_err().kind() {
        ErrorKind::NotFound { name, .. } => assert_eq!(name, wanted),
        other => panic!("{argument}: {other:?}"),
    }
}

#[test]
fn positions_slice_as_numpy_does() {
    let extent = 7_i64;
    let schema = schema(&[extent as u64]);
    let all: Vec<u64> = (0..extent as u64).collect();
    for start in -extent..=extent {
        for end in -extent..=extent {
            let (from, to) = (start.rem_euclid(extent), end.rem_euclid(extent));
            let from = if start == extent { extent } else { from } as usize;
            let to = if end == extent { extent } else { to } as usize;
            for step in 1..4 {
                let text = format!("0={start}:{end}:{step}");
                if from > to {
                    invalid(&schema, &text);
                } else {
                    let want: Vec<u64> = all[from..to].iter().copied().step_by(step).collect();
                    assert_eq!(selected_positions(&schema, &text), want, "{text}");
                }
            }
        }
    }
    assert_eq!(selected_positions(&schema, "0=-3:"), [4, 5, 6]);
    assert_eq!(selected_positions(&schema, "0=:-5"), [0, 1]);
    assert_eq!(selected_positions(&schema, "0=::3"), [0, 3, 6]);
    assert_eq!(selected_positions(&schema, "0=:"), all);
    assert_eq!(selected_positions(&schema, "0=2"), [2]);
    assert_eq!(selected_positions(&schema, "0=-1"), [6]);
    assert_eq!(selected_positions(&schema, "0=7:"), [0; 0]);
}

#[test]
fn positions_out_of_bounds_are_rejected() {
    let schema = schema(&[7]);
    for wrong in [
        "0=7",
        "0=-8",
        "0=0:8",
        "0=-8:",
        "0=5:2",
        "0=0:5:0",
        "0=0:5:-1",
        "0=1:2:3:4",
        "0=x",
        "0=1.5",
        "0=",
        "0=x:3",
    ] {
        invalid(&schema, wrong);
    }
    invalid(&schema, "7");
    invalid(&schema, "0=9223372036854775808");
    missing(&schema, "time=3", "time");
    missing(&schema, "1=3", "1");
    invalid(&self::schema(&[0]), "0=0");
    assert_eq!(selected_positions(&self::schema(&[0]), "0=:"), [0; 0]);
}

#[test]
fn dimensions_are_found_by_name_or_number() {
    let mut schema = schema(&[4, 5, 6]);
    schema.dims[0].name = "time".to_owned();
    schema.dims[1].name = "a=b".to_owned();
    let (selection, _) = parse(&schema, ["2=1", "time=1:3", "a=b=::2"]).unwrap();
    assert_eq!(selection.shape().as_slice(), [2, 3, 1]);
    assert_eq!(parse(&schema, ["1=4"]).unwrap().0.shape().as_slice(), [4, 1, 6]);
    assert!(parse(&schema, ["time=1", "0=1"]).is_err(), "the same dimension twice");
    assert_eq!(parse(&schema, []).unwrap().0.shape().as_slice(), [4, 5, 6]);
}

#[test]
fn numeric_labels_compare_as_numbers_in_either_direction() {
    let ascending = words(&["-10", "-2.5", "0", "9", "10", "1e3"]);
    assert_eq!(selected_positions(&ascending, "x=-2.5..9"), [1, 2, 3]);
    assert_eq!(selected_positions(&ascending, "x=9..-2.5"), [1, 2, 3]);
    assert_eq!(selected_positions(&ascending, "x=9.5.."), [4, 5]);
    assert_eq!(selected_positions(&ascending, "x=..0.0"), [0, 1, 2]);
    assert_eq!(selected_positions(&ascending, "x=.."), [0, 1, 2, 3, 4, 5]);
    assert_eq!(selected_positions(&ascending, "x=@1000"), [5]);
    assert_eq!(selected_positions(&ascending, "x=11..12"), [0; 0]);
    missing(&ascending, "x=@11", "11");
    invalid(&ascending, "x=a..9");
    invalid(&ascending, "x=@");

    let descending = words(&["90", "45", "0", "-45", "-90"]);
    assert_eq!(selected_positions(&descending, "x=50..-45"), [1, 2, 3]);
    assert_eq!(selected_positions(&descending, "x=-45..50"), [1, 2, 3]);
    assert_eq!(selected_positions(&descending, "x=45.."), [0, 1]);

    let shuffled = words(&["1", "3", "2"]);
    assert_eq!(selected_positions(&shuffled, "x=2..3"), [1, 2]);
    invalid(&shuffled, "x=1..2");
}

#[test]
fn labels_of_a_dtype_compare_exactly() {
    let floats = numbers(DType::Float32, &["0.1", "0.2", "0.3"]);
    assert_eq!(selected_positions(&floats, "x=@0.2"), [1]);
    assert_eq!(selected_positions(&floats, "x=0.1..0.2"), [0, 1]);
    let large = ["9007199254740992", "9007199254740993", "9007199254740994"];
    for schema in [numbers(DType::Int64, &large), words(&large)] {
        assert_eq!(selected_positions(&schema, "x=@9007199254740993"), [1]);
        assert_eq!(selected_positions(&schema, "x=9007199254740993.."), [1, 2]);
    }
    assert_eq!(selected_positions(&numbers(DType::UInt8, &["1", "2", "3"]), "x=1.5..2.5"), [1]);
    assert_eq!(selected_positions(&numbers(DType::UInt8, &["1", "2", "3"]), "x=-7..2"), [0, 1]);
}

#[test]
fn dates_select_their_period() {
    let days = ["2015-06-30", "2015-07-01", "2015-07-31", "2015-08-01", "2016-01-01"];
    for schema in [words(&days), numbers(DType::DateTime(TimeUnit::Day), &days)] {
        assert_eq!(selected_positions(&schema, "x=@2015-07"), [1, 2]);
        assert_eq!(selected_positions(&schema, "x=2015-07..2015-08"), [1, 2, 3]);
        assert_eq!(selected_positions(&schema, "x=..2015-07"), [0, 1, 2]);
        assert_eq!(selected_positions(&schema, "x=2015-07-02.."), [2, 3, 4]);
        assert_eq!(selected_positions(&schema, "x=@2015-08-01"), [3]);
        assert_eq!(selected_positions(&schema, "x=2015-07-31T12:00..2015"), [3]);
        missing(&schema, "x=@2017", "2017");
        invalid(&schema, "x=July..August");
    }
    let hours = words(&["2015-07-01T00:00", "2015-07-01T06:00", "2015-07-02T00:00"]);
    assert_eq!(selected_positions(&hours, "x=@2015-07-01"), [0, 1]);
    assert_eq!(selected_positions(&hours, "x=2015-07-01T06:00..2015-07-02T00:00:00"), [1, 2]);
    let gaps = numbers(DType::DateTime(TimeUnit::Month), &["2015-01", "NaT", "2015-03"]);
    assert_eq!(selected_positions(&gaps, "x=@2015-03"), [2]);
    invalid(&gaps, "x=2015-01..2015-03");
}

#[test]
fn words_are_ordered_by_appearance() {
    let stations = words(&["Kiel", "Bergen", "Oslo", "Oslo", "a..b", "10:30"]);
    assert_eq!(selected_positions(&stations, "x=Kiel..Bergen"), [0, 1]);
    assert_eq!(selected_positions(&stations, "x=Bergen..Kiel"), [0, 1]);
    assert_eq!(selected_positions(&stations, "x=..Oslo"), [0, 1, 2, 3]);
    assert_eq!(selected_positions(&stations, "x=@Oslo"), [2, 3]);
    assert_eq!(selected_positions(&stations, "x=@a..b"), [4]);
    assert_eq!(selected_positions(&stations, "x=Oslo..a..b"), [2, 3, 4]);
    assert_eq!(selected_positions(&stations, "x=a..b..10:30"), [4, 5]);
    assert_eq!(selected_positions(&stations, "x=@10:30"), [5]);
    missing(&stations, "x=@Rome", "Rome");
    missing(&stations, "x=Kiel..Rome", "Rome");
    invalid(&words(&["p", "q", "p"]), "x=@p");
}

#[test]
fn domains_are_coordinates() {
    let mut counted = schema(&[1_000_000_000_000]);
    counted.dims[0].name = "x".to_owned();
    counted.dims[0].domain = Some((Scalar::from_element(-5_i64), Scalar::from_element(999_999_999_994_i64)));
    let range = |schema: &ArraySchema, argument: &str| {
        let slice = parse(schema, [argument]).unwrap().0.slices()[0];
        (slice.start, slice.end)
    };
    assert_eq!(range(&counted, "x=-5..0"), (0, 6));
    assert_eq!(range(&counted, "x=..-4.5"), (0, 1));
    assert_eq!(range(&counted, "x=-4.5.."), (1, 1_000_000_000_000));
    assert_eq!(range(&counted, "x=@100"), (105, 106));
    assert_eq!(range(&counted, "x=-5"), (999_999_999_995, 999_999_999_996), "a bare number is a position");
    missing(&counted, "x=@-6", "-6");

    let unit = TimeUnit::Month;
    let date = |text: &str| Scalar::parse(DType::DateTime(unit), text).unwrap();
    let mut months = schema(&[24]);
    months.dims[0].domain = Some((date("2015-01"), date("2016-12")));
    assert_eq!(range(&months, "0=@2016"), (12, 24));
    assert_eq!(range(&months, "0=2015-11..2016-02"), (10, 14));
    assert_eq!(range(&months, "0=2015-11-02.."), (11, 24));

    // Counts outside the calendar are on either side of it.
    for unit in [TimeUnit::Year, TimeUnit::Week, TimeUnit::Day, TimeUnit::Minute, TimeUnit::Nanosecond] {
        let far = |count: i64| Scalar::from_element(count).with_dtype(DType::DateTime(unit));
        let mut all = schema(&[u64::MAX]);
        all.dims[0].domain = Some((far(i64::MIN + 1), far(i64::MAX)));
        let (start, end) = range(&all, "0=1970..1970");
        assert_eq!(start, i64::MAX.unsigned_abs(), "{unit:?}");
        assert!(end > start && range(&all, "0=1969..1969").1 == start, "{unit:?}");
    }
}

#[test]
fn dates_before_1970_are_ranges_of_coordinates() {
    for (unit, first, last) in [
        (TimeUnit::Year, -2, -1),
        (TimeUnit::Month, -24, -1),
        (TimeUnit::Day, -731, -1),
        (TimeUnit::Hour, -731 * 24, -1),
        (TimeUnit::Minute, -731 * 1440, -1),
        (TimeUnit::Nanosecond, -731 * 86_400_000_000_000, -1),
    ] {
        let mut schema = schema(&[4]);
        schema.dims[0].dtype = DType::DateTime(unit);
        let found = ranges::parse(&schema, ["0=1968..1969"]).unwrap();
        let ends = found[0].iter().map(|(a, b)| (a.as_i128(), b.as_i128())).collect::<Vec<_>>();
        assert_eq!(ends, [(Some(first), Some(last))], "{unit:?}");
    }
}

#[test]
fn selecting_coordinates_of_an_axis_without_any_is_an_error() {
    invalid(&schema(&[3]), "0=0..1");
    invalid(&schema(&[3]), "0=@1");
    let mut short = words(&["a", "b"]);
    short.dims[0].extent = Some(3);
    invalid(&short, "x=@a");
    assert_eq!(selected_positions(&short, "x=1:"), [1, 2]);
}

#[test]
fn the_nearest_coordinate_is_selected() {
    let descending = numbers(DType::Float32, &["90", "45.5", "0", "-45.5", "-90"]);
    for (argument, position) in
        [("x=~40", 1), ("x=~-1e9", 4), ("x=~22.75", 1), ("x=~-22.75", 2), ("x=~90", 0), ("x=~67.7", 1)]
    {
        assert_eq!(selected_positions(&descending, argument), [position], "{argument}");
    }
    let big = numbers(DType::Int64, &["9007199254740993", "9007199254740995"]);
    assert_eq!(selected_positions(&big, "x=~9007199254740993"), [0]);
    assert_eq!(selected_positions(&big, "x=~9007199254740994"), [1]);
    let dates = words(&["2015-06-01", "2015-06-16", "2015-07-01"]);
    assert_eq!(selected_positions(&dates, "x=~2015-06-12"), [1]);
    let mut domain = schema(&[100]);
    domain.dims[0].domain = Some((Scalar::from_element(-50_i64), Scalar::from_element(49_i64)));
    for (argument, position) in
        [("0=~-49.6", 0), ("0=~-49.5", 1), ("0=~7", 57), ("0=~1000", 99), ("0=~-1000", 0)]
    {
        assert_eq!(selected_positions(&domain, argument), [position], "{argument}");
    }
    invalid(&words(&["a", "b"]), "x=~a");
    invalid(&descending, "x=~");
    invalid(&descending, "x=~north");
}

#[test]
fn cyclic_coordinates_turn() {
    let mut east = numbers(DType::Float32, &["0", "90", "180", "270"]);
    assert_eq!(selected_positions(&east, "x=-100..-80"), [0_u64; 0]);
    east.dims[0].period = Some(360.0);
    assert_eq!(selected_positions(&east, "x=-100..-80"), [3]);
    assert_eq!(selected_positions(&east, "x=@-90"), [3]);
    assert_eq!(selected_positions(&east, "x=80..190"), [1, 2]);
    assert_eq!(selected_positions(&east, "x=350..460"), [0, 1]);
    assert_eq!(selected_positions(&east, "x=~-1"), [0]);
    assert_eq!(selected_positions(&east, "x=~359"), [0]);
    assert_eq!(selected_positions(&east, "x=~-80"), [3]);
    // Positions from 4 on are those from 0 on.
    assert_eq!(selected_positions(&east, "x=-100..10"), [3, 4]);
    // From the first end upward to the second, also across the end of the axis.
    assert_eq!(selected_positions(&east, "x=10..-100"), [1, 2]);
    assert_eq!(selected_positions(&east, "x=170..-170"), [2]);
    assert_eq!(selected_positions(&east, "x=260..100"), [3, 4, 5]);
    assert_eq!(selected_positions(&east, "x=180..-180"), [3, 4, 5, 6]);
    assert_eq!(selected_positions(&east, "x=360..0"), [0, 1, 2, 3]);
    assert_eq!(selected_positions(&east, "x=200..460"), [3, 4, 5]);
    assert_eq!(selected_positions(&east, "x=-180..180"), [3, 4, 5, 6]);
    assert_eq!(selected_positions(&east, "x=0..360"), [0, 1, 2, 3]);
    assert_eq!(selected_positions(&east, "x=-1e9..1e9"), [0, 1, 2, 3]);
    assert_eq!(selected_positions(&east, "x=-100.."), [0, 1, 2, 3]);
    assert_eq!(selected_positions(&east, "x=1..2"), [0_u64; 0]);
    assert_eq!(parse(&east, ["x=-100..10"]).unwrap().1, [0]);
    assert_eq!(parse(&east, ["x=80..190"]).unwrap().1, [0_usize; 0]);
}

/// The numbers of a selection, in its order, after as many turns as place them in the range.
#[test]
fn cyclic_ranges_follow_the_axis() {
    let period = |labels: &[&str], dtype: DType| {
        let mut schema = numbers(dtype, labels);
        schema.dims[0].period = Some(360.0);
        schema
    };
    let west = period(&["-180", "-90", "0", "90", "180"], DType::Int16);
    assert_eq!(selected_positions(&west, "x=-180..180"), [0, 1, 2, 3, 4]);
    assert_eq!(selected_positions(&west, "x=80..190"), [3, 4, 5]);
    assert_eq!(selected_positions(&west, "x=170..280"), [4, 5, 6]);
    assert_eq!(selected_positions(&west, "x=170..-80"), [4, 5, 6]);
    assert_eq!(selected_positions(&west, "x=80..-100"), [3, 4, 5]);
    let descending = period(&["270", "180", "90", "0"], DType::Float64);
    assert_eq!(selected_positions(&descending, "x=-100..100"), [2, 3, 4]);
    assert_eq!(selected_positions(&descending, "x=100..-100"), [2, 3, 4]);
    // The axis of a range across the end is an axis like others.
    let turned = period(&["350", "355", "0", "5"], DType::Float32);
    assert_eq!(selected_positions(&turned, "x=-10..5"), [0, 1, 2, 3]);
    assert_eq!(selected_positions(&turned, "x=-5..2"), [1, 2]);
    assert_eq!(selected_positions(&turned, "x=355..2"), [1, 2]);
    assert_eq!(selected_positions(&turned, "x=0..359"), [2, 3, 4, 5]);
    // 359.9 in single precision is not 360 − 0.1.
    let tenths = period(&["0", "0.1", "359.9"], DType::Float32);
    assert_eq!(selected_positions(&tenths, "x=-0.1..0.1"), [2, 3, 4]);
    let unsorted = period(&["0", "200", "10", "350"], DType::Float64);
    assert_eq!(selected_positions(&unsorted, "x=0..210"), [0, 1, 2]);
    invalid(&unsorted, "x=-20..20");
}
