//! Encryption of stored secrets.

use aws_lc_rs::aead::NONCE_LEN;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keepsake_tokens::{MasterKey, Secret, Vault, VaultError};

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

#[test]
fn wrapped_secret_opens_only_with_its_purpose_and_name() {
    let vault = Vault::new(master(1), None);
    assert!(vault.is_locked());
    let stored = sealed(&vault);
    assert_eq!(stored.len(), 61);
    assert!(!stored.windows(4).any(|bytes| bytes == [7; 4]));
    let opened = vault.open("token", "token-1", &stored).unwrap();
    assert!(opened.secret == secret() && opened.is_current);
    for (purpose, kid) in
        [("token", "token-2"), ("cursor", "token-1"), ("token\0token-1", ""), ("", "token\0token-1")]
    {
        let error = vault.open(purpose, kid, &stored).unwrap_err();
        assert_eq!(error, VaultError::WrongKey, "{purpose} {kid}");
    }
}

#[test]
fn every_changed_byte_is_noticed() {
    let vault = Vault::new(master(1), None);
    let stored = sealed(&vault);
    for position in 0..stored.len() {
        let mut changed = stored.clone();
        changed[position] ^= 1;
        let error = vault.open("token", "token-1", &changed).unwrap_err();
        let expected = if position == 0 { VaultError::UnknownForm } else { VaultError::WrongKey };
        assert_eq!(error, expected, "{position}");
    }
    for length in [0, 1, 31, 33, 60, 62] {
        let error = vault.open("token", "token-1", &vec![1; length]).unwrap_err();
        assert_eq!(error, VaultError::UnknownForm);
    }
}

#[test]
fn master_key_rotates_with_the_previous_key() {
    let old = sealed(&Vault::new(master(1), None));
    let rotating = Vault::new(master(2), master(1));
    let opened = rotating.open("token", "token-1", &old).unwrap();
    assert!(opened.secret == secret() && !opened.is_current);
    let new = sealed(&rotating);
    assert!(rotating.open("token", "token-1", &new).unwrap().is_current);
    let after = Vault::new(master(2), None);
    assert!(after.open("token", "token-1", &new).unwrap().is_current);
    assert_eq!(after.open("token", "token-1", &old).unwrap_err(), VaultError::WrongKey);
}

#[test]
fn without_a_master_key_secrets_are_stored_as_they_are() {
    let open = Vault::default();
    assert!(!open.is_locked());
    let stored = sealed(&open);
    assert_eq!(stored, [7; 32]);
    assert!(open.open("token", "token-1", &stored).unwrap().is_current);
    let locked = Vault::new(master(1), None);
    let opened = locked.open("token", "token-1", &stored).unwrap();
    assert!(opened.secret == secret() && !opened.is_current);
    let wrapped = sealed(&locked);
    assert_eq!(open.open("token", "token-1", &wrapped).unwrap_err(), VaultError::Locked);
}

#[test]
fn master_key_is_the_base64_of_32_bytes() {
    let text = STANDARD.encode([1; 32]);
    assert!(MasterKey::parse(&format!(" {text}\n")).is_some());
    for bad in ["", "x", &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33]), &text[..43]] {
        assert!(MasterKey::parse(bad).is_none(), "{bad}");
    }
    assert_eq!(format!("{:?}", master(1)), "Some(MasterKey(***))");
}
