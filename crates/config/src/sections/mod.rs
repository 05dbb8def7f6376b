//! One file for each section: its settings, and the keys they are read from.

mod audit;
mod auth;
mod blobs;
mod cache;
mod index;
mod limits;
mod log;
mod operator;
mod secrets;
mod sensitive_data;
mod server;
mod telemetry;
mod url;

use clap::ValueEnum;
use keepsake_core::Limits;
use keepsake_core::sensitive::Scanner;
use keepsake_tokens::Vault;

pub use audit::AuditSettings;
pub use auth::AuthSettings;
pub(crate) use auth::{CONSOLE, ISSUERS};
pub use blobs::BlobSettings;
pub use cache::CacheSettings;
pub use index::IndexSettings;
pub use log::{LogFormat, LogSettings};
pub use operator::OperatorSettings;
pub use server::ServerSettings;
pub use telemetry::TelemetrySettings;
pub use url::IndexUrl;
pub(crate) use url::{encode_path, index_url};

use crate::checks::one_of;
use crate::reader::Reader;

/// The work of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Serves requests and runs the scheduled jobs.
    #[default]
    All,
    /// Serves requests.
    Gateway,
    /// Runs the scheduled jobs.
    Worker,
}

impl Role {
    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Gateway => "gateway",
            Self::Worker => "worker",
        }
    }
}

/// The whole configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The work of this process.
    pub role: Role,
    /// `[server]`
    pub server: ServerSettings,
    /// `[operator]`; `None`: the operator API is off.
    pub operator: Option<OperatorSettings>,
    /// `[index]`
    pub index: IndexSettings,
    /// `[blobs]`
    pub blobs: BlobSettings,
    /// `[cache]`
    pub cache: CacheSettings,
    /// `[limits]`: the limits of a tenant unless it has others.
    pub limits: Limits,
    /// `[sensitive_data]`: finds sensitive data by built-in and configured rules.
    pub scanner: Scanner,
    /// `[audit]`
    pub audit: AuditSettings,
    /// `[auth]`
    pub auth: AuthSettings,
    /// `[secrets]`: encrypts the secrets in the index.
    pub vault: Vault,
    /// `[telemetry]`
    pub telemetry: TelemetrySettings,
    /// `[log]`
    pub log: LogSettings,
}

impl Settings {
    /// Reads every key, with placeholders for those with a problem.
    pub(crate) fn read(reader: &mut Reader) -> Self {
        let roles = [Role::All, Role::Gateway, Role::Worker].map(|role| (role.name(), role));
        let role = reader.get("role", Role::All.name(), one_of(&roles));
        let server = ServerSettings::read(reader);
        let public_url = server.public_url.clone();
        // Fields are read in this order, which is that of the printed sections.
        Self {
            role,
            operator: OperatorSettings::read(reader),
            index: IndexSettings::read(reader, role, server.request_deadline),
            server,
            blobs: BlobSettings::read(reader),
            cache: CacheSettings::read(reader),
            limits: limits::read(reader),
            scanner: sensitive_data::read(reader),
            audit: AuditSettings::read(reader),
            auth: AuthSettings::read(reader, public_url.as_deref()),
            vault: secrets::read(reader),
            telemetry: TelemetrySettings::read(reader),
            log: LogSettings::read(reader),
        }
    }
}
