//! Clients of object stores, from a URL, the environment and options.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3CopyIfNotExists};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::HttpConnector;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use tesseral_core::{Error, Result};

use super::reach::ReachConnector;
use super::signed::S3;
use super::url::{RemoteUrl, Service};
use crate::resolve::StorageOptions;

/// Names that fsspec's file systems use, and those of the `object_store` crate.
fn canonical(service: Service, name: &str) -> &str {
    match (service, name) {
        (_, "anon" | "anonymous") => "skip_signature",
        (Service::S3, "key") => "access_key_id",
        (Service::S3, "secret") => "secret_access_key",
        (Service::S3, "region_name") => "region",
        (Service::Google, "token") => "application_credentials",
        (Service::Google, "endpoint_url") => "base_url",
        (Service::Azure, "endpoint_url") => "endpoint",
        (_, name) => name,
    }
}

/// Longest time of a request of an upload.
const UPLOAD: &str = "600s";

/// A client and the connections it keeps, shared by all stores of the same server and settings.
type Client = Arc<dyn ObjectStore>;

/// Clients by process, target and settings. A forked process cannot use the connections of its parent.
static CLIENTS: Mutex<Option<HashMap<Key, Client>>> = Mutex::new(None);

type Key = (u32, String, Settings);

/// Returns the client of a target.
///
/// # Errors
/// `InvalidRequest` for unknown names of settings and missing ones.
pub(crate) fn client(target: &RemoteUrl, options: &StorageOptions) -> Result<Client> {
    client_with(target, options, None)
}

/// Returns the client of uploads to a target. Unless the settings state another time, a request may take as long as a large part
/// over a slow connection, not only as long as an answer.
///
/// # Errors
/// As [`client`].
pub(crate) fn uploading_client(target: &RemoteUrl, options: &StorageOptions) -> Result<Client> {
    client_with(target, options, Some(UPLOAD))
}

/// Settings of a target by name, and whether they were given rather than found in the environment. Later ones override earlier ones.
type Settings = Vec<(String, String, bool)>;

fn settings(target: &RemoteUrl, options: &StorageOptions, timeout: Option<&str>) -> Settings {
    let prefix = match target.service {
        Service::S3 => "AWS_",
        Service::Google => "GOOGLE_",
        Service::Azure => "AZURE_",
        Service::Http => "TESSERAL_HTTP_",
    };
    let mut settings = options.with_environment(prefix);
    if target.service == Service::Http {
        // The names of the other services' settings start with their prefix.
        for (name, _, given) in &mut settings {
            if !*given && let Some(rest) = name.strip_prefix("tesseral_http_") {
                *name = rest.to_owned();
            }
        }
    }
    if let Some(timeout) = timeout {
        settings.insert(0, ("timeout".to_owned(), timeout.to_owned(), false));
    }
    settings
}

fn client_with(target: &RemoteUrl, options: &StorageOptions, timeout: Option<&str>) -> Result<Client> {
    let settings = settings(target, options, timeout);
    let key = (std::process::id(), target.base.clone(), settings);
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let clients = clients.get_or_insert_default();
    if let Some(client) = clients.get(&key) {
        return Ok(Arc::clone(client));
    }
    super::runtime::choose_tls();
    let client = build(target, &key.2)?;
    clients.insert(key, Arc::clone(&client));
    Ok(client)
}

/// Retries of requests: connections that fail or end early, timeouts, and answers 408, 429 and 5xx, with exponential and
/// random pauses. Servers that cannot be reached at all are reported by [`ReachConnector`] first.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 10, retry_timeout: Duration::from_secs(120), ..RetryConfig::default() }
}

fn build(target: &RemoteUrl, settings: &[(String, String, bool)]) -> Result<Client> {
    let failed = |e: object_store::Error| {
        Error::invalid(format!("cannot connect to {}: {}", target.location, super::error::chain(&e)))
    };
    Ok(match target.service {
        Service::S3 => Arc::new(s3_builder(target, settings)?.build().map_err(failed)?),
        Service::Google => {
            let builder =
                GoogleCloudStorageBuilder::new().with_bucket_name(&target.bucket).with_retry(retries());
            let builder = builder.with_http_connector(ReachConnector);
            let builder =
                apply::<GoogleConfigKey, _>(target, settings, builder, |b, k, v| b.with_config(k, v))?;
            Arc::new(builder.build().map_err(failed)?)
        }
        Service::Azure => {
            let builder = MicrosoftAzureBuilder::new().with_url(&target.base).with_retry(retries());
            let builder = builder.with_http_connector(ReachConnector);
            let builder =
                apply::<AzureConfigKey, _>(target, settings, builder, |b, k, v| b.with_config(k, v))?;
            let builder =
                match plain_endpoint(settings, &["endpoint", "azure_storage_endpoint", "azure_endpoint"]) {
                    true => builder.with_allow_http(true),
                    false => builder,
                };
            Arc::new(builder.build().map_err(failed)?)
        }
        Service::Http => {
            let builder = HttpBuilder::new().with_url(&target.base).with_retry(retries());
            let builder = builder.with_http_connector(ReachConnector);
            let builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
            let builder =
                apply::<ClientConfigKey, _>(target, settings, builder, |b, k, v| b.with_config(k, v))?;
            Arc::new(builder.build().map_err(failed)?)
        }
    })
}

fn s3_builder(target: &RemoteUrl, settings: &[(String, String, bool)]) -> Result<AmazonS3Builder> {
    let builder = AmazonS3Builder::new()
        .with_bucket_name(&target.bucket)
        .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
        .with_http_connector(ReachConnector)
        .with_retry(retries());
    let builder = apply::<AmazonS3ConfigKey, _>(target, settings, builder, |b, k, v| b.with_config(k, v))?;
    let names = ["endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url", "aws_endpoint_url_s3"];
    Ok(if plain_endpoint(settings, &names) { builder.with_allow_http(true) } else { builder })
}

/// Returns the clients of S3 itself, and of requests that it signs; `None` without credentials. As of uploads, requests may take
/// long.
///
/// # Errors
/// As [`client`].
pub(crate) fn s3(target: &RemoteUrl, options: &StorageOptions) -> Result<Option<S3>> {
    let settings = settings(target, options, Some(UPLOAD));
    let builder = s3_builder(target, &settings)?;
    if builder.get_config_value(&AmazonS3ConfigKey::SkipSignature).as_deref() == Some("true") {
        return Ok(None);
    }
    super::runtime::choose_tls();
    let failed = |e| Error::invalid(super::error::chain(&e));
    let own = settings.iter().filter_map(|(name, value, _)| match canonical(target.service, name).parse() {
        Ok(AmazonS3ConfigKey::Client(key)) => Some((key, boolean(value))),
        _ => None,
    });
    let own = own.fold(ClientOptions::new(), |all, (key, value)| all.with_config(key, value));
    let http = ReachConnector.connect(&own.with_allow_http(true)).map_err(failed)?;
    Ok(Some(S3 { client: Arc::new(builder.build().map_err(failed)?), http }))
}

/// Settings that decide which server is reached.
pub(crate) fn endpoint(target: &RemoteUrl, options: &StorageOptions) -> String {
    let settings = options.with_environment(match target.service {
        Service::S3 => "AWS_",
        Service::Google => "GOOGLE_",
        Service::Azure => "AZURE_",
        Service::Http => return target.base.clone(),
    });
    let decides =
        |name: &str| ["endpoint", "url", "region", "account"].iter().any(|part| name.contains(part));
    // Account keys are secret, and do not decide.
    let named = settings.iter().filter(|(name, ..)| decides(name) && !name.contains("key"));
    named.fold(target.base.clone(), |all, (name, value, _)| format!("{all}\n{name}={value}"))
}

/// Returns whether the settings name an endpoint without TLS, which is then intended.
fn plain_endpoint(settings: &[(String, String, bool)], names: &[&str]) -> bool {
    let endpoint = settings.iter().rev().find(|(name, ..)| names.contains(&name.as_str()));
    endpoint.is_some_and(|(_, value, _)| value.starts_with("http://"))
}

/// Applies settings. Unknown names are errors if they were given; the environment has others too.
fn apply<K: FromStr, B>(
    target: &RemoteUrl,
    settings: &[(String, String, bool)],
    builder: B,
    set: impl Fn(B, K, &str) -> B,
) -> Result<B> {
    settings.iter().try_fold(builder, |builder, (name, value, given)| {
        let wanted = canonical(target.service, name);
        match wanted.parse() {
            Ok(key) => Ok(set(builder, key, boolean(value))),
            Err(_) if !given => Ok(builder),
            Err(_) => Err(Error::invalid(format!("unknown storage option {name:?} for {}", target.base))
                .hint("see the list of storage options in the documentation")),
        }
    })
}

/// Python's spelling of booleans is accepted.
fn boolean(value: &str) -> &str {
    match value {
        "True" => "true",
        "False" => "false",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::ErrorKind;

    #[test]
    fn names_of_other_libraries_are_accepted_and_values_are_hidden() {
        let target = RemoteUrl::parse("s3://bucket/x").unwrap();
        let options = StorageOptions::new()
            .with("key", "user")
            .with("secret", "password")
            .with("anon", "False")
            .with("endpoint_url", "http://localhost:1")
            .with("AWS_REGION", "eu-west-1");
        assert!(!format!("{options:?}").contains("password"));
        client(&target, &options).unwrap();
        let unknown = client(&target, &options.with("unknown", "red")).unwrap_err();
        assert!(matches!(unknown.kind(), ErrorKind::InvalidRequest { .. }));
    }

    #[test]
    fn every_service_has_a_client() {
        let azure = StorageOptions::new().with("account_name", "a").with("anon", "true");
        let anonymous = StorageOptions::new().with("anon", "true");
        let cases = [
            ("gs://bucket/x", &anonymous),
            ("az://container/x", &azure),
            ("https://host/x", &StorageOptions::new()),
        ];
        for (url, options) in cases {
            client(&RemoteUrl::parse(url).unwrap(), options).unwrap();
        }
    }
}
