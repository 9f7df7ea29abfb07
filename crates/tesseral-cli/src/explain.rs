//! `--explain`: requests to object stores and web servers, planned before reading and counted afterwards.

use std::sync::{Mutex, OnceLock, PoisonError};

use bytesize::ByteSize;
use serde_json::{Map, Value as Json, json};
use tesseral::{Options, PlannedReads};
use tesseral_store::Traffic;

use crate::error::report;

/// Number of operations whose plan is printed.
const PRINTED: u64 = 8;

/// Plans of the operations so far, and their number. Set if explanations were requested.
static PLANNED: OnceLock<Mutex<(PlannedReads, u64)>> = OnceLock::new();

/// Requests explanations of the operations with these options.
pub(crate) fn begin(options: Options) -> Options {
    let planned = PLANNED.get_or_init(Mutex::default);
    options.with_planned_reads(move |next| {
        let mut planned = planned.lock().unwrap_or_else(PoisonError::into_inner);
        *planned = (planned.0.then(next), planned.1 + 1);
        if planned.1 <= PRINTED {
            report(&format!("explain: planned {}\n", requests(next.rounds, next.requests, next.bytes)));
        }
    })
}

/// Returns whether explanations were requested.
pub(crate) fn is_requested() -> bool {
    PLANNED.get().is_some()
}

fn planned() -> Option<(PlannedReads, u64)> {
    let planned = PLANNED.get()?;
    Some(*planned.lock().unwrap_or_else(PoisonError::into_inner))
}

fn requests(rounds: u64, requests: u64, bytes: u64) -> String {
    let s = |n: u64| if n == 1 { "" } else { "s" };
    format!("{rounds} round{}, {requests} request{}, {}", s(rounds), s(requests), ByteSize(bytes))
}

/// Prints the counted requests after a command.
pub(crate) fn finish() {
    let Some((planned, operations)) = planned() else { return };
    if operations > 1 {
        let all = requests(planned.rounds, planned.requests, planned.bytes);
        report(&format!("explain: planned {all} in {operations} operations\n"));
    }
    let Traffic { rounds, requests: made, bytes, sent, cached } = Traffic::of_process();
    let mut line = format!("explain: counted {}, metadata included", requests(rounds, made, bytes));
    for (bytes, what) in [(sent, "sent"), (cached, "from the cache")] {
        if bytes > 0 {
            line.push_str(&format!("; {} {what}", ByteSize(bytes)));
        }
    }
    report(&format!("{line}\n"));
}

/// The member `explain` of JSON documents, if explanations were requested.
fn document() -> Option<Json> {
    let (planned, operations) = planned()?;
    let Traffic { rounds, requests, bytes, sent, cached } = Traffic::of_process();
    Some(json!({
        "planned": {
            "operations": operations,
            "rounds": planned.rounds,
            "requests": planned.requests,
            "bytes": planned.bytes,
        },
        "counted": {"rounds": rounds, "requests": requests, "bytes": bytes, "sent": sent, "cached": cached},
    }))
}

/// The end of a JSON document that is written piece by piece.
pub(crate) fn end_of_document() -> String {
    document().map_or_else(|| "}\n".to_owned(), |explained| format!(",\"explain\":{explained}}}\n"))
}

/// Adds the member to a document.
pub(crate) fn add_to(document: &mut Map<String, Json>) {
    if let Some(explained) = self::document() {
        document.insert("explain".to_owned(), explained);
    }
}
