//! Sessions: refusals, listings and writes. `tests/sdk` has all fields of the answers.

use crate::prelude::*;

pub(crate) fn attaching(resources: &[Value]) -> Value {
    json!({"agent": "agent_1", "environment_id": "env_1", "resources": resources})
}

pub(crate) fn attached(store: &Store, access: &str) -> Value {
    json!({"type": "memory_store", "memory_store_id": store.id, "access": access})
}

pub(super) fn view(path: &str) -> Value {
    json!({"command": "view", "path": path})
}

pub(super) fn create_file(path: &str) -> Value {
    json!({"command": "create", "path": path, "file_text": "x"})
}

/// A session and a client with its token.
pub(crate) async fn open(client: &Client, resources: &[Value]) -> (Value, String, Client) {
    let session = new_session(client, &attaching(resources)).await;
    let path = format!("{SESSIONS}/{}", text(&session["id"]));
    let holder = client.with_key(text(&session["token"]));
    (session, path, holder)
}

pub(super) async fn call(client: &Client, session: &str, input: &Value) -> (String, bool) {
    let answer = ok(&client.post(&format!("{session}/tool_calls"), input).await);
    (text(&answer["content"]).to_owned(), answer["is_error"] == true)
}

pub(super) fn of_resources(session: &Value, field: &str) -> Vec<String> {
    strings(session["resources"].as_array().unwrap(), field)
}

pub(super) async fn fields_unrelated_to_memory_are_refused_by_name(place: Place) {
    let (client, store) = (&place.client, place.store());
    let first = attached(&store, "read_only");
    let mut prompts = first.clone();
    (prompts["prompt"], prompts["instructions"]) = ("a".into(), "b".into());
    let archived = place.new_store("archived").await;
    archived.archive().await;
    for (body, named) in [
        (attaching(&[prompts]), "`prompt`"),
        (attaching(&[first.clone(), first.clone()]), "`resources`"),
        (attaching(&vec![first.clone(); 9]), "`resources`"),
        (attaching(&[attached(&store, "write")]), "`access`"),
        (attaching(&[attached(&archived, "read_only")]), "archived"),
        (json!({"environment_id": "e"}), "agent"),
        (json!({"agent": "a"}), "environment_id"),
        (json!({"agent": "a", "environment_id": "e", "metadata": {"a": 1}}), "metadata"),
        (json!({"agent": "a", "environment_id": "e", "vault_ids": [""]}), "vault_ids"),
        (json!({"agent": "a", "environment_id": "e", "title": "x".repeat(1025)}), "title"),
    ] {
        invalid(&client.post(SESSIONS, &body).await, named);
    }
    assert_eq!(client.all(&format!("{SESSIONS}?limit=100&include_archived=true")).await, [] as [Value; 0]);
    let (_, path, _) = open(client, std::slice::from_ref(&first)).await;
    for field in ["agent", "vault_ids", "budget"] {
        invalid(&client.post(&path, &json!({field: {}})).await, field);
        ok(&client.post(&path, &json!({field: null})).await);
    }
    let resources = format!("{path}/resources");
    let resource = format!("{resources}/{}", store.id);
    for (at, body, named) in [
        (&resources, first, "`memory_store_id` must not name a memory store that is already attached"),
        (
            &resources,
            json!({"type": "memory_store", "memory_store_id": "a"}),
            "`memory_store_id` is not a whole id",
        ),
        (&resource, json!({"access": "write"}), "`access`"),
        (&resource, json!({"instructions": "x".repeat(4097)}), "`instructions`"),
        (&resource, json!({"authorization_token": "x"}), "authorization_token"),
    ] {
        invalid(&client.post(at, &body).await, named);
    }
}

pub(super) async fn sessions_are_listed_with_every_filter(place: Place) {
    let (client, store, other) = (&place.client, place.store(), place.new_store("other").await);
    let mut sessions = Vec::new();
    let agents = [json!("a"), json!({"type": "agent", "id": "a", "version": 2}), json!("b")];
    for (agent, of) in agents.into_iter().zip([&store, &other, &other]) {
        let mut body = attaching(&[attached(of, "read_only")]);
        body["agent"] = agent;
        sessions.push(new_session(client, &body).await);
    }
    let made = strings(&sessions, "id");
    ok(&client.post(&format!("{SESSIONS}/{}/archive", made[1]), &json!({})).await);
    let position = |id: &String| made.iter().position(|made| made == id).unwrap();
    let at = text(&sessions[1]["created_at"]);
    let of_store = format!("memory_store_id={}", other.id);
    for (query, expected) in [
        ("", vec![2, 0]),
        ("include_archived=true", vec![2, 1, 0]),
        ("include_archived=true&order=asc", vec![0, 1, 2]),
        ("statuses[]=terminated", vec![1]),
        ("statuses%5B%5D=idle&statuses%5B%5D=terminated", vec![2, 1, 0]),
        ("statuses=running", vec![]),
        ("statuses[]=terminated&include_archived=false", vec![]),
        (&format!("{of_store}&include_archived=true"), vec![2, 1]),
        ("agent_id=a&agent_version=2&include_archived=true", vec![1]),
        (&format!("created_at[gte]={at}&include_archived=true"), vec![2, 1]),
        (&format!("created_at[gt]={at}&include_archived=true"), vec![2]),
        (&format!("created_at_lt={at}&include_archived=true"), vec![0]),
    ] {
        for limit in [1, 100] {
            let listed = client.all(&format!("{SESSIONS}?limit={limit}&{query}")).await;
            let listed: Vec<_> = strings(&listed, "id").iter().map(position).collect();
            assert_eq!(listed, expected, "{query}");
        }
    }
    for (query, named) in [("statuses=ended", "statuses"), ("order=up", "order"), ("limit=101", "limit")] {
        invalid(&client.get(&format!("{SESSIONS}?{query}")).await, named);
    }
    // A cursor is of its query.
    let one = format!("{SESSIONS}?limit=1");
    let (_, next) = page_of(&client.get(&format!("{one}&include_archived=true")).await);
    invalid(&client.get(&format!("{one}&page={}", next.unwrap())).await, "`page`");
}

/// A page of large agents has fewer than were asked for.
pub(super) async fn sessions_with_large_agents_are_listed_once(place: Place) {
    const AGENTS: usize = 8;
    let agent = json!({"type": "agent", "id": "a", "system": "x".repeat(200 << 10)});
    let new = json!({"agent": agent, "environment_id": "e", "resources": []});
    let mut made = Vec::new();
    for _ in 0..AGENTS {
        made.push(text(&new_session(&place.client, &new).await["id"]).to_owned());
    }
    for order in ["asc", "desc"] {
        let list = format!("{SESSIONS}?limit=100&order={order}");
        let (first, next) = page_of(&place.client.get(&list).await);
        assert!(next.is_some() && first.len() < AGENTS, "{}", first.len());
        assert_eq!(strings(&place.client.all(&list).await, "id"), made, "{order}");
        made.reverse();
    }
}

pub(super) async fn agents_calls_are_attributed_to_their_session(place: Place) {
    let (client, store) = (&place.client, place.store());
    let (session, path, holder) = open(client, &[attached(&store, "read_write")]).await;
    let mount = text(&session["resources"][0]["mount_path"]);
    let create = |name: &str| create_file(&format!("{mount}/{name}"));
    let (told, _) = call(&holder, &path, &create("a.md")).await;
    assert_eq!(told, format!("File created successfully at: {mount}/a.md"));
    let held = store.seen_by(&holder);
    held.update(&held.create("/b.md", "two").await, &json!({"content": "three"})).await;
    assert!(!call(client, &path, &create("c.md")).await.1);
    let id = text(&session["id"]);
    let history = client.all(&format!("{}?session_id={id}&limit=1", store.versions())).await;
    assert_eq!(strings(&history, "path"), ["/b.md", "/b.md", "/a.md"]);
    let actor = json!({"type": "session_actor", "session_id": id});
    assert!(history.iter().all(|version| version["created_by"] == actor), "{history:?}");
    let newest = &store.history().await[0];
    assert_eq!((&newest["path"], &newest["created_by"]["type"]), (&json!("/c.md"), &json!("api_actor")));
}

pub(super) async fn events_record_each_call_without_content(place: Place) {
    let (client, store) = (&place.client, place.store());
    let (_, path, holder) = open(client, &[attached(&store, "read_write")]).await;
    store.create("/a.md", "secret\n").await;
    let (a, b) = ("/memories/notes/a.md", "/memories/notes/b");
    let insert = json!({"command": "insert", "path": a, "insert_line": 1, "insert_text": "more"});
    let replace = json!({"command": "str_replace", "path": a, "old_str": "secret", "new_str": "ö"});
    let noted = json!({"command": "view", "path": "/mnt/memory/notes/a.md", "view_range": [1, 2], "note": "a thought"});
    let unnamed = json!({"command": "a secret", "path": "/memories"});
    let mut expected = Vec::new();
    // For an input that may be content, the event has only the size.
    for (name, mut input, sizes) in [
        ("memory", json!({"command": "create", "path": b, "file_text": "a secret"}), &[("file_text", 8)][..]),
        ("memory", json!({"command": "rename", "old_path": b, "new_path": "/memories/notes/c"}), &[]),
        ("memory_list", json!({"path_prefix": "/memories/notes"}), &[]),
        ("memory", replace, &[("old_str", 6), ("new_str", 2)]),
        ("memory", insert, &[("insert_text", 4)]),
        ("memory", noted, &[]),
        // An erasure could not match this path, which is in no store.
        ("memory", view("/memories/elsewhere/secret"), &[("path", 26)]),
        ("memory", view("/memories"), &[]),
        ("", unnamed.clone(), &[("command", 8)]),
        ("a secret", unnamed.clone(), &[("command", 8)]),
        ("no\0tool", unnamed, &[("command", 8)]),
    ] {
        call(&holder, &path, &block(name, &input)).await;
        input.as_object_mut().unwrap().remove("note");
        for (field, bytes) in sizes {
            input[*field] = json!({"size_bytes": bytes});
        }
        expected.push((if name.starts_with("memory") { name } else { "unknown" }, input));
    }
    // By the store's own route it is the session's call still.
    ok(&holder.call(&store.id, &view("/memories/a.md")).await);
    expected.push(("memory", view("/memories/a.md")));
    let events = holder.all(&format!("{path}/events?limit=2")).await;
    assert_eq!(events.len(), expected.len());
    for (event, (name, input)) in events.iter().zip(&expected) {
        let permission = if *name == "unknown" { "deny" } else { "allow" };
        shows(event, &json!({"name": name, "input": input, "evaluated_permission": permission}));
        assert_eq!(event.get("evaluation").is_some(), permission == "allow", "{event}");
    }
    let list = format!("{path}/events?limit=1000");
    let after_second = format!("{list}&created_at[gt]={}", text(&events[1]["processed_at"]));
    assert_eq!(client.all(&after_second).await, events[2..]);
    for limit in [0, 1_001] {
        invalid(&client.get(&format!("{path}/events?limit={limit}")).await, "`limit` must be 1 to 1000");
    }
    for _ in 0..100 {
        call(client, &path, &view("/memories")).await;
    }
    assert_eq!(page_of(&client.get(&list).await).0.len(), events.len() + 100);
}

pub(super) async fn archived_session_takes_no_change(place: Place) {
    let (_, path, _) = open(&place.client, &[]).await;
    // The bodies of both may be left out.
    let issued = ok(&post_text(&place.client, &format!("{path}/token"), "").await);
    ok(&place.client.with_key(secret(&issued, "token")).get(&path).await);
    ok(&post_text(&place.client, &format!("{path}/archive"), "").await);
    let resource = attached(&place.store(), "read_only");
    for (below, body) in [("token", json!({})), ("resources", resource), ("tool_calls", view("/memories"))] {
        invalid(&place.client.post(&format!("{path}/{below}"), &body).await, "archived");
    }
    invalid(&delete(&place.client, &format!("{path}?beta=true&x=1")).await, "`x`");
}

pub(super) async fn repeated_calls_are_made_once_in_each_session(place: Place) {
    let (client, store, other) = (&place.client, place.store(), place.new_store("other").await);
    let post = async |path: &str, body: &Value| post_with(client, path, body, ("idempotency-key", "k")).await;
    let new = attaching(&[attached(&store, "read_only")]);
    let first = ok(&post(SESSIONS, &new).await);
    secret(&first, "token");
    shows(&ok(&post(SESSIONS, &new).await), &json!({"id": first["id"], "token": null}));
    invalid(&post(SESSIONS, &attaching(&[])).await, "Idempotency-Key");
    let path = format!("{SESSIONS}/{}", text(&first["id"]));
    let (resources, other) = (format!("{path}/resources"), attached(&other, "read_only"));
    assert_eq!(ok(&post(&resources, &other).await), ok(&post(&resources, &other).await));
    assert_eq!(of_resources(&ok(&client.get(&path).await), "id").len(), 2);

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

pub(super) async fn stores_are_attached_and_detached_in_a_live_session(place: Place) {
    let client = &place.client;
    let mut resources = Vec::new();
    for name in ["Notes", "notes!", "日本"] {
        resources.push(attached(&place.new_store(name).await, "read_only"));
    }
    let (session, path, _) = open(client, &resources).await;
    let mounts = of_resources(&session, "mount_path");
    assert_eq!(mounts, ["/mnt/memory/notes", "/mnt/memory/notes-2", "/mnt/memory/memory"]);
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
    shows(&changed, &json!({"instructions": "b", "access": "read_write"}));
    // The attachment keeps the store's first name.
    ok(&client.post(&store.path, &json!({"name": "other"})).await);
    let shown = ok(&client.get(&path).await);
    assert_eq!(shown["updated_at"], changed["updated_at"]);
    let mounts = of_resources(&shown, "mount_path");
    assert_eq!(mounts, ["/mnt/memory/notes", "/mnt/memory/memory", "/mnt/memory/notes-2"]);
    assert_eq!(of_resources(&shown, "name"), ["Notes", "日本", "notes"]);
    assert_eq!(ok(&client.get(&list).await)["data"], shown["resources"]);
    // A deleted store is attached no longer.
    store.create("/a.md", "x").await;
    let file = view("/memories/notes-2/a.md");
    assert!(!call(client, &path, &file).await.1);
    ok(&delete(client, &store.path).await);
    assert!(call(client, &path, &file).await.1);
    let (root, _) = call(client, &path, &view("/memories")).await;
    assert!(root.ends_with("\n0B\t/memories\n0B\t/memories/memory/\n0B\t/memories/notes/"), "{root}");
    let mounts = of_resources(&ok(&client.get(&path).await), "mount_path");
    assert_eq!(mounts, ["/mnt/memory/notes", "/mnt/memory/memory"]);
}

pub(super) async fn root_shows_the_stores_and_their_entries_in_byte_order(place: Place) {
    let (client, store, other) = (&place.client, place.store(), place.new_store("a notes").await);
    for path in "/a /B /_ /é /Z/in/it /.hidden/x /node_modules/x".split(' ') {
        store.create(path, "12").await;
    }
    let resources = [attached(&store, "read_write"), attached(&other, "read_only")];
    let (_, path, holder) = open(client, &resources).await;
    for root in ["/memories", "/mnt/memory"] {
        let shown = call(&holder, &path, &view(root)).await.0;
        let header = format!(
            "Here're the files and directories up to 2 levels deep in {root}, excluding hidden items and \
             node_modules:\n"
        );
        let below = "14B\t 0B\t/a-notes/ 14B\t/notes/ 2B\t/notes/B 2B\t/notes/Z/ 2B\t/notes/_ 2B\t/notes/a 2B\t/notes/é";
        let lines = below.replace(' ', "\n").replace('\t', &format!("\t{root}"));
        assert_eq!(shown, header + &lines);
    }
    let (_, bare, _) = open(client, &[]).await;
    let (listing, _) = call(client, &bare, &view("/memories")).await;
    assert!(listing.ends_with("\n0B\t/memories"), "{listing}");
}
