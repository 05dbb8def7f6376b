//! The answer of a search: hits, and whether meaning took part.

use keepsake_core::schemas::MemorySearchHitType;
use keepsake_core::{ContentHash, MeaningReason, MemoryId, MemoryPath, StoreId, Timestamp, words};
use serde::Serialize;
use utoipa::ToSchema;

use super::position::Scoring;

/// A page of hits.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = MemorySearchPage)]
pub struct SearchPage {
    #[serde(rename = "data")]
    pub items: Vec<SearchHit>,
    /// Send it as `page` to get the next page; null: this is the last page.
    #[serde(rename = "next_page")]
    #[schema(required)]
    pub next: Option<String>,
    pub meaning: SearchMeaning,
    #[serde(skip)]
    pub(crate) scoring: Scoring,
}

/// A memory that matches the query.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = MemorySearchHit)]
pub struct SearchHit {
    #[schema(inline)]
    pub r#type: MemorySearchHitType,
    #[serde(rename = "memory_store_id")]
    pub store_id: StoreId,
    pub memory_id: MemoryId,
    pub path: MemoryPath,
    /// Higher is better; comparable only within one response.
    pub score: f64,
    /// The line in which the snippet begins, counted from 1.
    pub line: usize,
    /// The most relevant passage, with `⟦` and `⟧` around matches. Such
    /// brackets of the content itself are omitted.
    pub snippet: String,
    /// The hash of the content of the snippet.
    pub content_sha256: ContentHash,
    pub updated_at: Timestamp,
    /// The parts of the score, if the request has `explain=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<SearchExplanation>,
}

/// The parts of the score of a hit. Their sum is the score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
#[schema(as = MemorySearchExplanation)]
pub struct SearchExplanation {
    /// For the words of the query.
    pub lexical: f64,
    /// For the meaning of the query.
    pub meaning: f64,
}

/// Whether a search also found memories by meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MemorySearchMeaning)]
pub struct SearchMeaning {
    pub used: bool,
    /// Memories of the searched stores that this search finds by words only, since their
    /// meaning is not indexed yet.
    pub pending: u64,
    /// Why meaning was not used; null if it was.
    #[schema(required)]
    pub reason: Option<MeaningReason>,
}

impl SearchMeaning {
    /// What a person should know about the hits: why they were found by words only, or how
    /// many memories are not yet found by meaning.
    pub fn notice(&self) -> Option<String> {
        match (self.used, self.reason, self.pending) {
            (false, Some(reason), _) => {
                Some(format!("only words were searched, because {}", reason.in_words()))
            }
            (false, None, _) | (true, _, 0) => None,
            (true, _, 1) => Some("1 memory is not yet searched by meaning".to_owned()),
            (true, _, pending) => {
                Some(format!("{} memories are not yet searched by meaning", words::count(pending)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notice_says_what_meaning_did_not_do() {
        for (used, pending, text) in [
            (false, 7, None),
            (true, 0, None),
            (true, 1, Some("1 memory is not yet searched by meaning")),
            (true, 1_200, Some("1,200 memories are not yet searched by meaning")),
        ] {
            assert_eq!(SearchMeaning { used, pending, reason: None }.notice().as_deref(), text);
        }
    }
}
