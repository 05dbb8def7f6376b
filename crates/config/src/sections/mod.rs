//! One file for each section: its settings, and the keys from which they are read.

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
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Gateway => "gateway",
            Self::Worker => "worker",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub role: Role,
    pub server: ServerSettings,
    /// `None` if the operator API is off.
    pub operator: Option<OperatorSettings>,
    pub index: IndexSettings,
    pub blobs: BlobSettings,
    pub cache: CacheSettings,
    /// The limits of a tenant unless it has others.
    pub limits: Limits,
    /// Finds sensitive data by built-in and configured rules.
    pub scanner: Scanner,
    pub audit: AuditSettings,
    pub auth: AuthSettings,
    /// `[secrets]`: encrypts the secrets in the index.
    pub vault: Vault,
    pub telemetry: TelemetrySettings,
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
