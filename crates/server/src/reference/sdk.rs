//! The operations that the official SDKs have methods for.

/// The resources of the SDKs with their methods. A method with other fields than the operation is left out.
const METHODS: [(&str, &str); 6] = [
    ("memory_stores", "list create retrieve update delete archive"),
    ("memories", "list create retrieve update delete"),
    ("memory_versions", "list retrieve redact"),
    ("sessions", "list create retrieve update delete archive"),
    ("sessions.events", "list stream"),
    ("sessions.resources", "list retrieve delete"),
];

/// The method as the Python SDK names it below `client.beta`.
pub(super) fn method_of(operation_id: &str) -> Option<String> {
    let (resource, method) = operation_id.rsplit_once('.')?;
    let (_, methods) = METHODS.iter().find(|(known, _)| *known == resource)?;
    let parent = if ["memories", "memory_versions"].contains(&resource) { "memory_stores." } else { "" };
    methods.split(' ').any(|known| known == method).then(|| format!("{parent}{operation_id}"))
}
