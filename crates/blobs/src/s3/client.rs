//! Creates the S3 client.

use std::path::Path;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    Builder, Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation, SharedHttpClient,
};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::ExposeSecret;

use super::{S3Credentials, S3Settings};
use crate::BlobError;
use crate::url::misconfigured;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Shorter than the idle timeout of servers, so that no connection is used while
/// the server closes it, and broken connections are soon closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The default region for servers other than AWS.
const DEFAULT_REGION: &str = "us-east-1";

/// Two clients with the same settings: the first has a connection pool, the second
/// opens a connection for each call.
///
/// Reads the CA file, and AWS's environment if needed.
pub(super) async fn build(settings: &S3Settings) -> Result<(Client, Client), BlobError> {
    check_endpoint(settings.endpoint.as_deref())?;
    let http_client = http_client(settings, usize::MAX).await?;
    let credentials = settings.credentials.as_ref().map(fixed_credentials);
    let mut builder = match (&settings.endpoint, credentials) {
        // Without aws-config, which would look for instance metadata.
        (Some(_), Some(credentials)) => {
            let region = settings.region.clone().unwrap_or_else(|| DEFAULT_REGION.to_owned());
            Builder::new()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new(region))
                .credentials_provider(credentials)
        }
        (_, credentials) => from_aws_environment(settings, credentials, &http_client).await?,
    };
    if let Some(endpoint) = &settings.endpoint {
        builder = builder
            .endpoint_url(endpoint)
            // Several servers refuse checksums in trailers.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
    }
    // Attempts, their time limits and the waits between them: see `calls`.
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).build();
    let pooled = builder
        .http_client(http_client)
        .timeout_config(timeouts)
        .retry_config(RetryConfig::disabled())
        .force_path_style(settings.path_style)
        .build();
    let unpooled = pooled.to_builder().http_client(self::http_client(settings, 0).await?).build();
    Ok((Client::from_conf(pooled), Client::from_conf(unpooled)))
}

fn check_endpoint(endpoint: Option<&str>) -> Result<(), BlobError> {
    let Some(endpoint) = endpoint else { return Ok(()) };
    let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    if host.is_none_or(|host| host.is_empty() || host.starts_with('/')) {
        return Err(misconfigured("the S3 endpoint is not an http:// or https:// URL"));
    }
    if endpoint.contains('@') {
        return Err(misconfigured("the S3 endpoint holds credentials, which belong into their own settings"));
    }
    Ok(())
}

fn fixed_credentials(credentials: &S3Credentials) -> Credentials {
    let secret = credentials.secret_access_key.expose_secret();
    Credentials::new(&credentials.access_key_id, secret, None, None, "configuration")
}

async fn from_aws_environment(
    settings: &S3Settings,
    credentials: Option<Credentials>,
    http_client: &SharedHttpClient,
) -> Result<Builder, BlobError> {
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client.clone());
    if let Some(region) = &settings.region {
        loader = loader.region(Region::new(region.clone()));
    } else if settings.endpoint.is_some() {
        loader = loader.region(Region::new(DEFAULT_REGION));
    }
    if let Some(credentials) = credentials {
        loader = loader.credentials_provider(credentials);
    }
    let shared = loader.load().await;
    if shared.region().is_none() {
        return Err(misconfigured("no region is configured for S3, and AWS's environment names none"));
    }
    Ok(Builder::from(&shared))
}

async fn http_client(settings: &S3Settings, max_idle: usize) -> Result<SharedHttpClient, BlobError> {
    let builder = aws_smithy_http_client::Builder::new()
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .pool_max_idle_per_host(max_idle);
    let is_plain = settings.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    if is_plain && settings.credentials.is_some() {
        // Without TLS, no certificates are needed.
        return Ok(builder.build_http());
    }
    let mut trust_store = TrustStore::default();
    if let Some(ca_file) = &settings.ca_file {
        trust_store.add_pem_certificate(read_certificates(ca_file).await?);
    }
    let tls = TlsContext::builder()
        .with_trust_store(trust_store)
        .build()
        .map_err(|error| misconfigured(&format!("TLS cannot be set up: {error}")))?;
    Ok(builder.tls_provider(Provider::rustls(CryptoMode::AwsLc)).tls_context(tls).build_https())
}

/// The checked text of the file: the HTTP client would panic on an invalid one.
async fn read_certificates(ca_file: &Path) -> Result<Vec<u8>, BlobError> {
    let refused = |why: &dyn std::fmt::Display| {
        misconfigured(&format!("the CA file {} cannot be used: {why}", ca_file.display()))
    };
    let pem = tokio::fs::read(ca_file).await.map_err(|error| refused(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| refused(&error))?;
        roots.add(certificate).map_err(|error| refused(&error))?;
    }
    if roots.is_empty() {
        return Err(refused(&"it holds no PEM certificate"));
    }
    Ok(pem)
}
