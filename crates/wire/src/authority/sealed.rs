//! The next authority, encrypted for holders of the current authority's key.
//!
//! Servers that each hold the current key exchange the next one through the store. The store
//! and its snapshots see only this form.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand::SecureRandom;

use super::{Authority, AuthorityError};

/// The parts that both sides bind the encryption to.
const PURPOSE: &[u8] = b"bunraku next authority 1";

impl Authority {
    /// Encrypts another authority with its key. Returns hexadecimal text.
    pub fn seal(&self, next: &Self) -> Result<String, AuthorityError> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| AuthorityError::Randomness)?;
        let mut text = serde_json::to_vec(&(next.certificates_pem(), next.key_pem()))
            .expect("two texts are JSON");
        self.sealing_key()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(PURPOSE),
                &mut text,
            )
            .map_err(|_| AuthorityError::Sealed)?;
        Ok(format!("{}{}", hex::encode(nonce), hex::encode(text)))
    }

    /// Decrypts an authority that another holder of this key encrypted.
    pub fn unseal(&self, sealed: &str) -> Result<Self, AuthorityError> {
        let mut bytes = hex::decode(sealed.trim()).map_err(|_| AuthorityError::Sealed)?;
        if bytes.len() < NONCE_LEN {
            return Err(AuthorityError::Sealed);
        }
        let mut rest = bytes.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&bytes).map_err(|_| AuthorityError::Sealed)?;
        let text = self
            .sealing_key()?
            .open_in_place(nonce, Aad::from(PURPOSE), &mut rest)
            .map_err(|_| AuthorityError::Sealed)?;
        let (certificates, key): (String, String) =
            serde_json::from_slice(text).map_err(|_| AuthorityError::Sealed)?;
        Self::from_pem(&certificates, &key)
    }

    fn sealing_key(&self) -> Result<LessSafeKey, AuthorityError> {
        let secret = pem::parse(self.key_pem()).map_err(|_| AuthorityError::Sealed)?;
        let salt = Salt::new(HKDF_SHA256, self.certificate().fingerprint.as_bytes());
        let key = salt.extract(secret.contents());
        let key: UnboundKey = key
            .expand(&[PURPOSE], &AES_256_GCM)
            .map_err(|_| AuthorityError::Sealed)?
            .into();
        Ok(LessSafeKey::new(key))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn only_a_holder_of_the_current_key_can_open_the_next_one() {
        let now = Timestamp::now();
        let current = Authority::create("current", now).unwrap();
        let next = Authority::create("next", now).unwrap();
        let other = Authority::create("other", now).unwrap();
        let sealed = current.seal(&next).unwrap();
        assert!(!sealed.contains("PRIVATE"));
        let copy = Authority::from_pem(&current.certificates_pem(), current.key_pem()).unwrap();
        assert_eq!(copy.unseal(&sealed).unwrap().key_pem(), next.key_pem());
        assert!(other.unseal(&sealed).is_err());
        let mut changed = sealed.into_bytes();
        let last = changed.last_mut().unwrap();
        *last = if *last == b'0' { b'1' } else { b'0' };
        assert!(copy.unseal(std::str::from_utf8(&changed).unwrap()).is_err());
        assert!(copy.unseal("00").is_err());
    }
}
