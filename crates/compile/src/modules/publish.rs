//! Publishing: a verified package becomes a version that environments can name.

use bunraku_model::ContentId;
use bunraku_module::{
    KnownVersionError, KnownVersions, VerifiedModule, VerifyError, Version, verify,
};
use bunraku_store::blobs::{BlobError, Pins};
use bunraku_store::{Compare, KeyValue, Swap, Transaction, compare_and_swap, settle};
use bunraku_wire::api::modules::PublishedModule;
use bytes::Bytes;

use super::trust::ReadKeys;
use super::{LARGEST_PACKAGE, Modules};
use bunraku_control::document;
use bunraku_control::error::chain;
use bunraku_control::{ServiceError, keys};

impl Modules {
    /// Verifies a package and stores it. Publishing the same package again changes nothing.
    pub async fn publish(&self, package: Bytes, by: &str) -> Result<PublishedModule, ServiceError> {
        let (size, limit) = (package.len() as u64, LARGEST_PACKAGE);
        if size > limit {
            return Err(ServiceError::TooLarge {
                what: "the module".to_owned(),
                size,
                limit,
                hint: None,
            });
        }
        match self.publish_verified(&package, by).await {
            Err(error @ ServiceError::Conflict { .. }) => {
                self.note_refusal(&package, by, &error).await?;
                Err(error)
            }
            other => other,
        }
    }

    async fn publish_verified(
        &self,
        package: &Bytes,
        by: &str,
    ) -> Result<PublishedModule, ServiceError> {
        let held = Pins::default();
        let pins = &held;
        let published = compare_and_swap(&*self.store, |_| self.propose(package, by, pins)).await;
        let released = held.release().await;
        let (is_new, published) = published?;
        released.map_err(not_kept)?;
        if is_new {
            let PublishedModule { name, version, .. } = &published;
            tracing::info!(module = %name, %version, by, "published a module");
            self.forget_old_events().await?;
        }
        Ok(published)
    }

    /// Decides how to publish a package. The result says whether it is new.
    async fn propose(
        &self,
        package: &Bytes,
        by: &str,
        pins: &Pins,
    ) -> Result<Swap<(bool, PublishedModule)>, ServiceError> {
        let read = self.read_keys().await?;
        let module = checked(package.clone(), &read).await?;
        let (name, version) = (&module.manifest().name, &module.manifest().version);
        let newest =
            document::read::<KnownVersions>(&*self.store, &keys::module_newest(name)).await?;
        let (mut known, newest) = match newest {
            Some(newest) => (newest.document, Some(newest.entry)),
            None => (KnownVersions::default(), None),
        };
        known.take(&module).map_err(|error| not_taken(&error))?;
        let key = keys::module_version(name, version);
        if let Some(before) = document::read::<PublishedModule>(&*self.store, &key).await? {
            return Ok(Swap::Done((false, check_same(before.document, &module)?)));
        }
        let published = described(&module, package.len() as u64, by, self.clock.now());
        let transaction = Transaction::new()
            .when_unchanged(keys::MODULE_KEYS, read.entry.as_ref())
            .when_unchanged(&keys::module_newest(name), newest.as_ref())
            .when_unchanged(&key, None::<&KeyValue>)
            .put(keys::module_newest(name), document::encode(&known))
            .put(key, document::encode(&published));
        let subject = format!("{name} {version}");
        let sha256 = published.sha256.clone();
        let transaction = self.add_entry(transaction, by, "published", subject, sha256);
        let written = self.blobs.put(&mut &**package, None).await;
        let written = written.map_err(not_kept)?;
        pins.add(written.pin);
        let referrer = referrer(&published);
        let referred = self
            .blobs
            .reference_in(transaction, written.info.id, &referrer);
        let transaction = referred.await.map_err(not_kept)?;
        Ok(Swap::Write(transaction, (true, published)))
    }

    /// Records an attempt to publish a package that must not run, for operators to see.
    async fn note_refusal(
        &self,
        package: &Bytes,
        by: &str,
        error: &ServiceError,
    ) -> Result<(), ServiceError> {
        tracing::warn!(by, error = %error, "refused a module");
        let subject = ContentId::of(package).to_string();
        let transaction = self.add_entry(
            Transaction::new(),
            by,
            "refused",
            subject,
            error.to_string(),
        );
        settle(&*self.store, transaction).await?;
        self.forget_old_events().await
    }

    /// Returns all versions of all modules, the newest version of each first.
    pub async fn list(&self) -> Result<Vec<PublishedModule>, ServiceError> {
        self.versions_under(keys::MODULE_VERSIONS).await
    }

    /// Returns all versions of one module, newest first.
    pub async fn versions(&self, name: &str) -> Result<Vec<PublishedModule>, ServiceError> {
        let found = if is_name(name) {
            self.versions_under(&keys::module_versions(name)).await?
        } else {
            Vec::new()
        };
        if found.is_empty() {
            Err(ServiceError::NotFound {
                what: format!("module `{name}`"),
                hint: Some("list them with `bunraku module list --published`".to_owned()),
            })
        } else {
            Ok(found)
        }
    }

    async fn versions_under(&self, prefix: &str) -> Result<Vec<PublishedModule>, ServiceError> {
        let trust = self.read_keys().await?.trust;
        let mut found = Vec::new();
        for entry in document::read_all(&*self.store, prefix).await? {
            let mut module: PublishedModule = document::decode(&entry)?;
            let key = module.signed_by.parse();
            if key.is_ok_and(|key| trust.is_revoked(&key)) {
                module.refused = Some(format!("its key {} was revoked", module.signed_by));
            }
            found.push(module);
        }
        let version = |one: &PublishedModule| one.version.parse::<Version>().ok();
        found.sort_by(|one, other| {
            let newest_first = version(other).cmp(&version(one));
            one.name.cmp(&other.name).then(newest_first)
        });
        Ok(found)
    }

    pub async fn version(
        &self,
        name: &str,
        version: &str,
    ) -> Result<PublishedModule, ServiceError> {
        let versions = self.versions(name).await?;
        let known: Vec<String> = versions.iter().map(|one| one.version.clone()).collect();
        let found = versions.into_iter().find(|one| one.version == version);
        found.ok_or_else(|| ServiceError::NotFound {
            what: format!("module `{name}` {version}"),
            hint: Some(format!("there is {}", known.join(", "))),
        })
    }

    /// Returns the bytes of a published version.
    pub(super) async fn package(&self, module: &PublishedModule) -> Result<Vec<u8>, ServiceError> {
        let id: ContentId = module
            .sha256
            .parse()
            .map_err(|error| ServiceError::internal("cannot read the record of a module", error))?;
        let read = self.blobs.read(id).await;
        read.map_err(|error| ServiceError::content("cannot read the module", error))
    }

    /// Removes a version. Catalogs that pin it keep it; older versions stay refused.
    pub async fn remove(&self, name: &str, version: &str, by: &str) -> Result<(), ServiceError> {
        compare_and_swap(&*self.store, |_| async {
            let module = self.version(name, version).await?;
            let parsed: Version = module.version.parse().map_err(|error| {
                ServiceError::internal("cannot read the record of a module", error)
            })?;
            let key = keys::module_version(name, &parsed);
            let Some(entry) = self.store.get(&key).await? else {
                // Removed at this moment. This is refused, and the next decision reports it.
                let refused = Transaction::new().when(Compare::Exists(key));
                return Ok::<_, ServiceError>(Swap::Write(refused, ()));
            };
            let transaction = Transaction::new()
                .when_unchanged(&key, Some(&entry))
                .delete(key);
            let subject = format!("{name} {version}");
            let transaction =
                self.add_entry(transaction, by, "removed", subject, module.sha256.clone());
            let id = module.sha256.parse().map_err(|error| {
                ServiceError::internal("cannot read the record of a module", error)
            })?;
            let transaction = self
                .blobs
                .unreference_in(transaction, id, &referrer(&module))
                .map_err(|error| ServiceError::content("cannot remove the module", error))?;
            Ok(Swap::Write(transaction, ()))
        })
        .await?;
        tracing::info!(module = name, version, by, "removed a module");
        self.forget_old_events().await
    }
}

/// Verifies a package outside the async threads: it may unpack to hundreds of megabytes.
async fn checked(package: Bytes, read: &ReadKeys) -> Result<VerifiedModule, ServiceError> {
    let trust = read.trust.clone();
    let verified = tokio::task::spawn_blocking(move || verify(&package, &trust)).await;
    let verified =
        verified.map_err(|error| ServiceError::internal("verifying a module failed", error))?;
    verified.map_err(|error| refused(&error))
}

fn refused(error: &VerifyError) -> ServiceError {
    let hint = match error {
        VerifyError::UnknownKey(_) => "trust its key with `bunraku module trust`",
        VerifyError::Unsigned => "sign it with `bunraku module sign`",
        VerifyError::RevokedKey(_) => "sign it with another key, under a new version",
        _ => "pack and sign it again",
    };
    ServiceError::conflict(format!("the module is refused: {}", chain(error)), hint)
}

fn not_taken(error: &KnownVersionError) -> ServiceError {
    ServiceError::conflict(
        format!("the module is refused: {}", chain(error)),
        "publish it under a newer version",
    )
}

fn check_same(
    before: PublishedModule,
    module: &VerifiedModule,
) -> Result<PublishedModule, ServiceError> {
    if before.sha256 == module.sha256() {
        return Ok(before);
    }
    Err(ServiceError::conflict(
        format!(
            "the module is refused: `{}` {} is already published with different signatures",
            before.name, before.version
        ),
        "publish it under a newer version",
    ))
}

fn described(
    module: &VerifiedModule,
    size: u64,
    by: &str,
    published: jiff::Timestamp,
) -> PublishedModule {
    let manifest = module.manifest();
    PublishedModule {
        name: manifest.name.clone(),
        version: manifest.version.to_string(),
        sha256: module.sha256().to_owned(),
        size,
        types: manifest.types.iter().map(|one| one.name.clone()).collect(),
        signed_by: module.signed_by().to_string(),
        signer: module.signer().to_owned(),
        published_by: by.to_owned(),
        published,
        refused: None,
    }
}

fn referrer(module: &PublishedModule) -> String {
    format!("module/{}/{}", module.name, module.version)
}

/// Returns true for a valid manifest name: any other name leads nowhere in the store.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn not_kept(error: BlobError) -> ServiceError {
    ServiceError::content("cannot store the module", error)
}
