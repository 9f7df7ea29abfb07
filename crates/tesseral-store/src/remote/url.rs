//! URLs of object stores.

use object_store::path::Path;
use tesseral_core::{Error, Result};
use url::Url;

/// A protocol for objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    S3,
    Google,
    Azure,
    /// Web servers, which are only read.
    Http,
}

impl Service {
    fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" | "s3a" => Some(Self::S3),
            "gs" | "gcs" => Some(Self::Google),
            "az" | "abfs" | "abfss" | "azure" | "adl" => Some(Self::Azure),
            "http" | "https" => Some(Self::Http),
            _ => None,
        }
    }

    /// Whether the last bytes of an object can be requested without its length.
    pub(crate) fn has_suffixes(self) -> bool {
        self != Self::Azure
    }

    /// Whether listings are part of the protocol. Of web servers only some have them (WebDAV).
    pub(crate) fn has_listings(self) -> bool {
        self != Self::Http
    }
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RemoteUrl {
    pub service: Service,
    /// The URL without the name of the object: bucket, container or server.
    pub base: String,
    /// Bucket or container; empty for web servers.
    pub bucket: String,
    /// Name of the object or folder.
    pub root: String,
    /// The URL as shown in errors, without a password.
    pub location: String,
}

impl RemoteUrl {
    /// Parses a URL. Names in buckets are used without percent-decoding, as by other programs.
    ///
    /// # Errors
    /// `Unsupported` for other schemes, `InvalidRequest` for malformed URLs.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| Error::invalid(format!("{url:?} is not a URL")))?;
        let service = Service::of_scheme(&scheme.to_ascii_lowercase()).ok_or_else(|| {
            Error::unsupported(format!("{scheme}:// URLs"))
                .hint("use s3://, gs://, az://, http://, https:// or a path")
        })?;
        if service == Service::Http {
            return Self::web(url);
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(Error::invalid(format!("{url:?} has no bucket")));
        }
        let root = Path::parse(key.trim_matches('/'))
            .map_err(|e| Error::invalid(format!("{url:?} is not the name of an object: {e}")))?;
        Ok(Self {
            service,
            base: format!("{scheme}://{bucket}"),
            bucket: bucket.to_owned(),
            root: root.to_string(),
            location: url.trim_end_matches('/').to_owned(),
        })
    }

    fn web(text: &str) -> Result<Self> {
        let invalid = |detail: String| Error::invalid(format!("not a usable URL: {detail}"));
        let mut url = Url::parse(text).map_err(|e| invalid(format!("{text:?}: {e}")))?;
        if url.query().is_some() || url.fragment().is_some() {
            let what =
                format!("URLs with a query or fragment, as {}", url[..url::Position::AfterPath].to_owned());
            return Err(
                Error::unsupported(what).hint("use the URL of the object itself, or download it first")
            );
        }
        let root = Path::from_url_path(url.path()).map_err(|e| invalid(format!("{text:?}: {e}")))?;
        let base = url[..url::Position::BeforePath].to_owned();
        if url.password().is_some() {
            // Only fails for URLs without a host, which have no password.
            let _ = url.set_password(None);
        }
        let location = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { service: Service::Http, base, bucket: String::new(), root: root.to_string(), location })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::ErrorKind;

    #[test]
    fn buckets_and_names_are_taken_as_they_are() {
        let target = RemoteUrl::parse("s3://bucket/a b/c%20#?.tet").unwrap();
        assert_eq!((target.service, target.bucket.as_str()), (Service::S3, "bucket"));
        assert_eq!(target.root, "a b/c%20#?.tet");
        let target = RemoteUrl::parse("gs://b/array/").unwrap();
        assert_eq!((target.root.as_str(), target.location.as_str()), ("array", "gs://b/array"));
        assert_eq!(RemoteUrl::parse("az://container").unwrap().root, "");
    }

    #[test]
    fn web_urls_are_decoded_and_show_no_password() {
        let target = RemoteUrl::parse("https://user:secret@host:81/a%20b/c.tet").unwrap();
        assert_eq!(
            (target.root.as_str(), target.location.as_str()),
            ("a b/c.tet", "https://user@host:81/a%20b/c.tet")
        );
        assert!(target.base.contains("secret"));
    }

    #[test]
    fn other_urls_are_errors() {
        let kind = |url: &str| RemoteUrl::parse(url).unwrap_err();
        assert!(matches!(kind("ftp://host/x").kind(), ErrorKind::Unsupported { .. }));
        assert!(matches!(kind("https://host/x?y=1").kind(), ErrorKind::Unsupported { .. }));
        for url in ["s3:///x", "s3://b/a/../c", "http://"] {
            assert!(matches!(kind(url).kind(), ErrorKind::InvalidRequest { .. }), "{url}");
        }
    }
}
