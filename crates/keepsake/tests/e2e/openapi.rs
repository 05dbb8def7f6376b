//! The server against its own OpenAPI document, with requests made up from it.

use keepsake_testkit::cases_times;

use crate::prelude::*;
use crate::support::script::SCHEMATHESIS;

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

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_as_the_document_says() {
    let (_deployment, server, tenant, client) = on_sqlite().await;
    // With existing ids, so that most requests are not refused early.
    let configuration = with_ids(&client, &tenant).await;
    let examples = |of_a_landing: u32| (of_a_landing * cases_times()).to_string();
    let with_ids_examples = examples(15);
    let mut arguments = vec!["--max-examples", &with_ids_examples, "--phases", "examples,coverage,fuzzing"];
    for operation in ENDS {
        arguments.extend(["--exclude-name", operation]);
    }
    schemathesis(&server, &tenant, &configuration, &arguments).await;
    // With ids of what the run itself made and removed.
    schemathesis(&server, &tenant, "", &["--max-examples", &examples(8)]).await;
}

async fn schemathesis(server: &Server, tenant: &Tenant, configuration: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("schemathesis.toml"), configuration).unwrap();
    println!("seed {SEED}");
    let mut command = Command::new(script::from_environment(SCHEMATHESIS));
    command.arg("run").arg(format!("{}/openapi.json", server.url()));
    command.args(["--header", &format!("x-api-key:{}", tenant.key), "--checks", CHECKS, "--seed", SEED]);
    command.args(["--generation-database", "none", "--continue-on-failure", "--no-color"]);
    // One would revoke the credential of this run, and streams have no end.
    command.args(["--exclude-name", "POST /v1/api_keys/{api_key_id}/revoke"]);
    command.args(["--exclude-path-regex", "/stream$"]).args(arguments);
    // It keeps files where it is run, and finds its configuration there.
    println!("{}", script::run(command.current_dir(folder.path())).await);
}

/// A configuration that has most paths made of ids of the tenant's store, of memories
/// in it that have been edited, and of a session.
async fn with_ids(client: &Client, tenant: &Tenant) -> String {
    let store = Store::of(client, tenant);
    let new = json!({"agent": "a", "environment_id": "e",
        "resources": [{"type": "memory_store", "memory_store_id": store.id}]});
    let session = new_session(client, &new).await;
    let (mut memories, mut versions) = (Vec::new(), Vec::new());
    for n in 0..12 {
        let memory = store.create(&format!("/folder/{n}"), "first\n").await;
        let edited = store.update(&memory, &json!({"content": format!("second of {n}\n")})).await;
        versions.extend([memory.clone(), edited]);
        memories.push(memory);
    }
    let dictionaries = [
        ("memory_store_id", vec![store.id]),
        ("memory_id", strings(&memories, "id")),
        ("memory_version_id", strings(&versions, "memory_version_id")),
        ("session_id", vec![text(&session["id"]).to_owned()]),
        ("resource_id", strings(session["resources"].as_array().unwrap(), "id")),
    ];
    let lists = dictionaries.each_ref().map(|(name, ids)| format!("{name} = {{ values = {ids:?} }}\n"));
    let parameters = dictionaries
        .map(|(name, _)| format!("\"path.{name}\" = {{ dictionary = \"{name}\", probability = 0.9 }}\n"));
    format!("[dictionaries]\n{}[parameters]\n{}", lists.concat(), parameters.concat())
}
