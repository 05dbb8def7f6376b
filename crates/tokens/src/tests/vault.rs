use aws_lc_rs::aead::NONCE_LEN;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{MasterKey, Secret, Vault, VaultError};

const NONCE: [u8; NONCE_LEN] = [5; NONCE_LEN];

fn master(byte: u8) -> Option<MasterKey> {
    MasterKey::parse(&STANDARD.encode([byte; 32]))
}

/// Whether the opened secret has the form that the vault writes.
fn opens(vault: &Vault, stored: &[u8]) -> Result<bool, VaultError> {
    let opened = vault.open("token", "token-1", stored)?;
    assert!(opened.secret == Secret::new([7; 32]));
    Ok(opened.is_current)
}

#[test]
fn wrapped_secret_opens_only_unchanged_with_its_purpose_and_name() {
    let vault = Vault::new(master(1), None);
    assert!(vault.is_locked());
    assert_eq!(format!("{:?}", master(1)), "Some(MasterKey(Secret(***)))");
    let stored = vault.seal("token", "token-1", &Secret::new([7; 32]), NONCE).unwrap();
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
