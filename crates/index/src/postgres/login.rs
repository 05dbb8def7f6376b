//! How connections get their role and settings: by statements, or by the login itself.
//!
//! With a single login, which may be the owner's, each new connection sends `SET ROLE`
//! and `SET`. These last as long as the session, so they fail behind a pooler in
//! transaction mode, where the next transaction uses another client's session. A login as
//! the role itself brings the role's settings (`ALTER ROLE … SET`), sends nothing, and
//! works there too.

use std::time::Duration;

use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};

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
    /// The values of [`Profile::settings`], then of [`STATEMENT_TIMEOUT`].
    settings: Vec<String>,
}

const SEE: &str = "SELECT pg_backend_pid() AS backend, current_user::text AS role, \
    ARRAY(SELECT current_setting(name) FROM unnest($1::text[]) WITH ORDINALITY AS wanted(name, position) \
          ORDER BY position) AS settings";

/// How a URL logs in, and the connection that was opened to find out.
pub(super) struct Login {
    pub(super) connection: PgConnection,
    /// Whether the role and its settings come with the login.
    pub(super) is_role: bool,
    /// Whether there is a pooler in transaction mode.
    pub(super) is_shared: bool,
}

impl Profile {
    /// The statements that a new connection sends first.
    pub(super) fn session(&self, call_timeout: Duration) -> String {
        let mut session = format!("SET ROLE {}", self.role);
        for (name, value) in self.settings {
            session.extend(["; SET ", name, " = '", value, "'"]);
        }
        // The server cancels a statement before the client closes its connection.
        let timeout = call_timeout.mul_f64(0.9).as_millis().to_string();
        session.extend(["; SET ", STATEMENT_TIMEOUT, " = '", &timeout, "ms'"]);
        session
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
            _ => Ok(Login { connection, is_role: is_role && missing.is_empty(), is_shared }),
        }
    }

    async fn see(&self, connection: &mut PgConnection) -> Result<LoginState, IndexError> {
        let names = self.settings.iter().map(|(name, _)| *name);
        let names: Vec<_> = names.chain([STATEMENT_TIMEOUT]).collect();
        let seen = sqlx::query_as(SEE).bind(names).fetch_one(connection).await;
        let seen = seen.map(|(backend, role, settings)| LoginState { backend, role, settings });
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
        let wanted = self.settings.iter().zip(&seen.settings);
        let different = wanted.filter(|((_, value), seen)| value != seen);
        let mut missing: Vec<_> = different.map(|((name, value), _)| set(name, value)).collect();
        if seen.settings.last().is_some_and(|timeout| timeout == "0") {
            missing.push(set(STATEMENT_TIMEOUT, "9s"));
        }
        missing
    }
}
