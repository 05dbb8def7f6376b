//! The server against its own OpenAPI document, with requests made up from it.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::script::{self, SCHEMATHESIS};
use crate::support::{Answer, Client, Deployment, Pair, Server, Tenant, secrets};

/// The seed of the generated requests; another seed tests others.
const SEED: &str = "20260722";

/// The checks of each answer. Excluded are checks that need information outside the
/// document: which texts are valid paths, and which ids exist.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method,\
                      ignored_auth,use_after_free";

/// Operations that end a store or a session, or detach a store.
const ENDS: [&str; 5] = [
    "DELETE /v1/memory_stores/{memory_store_id}",
    "POST /v1/memory_stores/{memory_store_id}/archive",
    "DELETE /v1/sessions/{session_id}",
    "POST /v1/sessions/{session_id}/archive",
    "DELETE /v1/sessions/{session_id}/resources/{resource_id}",
];

/// The operation that would revoke the credential of this run.
const END_OF_KEYS: &str = "POST /v1/api_keys/{api_key_id}/revoke";

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_as_the_document_says() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;

    // With existing ids, so that most requests are not refused early.
    let ids = Ids::make(&server.client(&tenant), &tenant).await;
    let mut arguments = vec!["--max-examples", "60", "--phases", "examples,coverage,fuzzing"];
    for operation in ENDS {
        arguments.extend(["--exclude-name", operation]);
    }
    schemathesis(&server, &tenant, &ids.configuration(), &arguments).await;

    // With ids of what the run itself made and removed.
    schemathesis(&server, &tenant, "", &["--max-examples", "25"]).await;
}

/// Runs Schemathesis, by default against every operation.
async fn schemathesis(server: &Server, tenant: &Tenant, configuration: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("schemathesis.toml"), configuration).unwrap();
    println!("seed {SEED}");
    let program = script::from_environment(SCHEMATHESIS);
    let mut command = Command::new(Path::new(&program));
    command
        .arg("run")
        .arg(format!("{}/openapi.json", server.url()))
        .args(["--header", &format!("x-api-key:{}", tenant.key)])
        .args(["--checks", CHECKS])
        .args(["--seed", SEED])
        .args(["--generation-database", "none"])
        .args(["--continue-on-failure", "--no-color"])
        .args(["--exclude-name", END_OF_KEYS])
        // Streams have no end.
        .args(["--exclude-path-regex", "/stream$"])
        .args(arguments)
        // It keeps files where it is run, and finds its configuration there.
        .current_dir(folder.path());
    println!("{}", script::run(&mut command).await);
}

/// Ids of a store, its memories and versions.
struct Ids {
    store: String,
    memories: Vec<String>,
    versions: Vec<String>,
    session: String,
    resource: String,
}

impl Ids {
    /// Fills the tenant's store with memories that have been edited.
    async fn make(client: &Client, tenant: &Tenant) -> Self {
        let memories = format!("/v1/memory_stores/{}/memories", tenant.store_id);
        let resource = json!({"type": "memory_store", "memory_store_id": tenant.store_id.to_string()});
        let new = json!({"agent": "a", "environment_id": "e", "resources": [resource]});
        let session = made(&client.post("/v1/sessions", &new).await);
        secrets::remember(&text(&session, "token"), "a session's token");
        let mut ids = Self {
            session: text(&session, "id"),
            resource: text(&session["resources"][0], "id"),
            store: tenant.store_id.to_string(),
            memories: Vec::new(),
            versions: Vec::new(),
        };
        for n in 0..12 {
            let body = json!({"path": format!("/folder/{n}"), "content": "first\n"});
            let memory = made(&client.post(&memories, &body).await);
            let memory_id = text(&memory, "id");
            let body = json!({"content": format!("second of {n}\n")});
            let edited = made(&client.post(&format!("{memories}/{memory_id}"), &body).await);
            ids.memories.push(memory_id);
            ids.versions.push(text(&memory, "memory_version_id"));
            ids.versions.push(text(&edited, "memory_version_id"));
        }
        ids
    }

    /// The configuration that has most paths made of these ids.
    fn configuration(&self) -> String {
        let Self { store, memories, versions, session, resource } = self;
        format!(
            "[dictionaries]\n\
             stores = {{ values = [{store:?}] }}\n\
             memories = {{ values = {memories:?} }}\n\
             versions = {{ values = {versions:?} }}\n\
             sessions = {{ values = [{session:?}] }}\n\
             resources = {{ values = [{resource:?}] }}\n\
             [parameters]\n\
             \"path.memory_store_id\" = {{ dictionary = \"stores\", probability = 0.9 }}\n\
             \"path.memory_id\" = {{ dictionary = \"memories\", probability = 0.9 }}\n\
             \"path.memory_version_id\" = {{ dictionary = \"versions\", probability = 0.9 }}\n\
             \"path.session_id\" = {{ dictionary = \"sessions\", probability = 0.9 }}\n\
             \"path.resource_id\" = {{ dictionary = \"resources\", probability = 0.9 }}\n"
        )
    }
}

fn made(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap().to_owned()
}
