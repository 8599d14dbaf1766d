//! Settings of an S3-compatible object store, and its credentials.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;

/// The origin of the credentials.
#[derive(Clone)]
pub enum S3Credentials {
    /// A file in the format of the AWS tools (`~/.aws/credentials`). It is read for every request, so
    /// that a new key takes effect without a restart.
    File(PathBuf),
    Keys {
        access_key: String,
        secret_key: String,
        session_token: Option<String>,
    },
    /// The role of the machine, from the metadata service of its cloud.
    MachineRole,
}

impl std::fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Keys { .. } => f.write_str("Keys"),
            Self::MachineRole => f.write_str("MachineRole"),
        }
    }
}

/// Settings of an S3-compatible object store.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// `None`: the endpoint of AWS for the region.
    pub endpoint: Option<String>,
    pub bucket: String,
    pub region: String,
    /// The beginning of the names of all objects, without a final slash.
    pub prefix: String,
    /// `true`: `ENDPOINT/BUCKET/OBJECT`; `false`: `BUCKET.ENDPOINT/OBJECT`.
    pub path_style: bool,
    pub credentials: S3Credentials,
    /// The CAs that may sign the server's certificate. No others are trusted.
    pub ca_pem: String,
    /// The time that one attempt may take, and that an answer may pause.
    pub request_timeout: Duration,
    /// The time after which a failing request is not tried again.
    pub retry_for: Duration,
}

impl S3Options {
    /// Returns the defaults for a bucket.
    pub fn new(bucket: impl Into<String>, credentials: S3Credentials) -> Self {
        Self {
            endpoint: None,
            bucket: bucket.into(),
            region: "us-east-1".to_owned(),
            prefix: "bunraku".to_owned(),
            path_style: false,
            credentials,
            ca_pem: String::new(),
            request_timeout: Duration::from_secs(30),
            retry_for: Duration::from_secs(20),
        }
    }
}

/// Credentials in a file.
#[derive(Debug)]
pub(super) struct CredentialsFile(pub(super) PathBuf);

#[async_trait]
impl CredentialProvider for CredentialsFile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let failed = |why: String| object_store::Error::Generic {
            store: "S3",
            source: format!("cannot use the credentials in {}: {why}", self.0.display()).into(),
        };
        let text = tokio::fs::read_to_string(&self.0).await;
        let text = text.map_err(|error| failed(error.to_string()))?;
        let keys = parse(&text).map_err(|why| failed(why.to_owned()))?;
        Ok(Arc::new(keys))
    }
}

/// Reads the profile `default`, or the lines before any profile.
fn parse(text: &str) -> Result<AwsCredential, &'static str> {
    let (mut key, mut secret, mut token, mut is_ours) = (None, None, None, true);
    for line in text.lines().map(str::trim) {
        if let Some(profile) = line.strip_prefix('[') {
            is_ours = profile.trim_end_matches(']').trim() == "default";
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_ours) else {
            continue;
        };
        let value = Some(value.trim().to_owned());
        match name.trim() {
            "aws_access_key_id" => key = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => token = value,
            _ => {}
        }
    }
    Ok(AwsCredential {
        key_id: key.ok_or("it has no line `aws_access_key_id = …`")?,
        secret_key: secret.ok_or("it has no line `aws_secret_access_key = …`")?,
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_profile_of_a_credentials_file_is_read() {
        let text = "# keys\n[other]\naws_access_key_id = a\naws_secret_access_key = b\n\n\
            [default]\naws_access_key_id = c\naws_secret_access_key=d=\n";
        let found = parse(text).expect("a profile");
        assert_eq!((&*found.key_id, &*found.secret_key), ("c", "d="));
        let bare = parse("aws_access_key_id=a\naws_secret_access_key=b\naws_session_token=t\n");
        assert_eq!(bare.expect("keys").token.as_deref(), Some("t"));
        assert!(parse("[other]\naws_access_key_id = a\n").is_err());
    }
}
