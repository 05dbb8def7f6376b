//! Why a caller reads.

crate::named_enum! {
    /// Why a caller that is no agent reads. Such a read is no use of a memory by an agent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Purpose {
        /// An archive, or a copy in another place.
        Backup = "backup",
        /// A person looks, with a command or another program.
        Person = "person",
        /// A person looks, in the console. No request can say this.
        Console = "console",
    }
}

impl Purpose {
    /// The header in which a request says it.
    pub const HEADER: &str = "keepsake-purpose";
}
