use proptest::prelude::*;
use tesseral_core::schema::Labels;
use tesseral_core::{ArraySchema, DType, ErrorKind};
use tesseral_format::ArraySpec;

use super::*;
use tesseral_dataset::{Container, Create, Open};

/// Error of a document.
fn refusal(text: &str) -> String {
    match Document::parse(text) {
        Ok(document) => panic!("{text} was parsed as {document:?}"),
        Err(error) => match error.kind() {
            ErrorKind::InvalidRequest { detail } => detail.clone(),
            other => panic!("{text}: {other:?}"),
        },
    }
}

#[test]
fn every_error_names_the_key() {
    for (text, key) in [
        (r#"{}"#, "dataset"),
        (r#"{"dataset": " "}"#, "dataset"),
        (r#"{"dataset": 5}"#, "dataset"),
        (r#"{"dataset": "a", "foo": 1}"#, "foo"),
        (r#"{"dataset": "a", "operation": {}}"#, "operation"),
        (r#"{"dataset": "a", "output": {}}"#, "output"),
        (r#"{"dataset": "a", "layout_version": -1}"#, "layout_version"),
        (r#"{"dataset": "a", "mean": [], "sum": []}"#, "sum"),
        (r#"{"dataset": "a", "mean": -1}"#, "mean"),
        (r#"{"dataset": "a", "mean": {}}"#, "mean"),
        (r#"{"dataset": "a", "mean": {"axis": 0, "axes": [1]}}"#, "mean.axes"),
        (r#"{"dataset": "a", "mean": {"axis": 0, "q": 1}}"#, "mean.q"),
        (r#"{"dataset": "a", "mean": [0,1,2,3,4,5,6,7,8]}"#, "mean"),
        (r#"{"dataset": "a", "selection": []}"#, "selection"),
        (r#"{"dataset": "a", "selection": [{"begin": 1}]}"#, "selection[0].begin"),
        (r#"{"dataset": "a", "selection": [{}, {"start": -1}]}"#, "selection[1].start"),
        (r#"{"dataset": "a", "selection": [{"step": 0}]}"#, "selection[0].step"),
        (r#"{"dataset": "a", "selection": [{"stop": 1, "stop_label": "x"}]}"#, "selection[0].stop_label"),
        (r#"{"dataset": "a", "filter": {}}"#, "filter"),
        (r#"{"dataset": "a", "filter": {"gt": true}}"#, "filter.gt"),
        (r#"{"dataset": "a", "filter": {"gt": 1, "ge": 2}}"#, "filter"),
        (r#"{"dataset": "a", "filter": {"gt": 5, "lt": 4}}"#, "filter"),
        (r#"{"dataset": "a", "filter": {"gt": 5, "le": 5}}"#, "filter"),
        (r#"{"dataset": "a", "filter": {"is_null": false}}"#, "filter.is_null"),
        (r#"{"dataset": "a", "filter": {"is_null": true, "gt": 1}}"#, "filter.is_null"),
        (r#"{"dataset": "a", "filter": {"is_null": true, "is_not_null": true}}"#, "filter.is_not_null"),
        (r#"{"dataset": "a", "label_filter": {"axis": 0}}"#, "label_filter.eq"),
        (r#"{"dataset": "a", "group_by": [], "mean": []}"#, "group_by"),
        (r#"{"dataset": "a", "group_by": [0]}"#, "group_by"),
        (r#"{"dataset": "a", "group_by": {"by": "rows", "axes": [0]}, "mean": []}"#, "group_by.by"),
        (r#"{"dataset": "a", "group_by": [0], "covariance": [1]}"#, "group_by"),
        (r#"{"dataset": "a", "window": {"axis": 0, "size": 2}, "mean": []}"#, "window.mode"),
        (r#"{"dataset": "a", "window": {"axis": 0, "size": 0, "mode": "bins"}, "mean": []}"#, "window.size"),
        (
            r#"{"dataset": "a", "window": {"axis": 0, "size": 2, "mode": "bins", "step": 1}, "mean": []}"#,
            "window.step",
        ),
        (
            r#"{"dataset": "a", "window": {"axis": 0, "size": 2, "mode": "rolling", "align": "end"}, "mean": []}"#,
            "window.align",
        ),
        (
            r#"{"dataset": "a", "window": {"axis": 0, "size": 2, "mode": "bins", "pad": "zero"}, "mean": []}"#,
            "window.pad",
        ),
        (r#"{"dataset": "a", "window": {"axis": 0, "size": 2, "mode": "bins"}, "median": []}"#, "window"),
        (r#"{"dataset": "a", "window": {"axis": 0, "size": 2, "mode": "bins"}}"#, "window"),
        (r#"{"dataset": "a", "quantile": {"q": 2}}"#, "quantile.q"),
        (r#"{"dataset": "a", "quantile": 0}"#, "quantile"),
        (r#"{"dataset": "a", "quantile": {"q": 0.5, "sketch": 3}}"#, "quantile.sketch"),
        (r#"{"dataset": "a", "histogram": {"bins": 0}}"#, "histogram.bins"),
        (r#"{"dataset": "a", "histogram": {"bins": 2, "min": 0}}"#, "histogram.max"),
        (r#"{"dataset": "a", "histogram": {"bins": 2, "min": 1, "max": 1}}"#, "histogram.max"),
        (r#"{"dataset": "a", "null_count": {"fill": "x"}}"#, "null_count.fill"),
        (r#"{"dataset": "a", "transform": {"method": "cube"}}"#, "transform.method"),
        (r#"{"dataset": "a", "covariance": []}"#, "covariance"),
        (r#"{"dataset": "a", "covariance": {"with": 3, "axes": []}}"#, "covariance.with"),
        (r#"{"dataset": "a", "correlation": {"with": "b"}}"#, "correlation"),
        (r#"{"dataset": "a", "write": "ram"}"#, "write"),
        (r#"{"dataset": "a", "transform": {"method": "l1"}, "write": "disk"}"#, "write.target"),
        (r#"{"dataset": "a", "transform": {"method": "l1"}, "write": {"path": "x"}}"#, "write.path"),
        (r#"{"dataset": "a", "spill": "x", "mean": []}"#, "spill"),
        (r#"{"dataset": "a", "align": {"with": "b", "axes": []}}"#, "align.axes"),
        (r#"{"dataset": "a", "align": {"with": "b", "axes": [0]}, "mean": []}"#, "align"),
        (r#"{"dataset": "a", "execution": {"x": 1}}"#, "execution.x"),
        (
            r#"{"dataset": "a", "execution": {"memory_budget_percent": 101}}"#,
            "execution.memory_budget_percent",
        ),
        (r#"{"dataset": "a", "pipeline": []}"#, "pipeline"),
        (r#"{"dataset": "a", "pipeline": [{"mean": []}], "sum": []}"#, "sum"),
        (r#"{"dataset": "a", "pipeline": [{"mean": []}, {"filter": {"gt": 1}}]}"#, "pipeline[1]"),
        (r#"{"dataset": "a", "pipeline": [{"sort": 1}]}"#, "pipeline[0].sort"),
        ("dataset = \"a\"\nfilter = { gt = inf }\n", "gt"),
    ] {
        let detail = refusal(text);
        let named = detail.strip_prefix("query key `").and_then(|rest| rest.split('`').next());
        assert_eq!(named, Some(key), "{text}: {detail}");
    }
}

/// One of two filters would be lost silently.
#[test]
fn duplicate_keys_are_rejected() {
    for (text, key) in [
        (r#"{"dataset": "a", "filter": {"gt": 1, "gt": 2}}"#, "`gt`"),
        (r#"{"dataset": "a", "filter": {"gt": 1}, "filter": {"lt": 0}}"#, "`filter`"),
        ("dataset = \"a\"\ndataset = \"b\"\n", "duplicate key"),
    ] {
        let detail = refusal(text);
        assert!(detail.contains(key), "{text}: {detail}");
    }
}

#[test]
fn json_and_toml_are_equivalent() {
    let json = r#"{"dataset": "t", "selection": [{"start": 1, "stop": 9, "step": 2}, {"start_label": "b"}],
        "filter": {"gt": 1.5, "le": 9007199254740993}, "mean": {"axis": "x"}, "execution": {"memory_budget_percent": 2.5}}"#;
    let toml = "dataset = \"t\"\nselection = [{start = 1, stop = 9, step = 2}, {start_label = \"b\"}]\n\
        mean = {axis = \"x\"}\n[filter]\ngt = 1.5\nle = 9007199254740993\n[execution]\nmemory_budget_percent = 2.5\n";
    let document = Document::parse(json).unwrap();
    assert_eq!(Document::parse(toml).unwrap(), document);
    let le = document.filter.unwrap().compare[1].1;
    assert_eq!(le, tesseral_engine::fold::Number::Int(9_007_199_254_740_993));
    assert_eq!(document.execution.memory_budget_bps, Some(250));
    let steps = r#"{"dataset": "t", "pipeline": [{"select": [{}]}, {"filter": {"gt": 1}}, {"sum": [], "group_by": [0]}]}"#;
    let flat = r#"{"dataset": "t", "selection": [{}], "filter": {"gt": 1}, "sum": [], "group_by": [0]}"#;
    assert_eq!(Document::parse(steps).unwrap(), Document::parse(flat).unwrap());
}

#[test]
fn documents_are_bounded() {
    let deep = format!("{{\"dataset\": \"a\", \"mean\": {}{}}}", "[".repeat(100), "]".repeat(100));
    assert!(Document::parse(&deep).is_err());
    let long = format!("{{\"dataset\": \"{}\"}}", "a".repeat(2 << 20));
    assert!(matches!(Document::parse(&long).unwrap_err().kind(), ErrorKind::Limit { .. }));
    assert!(Document::parse(&format!("{{\"dataset\": \"{}\"}}", "a".repeat(1025))).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any text, and any text of the language's words, is accepted or rejected without a panic.
    #[test]
    fn any_text_is_accepted_or_rejected(
        noise in ".{0,60}",
        words in proptest::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"dataset\"", "\"a\"", "\"mean\"", "\"window\"", "\"size\"", "\"mode\"",
            "\"bins\"", "0", "-1", "1e999", "true", "null", "\"filter\"", "\"gt\"", "\"selection\"", "\"group_by\"",
            "\"pipeline\"", "dataset = 'a'\n", "mean = 0\n", "[filter]\n", "gt = 1\n",
        ]), 0..24),
    ) {
        let _ = Document::parse(&noise);
        let _ = Document::parse(&words.concat());
        let _ = Document::parse(&format!("{{\"dataset\":\"a\",{}}}", words.concat()));
    }
}

fn table(folder: &std::path::Path) -> Container {
    let path = folder.join("t.tet");
    let shape = [28, 12, 10];
    let mut schema = ArraySchema::dense("t", DType::Float32, &shape, &[2, 4, 10]);
    for (dim, name) in schema.dims.iter_mut().zip(["time", "lat", "lon"]) {
        dim.name = name.to_owned();
    }
    let labels = ["mon", "tue", "mon", "wed", "tue", "tue", "mon"];
    schema.dims[0].labels =
        Some(Labels::Text(labels.iter().cycle().take(28).map(|l| (*l).to_owned()).collect()));
    let cells: Vec<u8> = (0..3360_u32)
        .map(|i| if i == 77 { f32::NAN } else { ((i * 7919) % 3361) as f32 * 0.1 - 3.0 })
        .flat_map(f32::to_le_bytes)
        .collect();
    let mut session = Create::new().statistics().begin(&path, "tet").unwrap();
    let id = session.add(&ArraySpec::raw(schema)).unwrap();
    session.write(id, &cells).unwrap();
    session.commit().unwrap();
    Open::new().open(&path).unwrap()
}

fn plan(container: &Container, text: &str) -> Plan {
    let document = Document::parse(text).unwrap();
    let mut plan = Plan::new(container, &document, &QueryOptions::default()).unwrap().unwrap();
    // So little memory that even small arrays are divided into several units.
    let memory = plan.array.options().memory.unwrap_or(100_000);
    plan.array = plan.array.clone().with_options(tesseral_engine::Options::default().with_memory(memory));
    plan
}

/// Compares bits, so that NaN results are equal.
fn bits(outcome: &QueryOutcome) -> String {
    let word = |answer: &Answer| match answer {
        Answer::Float(v) => format!("{:x}", v.to_bits()),
        other => format!("{other:?}"),
    };
    let answers: Vec<String> = outcome.answers.iter().map(word).collect();
    format!("{:?} {answers:?} {:?} {:?}", outcome.shape, outcome.elements, outcome.edges)
}

#[test]
fn merged_jobs_equal_a_single_run_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let container = table(folder.path());
    let reductions = [
        r#""sum": []"#,
        r#""mean": ["time"]"#,
        r#""var": ["lat", "lon"]"#,
        r#""product": ["lat"]"#,
        r#""norm_l2": []"#,
        r#""arg_max": ["time", "lon"]"#,
        r#""median": ["lat"]"#,
        r#""max": ["lon"]"#,
        r#""quantile": {"q": 0.3, "sketch": true}"#,
        r#""histogram": {"bins": 5, "axis": "lon"}"#,
        r#""null_count": {"fill": -3, "axis": 0}"#,
        r#""inf_count": ["time"]"#,
        r#""std": [], "filter": {"gt": 2}"#,
        r#""mean": [], "group_by": {"by": "labels", "axes": ["time"]}"#,
        r#""sum": ["time", "lat"], "window": {"axis": "time", "size": 3, "mode": "rolling", "pad": "0"}"#,
    ];
    for reduction in reductions {
        let plan = plan(&container, &format!(r#"{{"dataset": "t", {reduction}}}"#));
        let whole = bits(&plan.run().unwrap());
        for n in [1, 2, 3, 100] {
            let jobs = plan.split(n).unwrap();
            assert!(jobs.len() <= n && (n == 1 || jobs.len() > 1), "{reduction}: {}", jobs.len());
            // Serialized and parsed, as for another process.
            let jobs: Vec<Job> = serde_json::from_str(&serde_json::to_string(&jobs).unwrap()).unwrap();
            let results = jobs.iter().map(|job| {
                let text = serde_json::to_string(&plan.run_job(job).unwrap()).unwrap();
                serde_json::from_str(&text).unwrap()
            });
            let merged = plan.merge(&jobs, results.collect()).unwrap();
            assert_eq!(bits(&merged), whole, "{reduction} in {n}");
        }
        let jobs = plan.split(3).unwrap();
        if jobs.len() > 1 {
            let some = vec![plan.run_job(&jobs[1]).unwrap()];
            assert!(plan.merge(&jobs, some).is_err(), "results are missing");
        }
    }
    assert!(plan(&container, r#"{"dataset": "t"}"#).split(2).is_err());
}

#[test]
fn documents_that_do_not_match_the_array_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let container = table(folder.path());
    for (rest, key) in [
        (r#""mean": ["depth"]"#, "mean"),
        (r#""mean": [3]"#, "mean"),
        (r#""mean": ["time", 0]"#, "mean"),
        (r#""mean": [0, 1, 2]"#, "mean"),
        (r#""selection": [{}]"#, "selection"),
        (r#""selection": [{"start": 28}, {}, {}]"#, "selection[0].start"),
        (r#""selection": [{"stop": 29}, {}, {}]"#, "selection[0].stop"),
        (r#""selection": [{"start": 2, "stop": 2}, {}, {}]"#, "selection[0].stop"),
        (r#""selection": [{}, {"start_label": "x"}, {}]"#, "selection[1].start_label"),
        (r#""label_filter": {"axis": "time", "eq": "sun"}, "sum": []"#, "label_filter.eq"),
        (r#""group_by": ["time"], "sum": ["lat"]"#, "group_by"),
        (r#""group_by": ["time", "lat", "lon"], "sum": []"#, "group_by"),
        (r#""group_by": {"by": "labels", "axes": ["lat"]}, "sum": []"#, "group_by.axes"),
        (r#""window": {"axis": "lon", "size": 11, "mode": "bins"}, "sum": []"#, "window.size"),
        (r#""window": {"axis": "lon", "size": 2, "mode": "bins"}, "sum": ["lat"]"#, "sum"),
        (r#""window": {"axis": "lon", "size": 2, "mode": "bins", "pad": "fill"}, "sum": []"#, "window.pad"),
        (r#""filter": {"is_null": true}, "count": []"#, "filter.is_null"),
        (r#""null_count": []"#, "null_count.fill"),
        (r#""align": {"with": "t", "axes": [0]}"#, "align.with"),
        (r#""align": {"with": "u", "axes": [0]}"#, "align.with"),
    ] {
        let document = Document::parse(&format!(r#"{{"dataset": "t", {rest}}}"#)).unwrap();
        let error = Plan::new(&container, &document, &QueryOptions::default()).unwrap_err();
        let ErrorKind::InvalidRequest { detail } = error.kind() else { panic!("{rest}: {error:?}") };
        let named = detail.strip_prefix("query key `").and_then(|rest| rest.split('`').next());
        assert_eq!(named, Some(key), "{rest}: {detail}");
    }
    let other = Document::parse(r#"{"dataset": "u"}"#).unwrap();
    assert!(Plan::new(&container, &other, &QueryOptions::default()).unwrap().is_none());
}

#[test]
fn statistics_prune_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let container = table(folder.path());
    let none = plan(&container, r#"{"dataset": "t", "filter": {"gt": 1e6}, "count": []}"#).run().unwrap();
    assert_eq!((none.answers.as_slice(), none.skipped > 0), (&[Answer::Int(0)][..], true));
    let mean = plan(&container, r#"{"dataset": "t", "filter": {"gt": 1e6}, "mean": []}"#).run().unwrap();
    assert_eq!(mean.answers, [Answer::None]);
}

#[test]
fn sorting_beyond_the_memory_limit_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.tet");
    let schema = ArraySchema::dense("t", DType::Float64, &[200_000], &[10_000]);
    let mut session = Create::new().begin(&path, "tet").unwrap();
    let id = session.add(&ArraySpec::raw(schema)).unwrap();
    let cells: Vec<u8> = (0..200_000).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    session.write(id, &cells).unwrap();
    session.commit().unwrap();
    let container = Open::new().memory(1 << 20).open(&path).unwrap();
    let median = plan(&container, r#"{"dataset": "t", "median": []}"#).run().unwrap_err();
    assert!(matches!(median.kind(), ErrorKind::Limit { allowed: 1_048_576, .. }));
    assert!(median.advice().is_some_and(|advice| advice.to_string().contains("sketch")));
    let sketch =
        plan(&container, r#"{"dataset": "t", "quantile": {"q": 0.5, "sketch": 0.001}}"#).run().unwrap();
    let [Answer::Float(value)] = sketch.answers[..] else { panic!("{sketch:?}") };
    assert!((value / 99_999.5 - 1.0).abs() < 0.0011);
    assert_eq!(sketch.accuracy, Some(0.001));
    let sum = plan(&container, r#"{"dataset": "t", "sum": []}"#).run().unwrap();
    assert_eq!(sum.answers, [Answer::Float(19_999_900_000.0)]);
}
