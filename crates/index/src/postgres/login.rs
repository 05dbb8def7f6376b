//! How connections get their role and settings: by statements, or by the login itself.
//!
//! With a single login, which may be the owner's, each new connection sends `SET ROLE`
//! and `SET`. These last as long as the session, so they fail behind a pooler in
//! transaction mode, where the next transaction uses another client's session. A login as
//! the role itself brings the role's settings (`ALTER ROLE … SET`), sends nothing, and
//! works there too.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _};

use crate::IndexError;

/// The role and settings of a pool's connections.
#[derive(Debug)]
pub(super) struct Profile {
    /// The configuration setting that contains the URL.
    key: &'static str,
    role: &'static str,
    /// Names and values, as Postgres displays them.
    settings: &'static [(&'static str, &'static str)],
}

/// Settings of every profile for a schema that is distributed: its statements are planned for
/// the node of their tenant, and a transaction sets its tenant there, too.
const DISTRIBUTED: [(&str, &str); 2] =
    [("plan_cache_mode", "auto"), ("citus.propagate_set_commands", "local")];

/// For requests of tenants.
///
/// An abandoned transaction must not keep the store's lock. Every query of a
/// request uses an index on its key, whatever the statistics of a recently empty
/// table say; planning each call would cost more than executing it. `work_mem` is
/// sized for the search terms of many simultaneous changes, which would otherwise
/// spill to files.
pub(super) const REQUESTS: Profile = Profile {
    key: "index.url",
    role: "keepsake_app",
    settings: &[
        ("idle_in_transaction_session_timeout", "10s"),
        ("plan_cache_mode", "force_generic_plan"),
        ("jit", "off"),
        ("enable_seqscan", "off"),
        ("enable_bitmapscan", "off"),
        ("enable_sort", "off"),
        ("work_mem", "16MB"),
    ],
};

/// For jobs and for calls across tenants.
pub(super) const JOBS: Profile = Profile {
    key: "index.jobs_url",
    role: "keepsake_jobs",
    settings: &[("idle_in_transaction_session_timeout", "10s"), ("lock_timeout", "1min")],
};

/// Without this setting, one statement could occupy a connection of the role without
/// limit.
const STATEMENT_TIMEOUT: &str = "statement_timeout";

/// How often the backends of two connections are compared: under load, a pooler does not
/// always give both connections the same one.
const COMPARISONS: u32 = 4;

#[derive(Debug)]
struct LoginState {
    backend: i32,
    role: String,
    is_distributed: bool,
    settings: BTreeMap<&'static str, String>,
}

const SEE: [&str; 2] = [
    "SELECT pg_backend_pid() AS backend, current_user::text AS role, ",
    " AS is_distributed, \
    ARRAY(SELECT current_setting(name, true) FROM unnest($1::text[]) WITH ORDINALITY AS wanted(name, position) \
          ORDER BY position) AS settings",
];

/// How a URL logs in, and the connection that was opened to find out.
pub(super) struct Login {
    pub(super) connection: PgConnection,
    /// Whether the role and its settings come with the login.
    pub(super) is_role: bool,
    /// Whether there is a pooler in transaction mode.
    pub(super) is_shared: bool,
    pub(super) is_distributed: bool,
}

impl Profile {
    /// The statements that a new connection sends first.
    pub(super) fn session(&self, call_timeout: Duration, is_distributed: bool) -> String {
        let mut session = format!("SET ROLE {}", self.role);
        for (name, value) in self.settings(is_distributed) {
            session.extend(["; SET ", name, " = '", value, "'"]);
        }
        // The server cancels a statement before the client closes its connection.
        let timeout = call_timeout.mul_f64(0.9).as_millis().to_string();
        session.extend(["; SET ", STATEMENT_TIMEOUT, " = '", &timeout, "ms'"]);
        session
    }

    fn settings(&self, is_distributed: bool) -> Vec<(&'static str, &'static str)> {
        let added: &[_] = if is_distributed { &DISTRIBUTED } else { &[] };
        let kept = self.settings.iter().filter(|(name, _)| added.iter().all(|(other, _)| other != name));
        kept.chain(added).copied().collect()
    }

    /// Finds out how a URL logs in. Fails with [`IndexError::UnsuitablePooler`] if a
    /// pooler shares the session with other clients and the connection needs its own.
    pub(super) async fn look(
        &self,
        options: &PgConnectOptions,
        limit: Duration,
    ) -> Result<Login, IndexError> {
        let mut connection = super::connect(options, limit).await?;
        let mut other = super::connect(options, limit).await?;
        let seen = self.see(&mut connection).await?;
        let mut is_shared = false;
        for _ in 0..COMPARISONS {
            is_shared |= self.see(&mut other).await?.backend == seen.backend;
            is_shared |= self.see(&mut connection).await?.backend != seen.backend;
            if is_shared {
                break;
            }
        }
        other.close().await?;
        let missing = self.missing(&seen);
        let is_role = seen.role == self.role;
        match (is_shared, is_role) {
            (true, false) => Err(IndexError::UnsuitablePooler(format!(
                "there is a pooler in transaction mode, where the login `{}` cannot keep the role `{role}`: run \
                 deploy/postgres/login-roles.sql and let {} log in as `{role}`, or put the pooler into session mode",
                seen.role,
                self.key,
                role = self.role,
            ))),
            (true, true) if !missing.is_empty() => Err(IndexError::UnsuitablePooler(format!(
                "there is a pooler in transaction mode, and the login `{}` lacks settings: run {}, and let the pooler \
                 connect again",
                self.role,
                missing.join("; "),
            ))),
            _ => Ok(Login {
                connection,
                is_role: is_role && missing.is_empty(),
                is_shared,
                is_distributed: seen.is_distributed,
            }),
        }
    }

    async fn see(&self, connection: &mut PgConnection) -> Result<LoginState, IndexError> {
        let all = self.settings.iter().chain(&DISTRIBUTED);
        let names: Vec<_> = all.map(|(name, _)| *name).chain([STATEMENT_TIMEOUT]).collect();
        let see = AssertSqlSafe(SEE.join(super::IS_DISTRIBUTED));
        let seen = sqlx::query_as(see).bind(names.clone()).fetch_one(connection).await;
        let seen = seen.map(|(backend, role, is_distributed, settings)| {
            let settings: Vec<Option<String>> = settings;
            let settings =
                names.iter().copied().zip(settings).filter_map(|(name, value)| Some((name, value?)));
            LoginState { backend, role, is_distributed, settings: settings.collect() }
        });
        seen.map_err(|error: sqlx::Error| {
            let code = error
                .as_database_error()
                .and_then(sqlx::error::DatabaseError::code);
            match code.as_deref() {
                // The statement does not exist, or another client has one with its name.
                Some("26000" | "42P05") => IndexError::UnsuitablePooler(
                    "there is a pooler in transaction mode, which mixes up the prepared statements of its clients: set \
                     `max_prepared_statements` of PgBouncer (1.21 or later) to 200, or put it into session mode"
                        .to_owned(),
                ),
                _ => error.into(),
            }
        })
    }

    /// The statements that give the role the settings that it lacks.
    fn missing(&self, seen: &LoginState) -> Vec<String> {
        let set = |name: &str, value: &str| format!("ALTER ROLE {} SET {name} = '{value}'", self.role);
        let wanted = self.settings(seen.is_distributed).into_iter();
        let different =
            wanted.filter(|(name, value)| seen.settings.get(name).is_none_or(|seen| seen != value));
        let mut missing: Vec<_> = different.map(|(name, value)| set(name, value)).collect();
        if seen.settings.get(STATEMENT_TIMEOUT).is_some_and(|timeout| timeout == "0") {
            missing.push(set(STATEMENT_TIMEOUT, "9s"));
        }
        missing
    }
}
