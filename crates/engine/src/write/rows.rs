//! Makes the search terms of the contents of a change.

use std::sync::Arc;

use keepsake_core::TenantId;
use keepsake_index::{NewContent, SearchRow};
use keepsake_search::{ANALYSER, TermRow};

use crate::EngineError;
use crate::compute::{Computations, off_the_runtime};

/// Texts from this size are analysed on a blocking thread: analysis takes some tenths of
/// a millisecond.
const LONG_TEXT_BYTES: usize = 16 << 10;

pub(crate) async fn search_rows(
    computations: &Computations,
    tenant_id: TenantId,
    contents: Vec<NewContent>,
) -> Result<Vec<Option<SearchRow>>, EngineError> {
    let bytes: usize = contents.iter().filter_map(NewContent::text).map(str::len).sum();
    let analyse = move || contents.iter().map(|content| content.text().map(row_of)).collect();
    if bytes < LONG_TEXT_BYTES {
        return Ok(analyse());
    }
    computations.run(tenant_id, analyse).await
}

/// The caller holds a slot, or limits how many rows it makes.
pub(crate) async fn search_row(content: Arc<str>) -> Result<SearchRow, EngineError> {
    off_the_runtime(move || row_of(&content)).await
}

fn row_of(content: &str) -> SearchRow {
    let row = TermRow::of(content);
    SearchRow { analyser: ANALYSER, length: row.length(), terms: row.into_bytes() }
}
