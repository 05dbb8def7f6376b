//! The places where versions are shown.

use crate::Purpose;

crate::named_enum! {
    /// The place where a version was shown to a reader.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Surface {
        /// A call of the memory tool or of an agent tool.
        Tool = "tool",
        /// The snippet of a search hit, whatever searched: the API, a tool, or MCP.
        Search = "search",
        /// A request for a memory or a version.
        Api = "api",
        /// A tool or a resource of MCP.
        Mcp = "mcp",
        /// A page of the console.
        Console = "console",
        /// An archive, or a copy in another place.
        Backup = "backup",
        /// A person, with a command or another program.
        Person = "person",
    }
}

crate::shown_by_name! {
    Surface as "MemoryReaderSurface" => "Where the version was shown.";
}

impl Surface {
    /// Whether an agent reads there, or a program on its behalf.
    pub const fn is_of_agents(self) -> bool {
        matches!(self, Self::Tool | Self::Search | Self::Api | Self::Mcp)
    }
}

impl From<Purpose> for Surface {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Backup => Self::Backup,
            Purpose::Person => Self::Person,
            Purpose::Console => Self::Console,
        }
    }
}
