use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn stores_and_sessions_are_used() {
    let person = Person::new().await;
    let create = "store create projects --description Plans --metadata team=a --metadata kind=b \
                  --expires-unused-after 90d --sensitive-data redact --search-mode lexical -o json";
    let made = person.json(create).await;
    let update = "store update projects --name plans --remove-metadata kind --expires-unused-after never \
                  --search-mode default -o json";
    let changed = person.json(update).await;
    let settings = |store: &Value| {
        let fields = ["name", "metadata", "expires_unused_after", "search_mode"];
        json!(fields.map(|field| &store[field]))
    };
    assert_eq!(settings(&made), json!(["projects", {"team": "a", "kind": "b"}, 7_776_000, "lexical"]));
    assert_eq!(settings(&changed), json!(["plans", {"team": "a"}, null, null]));

    person.ends("store update plans", 2, "nothing says what to change").await;
    let shown = person.ok("store get plans").await;
    let beginning = made["id"].as_str().unwrap().split_at(30).0;
    assert_eq!(person.json(&format!("store get {beginning} -o json")).await, changed);
    assert!(shown.contains("metadata              team=a"), "{shown}");
    person.ok("store archive plans --yes").await;
    assert_eq!(person.ok("store ls").await.lines().count(), 2);
    assert_eq!(person.ok("store ls --all").await.lines().count(), 3);
    person.ends("store delete plans", 2, "--yes").await;
    let deleted = person.ok("store delete plans --yes").await;
    assert!(deleted.starts_with("deleted the memory store plans (memstore_"), "{deleted}");
    person.ends("store get plans", 3, "").await;

    person.ok("store create twin").await;
    person.ends("store create twin", 0, "another memory store has this name").await;
    person.ends("store get twin", 2, "2 memory stores have the name `twin`; give an id: memstore_").await;

    let total = person.ok("usage").await;
    assert!(total.lines().last().unwrap().starts_with("total"), "{total}");
    let session = person.session("read_only").await;
    let id = session["id"].as_str().unwrap();
    says(&person.ok(&format!("session show {id}")).await, &["/mnt/memory/notes"]);
    let agent = person.client().with_key(session["token"].as_str().unwrap());
    let call = async |path: &str| view_in(&agent, &format!("/v1/sessions/{id}"), path).await;
    call("/memories").await;
    // Following shows the first call, and then each as it happens.
    let variables = person.variables();
    let follow = ["session", "events", id, "--follow"];
    let mut follower = start_keepsake(&follow, &borrowed(&variables));
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for path in ["/memories", "/memories/notes"] {
        let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await;
        let line = line.unwrap().unwrap().unwrap();
        assert!(line.contains(&format!("\"path\":\"{path}\"")), "{line}");
        call("/memories/notes").await;
    }
    let file = json!({"command": "create", "path": "/memories/notes/a.md", "file_text": "four\n"});
    agent.post(&format!("/v1/sessions/{id}/tool_calls"), &file).await;
    let table = person.ok(&format!("session events {id} -n 1")).await;
    assert!(table.contains("file_text=5 B") && table.lines().count() == 2, "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_erasures_are_made_with_the_credential_that_may() {
    let person = Person::new().await;
    let reader = [("KEEPSAKE_API_KEY", person.reader.as_str())];
    for (line, scope) in [
        ("key list", "keys:admin"),
        ("key create --name k", "keys:admin"),
        ("erase notes --yes", "tenant:admin"),
        ("erasure list", "tenant:admin"),
    ] {
        person.line_with(line, &reader, "").await.ends(5, scope);
    }
    person.ends("key list --config c.toml", 2, "--config needs --tenant").await;
    for none in ["erase", "erase --under people", "erase notes --under="] {
        person.ends(none, 2, "required").await;
    }
    let made = person.json("key create --name new --scope memory:read --store notes -o json").await;
    let key = text(&made["api_key"]);
    secrets::remember(key, "an API key");
    person.line_with("memory ls", &[("KEEPSAKE_API_KEY", key)], "").await.ok();
    let revoke = format!("key revoke {}", &text(&made["id"])[..30]);
    person.ends(&revoke, 2, "--yes").await;
    person.ends("key revoke new --yes", 2, "2 API keys have the name `new`; give an id: apikey_").await;
    person.ok(&format!("{revoke} --yes")).await;
    assert!(person.json("key list -o json").await["data"][0]["revoked_at"].is_string());
    for said in ["the API key `again` is", "2 API keys with the name `again` are"] {
        let made = person.ok("key create --name again").await;
        says(&made, &["created the API key again (apikey_", ") with memory:read, memory:write; "]);
        person.ok("key revoke again --yes").await;
        let said = format!("{said} revoked already: apikey_");
        person.ends("key revoke again --yes", 3, &said).await;
    }
    person.put("people/ada.md", "Ada").await;
    person.put("kept.md", "kept").await;
    person.ends("erase notes --under people", 2, "--yes").await;
    person.ends("erase notes --under /memories// --yes", 2, "must not have an empty segment").await;
    let asked = person.run_in_terminal("erase memstore_0", &[], 200, "n\n").await.stdout;
    says(&asked, &["Erase the memory store notes (memstore_"]);
    let erased = person.json("erase notes --under /memories/people --yes -o json").await;
    assert_eq!([&erased["state"], &erased["removed"]["memories"]], [&json!("done"), &json!(1)]);
    assert!(person.texts().await.into_keys().eq(["/kept.md"]));
    let show = format!("erasure show {} -o json", &text(&erased["id"])[..30]);
    assert_eq!(person.json(&show).await, erased);
    person.ok("store update notes --metadata person=ada").await;
    person.ok("erase --metadata person=ada --yes").await;
    assert_eq!(person.json("erasure list -o json").await["data"].as_array().unwrap().len(), 2);
    person.ends("store get notes", 3, "").await;
}
