//! The message about a finished action, which the next page shows once.
//!
//! The answer to a form leads to a page, and a cookie carries the message there. An address with
//! the message would show it again at each visit.

use keepsake_core::VersionId;

use crate::frame::Done;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) done: Done,
    /// The version that the action made: the page offers to take it back.
    pub(crate) version_id: Option<VersionId>,
    /// The page that shows the message.
    path: String,
}

impl Notice {
    pub(crate) fn new(done: Done, version_id: Option<VersionId>, path: &str) -> Self {
        Self { done, version_id, path: path.to_owned() }
    }

    pub(crate) fn to_cookie(&self) -> String {
        let version = self.version_id.map_or_else(String::new, |id| id.to_string());
        format!("{}.{version}.{}", self.done.name(), self.path)
    }

    /// `None`: the cookie has no message for the page at `path`.
    pub(crate) fn of_cookie(value: &str, path: &str) -> Option<Self> {
        let mut parts = value.splitn(3, '.');
        let (done, version, at) = (parts.next()?, parts.next()?, parts.next()?);
        let version_id = if version.is_empty() { None } else { Some(version.parse().ok()?) };
        (at == path).then(|| Some(Self::new(Done::parse(done)?, version_id, path))).flatten()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn message_is_for_one_page() {
        for version_id in [None, Some(VersionId::from_uuid(Uuid::nil()))] {
            let sent = Notice::new(Done::MemorySaved, version_id, "/console/stores/a.b");
            assert_eq!(Notice::of_cookie(&sent.to_cookie(), "/console/stores/a.b"), Some(sent.clone()));
            assert_eq!(Notice::of_cookie(&sent.to_cookie(), "/console/stores"), None);
        }
        for other in ["", "memory_saved", "memory_saved..", "x../p", "memory_saved.x./p"] {
            assert_eq!(Notice::of_cookie(other, "/p"), None, "{other}");
        }
    }
}
