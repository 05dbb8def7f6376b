//! `/v1/memory_stores/{memory_store_id}/test`

use keepsake_core::StoreId;
use keepsake_engine::TestReport;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::{JsonBody, OptionalBody};
use crate::path::Path;

/// The tests to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestMemoryStore {
    /// A file of tests to use instead of the store's own.
    #[schema(max_length = 65536, examples("tests:\n- max_files: 500\n"))]
    tests: Option<String>,
}

/// Test a memory store
///
/// Runs the tests in `/.keepsake/tests.yaml` on the memories as they are now. Changes nothing, and counts as no
/// read of a memory.
#[utoipa::path(
    post,
    path = "/memory_stores/{memory_store_id}/test",
    operation_id = "memory_stores.test",
    request_body = Option<TestMemoryStore>,
    responses((status = 200, description = "What became of each test.", body = TestReport)),
)]
pub(crate) async fn run(
    Path(store_id): Path<StoreId>,
    JsonBody(Caller(engine, principal), body, _): OptionalBody<TestMemoryStore>,
) -> Answer<TestReport> {
    Ok(Json(engine.store_tests.run(&principal, store_id, body.tests).await?))
}
