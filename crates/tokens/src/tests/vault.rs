//! Encryption of stored secrets.

use aws_lc_rs::aead::NONCE_LEN;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{MasterKey, Secret, Vault, VaultError};

const NONCE: [u8; NONCE_LEN] = [5; NONCE_LEN];

fn master(byte: u8) -> Option<MasterKey> {
    MasterKey::parse(&STANDARD.encode([byte; 32]))
}

fn secret() -> Secret {
    Secret::new([7; 32])
}

fn sealed(vault: &Vault) -> Vec<u8> {
    vault.seal("token", "token-1", &secret(), NONCE).unwrap()
}

/// Whether the opened secret has the form that the vault writes.
fn opens(vault: &Vault, stored: &[u8]) -> Result<bool, VaultError> {
    let opened = vault.open("token", "token-1", stored)?;
    assert!(opened.secret == secret());
    Ok(opened.is_current)
}

#[test]
fn wrapped_secret_opens_only_unchanged_with_its_purpose_and_name() {
    let vault = Vault::new(master(1), None);
    assert!(vault.is_locked());
    let stored = sealed(&vault);
    assert_eq!(stored.len(), 61);
    assert!(!stored.windows(4).any(|bytes| bytes == [7; 4]));
    assert_eq!(opens(&vault, &stored), Ok(true));
    for (purpose, kid) in
        [("token", "token-2"), ("cursor", "token-1"), ("token\0token-1", ""), ("", "token\0token-1")]
    {
        let error = vault.open(purpose, kid, &stored).unwrap_err();
        assert_eq!(error, VaultError::WrongKey, "{purpose} {kid}");
    }
    for position in 0..stored.len() {
        let mut changed = stored.clone();
        changed[position] ^= 1;
        let expected = if position == 0 { VaultError::UnknownForm } else { VaultError::WrongKey };
        assert_eq!(opens(&vault, &changed), Err(expected), "{position}");
    }
    for length in [0, 31, 33, 60, 62] {
        assert_eq!(opens(&vault, &vec![1; length]), Err(VaultError::UnknownForm));
    }
}

#[test]
fn master_key_is_the_base64_of_32_bytes() {
    let text = STANDARD.encode([1; 32]);
    assert!(MasterKey::parse(&format!(" {text}\n")).is_some());
    for bad in ["", "x", &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33]), &text[..43]] {
        assert!(MasterKey::parse(bad).is_none(), "{bad}");
    }
    assert_eq!(format!("{:?}", master(1)), "Some(MasterKey(Secret(***)))");
}
