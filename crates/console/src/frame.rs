//! The part of a page around its content.

use keepsake_core::{StoreId, TenantId, Timestamp};
use keepsake_engine::Audience;
use keepsake_index::Scope;

use crate::next::HOME;
use crate::request::Person;
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

pub(crate) const SECTIONS: [Section; 9] = [
    section(HOME, "Overview", 'o', Some(Scope::MemoryRead)),
    section("/console/stores", "Stores", 's', Some(Scope::MemoryRead)),
    section("/console/search", "Search", 'f', Some(Scope::MemoryRead)),
    section("/console/sessions", "Sessions", 'e', Some(Scope::MemoryRead)),
    section("/console/usage", "Usage", 'u', Some(Scope::MemoryRead)),
    section("/console/keys", "Keys", 'k', Some(Scope::KeysAdmin)),
    section("/console/audit", "Audit", 'a', Some(Scope::TenantAdmin)),
    section("/console/erasures", "Erase", 'x', Some(Scope::TenantAdmin)),
    section("/console/transfer", "Import, export", 'i', Some(Scope::MemoryRead)),
];

pub(crate) const OPERATOR_SECTIONS: [Section; 4] = [
    section("/console/health", "Health", 'h', None),
    section("/console/tenants", "Tenants", 't', None),
    section("/console/jobs", "Jobs", 'j', None),
    section("/console/audit", "Audit", 'a', None),
];

/// A tab of a store or of a tenant, which all its pages have.
struct StoreTab {
    /// What follows the address of the store.
    end: &'static str,
    label: &'static str,
    /// What follows the store's address on the pages below the tab.
    pages: &'static [&'static str],
}

const fn tab(end: &'static str, label: &'static str, pages: &'static [&'static str]) -> StoreTab {
    StoreTab { end, label, pages }
}

const STORE_TABS: [StoreTab; 6] = [
    tab("", "Memories", &["", "memories", "new"]),
    tab("/history", "History", &["history", "compare", "versions", "diff", "undo", "restore"]),
    tab("/deleted", "Recently deleted", &["deleted"]),
    tab("/tests", "Tests", &["tests"]),
    tab("/usage", "Usage", &["usage"]),
    tab("/settings", "Settings", &["settings", "fork"]),
];

const TENANT_TABS: [StoreTab; 4] = [
    tab("", "Usage", &[""]),
    tab("/limits", "Limits", &["limits"]),
    tab("/keys", "API keys", &["keys"]),
    tab("/audit", "Audit", &["audit"]),
];

/// A tab as a page shows it.
pub(crate) struct ShownTab {
    pub(crate) href: String,
    pub(crate) label: &'static str,
    pub(crate) is_current: bool,
}

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
    MemoryMarked = "memory_marked":
        "The memory was saved. The store replaced text that looks like a secret by a mark.";
    MemoryUnchanged = "memory_unchanged": "Nothing was changed, so no version was written.";
    MemoryMoved = "memory_moved": "The memory was renamed.";
    MemoryDeleted = "memory_deleted": "The memory was deleted.";
    MemoryPinned = "memory_pinned": "The memory was pinned. It never expires.";
    MemoryUnpinned = "memory_unpinned": "The memory is no longer pinned.";
    ExpirySet = "expiry_set": "The expiry was saved.";
    ChangeUndone = "change_undone": "The change was taken back.";
    MemoryRestored = "memory_restored": "The memory was restored.";
    VersionRestored = "version_restored": "The version was restored as a new version.";
    VersionRedacted = "version_redacted":
        "The content and the path of the version were removed for good.";
    SessionEnded = "session_ended": "The session was ended. Its tokens stop working within five seconds.";
    KeyRevoked = "key_revoked": "The key was revoked. It stops working within five seconds.";
    ErasureBegun = "erasure_begun": "The erasure has begun. This page is its receipt.";
    JobStarted = "job_started": "The run has started.";
    TenantCreated = "tenant_created": "The tenant was created.";
    TenantSuspended = "tenant_suspended": "The tenant was suspended. Its data is kept.";
    TenantResumed = "tenant_resumed": "The tenant is served again.";
    LimitsSaved = "limits_saved": "The limits were saved. They take effect within five seconds.";
    TenantSaved = "tenant_saved": "The tenant was saved.";
    NothingChanged = "nothing_changed": "Nothing was changed.";
    SignInEnded = "sign_in_ended":
        "You are signed in. The last action was not done, because your sign-in had ended: do it again.";
}

impl Done {
    /// The colour of the message.
    pub(crate) const fn class(self) -> &'static str {
        if matches!(self, Self::SignInEnded) { "warn" } else { "good" }
    }
}

/// The form that takes a finished action back.
#[derive(Debug, Clone)]
pub(crate) struct Undo {
    pub(crate) action: String,
    pub(crate) fields: Vec<(String, String)>,
}

/// Who is signed in, and where.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    /// The name of the credential or of its person.
    pub(crate) name: String,
    /// Empty for the operator.
    pub(crate) tenant: String,
    /// The tenant's id, to copy.
    pub(crate) tenant_id: Markup,
}

impl Account {
    /// The letter in the account's picture.
    pub(crate) fn initial(&self) -> char {
        self.name.chars().find(|letter| letter.is_alphanumeric()).unwrap_or('?')
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) title: String,
    pub(crate) sections: Vec<&'static Section>,
    /// The address of the page, which begins with that of its section.
    pub(crate) path: String,
    /// Token of the forms; empty: the person is not signed in.
    pub(crate) token: String,
    pub(crate) account: Account,
    pub(crate) done: Option<Done>,
    /// Takes the finished action back.
    pub(crate) undo: Option<Undo>,
    pub(crate) is_operator: bool,
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
            account: Account::default(),
            done: None,
            undo: None,
            is_operator: false,
            now: Timestamp::from_micros(0),
        }
    }

    /// A frame without a message.
    pub(crate) fn of<P: Person>(
        person: &P,
        path: String,
        token: String,
        title: &str,
        now: Timestamp,
    ) -> Self {
        let may_see = |section: &&Section| section.scope.is_none_or(|scope| person.may(scope));
        Self {
            sections: P::SECTIONS.iter().filter(may_see).collect(),
            path,
            token,
            account: person.account(),
            is_operator: P::AUDIENCE == Audience::Operator,
            now,
            ..Self::bare(title)
        }
    }

    /// Whether the person may open a section.
    pub(crate) fn leads_to(&self, href: &str) -> bool {
        self.sections.iter().any(|section| section.href == href)
    }

    /// The frame of another page of the same person, without a message.
    pub(crate) fn with_title(&self, title: &str) -> Self {
        Self { title: title.to_owned(), done: None, undo: None, ..self.clone() }
    }

    /// The tabs of a store; the current one is that of this page.
    pub(crate) fn tabs_of(&self, store_id: StoreId) -> impl Iterator<Item = ShownTab> {
        self.tabs(format!("/console/stores/{store_id}"), &STORE_TABS)
    }

    /// The tabs of a tenant, on the operator's pages.
    pub(crate) fn tabs_of_tenant(&self, tenant_id: TenantId) -> impl Iterator<Item = ShownTab> {
        self.tabs(format!("/console/tenants/{tenant_id}"), &TENANT_TABS)
    }

    fn tabs(&self, place: String, tabs: &'static [StoreTab]) -> impl Iterator<Item = ShownTab> + use<> {
        let below = self.path.strip_prefix(&place).unwrap_or_default().trim_start_matches('/');
        let page = below.split('/').next().unwrap_or_default().to_owned();
        tabs.iter().map(move |tab| ShownTab {
            href: format!("{place}{}", tab.end),
            label: tab.label,
            is_current: tab.pages.contains(&page.as_str()),
        })
    }

    /// The id of the store whose page this is; empty for a page of no store.
    pub(crate) fn store(&self) -> &str {
        let below = self.path.strip_prefix("/console/stores/").unwrap_or_default();
        below.split('/').next().unwrap_or_default()
    }

    /// The name of a store, or its shortened id, as a link; the id if the person may not open its page.
    pub(crate) fn store_link(&self, store_id: StoreId, name: Option<&str>) -> Markup {
        if self.leads_to("/console/stores") {
            markup::store_named(store_id, name)
        } else {
            markup::id(store_id)
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
