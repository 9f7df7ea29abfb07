//! The files of the page, which are part of the program.

use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type and content of each file.
const FILES: [(&str, &str, &str); 12] = [
    ("/", HTML, include_str!("../page/index.html")),
    ("/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("/style.css", CSS, include_str!("../page/style.css")),
    ("/main.js", SCRIPT, include_str!("../page/main.js")),
    ("/api.js", SCRIPT, include_str!("../page/api.js")),
    ("/dom.js", SCRIPT, include_str!("../page/dom.js")),
    ("/state.js", SCRIPT, include_str!("../page/state.js")),
    ("/tree.js", SCRIPT, include_str!("../page/tree.js")),
    ("/map.js", SCRIPT, include_str!("../page/map.js")),
    ("/chart.js", SCRIPT, include_str!("../page/chart.js")),
    ("/colors.js", SCRIPT, include_str!("../page/colors.js")),
    ("/panels.js", SCRIPT, include_str!("../page/panels.js")),
];

/// A file of the page.
pub(crate) async fn file(uri: Uri) -> Response {
    match FILES.iter().find(|(path, ..)| *path == uri.path()) {
        Some((_, kind, content)) => ([(header::CONTENT_TYPE, *kind)], *content).into_response(),
        None => (StatusCode::NOT_FOUND, "no such page\n").into_response(),
    }
}
