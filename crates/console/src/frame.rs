//! The part of a page around its content.

use keepsake_index::Scope;

use crate::assets::ASSETS;
use crate::people::actor_text;
use crate::request::Caller;
use crate::text::markup::{Markup, id};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tab {
    Stores,
    Search,
    Sessions,
    Usage,
    Keys,
    Audit,
    Erase,
    Transfer,
    Health,
    Tenants,
    Jobs,
}

#[derive(Debug)]
pub(crate) struct TabLink {
    pub(crate) href: &'static str,
    pub(crate) label: &'static str,
    /// Pressed after `g`, this key opens the section.
    pub(crate) key: char,
    pub(crate) is_current: bool,
}

const SECTIONS: [(Tab, &str, &str, char, Option<Scope>); 8] = [
    (Tab::Stores, "/console/stores", "Stores", 's', None),
    (Tab::Search, "/console/search", "Search", 'f', None),
    (Tab::Sessions, "/console/sessions", "Sessions", 'e', None),
    (Tab::Usage, "/console/usage", "Usage", 'u', None),
    (Tab::Keys, "/console/keys", "Keys", 'k', Some(Scope::KeysAdmin)),
    (Tab::Audit, "/console/audit", "Audit", 'a', Some(Scope::TenantAdmin)),
    (Tab::Erase, "/console/erasures", "Erase", 'x', Some(Scope::TenantAdmin)),
    (Tab::Transfer, "/console/transfer", "Import, export", 'i', None),
];

const OPERATOR_SECTIONS: [(Tab, &str, &str, char); 3] = [
    (Tab::Health, "/console/health", "Health", 'h'),
    (Tab::Tenants, "/console/tenants", "Tenants", 't'),
    (Tab::Jobs, "/console/jobs", "Jobs", 'j'),
];

keepsake_core::named_enum! {
    /// The message about a finished action, which the next page shows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Done {
        StoreCreated = "store_created",
        StoreSaved = "store_saved",
        StoreArchived = "store_archived",
        StoreDeleted = "store_deleted",
        MemoryCreated = "memory_created",
        MemorySaved = "memory_saved",
        MemoryUnchanged = "memory_unchanged",
        MemoryMoved = "memory_moved",
        MemoryDeleted = "memory_deleted",
        MemoryPinned = "memory_pinned",
        MemoryUnpinned = "memory_unpinned",
        ExpirySet = "expiry_set",
        VersionRestored = "version_restored",
        VersionRedacted = "version_redacted",
        SessionEnded = "session_ended",
        KeyRevoked = "key_revoked",
        ErasureBegun = "erasure_begun",
        JobStarted = "job_started",
        TenantSuspended = "tenant_suspended",
        TenantResumed = "tenant_resumed",
    }
}

impl Done {
    const fn text(self) -> &'static str {
        match self {
            Self::StoreCreated => "The store was created.",
            Self::StoreSaved => "The store was saved.",
            Self::StoreArchived => "The store was archived. Its memories can be read and deleted.",
            Self::StoreDeleted => "The store was deleted.",
            Self::MemoryCreated => "The memory was created.",
            Self::MemorySaved => {
                "The memory was saved as a new version. Its history can bring back the one before."
            }
            Self::MemoryUnchanged => "Nothing was changed, so no version was written.",
            Self::MemoryMoved => "The memory was renamed.",
            Self::MemoryDeleted => "The memory was deleted. Its history can restore it.",
            Self::MemoryPinned => "The memory was pinned. It never expires.",
            Self::MemoryUnpinned => "The memory is no longer pinned.",
            Self::ExpirySet => "The expiry was saved.",
            Self::VersionRestored => "The version was restored as a new version.",
            Self::VersionRedacted => "The content and the path of the version were removed for good.",
            Self::SessionEnded => "The session was ended. Its tokens stop working within five seconds.",
            Self::KeyRevoked => "The key was revoked. It stops working within five seconds.",
            Self::ErasureBegun => "The erasure has begun. This page is its receipt.",
            Self::JobStarted => "The run has started.",
            Self::TenantSuspended => "The tenant was suspended. Its data is kept.",
            Self::TenantResumed => "The tenant is served again.",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) title: String,
    pub(crate) tabs: Vec<TabLink>,
    /// Token of the forms; `None`: the person is not signed in.
    pub(crate) token: Option<String>,
    pub(crate) who: Markup,
    pub(crate) done: Option<&'static str>,
    pub(crate) is_operator: bool,
    pub(crate) style: &'static str,
    pub(crate) script: &'static str,
}

impl Frame {
    /// A page without sections, such as the sign-in page.
    pub(crate) fn bare(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            tabs: Vec::new(),
            token: None,
            who: Markup::default(),
            done: None,
            is_operator: false,
            style: &ASSETS.style,
            script: &ASSETS.script,
        }
    }

    pub(crate) fn of(caller: &Caller, title: &str, tab: Tab) -> Self {
        let sections = SECTIONS.iter().filter(|(.., scope)| scope.is_none_or(|scope| caller.may(scope)));
        let tabs = sections.map(|(section, href, label, key, _)| TabLink {
            href,
            label,
            key: *key,
            is_current: *section == tab,
        });
        let principal = &caller.principal;
        let who = format!(
            "<span title=\"{}\">{}</span> in {}",
            Markup::text(&actor_text(principal.actor())),
            Markup::text(&actor_text(principal.actor())),
            id(&principal.tenant_id.to_string())
        );
        Self {
            tabs: tabs.collect(),
            token: Some(caller.token().to_owned()),
            who: Markup::trusted(who),
            done: caller.done().map(Done::text),
            ..Self::bare(title)
        }
    }

    pub(crate) fn of_operator(title: &str, tab: Tab, token: &str, done: Option<Done>) -> Self {
        let tabs = OPERATOR_SECTIONS.iter().map(|(section, href, label, key)| TabLink {
            href,
            label,
            key: *key,
            is_current: *section == tab,
        });
        Self {
            tabs: tabs.collect(),
            token: Some(token.to_owned()),
            who: Markup::text("operator"),
            done: done.map(Done::text),
            is_operator: true,
            ..Self::bare(title)
        }
    }

    /// Empty if the person is not signed in.
    pub(crate) fn form_token(&self) -> &str {
        self.token.as_deref().unwrap_or_default()
    }
}
