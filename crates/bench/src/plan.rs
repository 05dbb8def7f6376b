//! Scenarios of commands, and layouts of stores.

use clap::ValueEnum;
use serde::Serialize;

/// The calls of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum Scenario {
    /// Reads of whole memories.
    View,
    /// Edits of memories; two connections never edit the same one.
    StrReplace,
    /// New memories.
    Create,
    /// 70 % views, 5 % listings of a store, 15 % edits, 10 % new memories.
    Mix,
}

/// A command of the memory tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    View,
    ViewDirectory,
    StrReplace,
    Create,
}

impl Scenario {
    /// The command for a uniformly distributed random number.
    pub(super) const fn command(self, drawn: u64) -> Command {
        match self {
            Self::View => Command::View,
            Self::StrReplace => Command::StrReplace,
            Self::Create => Command::Create,
            Self::Mix => match drawn % 100 {
                0..70 => Command::View,
                70..75 => Command::ViewDirectory,
                75..90 => Command::StrReplace,
                _ => Command::Create,
            },
        }
    }

    /// The name in options and output.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::StrReplace => "str_replace",
            Self::Create => "create",
            Self::Mix => "mix",
        }
    }

    /// The required throughput of the server as a share of the floor's.
    pub(super) const fn bar(self, layout: Layout) -> Option<f64> {
        match (self, layout) {
            (Self::View, Layout::Spread) => Some(0.7),
            (Self::Create, Layout::Spread) => Some(0.6),
            _ => None,
        }
    }
}

/// The distribution of stores over tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum Layout {
    /// 64 stores in 8 tenants.
    Spread,
    /// 64 stores of one tenant.
    Tenant,
    /// One store.
    Store,
    /// The stores of `--credentials`.
    #[value(skip)]
    Given,
}

impl Layout {
    /// The number of tenants, and of stores of each.
    pub(super) const fn tenants_and_stores(self) -> (usize, usize) {
        match self {
            Self::Spread => (8, 8),
            Self::Tenant => (1, 64),
            Self::Store => (1, 1),
            Self::Given => (0, 0),
        }
    }

    /// The name in the table.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Spread => "64 stores, 8 tenants",
            Self::Tenant => "64 stores, 1 tenant",
            Self::Store => "1 store",
            Self::Given => "stores given",
        }
    }
}
