//! Sessions: answers, refusals, listings and writes.

use serde_json::{Value, json};

use super::conventions::{assert_fields, assert_id, assert_time};
use super::support::{
    Place, SESSIONS, Store, all, delete, invalid, new_session, not_found, ok, page_of, post_text, post_with,
    refused, secret, shows, strings, text,
};
use crate::support::Client;

/// The fields of a session, but for the token, which is shown once.
const FIELDS: &str = "id type agent environment_id title metadata resources status vault_ids created_at updated_at \
    archived_at budget deployment_id outcome_evaluations stats usage system_prompt";

pub(super) fn attaching(resources: &[Value]) -> Value {
    json!({"agent": "agent_1", "environment_id": "env_1", "resources": resources})
}

pub(super) fn attached(store: &Store, access: &str) -> Value {
    json!({"type": "memory_store", "memory_store_id": store.id, "access": access})
}

/// A session and a client with its token.
pub(super) async fn open(client: &Client, resources: &[Value]) -> (Value, String, Client) {
    let session = new_session(client, &attaching(resources)).await;
    let path = format!("{SESSIONS}/{}", text(&session["id"]));
    let holder = client.with_key(text(&session["token"]));
    (session, path, holder)
}

pub(super) async fn call(client: &Client, session: &str, input: &Value) -> (String, bool) {
    let answer = ok(&client.post(&format!("{session}/tool_calls"), input).await);
    (text(&answer["content"]).to_owned(), answer["is_error"] == true)
}

/// Calls that change a session that a store is attached to, and answer with what it is then.
pub(super) fn changes(session: &str, store: &Store, other: &Store) -> [(String, Value); 6] {
    [
        (SESSIONS.to_owned(), attaching(&[])),
        (session.to_owned(), json!({"title": "x"})),
        (format!("{session}/archive"), json!({})),
        (format!("{session}/token"), json!({})),
        (format!("{session}/resources"), attached(other, "read_only")),
        (format!("{session}/resources/{}", store.id), json!({"access": "read_only"})),
    ]
}

pub(super) async fn session_has_the_fields_that_clients_know(place: Place) {
    let store = place.new_store("Team Rules").await;
    let whole = json!({
        "agent": {"type": "agent_with_overrides", "id": "agent_1", "version": 3, "model": "m", "system": "Be kind."},
        "environment_id": "env_1", "title": "Fix it", "metadata": {"a": "b"}, "vault_ids": ["vlt_1"],
        "resources": [{"type": "memory_store", "memory_store_id": store.id, "access": "read_only", "prompt": "Read."}],
        "initial_events": [], "budget": null,
    });
    let made = new_session(&place.client, &whole).await;
    assert_fields(&made, &format!("{FIELDS} token"));
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
    shows(&made, &expected);
    let resource = &made["resources"][0];
    assert_id(&resource["id"], "sesrsc_");
    assert_time(&resource["created_at"]);
    let expected = json!({
        "id": resource["id"], "type": "memory_store", "memory_store_id": store.id, "access": "read_only",
        "instructions": "Read.", "name": "Team Rules", "description": "", "mount_path": "/mnt/memory/team-rules",
        "created_at": resource["created_at"], "updated_at": resource["updated_at"],
    });
    assert_eq!(*resource, expected);
    let prompt = text(&made["system_prompt"]);
    assert!(prompt.contains("/memories/team-rules") && prompt.contains("Read."), "{prompt}");

    // The attachment keeps the store's first name and description.
    let renamed = json!({"name": "Other", "description": "Other."});
    ok(&place.client.post(&store.path, &renamed).await);
    // Later reads return everything except the token.
    let mut shown = made.clone();
    shown.as_object_mut().unwrap().remove("token");
    let path = format!("{SESSIONS}/{}", text(&made["id"]));
    assert_eq!(ok(&place.client.get(&path).await), shown);
    assert_eq!(all(&place.client, &format!("{SESSIONS}?limit=1")).await, [shown.clone()]);
    for id in [text(&resource["id"]), &store.id] {
        let at = format!("{path}/resources/{id}");
        assert_eq!(&ok(&place.client.get(&at).await), resource);
    }
    let archived = ok(&place.client.post(&format!("{path}/archive"), &json!({})).await);
    assert_eq!(archived["status"], "terminated");
    assert_time(&archived["archived_at"]);
    assert_fields(&archived, FIELDS);
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
    let (first, many) = (attached(&store, "read_only"), vec![attached(&store, "read_only"); 9]);
    let mut wrong = vec![
        (attaching(&[file]), "resources[0]"),
        (attaching(&[first.clone(), repository]), "resources[1]"),
        (attaching(&[both]), "`prompt`"),
        (attaching(&[first.clone(), first.clone()]), "`resources`"),
        (attaching(&many), "`resources`"),
        (attaching(&[attached(&store, "write")]), "`access`"),
        (attaching(&[json!({"type": "memory_store", "memory_store_id": "x"})]), "memstore_"),
        (attaching(&[json!({"type": "memory_store"})]), "memory_store_id"),
        (json!({"environment_id": "e"}), "agent"),
        (json!({"agent": "a"}), "environment_id"),
        (json!({"agent": "a", "environment_id": ""}), "`environment_id`"),
        (json!({"agent": {"id": "a"}, "environment_id": "e"}), "`agent.type`"),
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
    archived.archive().await;
    let of_archived = attaching(&[attached(&archived, "read_only")]);
    invalid(&client.post(SESSIONS, &of_archived).await, "archived");
    let nowhere = Store::new(client, "memstore_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    let of_nowhere = attaching(&[attached(&nowhere, "read_only")]);
    not_found(&client.post(SESSIONS, &of_nowhere).await);
    assert_eq!(all(client, &format!("{SESSIONS}?limit=100&include_archived=true")).await, [] as [Value; 0]);

    let (_, path, _) = open(client, &[first]).await;
    for field in ["agent", "vault_ids", "budget"] {
        invalid(&client.post(&path, &json!({field: {}})).await, field);
        ok(&client.post(&path, &json!({field: null})).await);
    }
    let resources = format!("{path}/resources");
    let resource = format!("{resources}/{}", store.id);
    let long = "x".repeat(4097);
    for (at, body, named) in [
        (&resources, json!({"type": "file", "file_id": "f"}), "`type`"),
        (&resources, attached(&store, "read_only"), "`memory_store_id`"),
        (&resource, json!({"access": "write"}), "`access`"),
        (&resource, json!({"instructions": long}), "`instructions`"),
        (&resource, json!({"authorization_token": "x"}), "authorization_token"),
    ] {
        invalid(&client.post(at, &body).await, named);
    }
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
    let (second, third) = (&sessions[1], &sessions[2]);
    ok(&client.post(&format!("{SESSIONS}/{}/archive", text(&second["id"])), &json!({})).await);
    let made = strings(&sessions, "id");
    let position = |id: &String| made.iter().position(|made| made == id).unwrap();
    let (at, newest) = (text(&second["created_at"]), text(&third["created_at"]));
    let store_filter = format!("memory_store_id={}", other.id);
    for (query, expected) in [
        (String::new(), vec![2, 0]),
        ("include_archived=true".to_owned(), vec![2, 1, 0]),
        ("include_archived=true&order=asc".to_owned(), vec![0, 1, 2]),
        ("statuses[]=terminated".to_owned(), vec![1]),
        ("statuses[]=idle".to_owned(), vec![2, 0]),
        ("statuses%5B%5D=idle&statuses%5B%5D=terminated".to_owned(), vec![2, 1, 0]),
        ("statuses=running".to_owned(), vec![]),
        ("statuses[]=terminated&include_archived=false".to_owned(), vec![]),
        (store_filter.clone(), vec![2]),
        (format!("{store_filter}&include_archived=true"), vec![2, 1]),
        ("agent_id=a&include_archived=true".to_owned(), vec![1, 0]),
        ("agent_id=a&agent_version=2&include_archived=true".to_owned(), vec![1]),
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
            let listed: Vec<_> = strings(&listed, "id").iter().map(position).collect();
            assert_eq!(listed, expected, "{query}");
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
    let one = format!("{SESSIONS}?limit=1");
    let (_, next) = page_of(&client.get(&format!("{one}&include_archived=true")).await);
    let next = next.unwrap();
    invalid(&client.get(&format!("{one}&page={next}")).await, "`page`");
    // A deleted store is attached to none.
    ok(&delete(client, &other.path).await);
    let of_deleted = format!("{SESSIONS}?limit=100&{store_filter}&include_archived=true");
    assert_eq!(all(client, &of_deleted).await, [] as [Value; 0]);
}

/// A page of large agents has fewer than were asked for.
pub(super) async fn sessions_with_large_agents_are_listed_once(place: Place) {
    const AGENTS: usize = 8;
    let agent = json!({"type": "agent", "id": "a", "system": "x".repeat(200 << 10)});
    let new = json!({"agent": agent, "environment_id": "e", "resources": []});
    let mut made = Vec::new();
    for _ in 0..AGENTS {
        let session = new_session(&place.client, &new).await;
        made.push(text(&session["id"]).to_owned());
    }
    for order in ["asc", "desc"] {
        let list = format!("{SESSIONS}?limit=100&order={order}");
        let (first, next) = page_of(&place.client.get(&list).await);
        assert!(next.is_some() && first.len() < AGENTS, "{}", first.len());
        let listed = all(&place.client, &list).await;
        assert_eq!(strings(&listed, "id"), made, "{order}");
        made.reverse();
    }
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
        assert_eq!(answer["content"], format!("File created successfully at: {mount}/a.md"));
    }
    let held = store.seen_by(&holder);
    let made = held.create("/b.md", "two").await;
    held.update(&made, &json!({"content": "three"})).await;
    let by_key = json!({"command": "create", "path": format!("{mount}/c.md"), "file_text": "x"});
    assert!(!call(client, &path, &by_key).await.1);
    let id = text(&session["id"]);
    let actor = json!({"type": "session_actor", "session_id": id});
    let history = all(client, &format!("{}?session_id={id}&limit=1", store.versions())).await;
    assert_eq!(strings(&history, "path"), ["/b.md", "/b.md", "/a.md"]);
    assert!(history.iter().all(|version| version["created_by"] == actor), "{history:?}");
    let everything = store.history().await;
    assert_eq!(everything[0]["path"], "/c.md");
    assert_eq!(everything[0]["created_by"]["type"], "api_actor");
    let new = json!({"path": "/x", "content": "x"});
    let refusal = holder.post(&shared.memories(), &new).await;
    let error = refused(&refusal, 403, "permission_error");
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
    let fields = "id type name input processed_at evaluated_permission";
    assert_fields(denied, fields);
    assert_eq!(denied["evaluated_permission"], "deny");
    for event in allowed {
        assert_fields(event, &format!("{fields} evaluation"));
        assert_eq!(event["evaluated_permission"], "allow");
        assert_eq!(event["evaluation"], json!({"type": "always_allow"}));
        assert_id(&event["id"], "sevt_");
        assert_eq!(event["type"], "agent.tool_use");
        assert_time(&event["processed_at"]);
    }
    assert_eq!(strings(&events, "name"), ["memory", "memory", "memory", "memory_list", "bash"]);
    let mut reversed = all(client, &format!("{path}/events?limit=3&order=desc")).await;
    reversed.reverse();
    assert_eq!(reversed, events);
    let typed = all(client, &format!("{path}/events?types[]=agent.tool_use&limit=100")).await;
    assert_eq!(typed, events);
    let others = format!("{path}/events?types[]=user.message&limit=1");
    assert_eq!(all(client, &others).await, [] as [Value; 0]);
    let second = text(&events[1]["processed_at"]);
    let later = format!("{path}/events?created_at[gt]={second}&limit=100");
    assert_eq!(all(client, &later).await, events[2..]);
}

pub(super) async fn each_route_of_sessions_asks_for_its_scope(place: Place) {
    let (client, store) = (&place.client, place.store());
    let (_, path, _) = open(client, &[attached(&store, "read_write")]).await;
    let resource = format!("{path}/resources/{}", store.id);
    for unable in [&place.reader, &place.writer, &place.admin] {
        for (at, body) in changes(&path, &store, &store) {
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
    for unable in [&place.writer, &place.admin] {
        refused(&unable.post(&calls, &view).await, 403, "permission_error");
    }
}

pub(super) async fn bodies_of_archive_and_token_may_be_left_out(place: Place) {
    let (_, path, _) = open(&place.client, &[]).await;
    for body in ["", "{}", " {}\n"] {
        let issued = ok(&post_text(&place.client, &format!("{path}/token"), body).await);
        assert_fields(&issued, "session_id type token");
        assert_eq!(issued["type"], "session_token");
        ok(&place.client.with_key(secret(&issued, "token")).get(&path).await);
    }
    let (tokens, archive) = (format!("{path}/token"), format!("{path}/archive"));
    let unknown = post_text(&place.client, &tokens, "{\"a\":1}").await;
    invalid(&unknown, "`a`");
    for body in ["", "{}"] {
        ok(&post_text(&place.client, &archive, body).await);
    }
    let view = json!({"command": "view", "path": "/memories"});
    for (at, body) in
        [(&tokens, json!({})), (&path, json!({"title": "x"})), (&format!("{path}/tool_calls"), view)]
    {
        invalid(&place.client.post(at, &body).await, "archived");
    }
    let deletion = delete(&place.client, &format!("{path}?beta=true&x=1")).await;
    invalid(&deletion, "`x`");
}

pub(super) async fn repeated_creation_with_a_key_makes_one_session(place: Place) {
    let (client, store) = (&place.client, place.store());
    let body = attaching(&[attached(&store, "read_only")]);
    let post = async || post_with(client, SESSIONS, &body, ("idempotency-key", "k")).await;
    let (first, again) = (ok(&post().await), ok(&post().await));
    secret(&first, "token");
    assert_eq!(first["id"], again["id"]);
    assert_eq!(again["token"], Value::Null);
    let without = attaching(&[]);
    let another = post_with(client, SESSIONS, &without, ("idempotency-key", "k")).await;
    invalid(&another, "Idempotency-Key");
    let path = format!("{SESSIONS}/{}", text(&first["id"]));
    let other = place.new_store("other").await;
    let (resources, other) = (format!("{path}/resources"), attached(&other, "read_only"));
    let add = async || post_with(client, &resources, &other, ("idempotency-key", "a")).await;
    assert_eq!(ok(&add().await), ok(&add().await));
    let shown = ok(&client.get(&path).await);
    assert_eq!(shown["resources"].as_array().unwrap().len(), 2);
}

fn view(path: &str) -> Value {
    json!({"command": "view", "path": path})
}

pub(super) async fn stores_are_attached_and_detached_in_a_live_session(place: Place) {
    let client = &place.client;
    let mut resources = Vec::new();
    for name in ["Notes", "notes!", "日本"] {
        resources.push(attached(&place.new_store(name).await, "read_only"));
    }
    let (session, path, _) = open(client, &resources).await;
    let directories = |session: &Value| strings(session["resources"].as_array().unwrap(), "mount_path");
    assert_eq!(directories(&session), ["/mnt/memory/notes", "/mnt/memory/notes-2", "/mnt/memory/memory"]);
    let list = format!("{path}/resources");
    let second = format!("{list}/{}", text(&session["resources"][1]["id"]));
    ok(&delete(client, &second).await);
    not_found(&delete(client, &second).await);

    // Its directory is free.
    let store = place.new_store("notes").await;
    let new = json!({"type": "memory_store", "memory_store_id": store.id});
    let added = ok(&client.post(&list, &new).await);
    shows(&added, &json!({"mount_path": "/mnt/memory/notes-2", "access": "read_write"}));
    let resource = format!("{list}/{}", text(&added["id"]));
    let changed = ok(&client.post(&resource, &json!({"instructions": "b"})).await);
    let mut expected = added.clone();
    expected["instructions"] = json!("b");
    expected["updated_at"] = changed["updated_at"].clone();
    assert_eq!(changed, expected);
    assert!(text(&changed["updated_at"]) > text(&added["updated_at"]));
    let shown = ok(&client.get(&path).await);
    assert_eq!(shown["updated_at"], changed["updated_at"]);
    assert_eq!(directories(&shown), ["/mnt/memory/notes", "/mnt/memory/memory", "/mnt/memory/notes-2"]);
    assert_eq!(ok(&client.get(&list).await)["data"], shown["resources"]);
    for limit in [0, 1_001] {
        invalid(&client.get(&format!("{list}?limit={limit}")).await, "`limit`");
    }
    ok(&client.post(&format!("{path}/archive"), &json!({})).await);
    invalid(&client.post(&list, &resources[1]).await, "archived");
}

pub(super) async fn update_of_a_session_merges_its_metadata(place: Place) {
    let client = &place.client;
    let (made, path, _) = open(client, &[]).await;
    let update = async |body: Value| ok(&client.post(&path, &body).await);
    let same = update(json!({"metadata": {}})).await;
    assert_eq!(same["updated_at"], made["updated_at"]);
    let changed = update(json!({"title": "t", "metadata": {"a": "1", "b": "2"}})).await;
    assert!(text(&changed["updated_at"]) > text(&made["updated_at"]));
    let merged = update(json!({"metadata": {"a": null, "c": "3"}})).await;
    shows(&merged, &json!({"title": "t", "metadata": {"b": "2", "c": "3"}}));
    let mut many = json!({});
    for number in 0..15 {
        many[format!("k{number}")] = json!("v");
    }
    let many = json!({"metadata": many});
    invalid(&client.post(&path, &many).await, "`metadata`");
}

pub(super) async fn deleted_store_is_no_longer_attached(place: Place) {
    let (client, store) = (&place.client, place.store());
    let other = place.new_store("other").await;
    other.create("/a.md", "x").await;
    let resources = [attached(&store, "read_write"), attached(&other, "read_write")];
    let (_, path, _) = open(client, &resources).await;
    let file = view("/memories/other/a.md");
    assert!(!call(client, &path, &file).await.1);
    ok(&delete(client, &other.path).await);
    let (root, _) = call(client, &path, &view("/memories")).await;
    assert!(root.ends_with("\n0B\t/memories\n0B\t/memories/notes/"), "{root}");
    assert!(call(client, &path, &file).await.1);
    let session = ok(&client.get(&path).await);
    let left = strings(session["resources"].as_array().unwrap(), "memory_store_id");
    assert_eq!(left, [store.id]);
}

pub(super) async fn root_shows_the_stores_and_their_entries_in_byte_order(place: Place) {
    let (client, store) = (&place.client, place.store());
    let other = place.new_store("a notes").await;
    for path in "/a /B /_ /é /Z/in/it /.hidden/x /node_modules/x".split(' ') {
        store.create(path, "12").await;
    }
    let resources = [attached(&store, "read_write"), attached(&other, "read_only")];
    let (_, path, holder) = open(client, &resources).await;
    for root in ["/memories", "/mnt/memory"] {
        let shown = call(&holder, &path, &view(root)).await.0;
        let (header, lines) = shown.split_once('\n').unwrap();
        assert_eq!(
            header,
            format!(
                "Here're the files and directories up to 2 levels deep in {root}, excluding hidden items and \
                 node_modules:"
            )
        );
        let below = [
            "14B\t",
            "0B\t/a-notes/",
            "14B\t/notes/",
            "2B\t/notes/B",
            "2B\t/notes/Z/",
            "2B\t/notes/_",
            "2B\t/notes/a",
            "2B\t/notes/é",
        ];
        let expected = below.map(|line| line.replace('\t', &format!("\t{root}")));
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
    }
    let (_, bare, _) = open(client, &[]).await;
    let (listing, _) = call(client, &bare, &view("/memories")).await;
    assert!(listing.ends_with("\n0B\t/memories"), "{listing}");
}

pub(super) async fn same_block_in_another_session_is_another_call(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "x\n").await;
    // Harnesses that number their calls start again at 1 in each session.
    let block = json!({"type": "tool_use", "id": "1", "name": "memory", "input":
        {"command": "insert", "path": "/memories/notes/a", "insert_line": 1, "insert_text": "y"}});
    for _ in 0..2 {
        let (_, path, _) = open(client, &[attached(&store, "read_write")]).await;
        for _ in 0..2 {
            assert!(!call(client, &path, &block).await.1);
        }
    }
    assert_eq!(store.read(&memory).await["content"], "x\ny\ny\n");
}

pub(super) async fn events_hold_sizes_of_what_may_be_content(place: Place) {
    let (client, store) = (&place.client, place.store());
    let (_, path, holder) = open(client, &[attached(&store, "read_write")]).await;
    store.create("/a.md", "secret\n").await;
    let at = "/memories/notes/a.md";
    let size = |bytes: usize| json!({"size_bytes": bytes});
    let unnamed = |name: &str| {
        let input = json!({"command": "a secret", "path": "/memories"});
        json!({"type": "tool_use", "name": name, "input": input})
    };
    let list =
        json!({"type": "tool_use", "name": "memory_list", "input": {"path_prefix": "/memories/notes"}});
    let rename =
        json!({"command": "rename", "old_path": "/memories/notes/b", "new_path": "/memories/notes/c"});
    let calls = [
        (
            json!({"command": "create", "path": "/memories/notes/b", "file_text": "a secret"}),
            json!({"command": "create", "path": "/memories/notes/b", "file_text": size(8)}),
        ),
        (rename.clone(), rename),
        (list, json!({"path_prefix": "/memories/notes"})),
        (
            json!({"command": "str_replace", "path": at, "old_str": "secret", "new_str": "ö"}),
            json!({"command": "str_replace", "path": at, "old_str": size(6), "new_str": size(2)}),
        ),
        (
            json!({"command": "insert", "path": at, "insert_line": 1, "insert_text": "more"}),
            json!({"command": "insert", "path": at, "insert_line": 1, "insert_text": size(4)}),
        ),
        (
            json!({"command": "view", "path": "/mnt/memory/notes/a.md", "view_range": [1, 2], "note": "a thought"}),
            json!({"command": "view", "path": "/mnt/memory/notes/a.md", "view_range": [1, 2]}),
        ),
        // An erasure could not match this path, which is in no store.
        (view("/memories/elsewhere/secret"), json!({"command": "view", "path": size(26)})),
        (view("/memories"), view("/memories")),
        (unnamed(""), json!({"command": size(8), "path": "/memories"})),
        (unnamed("a secret"), json!({"command": size(8), "path": "/memories"})),
        (unnamed("no\0tool"), json!({"command": size(8), "path": "/memories"})),
    ];
    for (input, _) in &calls {
        call(&holder, &path, input).await;
    }
    // By the store's own route it is the session's call still.
    ok(&holder.call(&store.id, &view("/memories/a.md")).await);
    let events = all(client, &format!("{path}/events?limit=100")).await;
    let inputs: Vec<_> = events.iter().map(|event| event["input"].clone()).collect();
    let mut expected: Vec<_> = calls.into_iter().map(|(_, kept)| kept).collect();
    expected.push(view("/memories/a.md"));
    assert_eq!(inputs, expected);
    assert_eq!(strings(&events[8..], "name"), ["unknown", "unknown", "unknown", "memory"]);

    for limit in [0, 1_001] {
        let refused = client.get(&format!("{path}/events?limit={limit}")).await;
        invalid(&refused, "`limit` must be 1 to 1000");
    }
    for _ in 0..100 {
        call(client, &path, &view("/memories")).await;
    }
    let (events, _) = page_of(&client.get(&format!("{path}/events?limit=1000")).await);
    assert_eq!(events.len(), expected.len() + 100);
}
