//! Encrypts the secrets in the index with a key that is not in the index.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Size of a secret and of the master key.
pub const SECRET_BYTES: usize = 32;
/// The first byte of a wrapped secret: the version of its format.
const AES_256_GCM_V1: u8 = 1;
/// Size of the tag that AES-GCM adds.
const TAG_BYTES: usize = 16;
const WRAPPED_BYTES: usize = 1 + NONCE_LEN + SECRET_BYTES + TAG_BYTES;

/// A secret of 32 bytes; its memory is zeroed when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl Secret {
    pub fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for cryptographic operations.
    pub fn expose(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The operator's master key, which wraps the secrets in the index.
#[derive(Debug, Clone)]
pub struct MasterKey(Secret);

impl MasterKey {
    /// Reads the base64 of 32 bytes; surrounding white space is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).ok()?);
        let key = <[u8; SECRET_BYTES]>::try_from(bytes.as_slice()).ok()?;
        Some(Self(Secret::new(key)))
    }

    fn cipher(&self) -> Result<LessSafeKey, VaultError> {
        let key = UnboundKey::new(&AES_256_GCM, self.0.expose()).map_err(|_| VaultError::Failed)?;
        Ok(LessSafeKey::new(key))
    }
}

/// The reason why a stored secret cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    #[error("is wrapped by a master key, and none is configured: set the one it was stored with")]
    Locked,
    #[error(
        "is wrapped by another master key than those configured, or was changed: set the one it was stored with as \
         secrets.previous_master_key"
    )]
    WrongKey,
    /// It opens, and is stored in plain form or wrapped by the previous master key.
    #[error(
        "is not encrypted with the master key yet: start the servers with this configuration first, which \
         encrypts it"
    )]
    Outdated,
    #[error("has a format that this version does not know")]
    UnknownForm,
    #[error("cannot be wrapped")]
    Failed,
}

/// A secret from the index.
#[derive(Debug, Clone)]
pub struct OpenedSecret {
    pub secret: Secret,
    /// Whether it has the form that this vault writes; otherwise store it again.
    pub is_current: bool,
}

/// Wraps secrets with the master key; without one, they are stored in plain form.
#[derive(Debug, Clone, Default)]
pub struct Vault {
    current: Option<MasterKey>,
    previous: Option<MasterKey>,
}

impl Vault {
    /// A vault with the master key and the previous one during a rotation.
    pub const fn new(current: Option<MasterKey>, previous: Option<MasterKey>) -> Self {
        Self { current, previous }
    }

    /// Whether secrets are stored wrapped.
    pub const fn is_locked(&self) -> bool {
        self.current.is_some()
    }

    /// The form in which a secret is stored.
    ///
    /// It can only be read with the same purpose and name. `nonce` must never be
    /// reused.
    pub fn seal(
        &self,
        purpose: &str,
        kid: &str,
        secret: &Secret,
        nonce: [u8; NONCE_LEN],
    ) -> Result<Vec<u8>, VaultError> {
        let Some(master) = &self.current else {
            return Ok(secret.expose().to_vec());
        };
        let mut sealed = Zeroizing::new(Vec::with_capacity(SECRET_BYTES + TAG_BYTES));
        sealed.extend_from_slice(secret.expose());
        master
            .cipher()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                context(purpose, kid),
                &mut *sealed,
            )
            .map_err(|_| VaultError::Failed)?;
        let mut stored = Vec::with_capacity(WRAPPED_BYTES);
        stored.push(AES_256_GCM_V1);
        stored.extend_from_slice(&nonce);
        stored.extend_from_slice(&sealed);
        Ok(stored)
    }

    /// Reads a secret that was stored with this purpose and name.
    pub fn open(&self, purpose: &str, kid: &str, stored: &[u8]) -> Result<OpenedSecret, VaultError> {
        if let Ok(bytes) = <[u8; SECRET_BYTES]>::try_from(stored) {
            return Ok(OpenedSecret { secret: Secret::new(bytes), is_current: self.current.is_none() });
        }
        if stored.len() != WRAPPED_BYTES || stored[0] != AES_256_GCM_V1 {
            return Err(VaultError::UnknownForm);
        }
        let keys = [(&self.current, true), (&self.previous, false)];
        let mut error = VaultError::Locked;
        for (master, is_current) in keys {
            let Some(master) = master else { continue };
            match unwrap(master, purpose, kid, &stored[1..]) {
                Ok(secret) => return Ok(OpenedSecret { secret, is_current }),
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }
}

fn unwrap(master: &MasterKey, purpose: &str, kid: &str, sealed: &[u8]) -> Result<Secret, VaultError> {
    let (nonce, sealed) = sealed.split_at(NONCE_LEN);
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| VaultError::UnknownForm)?;
    let mut sealed = Zeroizing::new(sealed.to_vec());
    let opened = master
        .cipher()?
        .open_in_place(nonce, context(purpose, kid), &mut sealed)
        .map_err(|_| VaultError::WrongKey)?;
    let bytes = <[u8; SECRET_BYTES]>::try_from(&*opened).map_err(|_| VaultError::UnknownForm)?;
    Ok(Secret::new(bytes))
}

/// The associated data of a wrapped secret, so that it cannot be moved to another
/// purpose or name.
fn context(purpose: &str, kid: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("keepsake server_secret\0{purpose}\0{kid}").into_bytes())
}
