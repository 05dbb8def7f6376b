//! Cursors: a listing accepts only cursors that were sealed for it.

#![no_main]

use keepsake_core::cursor::{Key, ListingHash, seal, unseal};
use libfuzzer_sys::fuzz_target;

const KEY: Key = [0x5a; 32];
const LISTING: ListingHash = [0xa5; 32];

fuzz_target!(|data: &[u8]| {
    let cursor = seal(&KEY, &LISTING, data);
    assert_eq!(unseal(&KEY, &LISTING, &cursor).as_deref(), Ok(data));
    // Of another tenant, list or filter, and of another key.
    let place = usize::from(data.first().copied().unwrap_or_default());
    let mut other = LISTING;
    other[place % 32] ^= 1 << (place / 32);
    assert!(unseal(&KEY, &other, &cursor).is_err());
    assert!(unseal(&other, &LISTING, &cursor).is_err());
    // Changed in one letter, cut, and with something behind it.
    let mut changed = cursor.clone().into_bytes();
    let length = changed.len();
    changed[place % length] ^= [1, 2, 3, 4, 5][place % 5];
    if let Ok(changed) = String::from_utf8(changed) {
        assert!(unseal(&KEY, &LISTING, &changed).is_err(), "{changed}");
    }
    assert!(unseal(&KEY, &LISTING, &cursor[..place % length]).is_err());
    assert!(unseal(&KEY, &LISTING, &format!("{cursor}A")).is_err());
    // Text from a client. Exactly one text is valid for each position.
    if let Ok(text) = std::str::from_utf8(data) {
        for text in [text, &format!("page_{text}")] {
            if let Ok(position) = unseal(&KEY, &LISTING, text) {
                assert_eq!(seal(&KEY, &LISTING, &position), text);
            }
        }
    }
});
