//! The operations that the official SDKs have methods for.

/// Ids of these operations. An operation whose SDK method has other fields is left out.
const METHODS: [&str; 25] = [
    "memory_stores.list",
    "memory_stores.create",
    "memory_stores.retrieve",
    "memory_stores.update",
    "memory_stores.delete",
    "memory_stores.archive",
    "memories.list",
    "memories.create",
    "memories.retrieve",
    "memories.update",
    "memories.delete",
    "memory_versions.list",
    "memory_versions.retrieve",
    "memory_versions.redact",
    "sessions.list",
    "sessions.create",
    "sessions.retrieve",
    "sessions.update",
    "sessions.delete",
    "sessions.archive",
    "sessions.events.list",
    "sessions.events.stream",
    "sessions.resources.list",
    "sessions.resources.retrieve",
    "sessions.resources.delete",
];

/// The method as the Python SDK names it below `client.beta`.
pub(super) fn method_of(operation_id: &str) -> Option<String> {
    if !METHODS.contains(&operation_id) {
        return None;
    }
    let is_of_store = operation_id.starts_with("memories.") || operation_id.starts_with("memory_versions.");
    let parent = if is_of_store { "memory_stores." } else { "" };
    Some(format!("{parent}{operation_id}"))
}
