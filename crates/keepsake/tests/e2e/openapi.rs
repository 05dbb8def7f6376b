//! The server against its own OpenAPI document, with requests made up from it.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::client::ok;
use crate::support::script::{self, SCHEMATHESIS};
use crate::support::{Client, Server, Tenant, on_sqlite, secrets};

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
    let (_deployment, server, tenant, client) = on_sqlite().await;

    // With existing ids, so that most requests are not refused early.
    let configuration = with_ids(&client, &tenant).await;
    let mut arguments = vec!["--max-examples", "60", "--phases", "examples,coverage,fuzzing"];
    for operation in ENDS {
        arguments.extend(["--exclude-name", operation]);
    }
    schemathesis(&server, &tenant, &configuration, &arguments).await;

    // With ids of what the run itself made and removed.
    schemathesis(&server, &tenant, "", &["--max-examples", "25"]).await;
}

async fn schemathesis(server: &Server, tenant: &Tenant, configuration: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("schemathesis.toml"), configuration).unwrap();
    println!("seed {SEED}");
    let mut command = Command::new(script::from_environment(SCHEMATHESIS));
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

/// A configuration that has most paths made of ids of the tenant's store, of memories
/// in it that have been edited, and of a session.
async fn with_ids(client: &Client, tenant: &Tenant) -> String {
    let store = tenant.store_id.to_string();
    let new = json!({"agent": "a", "environment_id": "e",
        "resources": [{"type": "memory_store", "memory_store_id": store}]});
    let session = ok(&client.post("/v1/sessions", &new).await);
    secrets::remember(&text(&session, "token"), "a session's token");
    let (mut ids_of_memories, mut ids_of_versions) = (Vec::new(), Vec::new());
    for n in 0..12 {
        let memories = format!("/v1/memory_stores/{store}/memories");
        let body = json!({"path": format!("/folder/{n}"), "content": "first\n"});
        let memory = ok(&client.post(&memories, &body).await);
        let memory_id = text(&memory, "id");
        let body = json!({"content": format!("second of {n}\n")});
        let edited = ok(&client.post(&format!("{memories}/{memory_id}"), &body).await);
        ids_of_memories.push(memory_id);
        ids_of_versions.extend([&memory, &edited].map(|memory| text(memory, "memory_version_id")));
    }
    let resource = text(&session["resources"][0], "id");
    let dictionaries = [
        ("memory_store_id", vec![store]),
        ("memory_id", ids_of_memories),
        ("memory_version_id", ids_of_versions),
        ("session_id", vec![text(&session, "id")]),
        ("resource_id", vec![resource]),
    ];
    let lists = dictionaries.each_ref().map(|(name, ids)| format!("{name} = {{ values = {ids:?} }}\n"));
    let parameters = dictionaries
        .map(|(name, _)| format!("\"path.{name}\" = {{ dictionary = \"{name}\", probability = 0.9 }}\n"));
    format!("[dictionaries]\n{}[parameters]\n{}", lists.concat(), parameters.concat())
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap().to_owned()
}
