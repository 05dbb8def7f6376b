//! Search by meaning.

crate::named_enum! {
    /// Why a search finds memories by words only.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum MeaningReason {
        /// The configuration turns search by meaning off.
        Off = "off",
        /// The model is not installed.
        NotInstalled = "not_installed",
        /// The model cannot be used.
        Unusable = "unusable",
        /// All searched stores are searched by words only.
        LexicalStore = "lexical_store",
        /// The query has a quoted phrase.
        QuotedQuery = "quoted_query",
        /// The query is empty or has only filters.
        NoWords = "no_words",
        /// The meaning of the query was not computed in time.
        Timeout = "timeout",
        /// The meaning of the query could not be computed.
        Failed = "failed",
        /// The vectors of the searched stores do not fit in memory.
        TooLarge = "too_large",
        /// The vectors of another model are being replaced.
        Pending = "pending",
    }
}

impl MeaningReason {
    /// The reason as a clause for people.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Off => "search by meaning is turned off on this server",
            Self::NotInstalled => "the model for search by meaning is not installed on this server",
            Self::Unusable => "the server cannot use its model for search by meaning",
            Self::LexicalStore => "the searched stores are set to words only",
            Self::QuotedQuery => "the query has a quoted phrase",
            Self::NoWords => "the query is empty or has only filters",
            Self::Timeout => "the meaning of the query was not computed in time",
            Self::Failed => "the meaning of the query could not be computed",
            Self::TooLarge => "the searched stores are too large for the server's search cache",
            Self::Pending => "the vectors of the server's new model are not complete yet",
        }
    }
}

crate::shown_by_name! {
    MeaningReason as "MemorySearchMeaningReason" => "Why a search finds memories by words only: \
        `off`: the server's configuration turns search by meaning off. `not_installed`, `unusable`: the model is \
        missing, or cannot be used. `lexical_store`: all searched stores are searched by words only. \
        `quoted_query`, `no_words`: the query has a quoted phrase, or no words. `timeout`, `failed`: the meaning of \
        the query was not computed in time, or not at all. `too_large`: the vectors of the searched stores do not fit in \
        the server's memory. `pending`: the server has a new model, and its vectors of the searched stores are not \
        complete yet.";
}
