//! Secrets that the index keeps, wrapped so that the index alone is no use.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Bytes of a secret, and of the key that wraps it.
pub const SECRET_BYTES: usize = 32;
/// What a wrapped secret begins with: how it is wrapped.
const AES_256_GCM_V1: u8 = 1;
/// Bytes of the tag that AES-GCM adds.
const TAG_BYTES: usize = 16;
const WRAPPED_BYTES: usize = 1 + NONCE_LEN + SECRET_BYTES + TAG_BYTES;

/// 32 bytes that nobody may see; gone from memory with their last owner.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl Secret {
    /// Takes bytes that nobody can guess.
    pub fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, to compute with.
    pub fn expose(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The operator's key, which wraps all others and is kept apart from them.
#[derive(Clone)]
pub struct MasterKey(Secret);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(***)")
    }
}

impl MasterKey {
    /// Reads the base64 of 32 bytes; white space around it does not count.
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

/// Why a stored secret cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// It is wrapped, and there is no master key.
    #[error("is wrapped by a master key, and none is configured")]
    Locked,
    /// It is wrapped by another key, or was changed.
    #[error("is wrapped by another master key than those configured, or was changed")]
    WrongKey,
    /// It is not of a form that this version knows.
    #[error("is of a form that this version does not know")]
    UnknownForm,
    /// The cipher failed.
    #[error("cannot be wrapped")]
    Failed,
}

/// A secret that was stored.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The secret.
    pub secret: Secret,
    /// Whether it is stored as it would be today; else it is to be stored anew.
    pub is_current: bool,
}

/// Wraps secrets by the master key, and as they are where there is none.
#[derive(Debug, Clone, Default)]
pub struct Vault {
    current: Option<MasterKey>,
    previous: Option<MasterKey>,
}

impl Vault {
    /// A vault of the master key, and of the one before it where that changed.
    pub const fn new(current: Option<MasterKey>, previous: Option<MasterKey>) -> Self {
        Self { current, previous }
    }

    /// Whether secrets are stored wrapped.
    pub const fn is_locked(&self) -> bool {
        self.current.is_some()
    }

    /// The form in which a secret is stored.
    ///
    /// It opens under the same purpose and name alone. `nonce` is never to be
    /// used twice.
    ///
    /// # Errors
    /// [`VaultError::Failed`].
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

    /// Reads what was stored under a purpose and a name.
    ///
    /// # Errors
    /// [`VaultError`].
    pub fn open(&self, purpose: &str, kid: &str, stored: &[u8]) -> Result<Opened, VaultError> {
        if let Ok(bytes) = <[u8; SECRET_BYTES]>::try_from(stored) {
            return Ok(Opened {
                secret: Secret::new(bytes),
                is_current: self.current.is_none(),
            });
        }
        if stored.len() != WRAPPED_BYTES || stored[0] != AES_256_GCM_V1 {
            return Err(VaultError::UnknownForm);
        }
        let keys = [(&self.current, true), (&self.previous, false)];
        let mut error = VaultError::Locked;
        for (master, is_current) in keys {
            let Some(master) = master else { continue };
            match unwrap(master, purpose, kid, &stored[1..]) {
                Ok(secret) => return Ok(Opened { secret, is_current }),
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

/// What a wrapped secret is bound to: in another place it does not open.
fn context(purpose: &str, kid: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("keepsake server_secret\0{purpose}\0{kid}").into_bytes())
}
