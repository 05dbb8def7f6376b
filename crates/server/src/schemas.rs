//! Schemas of ids, times and texts in bodies and paths: those of the domain, and those of this server.

use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder};
use utoipa::openapi::{KnownFormat, ObjectBuilder, Ref, SchemaFormat, Type};

pub(crate) use keepsake_core::schemas::*;

keepsake_core::schemas! {
    ErrorObject = error_object();
    ResourceName = text("The id of an attachment or of the attached memory store.")
        .pattern(Some("^(sesrsc|memstore)_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
        .examples(["sesrsc_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
    MemoryVersionIdOrEmpty = text("The id of a memory version; empty if the credential may not see it.")
        .pattern(Some("^(memver_[0-7][0-9A-HJKMNP-TV-Z]{25})?$"))
        .examples(["memver_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
    MemoryPathOrEmpty = text("A memory's path; empty if the credential may not see it.")
        .max_length(Some(1024))
        .examples(["/projects/keepsake.md"]);
    ContentSha256OrEmpty = text("SHA-256 of the content, as `ContentSha256`; empty if the credential may not see it.")
        .pattern(Some("^([0-9a-f]{64})?$"))
        .examples(["9054350fdba23cc80006d2967efb8b6efcf857416c592fadf5de405c48561c16"]);
    Archive = text("An archive: tar, compressed with Zstandard.")
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
    OnConflict = text("The action of an import if a memory has other content.")
        .enum_values(Some(["fail", "skip", "replace"]));
    ImportResult = text("What became of a file.")
        .enum_values(Some(["created", "replaced", "unchanged", "skipped", "refused"]));
    SearchQuery = without_nul("At most 1,000 characters.")
        .max_length(Some(1000))
        .examples(["release day"]);
    Cursor = text("The `next_page` of a response to the same query.").pattern(Some("^page_[0-9A-Za-z_-]+$"));
    GivenName = name("A name without control characters.");
    Permission = text("Whether a tool call was allowed.").enum_values(Some(["allow", "deny"]));
}

/// The `error` object in the body of every error.
fn error_object() -> ObjectBuilder {
    let nullable = |schema: &str| {
        AnyOfBuilder::new()
            .item(Ref::from_schema_name(schema))
            .item(ObjectBuilder::new().schema_type(Type::Null))
    };
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("type", Ref::from_schema_name("ErrorType"))
        .property("message", text("A human-readable explanation."))
        .property(
            "current_content_sha256",
            nullable("ContentSha256").description(Some(
                "With `memory_precondition_failed_error`: the hash of the memory's content.",
            )),
        )
        .property(
            "memory_id",
            nullable("MemoryId")
                .description(Some("With `memory_precondition_failed_error`: the memory that was compared.")),
        )
        .property(
            "conflicting_memory_id",
            text("With `memory_path_conflict_error`: the memory at the path; empty if it no longer exists."),
        )
        .property("conflicting_path", text("With `memory_path_conflict_error`: the path of that memory."))
        .property(
            "tests",
            ArrayBuilder::new().items(ObjectBuilder::new().schema_type(Type::Object)).description(Some(
                "With `memory_store_test_error`: the tests that would not hold afterwards, at most 20, each as in \
                 the answer to a test of the memory store; none if the credential lacks the scope `memory:read`.",
            )),
        )
        .property("path", text("With `content_missing` or `content_damaged`: the path of the content."))
        .property(
            "memory_version_id",
            text("With `content_missing` or `content_damaged`: the version with the content."),
        )
        .property(
            "tenant_status",
            text("With `authentication_error`: `suspended` if the operator suspended the credential's tenant."),
        )
        .property(
            "operation",
            ObjectBuilder::new()
                .schema_type(Type::Integer)
                .minimum(Some(0))
                .description(Some("For an atomic batch: the index of the refused operation.")),
        )
        .required("type")
        .required("message")
}
