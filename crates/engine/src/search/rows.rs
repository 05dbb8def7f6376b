//! The search terms of the content of a change.

use std::sync::Arc;

use keepsake_core::Content;
use keepsake_index::SearchRow;
use keepsake_search::{ANALYSER, Row};

use super::off_the_runtime;
use crate::protocol::Proposed;
use crate::{Engine, EngineError};

/// Texts from this size are analysed on a blocking thread: it takes some tenths
/// of a millisecond.
const LONG_TEXT_BYTES: usize = 16 << 10;

/// The content of a memory after a change.
enum Text {
    New(Content),
    Earlier(Arc<str>),
}

impl Text {
    fn of(wanted: &Proposed) -> Option<Self> {
        match wanted {
            Proposed::Create { content, .. } => Some(Self::New(content.clone())),
            Proposed::Change { content, .. } => content.clone().map(Self::New),
            Proposed::Restore { text, .. } => Some(Self::Earlier(Arc::clone(text))),
            Proposed::Delete { .. } => None,
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::New(content) => content.as_str(),
            Self::Earlier(text) => text,
        }
    }
}

impl Engine {
    /// The search terms of each change with content.
    pub(crate) async fn search_rows(
        &self,
        changes: &[Proposed],
    ) -> Result<Vec<Option<SearchRow>>, EngineError> {
        let texts: Vec<Option<Text>> = changes.iter().map(Text::of).collect();
        let bytes: usize = texts.iter().flatten().map(|text| text.as_str().len()).sum();
        let analyse = move || {
            texts
                .iter()
                .map(|text| text.as_ref().map(|text| row_of(text.as_str())))
                .collect()
        };
        if bytes < LONG_TEXT_BYTES {
            return Ok(analyse());
        }
        off_the_runtime(analyse).await
    }

    /// The search terms of one content.
    pub(crate) async fn search_row(&self, content: Arc<str>) -> Result<SearchRow, EngineError> {
        off_the_runtime(move || row_of(&content)).await
    }
}

fn row_of(content: &str) -> SearchRow {
    let row = Row::of(content);
    SearchRow {
        analyser: ANALYSER,
        length: row.length(),
        terms: row.into_bytes(),
    }
}
