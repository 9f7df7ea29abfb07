//! Jobs and partial results of folds, as other processes send them.

use tesseral::fold::{Job, Results, Statistic};

/// Bytes of a job, and of results, which are joined and merged into answers.
pub fn partial_results(bytes: &[u8]) {
    let statistics = vec![Statistic::Mean, Statistic::Quantile(0.5), Statistic::ArgMax];
    let array = crate::text::arrays().next().expect("fixtures hold an array");
    let asked = array.reduction(statistics).and_then(|asked| asked.resolve()).expect("a valid question");
    // A job is a request: what it asks for may take time and memory.
    let _ = Job::from_bytes(bytes).and_then(|job| job.to_bytes());
    let Ok(mut results) = Results::from_bytes(bytes) else { return };
    let again = results.clone();
    if results.join(again).is_ok() {
        let _ = results.to_bytes();
    }
    for units in [1, results.partials.len() as u64] {
        let _ = asked.merge(results.clone(), units);
    }
}
