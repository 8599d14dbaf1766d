//! The settings of S3 from the configuration, the environment and the system.

use std::path::Path;
use std::sync::Arc;

use bunraku_model::ContentPlace;
use bunraku_store::blobs::{BlobStore, S3Credentials, S3Options, SharedBlobs};

use crate::config::{ContentKind, ContentSection};
use crate::failure::Failure;

/// Where distributions keep the CAs that the system trusts.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Returns the place of content in a fleet that has none yet.
pub(crate) fn wanted_place(section: &ContentSection) -> ContentPlace {
    match section.kind {
        ContentKind::Default => ContentPlace::Default,
        ContentKind::S3 => ContentPlace::S3,
    }
}

/// Adds S3 to the places of content, if it is configured.
pub(crate) fn with_s3(blobs: BlobStore, section: &ContentSection) -> Result<SharedBlobs, Failure> {
    if let Some(problem) = problems(section).into_iter().next() {
        return Err(
            Failure::new(problem).hint("check the configuration with `bunraku config check`")
        );
    }
    if section.kind == ContentKind::Default {
        return Ok(Arc::new(blobs));
    }
    if let Some(path) = &section.credentials_file {
        read(path)?;
    }
    let options = s3_options(section)?;
    let blobs = blobs.with_s3(&options);
    Ok(Arc::new(blobs.map_err(|error| {
        Failure::new("server.content is not valid").caused_by(&error)
    })?))
}

fn s3_options(section: &ContentSection) -> Result<S3Options, Failure> {
    let bucket = section.bucket.clone().unwrap_or_default();
    let usual = S3Options::new(bucket, credentials(section));
    Ok(S3Options {
        endpoint: section.endpoint.clone(),
        region: section.region.clone(),
        prefix: section.prefix.clone(),
        path_style: section.path_style.unwrap_or(section.endpoint.is_some()),
        ca_pem: authorities(section)?,
        request_timeout: section.request_timeout.0,
        retry_for: section.retry_for.0,
        ..usual
    })
}

/// The file, or the variables that all S3 tools know, or the role of the machine.
fn credentials(section: &ContentSection) -> S3Credentials {
    if let Some(file) = &section.credentials_file {
        return S3Credentials::File(file.clone());
    }
    let variable = |name| std::env::var(name).ok().filter(|it| !it.is_empty());
    match (
        variable("AWS_ACCESS_KEY_ID"),
        variable("AWS_SECRET_ACCESS_KEY"),
    ) {
        (Some(access_key), Some(secret_key)) => S3Credentials::Keys {
            access_key,
            secret_key,
            session_token: variable("AWS_SESSION_TOKEN"),
        },
        _ => S3Credentials::MachineRole,
    }
}

fn authorities(section: &ContentSection) -> Result<String, Failure> {
    let is_plain = (section.endpoint.as_ref()).is_some_and(|it| it.starts_with("http://"));
    let system = SYSTEM_AUTHORITIES.iter().map(Path::new);
    let path = match &section.ca {
        Some(path) => path,
        None if is_plain => return Ok(String::new()),
        None => system
            .into_iter()
            .find(|path| path.is_file())
            .ok_or_else(|| {
                Failure::new("this system has no list of trusted CAs")
                    .hint("install `ca-certificates`, or set `ca` under [server.content]")
            })?,
    };
    read(path)
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {}", path.display())).caused_by(&error))
}

/// Returns what the parser cannot find: settings that contradict each other.
pub(crate) fn problems(section: &ContentSection) -> Vec<String> {
    let mut problems = Vec::new();
    let mut add = |problem: &str| problems.push(format!("server.content: {problem}"));
    let is_s3 = section.kind == ContentKind::S3;
    if !is_s3 && (section.bucket.is_some() || section.endpoint.is_some()) {
        add("`bucket` and `endpoint` need `kind = \"s3\"`");
    }
    if is_s3 && section.bucket.as_ref().is_none_or(String::is_empty) {
        add("S3 needs `bucket`");
    }
    let scheme = (section.endpoint.as_ref()).and_then(|it| it.split_once("://"));
    if section.endpoint.is_some() && !matches!(scheme, Some(("http" | "https", _))) {
        add("`endpoint` must begin with `https://` or `http://`");
    }
    if section.prefix.trim_matches('/').is_empty() {
        add("`prefix` must not be empty");
    }
    problems
}
