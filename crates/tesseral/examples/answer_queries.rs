//! Evaluates query documents on one source: one JSON document per input line, one output line with the result.
//!
//! `answer_queries PATH [JOBS]`: `{"dataset": "temperature", "mean": ["time"]}` gives `{"shape":[36,60],"answers":[…]}`, and
//! errors give `{"error":…}`. With JOBS, each query is split into that many jobs, as for other processes, and merged.

use std::io::{BufRead, BufWriter, Write};

use serde_json::{Value, json};
use tesseral::query::{Document, Plan, QueryOptions, QueryOutcome, to_json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or("usage: answer_queries PATH [JOBS]")?;
    let jobs = arguments.get(1).map(|n| n.parse()).transpose()?;
    // Open once, so that each query costs only its own work.
    let container = tesseral::open(path)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&container, &line?, jobs).unwrap_or_else(|e| json!({"error": e.to_string()}));
        writeln!(out, "{answer}")?;
    }
    Ok(out.flush()?)
}

fn answer(container: &tesseral::Container, line: &str, jobs: Option<usize>) -> tesseral::Result<Value> {
    let document = Document::parse(line)?;
    let Some(plan) = Plan::new(container, &document, &QueryOptions::default())? else {
        return Ok(json!({"error": format!("there is no array {:?}", document.dataset)}));
    };
    let (outcome, jobs) = match jobs {
        None => (plan.run()?, 1),
        Some(n) => apart(&plan, n)?,
    };
    let answers: Vec<Value> = outcome.answers.iter().map(to_json).collect();
    let QueryOutcome { shape, elements, edges, .. } = outcome;
    Ok(json!({"shape": shape, "answers": answers, "elements": elements, "edges": edges, "jobs": jobs}))
}

/// Jobs and their results are serializable and can run in other processes.
fn apart(plan: &Plan, n: usize) -> tesseral::Result<(QueryOutcome, usize)> {
    let jobs = plan.split(n)?;
    let results = jobs.iter().map(|job| plan.run_job(job)).collect::<tesseral::Result<_>>()?;
    Ok((plan.merge(&jobs, results)?, jobs.len()))
}
