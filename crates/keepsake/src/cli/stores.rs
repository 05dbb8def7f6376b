//! Arguments of `keepsake store`.

use clap::{Args, Subcommand, ValueEnum};
use keepsake_config::SourceArgs;
use keepsake_core::TenantId;

use super::ConnectionArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Lists the memory stores, newest first
    #[command(visible_alias = "ls")]
    List(ListStoresArgs),
    /// Shows a memory store
    Get(ShowStoreArgs),
    /// Creates a memory store
    Create(CreateStoreArgs),
    /// Changes a memory store's name, description, metadata or policies
    Update(UpdateStoreArgs),
    /// Makes a memory store read-only, permanently
    Archive(SureStoreArgs),
    /// Deletes a memory store with its memories and their history, permanently
    #[command(visible_alias = "rm")]
    Delete(SureStoreArgs),
    /// Shows a memory store's size, limits and largest memories
    Usage(ShowStoreArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListStoresArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Includes archived stores
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake store create notes --description 'What the support agents know'
  keepsake store create archive --metadata team=support --expires-unused-after 90d")]
pub(crate) struct CreateStoreArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// The name, 1 to 255 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) fields: StoreFields,
    #[command(flatten)]
    pub(crate) operator: OperatorStoreArgs,
}

/// The operator creates stores in the database, for any tenant.
#[derive(Debug, Args)]
#[command(next_help_heading = "Operator")]
pub(crate) struct OperatorStoreArgs {
    /// Creates the store in the configured database, for this tenant: wrkspc_…
    #[arg(long, value_name = "ID", conflicts_with_all = ["description", "metadata", "expires_unused_after", "sensitive_data"])]
    pub(crate) tenant: Option<TenantId>,
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowStoreArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// The memory store: its id or its name [default: the context's]
    #[arg(value_name = "STORE", env = "KEEPSAKE_STORE", hide_env = true)]
    pub(crate) store: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateStoreArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// The memory store: its id or its name
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    /// A new name, 1 to 255 characters
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) fields: StoreFields,
    /// A metadata key to remove; may be repeated
    #[arg(long, value_name = "KEY")]
    pub(crate) remove_metadata: Vec<String>,
}

/// The fields that creating and updating share.
#[derive(Debug, Args)]
pub(crate) struct StoreFields {
    /// What the store is for; agents see it
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// A key and a value; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Memories that nobody reads for this long are deleted: 90d, 12h, or `never`
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub(crate) expires_unused_after: Option<Period>,
    /// What happens to secrets and personal data in new content
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) sensitive_data: Option<SensitiveData>,
}

#[derive(Debug, Args)]
pub(crate) struct SureStoreArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// The memory store: its id or its name
    #[arg(value_name = "STORE")]
    pub(crate) store: String,
    /// Does not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// A period in seconds; 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(pub(crate) u64);

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SensitiveData {
    /// It is stored
    Off,
    /// It is replaced
    Redact,
    /// The write is refused
    Reject,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("metadata is given as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A number with the unit `s`, `m`, `h`, `d` or `w`, or `never`.
pub(crate) fn parse_period(text: &str) -> Result<Period, String> {
    if text == "never" {
        return Ok(Period(0));
    }
    let rule = || "a period is a whole number and s, m, h, d or w, such as 90d; or `never`".to_owned();
    let unit = text.chars().next_back().ok_or_else(rule)?;
    let number = text.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok());
    let unit_seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        'w' => 7 * 24 * 60 * 60,
        _ => return Err(rule()),
    };
    let seconds = number.and_then(|number| number.checked_mul(unit_seconds)).ok_or_else(rule)?;
    Ok(Period(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_a_unit() {
        assert_eq!(parse_period("90d"), Ok(Period(7_776_000)));
        assert_eq!(parse_period("never"), Ok(Period(0)));
        for wrong in ["", "d", "90", "9x", "-1d", "1.5d", "99999999999999999999s", "ä"] {
            assert!(parse_period(wrong).is_err(), "{wrong}");
        }
    }
}
