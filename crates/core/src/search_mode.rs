//! How a store is searched.

use serde::Deserialize;

crate::named_enum! {
    /// How searches find the memories of a store.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum SearchMode {
        /// By words.
        Lexical = "lexical",
        /// By words and by meaning, where the server has a model.
        #[default]
        Hybrid = "hybrid",
    }
}

crate::shown_by_name! {
    SearchMode as "SearchMode" => "How searches find memories: by words (`lexical`), or by words and by meaning (`hybrid`).";
}
