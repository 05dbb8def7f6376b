//! Schemas of the values in bodies: the form of ids, times and texts in the API's documents.
//!
//! A type without values stands for a text of that form, where a field has another type.

use serde::{Serialize, Serializer};
use utoipa::openapi::schema::{AdditionalProperties, Schema, SchemaType};
use utoipa::openapi::{KnownFormat, ObjectBuilder, OneOfBuilder, RefOr, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::limits::Limits;
use crate::path::{DirPath, MemoryPath};
use crate::{ContentHash, SensitiveDataPolicy, Timestamp};

/// No database column accepts NUL.
const WITHOUT_NUL: &str = "^[^\\u0000]*$";

/// Gives types their name and schema in the API's documents.
#[macro_export]
macro_rules! has_schema {
    ($($type:ty as $name:expr => $schema:expr;)*) => {$(
        impl ::utoipa::PartialSchema for $type {
            fn schema() -> ::utoipa::openapi::RefOr<::utoipa::openapi::schema::Schema> {
                ::utoipa::openapi::RefOr::T($schema.into())
            }
        }
        impl ::utoipa::ToSchema for $type {
            fn name() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed($name)
            }
        }
    )*};
}

/// Defines types without values that have a schema.
#[macro_export]
macro_rules! schemas {
    ($($name:ident = $schema:expr;)*) => {
        $(
            #[derive(Debug)]
            pub enum $name {}
        )*
        $crate::has_schema! {$( $name as stringify!($name) => $schema; )*}
    };
}

/// Enums of [`named_enum`](crate::named_enum) appear in the API by their names.
#[macro_export]
macro_rules! shown_by_name {
    ($($type:ty as $name:literal => $description:literal;)*) => {
        $crate::has_schema! {$(
            $type as $name => $crate::schemas::text($description).enum_values(Some(<$type>::ALL.map(<$type>::name)));
        )*}
        $(impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        })*
    };
}

shown_by_name! {
    SensitiveDataPolicy as "SensitiveDataPolicy" => "How sensitive data in written content is handled.";
}

has_schema! {
    Timestamp as "Time" => text("A time in RFC 3339 format; responses use UTC with microseconds and `Z`.")
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    ContentHash as "ContentSha256" => text("SHA-256 of the content's UTF-8 bytes, in lowercase hexadecimal.")
        .pattern(Some("^[0-9a-f]{64}$"))
        .examples(["9054350fdba23cc80006d2967efb8b6efcf857416c592fadf5de405c48561c16"]);
    MemoryPath as "MemoryPath" => text("The path of a memory: `/` and 1 to 20 segments, at most 1,024 bytes of UTF-8 in NFC. \
        No segment is `.` or `..`; there are no control or format characters. \
        Another Unicode form in a request is normalised to NFC.")
        .pattern(Some("^(/[^/\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]+){1,20}$"))
        .max_length(Some(1024))
        .examples(["/projects/keepsake.md"]);
    DirPath as "DirectoryPath" => text("A directory: begins and ends with `/`.")
        .pattern(Some("^/([^/]+/)*$"))
        .examples(["/projects/"]);
    Limits as "Limits" => limits("Every limit, by name.", &Type::Integer.into());
}

schemas! {
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
    ExpiresAt = text("A time in RFC 3339 format in the future, or `never`.")
        .examples(["2026-12-31T00:00:00Z", "never"]);
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
    TenantName = name("1 to 255 characters, none of them a control character.")
        .max_length(Some(255))
        .examples(["Release agent"]);
    LimitPatch = limits(
        "Limits by name; null means the configured value.",
        &SchemaType::from_iter([Type::Integer, Type::Null]),
    );
    SelectedMetadata = pairs("Pairs that a store must all have; at least one.", Type::String.into()).min_properties(Some(1));
    ErasureError = text("The error that last interrupted an erasure.").enum_values(Some([
        "index_unavailable",
        "index_busy",
        "disk_full",
        "object_store_unavailable",
        "object_store_denied",
        "object_store_misconfigured",
        "internal",
    ]));
    AuditObjectId = text("The id of a memory store, memory version, session, API key, erasure or tenant.")
        .pattern(Some("^(memstore|memver|sesn|apikey|erasure|wrkspc)_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
        .examples(["memstore_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"]);
    AuditObjectType = text("The type of an audited object.")
        .enum_values(Some(["memory_store", "memory_version", "session", "api_key", "erasure", "tenant"]));
    JobName = text("The name of a job.").pattern(Some("^[a-z]+(-[a-z]+)*$")).examples(["sweep-blobs"]);
    Seconds = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(0))
        .maximum(Some(3_153_600_000_u64))
        .examples([2_592_000]);
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

pub fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

pub fn name(description: &str) -> ObjectBuilder {
    text(description).min_length(Some(1)).pattern(Some("^[^\\u0000-\\u001f\\u007f-\\u009f]+$"))
}

pub fn without_nul(description: &str) -> ObjectBuilder {
    text(description).pattern(Some(WITHOUT_NUL))
}

pub fn pairs(description: &str, value: SchemaType) -> ObjectBuilder {
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
pub fn limits(description: &str, value: &SchemaType) -> ObjectBuilder {
    let limit =
        || ObjectBuilder::new().schema_type(value.clone()).minimum(Some(0)).maximum(Some(1_u64 << 53));
    let names = serde_json::to_value(Limits::default());
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

/// Defines types of one value, the `type` of an object in the API.
macro_rules! object_types {
    ($($name:ident = $text:literal;)*) => {$(
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name;
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

object_types! {
    MemoryStoreType = "memory_store";
    DeletedMemoryStoreType = "memory_store_deleted";
    MemoryChangeType = "memory_change";
    HistoryRemovedType = "history_removed";
    MemoryStoreUsageType = "memory_store_usage";
    DailyUsageType = "daily_usage";
    MemoryStoreImportType = "memory_store_import";
    MemoryType = "memory";
    MemoryPrefixType = "memory_prefix";
    MemoryBatchType = "memory_batch";
    MemoryBatchResultType = "memory_batch_result";
    MemorySearchHitType = "memory_search_hit";
    MemoryStoreTestType = "memory_store_test";
    MemoryStoreTestResultType = "memory_store_test_result";
    DeletedMemoryType = "memory_deleted";
    MemoryVersionType = "memory_version";
    MemoryDeletionType = "memory_deletion";
    MemoryUndoType = "memory_undo";
    MemoryDifferenceType = "memory_difference";
    MemoryReaderType = "memory_reader";
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
    CredentialType = "credential";
    TenantType = "tenant";
    TenantUsageType = "tenant_usage";
    TenantDeletionType = "tenant_deletion";
    AuditEntryType = "audit_entry";
    TokenKeyType = "token_key";
    JobType = "job";
    JobRunType = "job_run";
}
