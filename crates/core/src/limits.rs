//! The limits of a tenant; the defaults come from the configuration.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The largest limit; JSON and every database represent it exactly.
pub const MAX_LIMIT: u64 = 1 << 53;

/// Defines [`Limits`] and [`LimitOverrides`], which have the same fields, from one
/// list of the limits with their defaults.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident = $default:expr;)*) => {
        /// The limits in force for one tenant.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits {
            $($(#[$doc])* pub $name: u64,)*
            /// Seconds after which an unread memory expires, in stores without their own
            /// period; 0: never. Only a tenant's override sets it: a default in the
            /// configuration would have no known start date.
            #[serde(skip_serializing_if = "is_zero")]
            pub expires_unused_after: u64,
            /// When the current period started to apply; see [`LimitOverrides::replacing`].
            #[serde(skip)]
            pub period_set_at: Option<Timestamp>,
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* expires_unused_after: 0, period_set_at: None }
            }
        }

        /// A tenant's overrides of the configured defaults.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct LimitOverrides {
            $(
                #[doc = concat!("Overrides [`Limits::", stringify!($name), "`].")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<u64>,
            )*
            #[serde(skip_serializing_if = "Option::is_none")]
            pub expires_unused_after: Option<u64>,
            /// When the expiry period was last introduced or shortened, in microseconds. Stored
            /// with the overrides, but neither accepted from nor shown to clients.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub period_set_at: Option<i64>,
        }

        impl LimitOverrides {
            /// The names of the limits that a tenant may have.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)* "expires_unused_after"];
        }

        impl Limits {
            /// These limits, with a tenant's overrides applied.
            #[must_use]
            pub fn with(&self, own: &LimitOverrides) -> Self {
                Self {
                    $($name: own.$name.unwrap_or(self.$name),)*
                    expires_unused_after: own.expires_unused_after.unwrap_or_default(),
                    period_set_at: own.period_set_at.map(Timestamp::from_micros),
                }
            }
        }
    };
}

limits! {
    /// Bytes of one memory's content.
    bytes_per_memory = 102_400;
    /// Characters (Unicode scalar values) of one `view` result.
    max_view_chars = 16_000;
    /// Live memories in one store.
    memories_per_store = 2_000;
    /// Bytes of the live memories of one store.
    bytes_per_store = 100 << 20;
    /// Stores of the tenant that are not deleted.
    stores_per_tenant = 1_000;
    /// Bytes of the live memories of all the tenant's stores.
    bytes_per_tenant = 10 << 30;
    /// Sessions, archived ones included.
    sessions_per_tenant = 10_000;
    /// Bytes of the descriptions of these sessions: agents, titles, metadata, vault ids
    /// and instructions.
    session_bytes_per_tenant = 1 << 30;
    /// API keys that are active or were revoked within the last 30 days.
    api_keys_per_tenant = 1_000;
    /// Audit entries per day (UTC) that the tenant's own credentials cause. Actions
    /// that end or delete an object are never refused because of this limit.
    audit_entries_per_day = 100_000;
    /// Sustained requests per second; 0 refuses every request.
    requests_per_second = 1_000;
    /// Requests in one burst after an idle period; 0 refuses every request.
    request_burst = 2_000;
    /// Seconds for which a superseded version is kept if its memory was deleted or a
    /// limit on the memory's history is exceeded.
    version_retention_secs = 30 * 86_400;
    /// Seconds after which a version of a live memory is too old; 0: no limit.
    version_age_secs = 0;
    /// Versions of a live memory, the current one included; 0: no limit.
    versions_per_memory = 0;
    /// Seconds for which the server remembers who read a version, from their last read on;
    /// 0: readers are not recorded.
    read_retention_secs = 30 * 86_400;
    /// Remembered readers of versions; the oldest beyond this number are removed.
    recorded_reads_per_tenant = 1_000_000;
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl LimitOverrides {
    /// The expiry period; `None`: never.
    pub fn unused_period_secs(&self) -> Option<u64> {
        self.expires_unused_after.filter(|secs| *secs > 0)
    }

    /// Returns these limits as the successor of `before`, and records `now` if they
    /// introduce or shorten the expiry period.
    #[must_use]
    pub fn replacing(mut self, before: &Self, now: Timestamp) -> Self {
        let old = before.unused_period_secs();
        let is_new_or_shorter = self.unused_period_secs().is_some_and(|new| old.is_none_or(|old| new < old));
        self.period_set_at = if is_new_or_shorter { Some(now.as_micros()) } else { before.period_set_at };
        self
    }
}

impl Limits {
    /// The expiry period; `None`: never.
    pub fn unused_period_secs(&self) -> Option<u64> {
        Some(self.expires_unused_after).filter(|secs| *secs > 0)
    }
}
