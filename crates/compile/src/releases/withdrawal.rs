//! Whether a release was rolled back.

use bunraku_model::{EnvironmentName, ReleaseNumber};
use bunraku_wire::api::ReleaseKind;

use super::document::Release;
use super::{Releases, number_of};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

impl Releases {
    /// Returns why no node may apply what this release introduced, unless its target names it: a
    /// later release is a rollback to an earlier one. A release whose successors are no longer
    /// stored may have been rolled back, so it counts as withdrawn too.
    pub async fn withdrawal(
        &self,
        environment: &EnvironmentName,
        number: ReleaseNumber,
    ) -> Result<Option<String>, ServiceError> {
        let newest = number_of(&self.head(environment).await?);
        let mut known = 0;
        for entry in document::read_all(&*self.store, &keys::releases(environment)).await? {
            let summary = document::decode::<Release>(&entry)?.summary;
            if summary.number <= number {
                continue;
            }
            known += u64::from(summary.number <= newest);
            if let ReleaseKind::Rollback { release } = summary.kind
                && release < number
            {
                return Ok(Some(format!(
                    "release {number} was rolled back by release {}",
                    summary.number
                )));
            }
        }
        let all = newest.0.saturating_sub(number.0);
        Ok((known < all).then(|| {
            format!("release {number} is too old: the releases after it are no longer stored")
        }))
    }
}
