//! Access control: requests need the token of the server and must name its host.
//!
//! The token stops other users of the machine and pages of other sites; the check of the host stops sites whose name resolves to this
//! machine (DNS rebinding). The policy of the page allows its own scripts and styles alone, so that text from a file never runs.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Longest request target, in bytes.
const TARGET: usize = 8 << 10;

/// Content security policy: the page may load only its own files.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The token and the accepted hosts of a server.
#[derive(Clone)]
pub struct RequestGuard {
    token: String,
    /// Names of the host with the port, in lower case.
    hosts: Vec<String>,
    /// Name of the cookie; cookies of one host are shared by its ports.
    cookie: String,
}

impl std::fmt::Debug for RequestGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret.
        f.debug_struct("RequestGuard").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// A token of 128 random bits.
///
/// # Errors
/// Errors of the random numbers of the operating system.
pub fn random_token() -> tesseral::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| tesseral::Error::io("read", "random numbers", std::io::Error::other(e.to_string())))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares two texts in a time that depends on their lengths alone.
fn equal(a: &[u8], b: &[u8]) -> bool {
    let different = a.iter().zip(b).fold(0_u8, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
    a.len() == b.len() && different == 0
}

impl RequestGuard {
    /// The guard of a server that listens on an address, with further host names.
    pub fn new(token: String, address: SocketAddr, names: &[String]) -> Self {
        let port = address.port();
        let mut hosts = vec![address.to_string()];
        let local = address.ip().is_loopback() || address.ip().is_unspecified();
        if local {
            hosts.extend([format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")]);
        }
        hosts.extend(names.iter().map(|name| format!("{}:{port}", name.to_lowercase())));
        if port == 80 {
            // Browsers omit the default port.
            let short: Vec<String> =
                hosts.iter().filter_map(|host| host.strip_suffix(":80").map(str::to_owned)).collect();
            hosts.extend(short);
        }
        Self { token, hosts, cookie: format!("tesseral-{port}") }
    }

    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    fn knows_host(&self, headers: &HeaderMap) -> bool {
        let mut named = headers.get_all(HOST).iter();
        let (Some(host), None) = (named.next(), named.next()) else { return false };
        let Ok(host) = host.to_str() else { return false };
        let host = host.to_lowercase();
        self.hosts.contains(&host)
    }

    fn knows_token(&self, headers: &HeaderMap) -> bool {
        let bearer =
            headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let own = pairs.filter(|(name, _)| *name == self.cookie).map(|(_, value)| value);
        bearer.into_iter().chain(own).any(|found| equal(found.as_bytes(), self.token.as_bytes()))
    }

    /// Whether the query of the first request holds the token.
    fn admits(&self, query: Option<&str>) -> bool {
        let pairs =
            query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='));
        let mut tokens = pairs.filter(|(name, _)| *name == "token").map(|(_, value)| value);
        tokens.any(|found| equal(found.as_bytes(), self.token.as_bytes()))
    }
}

/// Rejects requests from elsewhere, and adds the policy to every answer.
pub(crate) async fn check(State(guard): State<Arc<RequestGuard>>, request: Request, next: Next) -> Response {
    let mut response = match check_access(&guard, &request) {
        Ok(None) => next.run(request).await,
        Ok(Some(response)) => response,
        Err((status, text)) => (status, text).into_response(),
    };
    let headers = response.headers_mut();
    let fixed = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

/// The answer to a request that does not reach the data, if there is one.
fn check_access(
    guard: &RequestGuard,
    request: &Request,
) -> Result<Option<Response>, (StatusCode, &'static str)> {
    if !guard.knows_host(request.headers()) {
        return Err((StatusCode::MISDIRECTED_REQUEST, "unknown host name\n"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported\n"));
    }
    if request.uri().path_and_query().is_none_or(|target| target.as_str().len() > TARGET) {
        return Err((StatusCode::URI_TOO_LONG, "the request is too long\n"));
    }
    let site = request.headers().get("sec-fetch-site").and_then(|value| value.to_str().ok());
    if request.uri().path() == "/" && guard.admits(request.uri().query()) {
        // The token leaves the address bar; the fragment, which holds the view, stays.
        let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", guard.cookie, guard.token);
        let Ok(cookie) = HeaderValue::from_str(&cookie) else {
            return Err((StatusCode::INTERNAL_SERVER_ERROR, "invalid token\n"));
        };
        let headers = [(LOCATION, HeaderValue::from_static("/")), (SET_COOKIE, cookie)];
        return Ok(Some((StatusCode::SEE_OTHER, headers).into_response()));
    }
    if matches!(site, Some("cross-site" | "same-site")) {
        return Err((StatusCode::FORBIDDEN, "cross-site requests are rejected\n"));
    }
    if !guard.knows_token(request.headers()) {
        let text = "missing or wrong token: open the address that was printed when the server started\n";
        return Err((StatusCode::UNAUTHORIZED, text));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole() {
        assert!(equal(b"abc", b"abc"));
        assert!(!equal(b"abc", b"abx") && !equal(b"abc", b"ab") && !equal(b"", b"a"));
        let (a, b) = (random_token().unwrap(), random_token().unwrap());
        assert!(a.len() == 32 && a != b);
    }

    #[test]
    fn hosts_are_named_with_their_port() {
        let guard =
            RequestGuard::new("t".to_owned(), "127.0.0.1:7000".parse().unwrap(), &["box.lan".to_owned()]);
        let host = |name: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_str(name).unwrap());
            guard.knows_host(&headers)
        };
        assert!(
            host("localhost:7000")
                && host("127.0.0.1:7000")
                && host("LOCALHOST:7000")
                && host("box.lan:7000")
        );
        assert!(!host("localhost") && !host("evil.example:7000") && !host("localhost:7001") && !host(""));
        assert!(!guard.knows_host(&HeaderMap::new()));
    }

    #[test]
    fn the_default_port_can_be_omitted() {
        let guard =
            |port: u16| RequestGuard::new("t".to_owned(), ([127, 0, 0, 1], port).into(), &["Box".to_owned()]);
        let omitted: Vec<bool> = ["127.0.0.1", "localhost", "box", "[::1]", "evil.example"]
            .map(|name| guard(80).hosts.contains(&name.to_owned()))
            .into();
        assert_eq!(omitted, [true, true, true, true, false]);
        assert!(guard(7000).hosts.iter().all(|host| host.ends_with(":7000")));
    }
}
