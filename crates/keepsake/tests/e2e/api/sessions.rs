//! Sessions: answers, refusals, listings and writes.

use serde_json::{Value, json};

use super::conventions::{assert_fields, assert_id, assert_time};
use super::support::{
    Place, Store, all, delete, invalid, not_found, ok, page_of, post_text, post_with, refused, strings, text,
};
use crate::support::{Client, secrets};

const SESSIONS: &str = "/v1/sessions";

/// The fields of a session, the token last, which is shown once.
const FIELDS: [&str; 19] = [
    "id",
    "type",
    "agent",
    "environment_id",
    "title",
    "metadata",
    "resources",
    "status",
    "vault_ids",
    "created_at",
    "updated_at",
    "archived_at",
    "budget",
    "deployment_id",
    "outcome_evaluations",
    "stats",
    "usage",
    "system_prompt",
    "token",
];

fn attaching(resources: &[Value]) -> Value {
    json!({"agent": "agent_1", "environment_id": "env_1", "resources": resources})
}

fn attached(store: &Store, access: &str) -> Value {
    json!({"type": "memory_store", "memory_store_id": store.id, "access": access})
}

/// A session and a client with its token.
async fn open(client: &Client, resources: &[Value]) -> (Value, String, Client) {
    let session = ok(&client.post(SESSIONS, &attaching(resources)).await);
    let token = text(&session["token"]);
    secrets::remember(token, "a session's token");
    let path = format!("{SESSIONS}/{}", text(&session["id"]));
    let holder = client.with_key(token);
    (session, path, holder)
}

async fn call(client: &Client, session: &str, input: &Value) -> (String, bool) {
    let answer = ok(&client.post(&format!("{session}/tool_calls"), input).await);
    (text(&answer["content"]).to_owned(), answer["is_error"] == true)
}

pub(super) async fn session_has_the_fields_that_clients_know(place: Place) {
    let store = place.new_store("Team Rules").await;
    let whole = json!({
        "agent": {"type": "agent_with_overrides", "id": "agent_1", "version": 3, "model": "m", "system": "Be kind."},
        "environment_id": "env_1", "title": "Fix it", "metadata": {"a": "b"}, "vault_ids": ["vlt_1"],
        "resources": [{"type": "memory_store", "memory_store_id": store.id, "access": "read_only", "prompt": "Read."}],
        "initial_events": [], "budget": null,
    });
    let made = ok(&place.client.post(SESSIONS, &whole).await);
    secrets::remember(text(&made["token"]), "a session's token");
    assert_fields(&made, &FIELDS);
    assert_id(&made["id"], "sesn_");
    assert_time(&made["created_at"]);
    assert_time(&made["updated_at"]);
    let expected = json!({
        "type": "session", "title": "Fix it", "metadata": {"a": "b"}, "vault_ids": ["vlt_1"],
        "environment_id": "env_1", "status": "idle", "archived_at": null, "budget": null, "deployment_id": null,
        "outcome_evaluations": [], "stats": {}, "usage": {"list_cost": null, "server_tool_use": null},
        "agent": {
            "id": "agent_1", "type": "agent", "version": 3, "name": "", "description": null, "model": {"id": "m"},
            "system": "Be kind.", "tools": [], "skills": [], "mcp_servers": [], "multiagent": null,
            "execution_identity": {"type": "service_account"},
        },
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    let resource = &made["resources"][0];
    assert_fields(
        resource,
        &[
            "id",
            "type",
            "memory_store_id",
            "access",
            "instructions",
            "name",
            "description",
            "mount_path",
            "created_at",
            "updated_at",
        ],
    );
    assert_id(&resource["id"], "sesrsc_");
    let expected = json!({
        "type": "memory_store", "memory_store_id": store.id, "access": "read_only", "instructions": "Read.",
        "name": "Team Rules", "description": "", "mount_path": "/mnt/memory/team-rules",
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&resource[field], value, "{field}");
    }
    let prompt = text(&made["system_prompt"]);
    assert!(
        prompt.contains("/memories/team-rules") && prompt.contains("Read."),
        "{prompt}"
    );

    // Later reads return everything except the token.
    let mut shown = made.clone();
    shown.as_object_mut().unwrap().remove("token");
    let path = format!("{SESSIONS}/{}", text(&made["id"]));
    assert_eq!(ok(&place.client.get(&path).await), shown);
    assert_eq!(
        all(&place.client, &format!("{SESSIONS}?limit=1")).await,
        [shown.clone()]
    );
    let by_id = format!("{path}/resources/{}", text(&resource["id"]));
    assert_eq!(&ok(&place.client.get(&by_id).await), resource);
    assert_eq!(
        &ok(&place.client.get(&format!("{path}/resources/{}", store.id)).await),
        resource
    );
    let archived = ok(&place.client.post(&format!("{path}/archive"), &json!({})).await);
    assert_eq!(archived["status"], "terminated");
    assert_time(&archived["archived_at"]);
    assert_fields(&archived, &FIELDS[..18]);
    let gone = ok(&delete(&place.client, &path).await);
    assert_eq!(gone, json!({"id": made["id"], "type": "session_deleted"}));
    not_found(&place.client.get(&path).await);
}

pub(super) async fn fields_unrelated_to_memory_are_refused_by_name(place: Place) {
    let (client, store) = (&place.client, place.store());
    let file = json!({"type": "file", "file_id": "file_1"});
    let repository = json!({"type": "github_repository", "url": "https://x", "authorization_token": "t"});
    let both =
        json!({"type": "memory_store", "memory_store_id": store.id, "prompt": "a", "instructions": "b"});
    let (first, many) = (
        attached(&store, "read_only"),
        vec![attached(&store, "read_only"); 9],
    );
    let mut wrong = vec![
        (attaching(&[file]), "resources[0]"),
        (attaching(&[first.clone(), repository]), "resources[1]"),
        (attaching(&[both]), "`prompt`"),
        (attaching(&[first.clone(), first.clone()]), "`resources`"),
        (attaching(&many), "`resources`"),
        (attaching(&[attached(&store, "write")]), "`access`"),
        (
            attaching(&[json!({"type": "memory_store", "memory_store_id": "x"})]),
            "memstore_",
        ),
        (attaching(&[json!({"type": "memory_store"})]), "memory_store_id"),
        (json!({"environment_id": "e"}), "agent"),
        (json!({"agent": "a"}), "environment_id"),
        (json!({"agent": "a", "environment_id": ""}), "`environment_id`"),
        (
            json!({"agent": {"id": "a"}, "environment_id": "e"}),
            "`agent.type`",
        ),
    ];
    for (field, value) in [
        ("budget", json!({"max_list_cost": "1"})),
        ("initial_events", json!([{"type": "user.message"}])),
        ("metadata", json!({"a": 1})),
        ("vault_ids", json!([""])),
        ("title", json!("x".repeat(1025))),
        ("unknown", json!(1)),
    ] {
        let mut body = attaching(&[]);
        body[field] = value;
        wrong.push((body, field));
    }
    for (body, named) in &wrong {
        invalid(&client.post(SESSIONS, body).await, named);
    }
    let archived = place.new_store("archived").await;
    ok(&client
        .post(&format!("{}/archive", archived.path), &json!({}))
        .await);
    invalid(
        &client
            .post(SESSIONS, &attaching(&[attached(&archived, "read_only")]))
            .await,
        "archived",
    );
    let nowhere = Store::new(client, "memstore_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    not_found(
        &client
            .post(SESSIONS, &attaching(&[attached(&nowhere, "read_only")]))
            .await,
    );
    assert_eq!(
        all(client, &format!("{SESSIONS}?limit=100&include_archived=true")).await,
        [] as [Value; 0]
    );

    let (_, path, _) = open(client, &[first]).await;
    for field in ["agent", "vault_ids", "budget"] {
        invalid(&client.post(&path, &json!({field: {}})).await, field);
        ok(&client.post(&path, &json!({field: null})).await);
    }
    let resources = format!("{path}/resources");
    invalid(
        &client
            .post(&resources, &json!({"type": "file", "file_id": "f"}))
            .await,
        "`type`",
    );
    invalid(
        &client.post(&resources, &attached(&store, "read_only")).await,
        "`memory_store_id`",
    );
    let resource = format!("{resources}/{}", store.id);
    invalid(
        &client.post(&resource, &json!({"access": "write"})).await,
        "`access`",
    );
    invalid(
        &client
            .post(&resource, &json!({"instructions": "x".repeat(4097)}))
            .await,
        "`instructions`",
    );
    invalid(
        &client.post(&resource, &json!({"authorization_token": "x"})).await,
        "authorization_token",
    );
}

pub(super) async fn sessions_are_listed_with_every_filter(place: Place) {
    let (client, store, other) = (&place.client, place.store(), place.new_store("other").await);
    let mut sessions = Vec::new();
    for (agent, of) in [
        (json!("a"), &store),
        (json!({"type": "agent", "id": "a", "version": 2}), &other),
        (json!("b"), &other),
    ] {
        let mut body = attaching(&[attached(of, "read_only")]);
        body["agent"] = agent;
        sessions.push(ok(&client.post(SESSIONS, &body).await));
    }
    let [first, second, third] = sessions.as_slice() else {
        panic!()
    };
    ok(&client
        .post(&format!("{SESSIONS}/{}/archive", text(&second["id"])), &json!({}))
        .await);
    let position = |session: &Value| {
        sessions
            .iter()
            .position(|known| known["id"] == session["id"])
            .unwrap()
    };
    let (at, newest) = (text(&second["created_at"]), text(&third["created_at"]));
    let store_filter = format!("memory_store_id={}", other.id);
    for (query, expected) in [
        (String::new(), vec![2, 0]),
        ("include_archived=true".to_owned(), vec![2, 1, 0]),
        ("include_archived=true&order=asc".to_owned(), vec![0, 1, 2]),
        ("statuses[]=terminated".to_owned(), vec![1]),
        ("statuses[]=idle".to_owned(), vec![2, 0]),
        (
            "statuses%5B%5D=idle&statuses%5B%5D=terminated".to_owned(),
            vec![2, 1, 0],
        ),
        ("statuses=running".to_owned(), vec![]),
        ("statuses[]=terminated&include_archived=false".to_owned(), vec![]),
        (store_filter.clone(), vec![2]),
        (format!("{store_filter}&include_archived=true"), vec![2, 1]),
        ("agent_id=a&include_archived=true".to_owned(), vec![1, 0]),
        (
            "agent_id=a&agent_version=2&include_archived=true".to_owned(),
            vec![1],
        ),
        ("agent_version=2".to_owned(), vec![2, 0]),
        ("agent_id=nobody".to_owned(), vec![]),
        ("deployment_id=depl_1".to_owned(), vec![]),
        (format!("created_at[gte]={at}&include_archived=true"), vec![2, 1]),
        (format!("created_at[gt]={at}&include_archived=true"), vec![2]),
        (format!("created_at[lte]={at}&include_archived=true"), vec![1, 0]),
        (format!("created_at_lt={at}&include_archived=true"), vec![0]),
        (format!("created_at[gt]={at}&created_at[lt]={newest}"), vec![]),
    ] {
        for limit in [1, 100] {
            let listed = all(client, &format!("{SESSIONS}?limit={limit}&{query}")).await;
            assert_eq!(
                listed.iter().map(position).collect::<Vec<_>>(),
                expected,
                "{query}"
            );
        }
    }
    for (query, named) in [
        ("statuses[]=ended", "`statuses`"),
        ("order=up", "`order`"),
        ("memory_store_id=x", "`memory_store_id`"),
        ("agent_version=x", "`agent_version`"),
        ("limit=101", "`limit`"),
    ] {
        invalid(&client.get(&format!("{SESSIONS}?{query}")).await, named);
    }
    // A cursor is of its query.
    let (_, next) = page_of(
        &client
            .get(&format!("{SESSIONS}?limit=1&include_archived=true"))
            .await,
    );
    let next = next.unwrap();
    invalid(
        &client.get(&format!("{SESSIONS}?limit=1&page={next}")).await,
        "`page`",
    );
    assert_eq!(position(first), 0);
}

pub(super) async fn agents_calls_are_attributed_to_their_session(place: Place) {
    let (client, store) = (&place.client, place.store());
    let shared = place.new_store("shared").await;
    shared.create("/rules.md", "Be kind.\n").await;
    let resources = [attached(&store, "read_write"), attached(&shared, "read_only")];
    let (session, path, holder) = open(client, &resources).await;
    let mount = text(&session["resources"][0]["mount_path"]).to_owned();
    let block = json!({"type": "tool_use", "id": "toolu_1", "name": "memory", "input":
        {"command": "create", "path": format!("{mount}/a.md"), "file_text": "one\n"}});
    for _ in 0..2 {
        let answer = ok(&holder.post(&format!("{path}/tool_calls"), &block).await);
        assert_eq!(answer["tool_use_id"], "toolu_1");
        assert_eq!(
            answer["content"],
            format!("File created successfully at: {mount}/a.md")
        );
    }
    let made = ok(&holder
        .post(&store.memories(), &json!({"path": "/b.md", "content": "two"}))
        .await);
    ok(&holder
        .post(&store.memory(&made), &json!({"content": "three"}))
        .await);
    let by_key = json!({"command": "create", "path": format!("{mount}/c.md"), "file_text": "x"});
    assert!(!call(client, &path, &by_key).await.1);
    let id = text(&session["id"]);
    let actor = json!({"type": "session_actor", "session_id": id});
    let history = all(client, &format!("{}?session_id={id}&limit=1", store.versions())).await;
    assert_eq!(strings(&history, "path"), ["/b.md", "/b.md", "/a.md"]);
    assert!(
        history.iter().all(|version| version["created_by"] == actor),
        "{history:?}"
    );
    let everything = store.history().await;
    assert_eq!(everything[0]["path"], "/c.md");
    assert_eq!(everything[0]["created_by"]["type"], "api_actor");
    // A read-only store can be read.
    let (content, is_error) = call(
        &holder,
        &path,
        &json!({"command": "view", "path": "/memories/shared/rules.md"}),
    )
    .await;
    assert!(
        !is_error && content.ends_with("\tBe kind.\n     2\t"),
        "{content}"
    );
    let write = json!({"command": "delete", "path": "/memories/shared/rules.md"});
    assert!(call(&holder, &path, &write).await.1);
    let error = refused(
        &holder
            .post(&shared.memories(), &json!({"path": "/x", "content": "x"}))
            .await,
        403,
        "permission_error",
    );
    assert!(text(&error["message"]).contains("for reading alone"), "{error}");
    assert_eq!(shared.version_count().await, 1);
}

pub(super) async fn events_record_each_call_without_content(place: Place) {
    let (client, store) = (&place.client, place.store());
    let (session, path, holder) = open(client, &[attached(&store, "read_write")]).await;
    let mount = text(&session["resources"][0]["mount_path"]).replace("/mnt/memory", "/memories");
    let at = |name: &str| format!("{mount}/{name}");
    let inputs = [
        json!({"command": "create", "path": at("a.md"), "file_text": "a secret"}),
        json!({"command": "view", "path": at("missing")}),
        json!({"command": "rename", "old_path": at("a.md"), "new_path": at("b.md")}),
    ];
    for input in &inputs {
        call(&holder, &path, input).await;
    }
    let agent_tool = json!({"type": "tool_use", "name": "memory_list", "input": {"path_prefix": mount}});
    ok(&client.post(&format!("{path}/tool_calls"), &agent_tool).await);
    let no_tool = json!({"type": "tool_use", "name": "bash", "input": {}});
    ok(&client.post(&format!("{path}/tool_calls"), &no_tool).await);
    let events = all(&holder, &format!("{path}/events?limit=2")).await;
    let (denied, allowed) = events.split_last().unwrap();
    let fields = [
        "id",
        "type",
        "name",
        "input",
        "processed_at",
        "evaluated_permission",
    ];
    assert_fields(denied, &fields);
    assert_eq!(denied["evaluated_permission"], "deny");
    for event in allowed {
        assert_fields(event, &[&fields[..], &["evaluation"]].concat());
        assert_eq!(event["evaluated_permission"], "allow");
        assert_eq!(event["evaluation"], json!({"type": "always_allow"}));
        assert_id(&event["id"], "sevt_");
        assert_eq!(event["type"], "agent.tool_use");
        assert_time(&event["processed_at"]);
    }
    assert_eq!(
        strings(&events, "name"),
        ["memory", "memory", "memory", "memory_list", "bash"]
    );
    let mut without = inputs[0].clone();
    without["file_text"] = json!({"size_bytes": 8});
    assert_eq!(events[0]["input"], without);
    assert_eq!(events[1]["input"], inputs[1]);
    assert_eq!(events[2]["input"], inputs[2]);
    assert_eq!(events[3]["input"], json!({"path_prefix": mount}));
    let mut reversed = all(client, &format!("{path}/events?limit=3&order=desc")).await;
    reversed.reverse();
    assert_eq!(reversed, events);
    let typed = all(client, &format!("{path}/events?types[]=agent.tool_use&limit=100")).await;
    assert_eq!(typed, events);
    assert_eq!(
        all(client, &format!("{path}/events?types[]=user.message&limit=1")).await,
        [] as [Value; 0]
    );
    let second = text(&events[1]["processed_at"]);
    let later = all(
        client,
        &format!("{path}/events?created_at[gt]={second}&limit=100"),
    )
    .await;
    assert_eq!(later, events[2..]);
}

pub(super) async fn each_route_of_sessions_asks_for_its_scope(place: Place) {
    let (client, store) = (&place.client, place.store());
    let (_, path, _) = open(client, &[attached(&store, "read_write")]).await;
    let resource = format!("{path}/resources/{}", store.id);
    for unable in [&place.reader, &place.writer, &place.admin] {
        for (at, body) in [
            (SESSIONS.to_owned(), attaching(&[])),
            (path.clone(), json!({"title": "x"})),
            (format!("{path}/archive"), json!({})),
            (format!("{path}/token"), json!({})),
            (format!("{path}/resources"), attached(&store, "read_only")),
            (resource.clone(), json!({"access": "read_only"})),
        ] {
            refused(&unable.post(&at, &body).await, 403, "permission_error");
        }
        refused(&delete(unable, &path).await, 403, "permission_error");
        refused(&delete(unable, &resource).await, 403, "permission_error");
    }
    for at in [&path, &resource, &format!("{path}/events"), &SESSIONS.to_owned()] {
        ok(&place.reader.get(at).await);
        for unable in [&place.writer, &place.admin] {
            refused(&unable.get(at).await, 403, "permission_error");
        }
    }
    let view = json!({"command": "view", "path": "/memories"});
    let calls = format!("{path}/tool_calls");
    ok(&place.reader.post(&calls, &view).await);
    refused(&place.writer.post(&calls, &view).await, 403, "permission_error");
    refused(&place.admin.post(&calls, &view).await, 403, "permission_error");
    ok(&place.bound.get(&path).await);
    not_found(&place.stranger.get(&path).await);
}

pub(super) async fn bodies_of_archive_and_token_may_be_left_out(place: Place) {
    let (_, path, _) = open(&place.client, &[]).await;
    for body in ["", "{}", " {}\n"] {
        let issued = ok(&post_text(&place.client, &format!("{path}/token"), body).await);
        assert_fields(&issued, &["session_id", "type", "token"]);
        assert_eq!(issued["type"], "session_token");
        let token = text(&issued["token"]).to_owned();
        secrets::remember(&token, "a session's token");
        ok(&place.client.with_key(&token).get(&path).await);
    }
    invalid(
        &post_text(&place.client, &format!("{path}/token"), "{\"a\":1}").await,
        "`a`",
    );
    ok(&post_text(&place.client, &format!("{path}/archive"), "").await);
    ok(&post_text(&place.client, &format!("{path}/archive"), "{}").await);
    invalid(
        &post_text(&place.client, &format!("{path}/token"), "").await,
        "archived",
    );
    invalid(
        &place.client.post(&path, &json!({"title": "x"})).await,
        "archived",
    );
    let view = json!({"command": "view", "path": "/memories"});
    invalid(
        &place.client.post(&format!("{path}/tool_calls"), &view).await,
        "archived",
    );
    invalid(
        &delete(&place.client, &format!("{path}?beta=true&x=1")).await,
        "`x`",
    );
}

pub(super) async fn repeated_creation_with_a_key_makes_one_session(place: Place) {
    let (client, store) = (&place.client, place.store());
    let body = attaching(&[attached(&store, "read_only")]);
    let post = async || post_with(client, SESSIONS, &body, ("idempotency-key", "k")).await;
    let (first, again) = (ok(&post().await), ok(&post().await));
    secrets::remember(text(&first["token"]), "a session's token");
    assert_eq!(first["id"], again["id"]);
    assert_eq!(again["token"], Value::Null);
    invalid(
        &post_with(client, SESSIONS, &attaching(&[]), ("idempotency-key", "k")).await,
        "Idempotency-Key",
    );
    let path = format!("{SESSIONS}/{}", text(&first["id"]));
    let other = place.new_store("other").await;
    let add = async || {
        let body = attached(&other, "read_only");
        post_with(
            client,
            &format!("{path}/resources"),
            &body,
            ("idempotency-key", "a"),
        )
        .await
    };
    assert_eq!(ok(&add().await), ok(&add().await));
    let shown = ok(&client.get(&path).await);
    assert_eq!(shown["resources"].as_array().unwrap().len(), 2);
}
