//! Scenarios of commands, and layouts of stores.

use clap::ValueEnum;
use serde::Serialize;

/// The entries of a page of a listing, and the memories of a directory.
pub(super) const PAGE: usize = 100;

/// The calls of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum Scenario {
    /// Reads of whole memories.
    View,
    /// Pages of 100 memories of a directory.
    List,
    /// Searches with three words.
    Search,
    /// Edits of memories; two connections never edit the same one.
    StrReplace,
    /// New memories.
    Create,
    /// 70 % views, 5 % views of a directory, 15 % edits, 10 % new memories.
    Mix,
    /// Turns of an agent: a view of a directory, 3 of files, an edit, and in every
    /// fifth turn a new memory.
    Agent,
    /// Reads of whole memories by a server that caches no content.
    Cold,
}

/// A call of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    View,
    /// A view whose content no cache has.
    ViewUncached,
    ViewDirectory,
    List,
    Search,
    StrReplace,
    Create,
}

impl Command {
    /// The commands that the floor has an equivalent of, in the order of its
    /// option `--answer-bytes`.
    pub(super) const OF_FLOOR: [Self; 5] =
        [Self::View, Self::ViewDirectory, Self::List, Self::StrReplace, Self::Create];
}

/// The number of calls after which an agent's turns repeat: 5 turns and a creation.
pub(super) const AGENT_CALLS: usize = 26;

impl Scenario {
    /// The command for a uniformly distributed random number and the number of
    /// earlier calls of the connection.
    pub(super) const fn command(self, drawn: u64, step: usize) -> Command {
        match self {
            Self::View => Command::View,
            Self::Cold => Command::ViewUncached,
            Self::List => Command::List,
            Self::Search => Command::Search,
            Self::StrReplace => Command::StrReplace,
            Self::Create => Command::Create,
            Self::Mix => match drawn % 100 {
                0..70 => Command::View,
                70..75 => Command::ViewDirectory,
                75..90 => Command::StrReplace,
                _ => Command::Create,
            },
            Self::Agent => match (step % AGENT_CALLS, step % AGENT_CALLS % 5) {
                (25, _) => Command::Create,
                (_, 0) => Command::ViewDirectory,
                (_, 4) => Command::StrReplace,
                _ => Command::View,
            },
        }
    }

    /// The name in options and output.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::List => "list",
            Self::Search => "search",
            Self::StrReplace => "str_replace",
            Self::Create => "create",
            Self::Mix => "mix",
            Self::Agent => "agent",
            Self::Cold => "cold",
        }
    }

    /// Whether the floor has an equivalent.
    pub(super) const fn has_floor(self) -> bool {
        !matches!(self, Self::Search)
    }

    /// The required throughput of the server as a share of the floor's.
    pub(super) const fn bar(self, layout: Layout) -> Option<f64> {
        match (self, layout) {
            (Self::View, Layout::Spread) => Some(0.9),
            (Self::StrReplace | Self::Create | Self::Agent, Layout::Spread) => Some(0.8),
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
    /// One store of 100 memories.
    Small,
    /// One store of many memories (`--large-memories`).
    Large,
    /// A store and a memory of each of many tenants (`--many-tenants`), some of which
    /// are used far more often than others.
    Many,
    /// `--tenants`, each with `--stores`.
    Chosen,
    /// The stores of `--credentials`.
    #[value(skip)]
    Given,
}

/// How many tenants, stores and memories there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) tenants: usize,
    pub(super) stores_each: usize,
    /// In all stores.
    pub(super) memories: usize,
    /// Whether some memories are used far more often than others.
    pub(super) is_skewed: bool,
}

/// Options that give the sizes of layouts.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Sizes {
    /// Number of memories in all stores of a layout at the start
    #[arg(long, default_value_t = 6_400, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000_000))]
    pub(super) memories: usize,
    /// Number of memories of the layout `large`
    #[arg(long, default_value_t = 100_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000_000))]
    pub(super) large_memories: usize,
    /// Number of tenants of the layout `many`
    #[arg(long, default_value_t = 10_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub(super) many_tenants: usize,
    /// Number of tenants of the layout `chosen`
    #[arg(long, default_value_t = 64, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    pub(super) tenants: usize,
    /// Number of stores of each tenant of the layout `chosen`
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    pub(super) stores: usize,
}

impl Layout {
    /// The number of tenants, stores and memories.
    pub(super) const fn shape(self, sizes: Sizes) -> Shape {
        let (tenants, stores_each, memories) = match self {
            Self::Spread => (8, 8, sizes.memories),
            Self::Tenant => (1, 64, sizes.memories),
            Self::Store => (1, 1, sizes.memories),
            Self::Small => (1, 1, PAGE),
            Self::Large => (1, 1, sizes.large_memories),
            Self::Many => (sizes.many_tenants, 1, sizes.many_tenants),
            Self::Chosen => (sizes.tenants, sizes.stores, sizes.memories),
            Self::Given => (0, 0, sizes.memories),
        };
        Shape { tenants, stores_each, memories, is_skewed: matches!(self, Self::Many) }
    }

    /// The name in the table.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Spread => "64 stores, 8 tenants",
            Self::Tenant => "64 stores, 1 tenant",
            Self::Store => "1 store",
            Self::Small => "1 store, small",
            Self::Large => "1 store, large",
            Self::Many => "many tenants",
            Self::Chosen => "stores as chosen",
            Self::Given => "stores given",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_make_the_calls_of_five_turns_and_one_creation() {
        let calls: Vec<_> = (0..AGENT_CALLS).map(|step| Scenario::Agent.command(0, step)).collect();
        let count = |command| calls.iter().filter(|call| **call == command).count();
        assert_eq!(count(Command::ViewDirectory), 5);
        assert_eq!(count(Command::View), 15);
        assert_eq!(count(Command::StrReplace), 5);
        assert_eq!(count(Command::Create), 1);
    }
}
