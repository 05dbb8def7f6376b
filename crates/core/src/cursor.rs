//! Cursors: the sort key of the last item shown, signed for one listing.
//!
//! A cursor holds the sort key of an item, and a keyed hash over that key and the
//! listing's identity. It does not depend on the page size, and the server keeps no
//! state for it. A cursor of another listing is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const PREFIX: &str = "page_";
/// Bytes of the keyed hash in a cursor.
const TAG_BYTES: usize = 16;

/// The key that signs cursors; the same on every replica.
pub type Key = [u8; 32];
/// A hash of all parameters of a listing except the page size.
pub type ListingHash = [u8; 32];

/// The text is not a cursor of this listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be the `next_page` of a response to the same query")]
pub struct CursorError;

/// Makes the cursor that follows the item at `position`.
pub fn seal(key: &Key, listing: &ListingHash, position: &[u8]) -> String {
    let tag = signature(key, listing, position).finalize().into_bytes();
    let sealed = [position, &tag[..TAG_BYTES]].concat();
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(sealed))
}

/// Verifies a cursor and returns its position.
pub fn unseal(key: &Key, listing: &ListingHash, cursor: &str) -> Result<Vec<u8>, CursorError> {
    let body = cursor.strip_prefix(PREFIX).ok_or(CursorError)?;
    let mut sealed = URL_SAFE_NO_PAD.decode(body).map_err(|_| CursorError)?;
    let position_bytes = sealed.len().checked_sub(TAG_BYTES).ok_or(CursorError)?;
    let tag = sealed.split_off(position_bytes);
    signature(key, listing, &sealed).verify_truncated_left(&tag).map_err(|_| CursorError)?;
    Ok(sealed)
}

fn signature(key: &Key, listing: &ListingHash, position: &[u8]) -> Hmac<Sha256> {
    // HMAC pads a key that is shorter than the hash's block with zeros.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut signature = Hmac::<Sha256>::new(&block.into());
    signature.update(listing);
    signature.update(position);
    signature
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = [7; 32];
    const LISTING: ListingHash = [1; 32];

    #[test]
    fn cursor_is_valid_only_for_its_key_and_listing_and_its_format_is_stable() {
        let cursor = seal(&KEY, &LISTING, b"/a");
        // A client can continue a listing after an upgrade to the next release.
        assert_eq!(cursor, "page_L2HX3J_GYrQN6fW_7rWW4SO9");
        assert_eq!(unseal(&KEY, &LISTING, &cursor).unwrap(), b"/a");
        assert_eq!(unseal(&[8; 32], &LISTING, &cursor), Err(CursorError));
        assert_eq!(unseal(&KEY, &[2; 32], &cursor), Err(CursorError));
        for place in 0..cursor.len() {
            for other in ["A", "B", "=", "+"] {
                let mut changed = cursor.clone();
                changed.replace_range(place..=place, other);
                assert_eq!(unseal(&KEY, &LISTING, &changed).is_ok(), changed == cursor, "{changed}");
            }
        }
        for cut in 0..cursor.len() {
            assert_eq!(unseal(&KEY, &LISTING, &cursor[..cut]), Err(CursorError));
        }
    }
}
