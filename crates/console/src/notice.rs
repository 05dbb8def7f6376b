//! The message about a finished action, which the next page shows once.
//!
//! The answer to a form leads to a page, and a cookie carries the message there. An address with
//! the message would show it again at each visit.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keepsake_core::{ContentHash, VersionId};

use crate::frame::Done;

/// Between the name and the value of a field in the cookie.
const IS: char = '~';
/// Between two fields in the cookie.
const NEXT: &str = "!";
/// The first of the fields that take an action back: only the sign-in of the action can make it.
const SEAL: &str = "seal";
/// Maximum bytes of the cookie's value: many proxies read 4 KiB of an answer's headers, and refuse larger ones.
const MAX_COOKIE_BYTES: usize = 2_800;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) done: Done,
    /// The version that the action made: the page offers to take it back.
    pub(crate) version_id: Option<VersionId>,
    /// The seal, and the fields of a form that takes the action back, with their earlier values. Names
    /// have letters, digits and `_`.
    before: Vec<(String, String)>,
    /// The page that shows the message.
    path: String,
}

impl Notice {
    pub(crate) fn new(done: Done, version_id: Option<VersionId>, path: &str) -> Self {
        Self { done, version_id, before: Vec::new(), path: path.to_owned() }
    }

    /// Adds the fields that take the action back, for the sign-in with this form token. Without them if
    /// they are too long for the cookie.
    pub(crate) fn with_before(self, token: &str, fields: Vec<(String, String)>) -> Self {
        let mut before = vec![(SEAL.to_owned(), seal(token, &self.path, &fields))];
        before.extend(fields);
        let notice = Self { before, ..self };
        let is_too_long = notice.to_cookie().len() > MAX_COOKIE_BYTES;
        if is_too_long { Self { before: Vec::new(), ..notice } } else { notice }
    }

    /// The fields that take the action back. Another site of the domain may have made the cookie, but
    /// does not know the token of the sign-in.
    pub(crate) fn undo_fields(&self, token: &str) -> Option<&[(String, String)]> {
        let ((name, sent), fields) = self.before.split_first()?;
        let is_own = name == SEAL && *sent == seal(token, &self.path, fields);
        is_own.then_some(fields)
    }

    pub(crate) fn to_cookie(&self) -> String {
        let before = self.before.iter().map(|(name, value)| {
            let value = URL_SAFE_NO_PAD.encode(value);
            format!("{name}{IS}{value}")
        });
        let before = before.collect::<Vec<_>>().join(NEXT);
        let made = self.version_id.map_or(before, |id| id.to_string());
        format!("{}.{made}.{}", self.done.name(), self.path)
    }

    /// `None`: the cookie has no message for the page at `path`.
    pub(crate) fn of_cookie(value: &str, path: &str) -> Option<Self> {
        let mut parts = value.splitn(3, '.');
        let (done, made, at) = (parts.next()?, parts.next()?, parts.next()?);
        let before: Option<Vec<_>> = made.split(NEXT).map(|field| field.split_once(IS)).collect();
        let before = before.unwrap_or_default();
        let has_version = !made.is_empty() && before.is_empty();
        let version_id = if has_version { Some(made.parse().ok()?) } else { None };
        let before = before.into_iter().map(|(name, value)| {
            let value = URL_SAFE_NO_PAD.decode(value).ok()?;
            Some((name.to_owned(), String::from_utf8(value).ok()?))
        });
        let before = before.collect::<Option<Vec<_>>>()?;
        let notice = Self { before, ..Self::new(Done::parse(done)?, version_id, path) };
        (at == path).then_some(notice)
    }
}

fn seal(token: &str, path: &str, fields: &[(String, String)]) -> String {
    ContentHash::of(format!("{token} {path} {fields:?} {token}").as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn message_is_for_one_page() {
        let before =
            [("a_b", "1.5 ~!é\n"), ("c", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (version_id, before) in
            [(None, &[][..]), (Some(VersionId::from_uuid(Uuid::nil())), &[]), (None, &before)]
        {
            let sent = Notice::new(Done::MemorySaved, version_id, "/console/stores/a.b");
            let sent = Notice { before: before.to_vec(), ..sent };
            assert_eq!(Notice::of_cookie(&sent.to_cookie(), "/console/stores/a.b"), Some(sent.clone()));
            assert_eq!(Notice::of_cookie(&sent.to_cookie(), "/console/stores"), None);
        }
        let sealed = Notice::new(Done::ExpirySet, None, "/p").with_before("t", before.to_vec());
        assert_eq!(sealed.undo_fields("t"), Some(&before[..]));
        assert_eq!(sealed.undo_fields("u"), None);
        let long = vec![("d".to_owned(), "é".repeat(1_500))];
        assert_eq!(Notice::new(Done::StoreSaved, None, "/p").with_before("t", long).undo_fields("t"), None);
        for other in ["", "memory_saved", "memory_saved..", "x../p", "memory_saved.x./p"] {
            assert_eq!(Notice::of_cookie(other, "/p"), None, "{other}");
        }
    }
}
