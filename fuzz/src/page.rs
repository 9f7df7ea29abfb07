//! Any query as a request to the server of `tet serve`.

use std::sync::{Arc, OnceLock};

use tesseral::{Cancel, Open};
use tesseral_serve::{Opener, Server, ServerSettings};

/// Paths of requests, of which the first byte of an input selects one.
const PATHS: [&str; 17] = [
    "sources",
    "colors",
    "arrays",
    "array",
    "coordinates",
    "between",
    "versions",
    "plane",
    "series",
    "means",
    "value",
    "rows",
    "points",
    "statistics",
    "histogram",
    "chunks",
    "formats",
];

/// A server of small sources: labels and dates, integer domains, sparse cells, versions.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let names =
            ["tet/labels_v1.tet", "tiledb/dense_columns", "tiledb/sparse_history", "tiledb/enumerated"];
        let sources = names.map(|name| {
            let path = crate::fixtures::fixtures().join(name);
            let open: Opener = Arc::new(move |time| {
                let open = Open::new();
                let open = match time {
                    Some(time) => open.as_of(tesseral::as_of(time)?),
                    None => open,
                };
                open.open(&path)
            });
            (name.to_owned(), open)
        });
        Server::bind(sources.into(), ServerSettings::default()).expect("fixtures are valid")
    })
}

/// Answers a query. Errors are answers, too.
pub fn query(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let Ok(query) = std::str::from_utf8(rest) else { return };
    let path = PATHS[usize::from(*first) % PATHS.len()];
    let _ = server().answer(&format!("/api/{path}?{query}"), Cancel::default());
}
