//! Revocation lists that an authority signs.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber, date_time_ymd,
};

use super::{Authority, after, since_1970};
use crate::certificate::BACK_DATE;
use crate::revocation::{RevocationError, RevocationList, RevokedCertificate};

impl Authority {
    /// Creates the list of all certificates that this authority has revoked. `number` must be
    /// higher than that of every earlier list.
    pub fn revocation_list(
        &self,
        revoked: &[RevokedCertificate],
        number: u64,
        now: Timestamp,
        lifetime: SignedDuration,
    ) -> Result<RevocationList, RevocationError> {
        let epoch = date_time_ymd(1970, 1, 1);
        let params = CertificateRevocationListParams {
            this_update: epoch + since_1970(after(now, -BACK_DATE)),
            next_update: epoch
                + since_1970(after(now, lifetime.max(SignedDuration::from_hours(1)))),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: revoked
                .iter()
                .map(|entry| RevokedCertParams {
                    serial_number: SerialNumber::from_slice(entry.serial.as_bytes()),
                    revocation_time: epoch + since_1970(entry.at),
                    reason_code: None,
                    invalidity_date: None,
                })
                .collect(),
            // OpenSSL finds a list by the key id in the authority's own certificate. For a
            // foreign authority, a derived key id would differ.
            key_identifier_method: match self.key_id() {
                Some(id) => KeyIdMethod::PreSpecified(id.to_vec()),
                None => KeyIdMethod::Sha256,
            },
        };
        let made = params
            .signed_by(self.issuer())
            .map_err(RevocationError::Make)?;
        RevocationList::from_der(made.der())
    }
}
