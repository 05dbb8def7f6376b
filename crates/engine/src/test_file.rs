//! Parses files of tests.

use std::sync::Arc;

use keepsake_core::{TenantId, TestFile, TestFileError};

use crate::EngineError;
use crate::compute::Computations;

/// Texts from this size are parsed on a blocking thread.
const LONG_TEXT_BYTES: usize = 4 << 10;

pub(crate) async fn parse_tests(
    computations: &Computations,
    tenant_id: TenantId,
    text: Arc<str>,
) -> Result<Result<TestFile, TestFileError>, EngineError> {
    if text.len() < LONG_TEXT_BYTES {
        return Ok(TestFile::parse(&text));
    }
    computations.run(tenant_id, move || TestFile::parse(&text)).await
}
