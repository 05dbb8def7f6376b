//! Schemas of ids, times and texts in bodies and paths: those of the domain, and those of this server.

use utoipa::openapi::schema::{AnyOfBuilder, SchemaType};
use utoipa::openapi::{KnownFormat, ObjectBuilder, Ref, SchemaFormat, Type};

pub(crate) use keepsake_core::id::RequestId;
pub(crate) use keepsake_core::schemas::*;
pub(crate) use keepsake_core::{
    ApiKeyId, AuditEntryId, ContentHash as ContentSha256, DirPath as DirectoryPath, ErasureId, Limits,
    MemoryId, MemoryPath, SessionId, StoreId as MemoryStoreId, TenantId as WorkspaceId, Timestamp as Time,
};
pub(crate) use keepsake_engine::View;
pub(crate) use keepsake_index::Operation;

keepsake_core::schemas! {
    ErrorObject = error_object();
    ResourceName = text("The id of an attachment or of the attached memory store.")
        .pattern(Some("^(sesrsc|memstore)_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
        .examples(["sesrsc_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
    AuditObjectId = text("The id of a memory store, memory version, session, API key, erasure or tenant.")
        .pattern(Some("^(memstore|memver|sesn|apikey|erasure|wrkspc)_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
        .examples(["memstore_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
    MemoryVersionIdOrEmpty = text("The id of a memory version; empty if the credential may not see it.")
        .pattern(Some("^(memver_[0-7][0-9A-HJKMNP-TV-Z]{25})?$"))
        .examples(["memver_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
    MemoryPathOrEmpty = text("A memory's path; empty if the credential may not see it.")
        .max_length(Some(1024))
        .examples(["/projects/keepsake.md"]);
    ContentSha256OrEmpty = text("SHA-256 of the content, as `ContentSha256`; empty if the credential may not see it.")
        .pattern(Some("^([0-9a-f]{64})?$"))
        .examples(["9054350fdba23cc80006d2967efb8b6efcf857416c592fadf5de405c48561c16"]);
    SelectedMetadata = pairs("Pairs that a store must all have; at least one.", Type::String.into()).min_properties(Some(1));
    Archive = text("An archive: tar, compressed with Zstandard.")
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
    SearchQuery = without_nul("At most 1,000 characters.")
        .max_length(Some(1000))
        .examples(["release day"]);
    Cursor = text("The `next_page` of a response to the same query.").pattern(Some("^page_[0-9A-Za-z_-]+$"));
    TenantName = name("1 to 255 characters, none of them a control character.")
        .max_length(Some(255))
        .examples(["Release agent"]);
    LimitPatch = limits(
        "Limits by name; null means the configured value.",
        &SchemaType::from_iter([Type::Integer, Type::Null]),
    );
    JobName = text("The name of a job.").pattern(Some("^[a-z]+(-[a-z]+)*$")).examples(["sweep-blobs"]);
    GivenName = name("A name without control characters.");
}

macro_rules! named {
    ($($name:ident = $description:literal $type:ty;)*) => {
        keepsake_core::schemas! {$(
            $name = text($description).enum_values(Some(<$type>::ALL.map(<$type>::name)));
        )*}
    };
}

named! {
    AuditAction = "An audited action." keepsake_index::AuditAction;
    ErasureState = "How far an erasure is." keepsake_index::ErasureState;
    Scope = "A permission of a credential." keepsake_index::Scope;
    TenantStatus = "The status of a tenant." keepsake_index::TenantStatus;
    TenantDeletionStatus = "The progress of a deletion: `settling` waits for data that may be written late." keepsake_index::DeletionState;
}

macro_rules! vocabularies {
    ($($name:ident = $description:literal [$($word:literal),*];)*) => {
        keepsake_core::schemas! {$(
            $name = text($description).enum_values(Some([$($word),*]));
        )*}
    };
}

vocabularies! {
    ErasureSelects = "How the erased data was selected; the selection itself is not kept." ["memory_store", "path_prefix", "store_metadata"];
    ErasureBackups = "Backups of the database and the object store are not erased." ["outside"];
    AuditObjectType = "The type of an audited object." [
        "memory_store", "memory_version", "session", "api_key", "erasure", "tenant"
    ];
    ErasureStepName = "The data that a step removed: rows of memories and versions, records of idempotent calls, blobs." [
        "rows", "idempotency_records", "blobs"
    ];
    ErasureError = "The error that last interrupted an erasure." [
        "index_unavailable",
        "index_busy",
        "object_store_unavailable",
        "object_store_denied",
        "object_store_misconfigured",
        "internal"
    ];
    Permission = "Whether a tool call was allowed." ["allow", "deny"];
    JobRunStatus = "The status of a run; the next scheduled run resumes one that is `interrupted`." [
        "running",
        "done",
        "failed",
        "interrupted"
    ];
    JobRunReason = "What started the run." ["schedule", "operator"];
    ErrorType = "The type of an error." [
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "memory_precondition_failed_error",
        "memory_path_conflict_error",
        "content_missing",
        "content_damaged",
        "conflict_error",
        "rate_limit_error",
        "overloaded_error",
        "timeout_error",
        "api_error"
    ];
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
        .property("path", text("With `content_missing` or `content_damaged`: the path of the content."))
        .property(
            "memory_version_id",
            text("With `content_missing` or `content_damaged`: the version with the content."),
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
