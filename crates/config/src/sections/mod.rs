//! Reads the keys of each section into the options of the part that takes them.

mod auth;
mod blobs;
mod engine;
mod index;
mod log;
mod operator;
mod search;
mod sensitive_data;
mod server;
mod telemetry;
mod url;

use clap::ValueEnum;
use keepsake_engine::EngineOptions;
use keepsake_telemetry::TelemetryOptions;

pub(crate) use auth::{CONSOLE, ISSUERS};
pub use blobs::BlobSettings;
pub use index::IndexSettings;
pub use log::{LogFormat, LogSettings};
pub use operator::OperatorSettings;
pub(crate) use search::{EMBEDDINGS, read_model_path};
pub use search::{Meaning, SearchSettings};
pub use server::ServerSettings;
pub use url::IndexUrl;
pub(crate) use url::{encode_path, index_url};

use crate::checks::{boolean, one_of};
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
    pub search: SearchSettings,
    /// With the default clock, ids and metrics.
    pub engine: EngineOptions,
    pub telemetry: TelemetryOptions,
    /// Whether `/metrics` needs no token.
    pub metrics_without_token: bool,
    pub log: LogSettings,
}

impl Settings {
    /// Reads every key, with placeholders for those with a problem.
    pub(crate) fn read(reader: &mut Reader) -> Self {
        let roles = [Role::All, Role::Gateway, Role::Worker].map(|role| (role.name(), role));
        let role = reader.get("role", Role::All.name(), one_of(&roles));
        let server = ServerSettings::read(reader);
        // The order of these calls is that of the printed sections.
        let operator = OperatorSettings::read(reader);
        let index = IndexSettings::read(reader, role, server.options.request_deadline);
        Self {
            role,
            operator,
            blobs: BlobSettings::read(reader),
            engine: engine::read(reader, role, &server),
            search: SearchSettings::read(reader, &index.url),
            index,
            server,
            telemetry: telemetry::read(reader),
            metrics_without_token: reader.get("telemetry.metrics_without_token", false, boolean),
            log: LogSettings::read(reader),
        }
    }
}
