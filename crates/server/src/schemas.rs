//! Schemas of ids, times and texts in bodies and paths.
//!
//! These types have no values: the OpenAPI document refers to them where the code has another type.

use std::borrow::Cow;

use keepsake_core::id::{
    ApiKeyKind, AuditEntryKind, ErasureKind, EventKind, IdKind, MemoryKind, RequestKind, ResourceKind,
    SessionKind, StoreKind, TenantKind, VersionKind,
};
use serde::{Serialize, Serializer};
use utoipa::openapi::schema::{AdditionalProperties, AnyOfBuilder, Schema, SchemaType};
use utoipa::openapi::{KnownFormat, ObjectBuilder, OneOfBuilder, Ref, RefOr, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// No database column accepts NUL.
const WITHOUT_NUL: &str = "^[^\\u0000]*$";

macro_rules! described {
    ($($name:ident = $schema:expr;)*) => {$(
        pub(crate) enum $name {}
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T($schema.into())
            }
        }
        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }
        }
    )*};
}

described! {
    ErrorObject = error_object();
    MemoryStoreId = id::<StoreKind>("The id of a memory store.");
    MemoryId = id::<MemoryKind>("The id of a memory; edits and renames do not change it.");
    MemoryVersionId = id::<VersionKind>("The id of a memory version.");
    ApiKeyId = id::<ApiKeyKind>("The id of an API key; not the secret.");
    SessionId = id::<SessionKind>("The id of a session.");
    SessionResourceId = id::<ResourceKind>("The id of a memory store's attachment to a session.");
    SessionEventId = id::<EventKind>("The id of an event of a session.");
    ResourceName = text("The id of an attachment or of the attached memory store.")
        .pattern(Some("^(sesrsc|memstore)_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
        .examples(["sesrsc_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
    ForeignId = name("An id of 1 to 255 characters, none of them a control character.")
        .max_length(Some(255))
        .examples(["production"]);
    Title = without_nul("At most 1,024 characters, none of them NUL.")
        .max_length(Some(1024))
        .examples(["Plan the next release"]);
    Instructions = without_nul("At most 4,096 characters, none of them NUL.")
        .max_length(Some(4096))
        .examples(["Read this before you plan a release."]);
    Agent = agent("An agent in the form of the clients' protocol.", &["agent"]);
    AgentReference = OneOfBuilder::new()
        .item(ForeignId::schema())
        .item(agent("An agent with some of its fields.", &["agent", "agent_with_overrides"]))
        .examples(["release-agent"]);
    WorkspaceId = id::<TenantKind>("The id of a tenant.");
    RequestId = id::<RequestKind>("The id of a request, as in the server's log.");
    ErasureId = id::<ErasureKind>("The id of an erasure.");
    AuditEntryId = id::<AuditEntryKind>("The id of an audit entry.");
    AuditObjectId = text("The id of a memory store, memory version, session, API key, erasure or tenant.")
        .pattern(Some("^(memstore|memver|sesn|apikey|erasure|wrkspc)_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
        .examples(["memstore_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
    Time = text("A time in RFC 3339 format; responses use UTC with microseconds and `Z`.")
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    ExpiresAt = text("A time in RFC 3339 format in the future, or `never`.")
        .examples(["2026-12-31T00:00:00Z", "never"]);
    ContentSha256 = text("SHA-256 of the content's UTF-8 bytes, in lowercase hexadecimal.")
        .pattern(Some("^[0-9a-f]{64}$"))
        .examples(["9054350fdba23cc80006d2967efb8b6efcf857416c592fadf5de405c48561c16"]);
    MemoryPath = text("The path of a memory: `/` and 1 to 20 segments, at most 1,024 bytes of UTF-8 in NFC. \
        No segment is `.` or `..`; there are no control or format characters. \
        Another Unicode form in a request is normalised to NFC.")
        .pattern(Some("^(/[^/\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]+){1,20}$"))
        .max_length(Some(1024))
        .examples(["/projects/keepsake.md"]);
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
    ChangePlace = text("A place among the changes of a memory store, in one history; `0` is the beginning.")
        .pattern(Some("^[0-9]{1,18}(\\.[0-9]{1,18}(\\.memver_[0-7][0-9A-HJKMNP-TV-Z]{25})?)?$"))
        .examples(["7.0.memver_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
    DirectoryPath = text("A directory: begins and ends with `/`.")
        .pattern(Some("^/([^/]+/)*$"))
        .examples(["/projects/"]);
    Content = without_nul("UTF-8 text without NUL, by default at most 102,400 bytes.")
        .examples(["Ship on Tuesdays.\n"]);
    StoreName = name("1 to 255 characters, none of them a control character.")
        .max_length(Some(255))
        .examples(["Team notes"]);
    Description = without_nul("At most 1,024 characters, none of them NUL.")
        .max_length(Some(1024))
        .examples(["What the team decided, and why."]);
    Metadata = pairs("Your own key-value pairs.", Type::String.into());
    MetadataPatch = pairs(
        "Pairs to set; null removes a pair, and omitted pairs stay unchanged.",
        SchemaType::from_iter([Type::String, Type::Null]),
    );
    Seconds = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(0))
        .maximum(Some(3_153_600_000_u64))
        .examples([2_592_000]);
    SearchQuery = without_nul("At most 1,000 characters.")
        .max_length(Some(1000))
        .examples(["release day"]);
    Cursor = text("The `next_page` of a response to the same query.").pattern(Some("^page_[0-9A-Za-z_-]+$"));
    TenantName = name("1 to 255 characters, none of them a control character.")
        .max_length(Some(255))
        .examples(["Release agent"]);
    Limits = limits("Every limit, by name.", &Type::Integer.into());
    LimitPatch = limits(
        "Limits by name; null means the configured value.",
        &SchemaType::from_iter([Type::Integer, Type::Null]),
    );
    JobName = text("The name of a job.").pattern(Some("^[a-z]+(-[a-z]+)*$")).examples(["sweep-blobs"]);
    GivenName = name("A name without control characters.");
}

/// In requests every field of an agent except its id is optional.
fn agent(description: &str, types: &[&str]) -> ObjectBuilder {
    let objects = || {
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
            .description(Some("A list of objects."))
    };
    let object = || ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::Object, Type::Null]));
    let words = || ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Null]));
    let version = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Integer, Type::Null]))
        .minimum(Some(0))
        .maximum(Some(1_u64 << 53));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(description))
        .property("type", text("What it is.").enum_values(Some(types.iter().copied())))
        .property("id", ForeignId::schema())
        .property("version", version)
        .property("name", words())
        .property("description", words())
        .property(
            "model",
            ObjectBuilder::new()
                .schema_type(SchemaType::AnyValue)
                .description(Some("A model's id, or an object with it.")),
        )
        .property("system", words())
        .property("tools", objects())
        .property("skills", objects())
        .property("mcp_servers", objects())
        .property("multiagent", object())
        .property("execution_identity", object())
        .required("type")
        .required("id")
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
}

pub(crate) fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

fn name(description: &str) -> ObjectBuilder {
    text(description).min_length(Some(1)).pattern(Some("^[^\\u0000-\\u001f\\u007f-\\u009f]+$"))
}

fn without_nul(description: &str) -> ObjectBuilder {
    text(description).pattern(Some(WITHOUT_NUL))
}

fn id<K: IdKind>(description: &str) -> ObjectBuilder {
    text(description)
        .pattern(Some(format!("^{}[0-7][0-9A-HJKMNP-TV-Z]{{25}}$", K::PREFIX)))
        .examples([format!("{}01KAK5R2M0E9V7Q3C4D8X6Y1ZT", K::PREFIX)])
}

fn pairs(description: &str, value: SchemaType) -> ObjectBuilder {
    let key = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(64))
        .pattern(Some("^[^\\u0000]+$"));
    let value = ObjectBuilder::new().schema_type(value).max_length(Some(512)).pattern(Some(WITHOUT_NUL));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(description))
        .property_names(Some(Schema::from(key)))
        .examples([serde_json::json!({"team": "release"})])
        .additional_properties(Some(AdditionalProperties::RefOr(RefOr::T(value.into()))))
        .max_properties(Some(16))
}

/// Every field is optional.
fn limits(description: &str, value: &SchemaType) -> ObjectBuilder {
    let limit =
        || ObjectBuilder::new().schema_type(value.clone()).minimum(Some(0)).maximum(Some(1_u64 << 53));
    let names = serde_json::to_value(keepsake_core::Limits::default());
    let names = names.ok().and_then(|limits| limits.as_object().cloned());
    let object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(description))
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    names
        .unwrap_or_default()
        .into_iter()
        .fold(object, |object, (name, _)| object.property(name, limit()))
        .property("expires_unused_after", limit())
}

macro_rules! object_types {
    ($($name:ident = $text:literal;)*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name;
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($text)
            }
        }
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let word = ObjectBuilder::new()
                    .schema_type(Type::String)
                    .enum_values(Some([$text]));
                RefOr::T(word.into())
            }
        }
        impl ToSchema for $name {}
    )*};
}

// Values of the `type` field of objects.
object_types! {
    MemoryStoreType = "memory_store";
    DeletedMemoryStoreType = "memory_store_deleted";
    MemoryChangeType = "memory_change";
    HistoryRemovedType = "history_removed";
    MemoryStoreUsageType = "memory_store_usage";
    MemoryStoreImportType = "memory_store_import";
    MemoryType = "memory";
    MemoryPrefixType = "memory_prefix";
    MemoryBatchType = "memory_batch";
    MemoryBatchResultType = "memory_batch_result";
    MemorySearchHitType = "memory_search_hit";
    DeletedMemoryType = "memory_deleted";
    MemoryVersionType = "memory_version";
    ToolResultType = "tool_result";
    SessionType = "session";
    SessionTokenType = "session_token";
    DeletedSessionType = "session_deleted";
    MemoryStoreResourceType = "memory_store";
    DeletedSessionResourceType = "session_resource_deleted";
    ToolUseType = "agent.tool_use";
    AlwaysAllowType = "always_allow";
    ErasureType = "erasure";
    ApiKeyType = "api_key";
    TenantType = "tenant";
    TenantUsageType = "tenant_usage";
    TenantDeletionType = "tenant_deletion";
    AuditEntryType = "audit_entry";
    TokenKeyType = "token_key";
    JobType = "job";
    JobRunType = "job_run";
}

macro_rules! named {
    ($($name:ident = $description:literal $type:ty;)*) => {
        described! {$(
            $name = text($description).enum_values(Some(<$type>::ALL.map(<$type>::name)));
        )*}
    };
}

named! {
    AuditAction = "An audited action." keepsake_index::AuditAction;
    Operation = "The change that a version records." keepsake_index::Operation;
    ErasureState = "How far an erasure is." keepsake_index::ErasureState;
    Access = "A session's access to a memory store." keepsake_index::Access;
    SensitiveDataPolicy = "How sensitive data in written content is handled." keepsake_core::policy::SensitiveDataPolicy;
    Scope = "A permission of a credential." keepsake_index::Scope;
    TenantStatus = "The status of a tenant." keepsake_index::TenantStatus;
    TenantDeletionStatus = "The progress of a deletion: `settling` waits for data that may be written late." keepsake_index::DeletionState;
}

macro_rules! vocabularies {
    ($($name:ident = $description:literal [$($word:literal),*];)*) => {
        described! {$(
            $name = text($description).enum_values(Some([$($word),*]));
        )*}
    };
}

vocabularies! {
    View = "`basic` omits content." ["basic", "full"];
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
    SessionStatus = "The status of a session: `idle`, or `terminated` once it is archived; the other values are of the clients' protocol." [
        "rescheduling",
        "running",
        "idle",
        "terminated"
    ];
    Order = "The order of a listing." ["asc", "desc"];
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
