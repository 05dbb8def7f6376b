//! The part of a page around its content.

use keepsake_core::Timestamp;
use keepsake_engine::Audience;
use keepsake_index::Scope;

use crate::assets::ASSETS;
use crate::request::{Caller, Person};
use crate::text::markup::{self, Markup};

/// A group of pages, to which every page has a link.
#[derive(Debug)]
pub(crate) struct Section {
    /// The addresses of its pages begin with this one.
    pub(crate) href: &'static str,
    pub(crate) label: &'static str,
    /// Pressed after `g`, this key opens the section.
    pub(crate) key: char,
    /// Only people with this scope see the section.
    scope: Option<Scope>,
}

const fn section(href: &'static str, label: &'static str, key: char, scope: Option<Scope>) -> Section {
    Section { href, label, key, scope }
}

const USAGE: &str = "/console/usage";

pub(crate) const SECTIONS: [Section; 8] = [
    section("/console/stores", "Stores", 's', None),
    section("/console/search", "Search", 'f', None),
    section("/console/sessions", "Sessions", 'e', None),
    section(USAGE, "Usage", 'u', None),
    section("/console/keys", "Keys", 'k', Some(Scope::KeysAdmin)),
    section("/console/audit", "Audit", 'a', Some(Scope::TenantAdmin)),
    section("/console/erasures", "Erase", 'x', Some(Scope::TenantAdmin)),
    section("/console/transfer", "Import, export", 'i', None),
];

pub(crate) const OPERATOR_SECTIONS: [Section; 3] = [
    section("/console/health", "Health", 'h', None),
    section("/console/tenants", "Tenants", 't', None),
    section("/console/jobs", "Jobs", 'j', None),
];

macro_rules! done {
    ($($action:ident = $name:literal: $message:literal;)+) => {
        keepsake_core::named_enum! {
            /// A finished action; the next page shows its message.
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub(crate) enum Done { $($action = $name,)+ }
        }

        impl Done {
            pub(crate) const fn message(self) -> &'static str {
                match self { $(Self::$action => $message,)+ }
            }
        }
    };
}

done! {
    StoreCreated = "store_created": "The store was created.";
    StoreSaved = "store_saved": "The store was saved.";
    StoreArchived = "store_archived": "The store was archived. Its memories can be read and deleted.";
    StoreDeleted = "store_deleted": "The store was deleted.";
    MemoryCreated = "memory_created": "The memory was created.";
    MemorySaved = "memory_saved": "The memory was saved as a new version.";
    MemoryUnchanged = "memory_unchanged": "Nothing was changed, so no version was written.";
    MemoryMoved = "memory_moved": "The memory was renamed.";
    MemoryDeleted = "memory_deleted": "The memory was deleted.";
    MemoryPinned = "memory_pinned": "The memory was pinned. It never expires.";
    MemoryUnpinned = "memory_unpinned": "The memory is no longer pinned.";
    ExpirySet = "expiry_set": "The expiry was saved.";
    ChangeUndone = "change_undone": "The change was taken back.";
    VersionRestored = "version_restored": "The version was restored as a new version.";
    VersionRedacted = "version_redacted":
        "The content and the path of the version were removed for good.";
    SessionEnded = "session_ended": "The session was ended. Its tokens stop working within five seconds.";
    KeyRevoked = "key_revoked": "The key was revoked. It stops working within five seconds.";
    ErasureBegun = "erasure_begun": "The erasure has begun. This page is its receipt.";
    JobStarted = "job_started": "The run has started.";
    TenantSuspended = "tenant_suspended": "The tenant was suspended. Its data is kept.";
    TenantResumed = "tenant_resumed": "The tenant is served again.";
}

/// The form that takes a finished action back.
#[derive(Debug)]
pub(crate) struct Undo {
    pub(crate) action: String,
    pub(crate) fields: Vec<(&'static str, &'static str)>,
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) title: String,
    pub(crate) sections: Vec<&'static Section>,
    /// The address of the page, which begins with that of its section.
    pub(crate) path: String,
    /// Token of the forms; empty: the person is not signed in.
    pub(crate) token: String,
    pub(crate) who: Markup,
    pub(crate) done: Option<Done>,
    /// Takes the finished action back.
    pub(crate) undo: Option<Undo>,
    pub(crate) is_operator: bool,
    pub(crate) style: &'static str,
    pub(crate) script: &'static str,
    /// Pages show times in relation to this one.
    pub(crate) now: Timestamp,
}

impl Frame {
    /// A page without sections and times, such as the sign-in page.
    pub(crate) fn bare(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            sections: Vec::new(),
            path: String::new(),
            token: String::new(),
            who: Markup::default(),
            done: None,
            undo: None,
            is_operator: false,
            style: &ASSETS.style,
            script: &ASSETS.script,
            now: Timestamp::from_micros(0),
        }
    }

    pub(crate) fn of<P: Person>(caller: &Caller<P>, title: &str) -> Self {
        let may_see = |section: &&Section| section.scope.is_none_or(|scope| caller.may(scope));
        // The usage of a store is below the store.
        let path = if caller.path.ends_with("/usage") { USAGE } else { &caller.path };
        Self {
            sections: P::SECTIONS.iter().filter(may_see).collect(),
            path: path.to_owned(),
            token: caller.token.clone(),
            who: caller.principal.shown(),
            done: caller.query.get("done").and_then(Done::parse),
            is_operator: P::AUDIENCE == Audience::Operator,
            now: caller.engine.now(),
            ..Self::bare(title)
        }
    }

    pub(crate) fn time(&self, at: Timestamp) -> Markup {
        markup::time(at, self.now)
    }

    /// `none` is shown where there is no time.
    pub(crate) fn time_or(&self, at: Option<Timestamp>, none: &str) -> Markup {
        markup::time_or(at, self.now, none)
    }
}
