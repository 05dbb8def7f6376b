//! Query parameters: accepted and refused values.

use keepsake_core::Timestamp;
use serde_json::{Value, json};

use super::support::{
    PREVIEW, Place, STORES, all, delete, invalid, not_found, ok, page_of, patch, post_with, refused, strings,
    text,
};
use crate::support::Client;
use crate::support::client::send;

pub(super) async fn unknown_parameters_are_ignored_except_on_delete(place: Place) {
    let (client, store) = (&place.client, place.new_store("queries").await);
    let memory = store.create("/a", "one").await;
    let at = store.memory(&memory);
    let version = store.version(&memory["memory_version_id"]);
    for path in [STORES, &store.path, &store.memories(), &at, &store.versions(), &version] {
        ok(&client.get(&format!("{path}?unknown=1&other&beta=true&=x")).await);
    }
    ok(&client.post(&format!("{at}?unknown=1"), &json!({})).await);
    ok(&patch(client, &at, &json!({})).await);
    ok(&client.post(&format!("{STORES}?unknown=1"), &json!({"name": "b"})).await);

    let hash = text(&memory["content_sha256"]);
    let queries = "expected_content_sha265=0 expected_content_sha256_=0 Expected_content_sha256=0 content_sha256=0 \
        unknown unknown= beta=true&unknown=1 view=full beta[]=true";
    for query in queries.split(' ') {
        let named = query.split('&').next_back().unwrap();
        let named = named.split('=').next().unwrap();
        invalid(&delete(client, &format!("{at}?{query}")).await, named);
        let with_hash = format!("{at}?expected_content_sha256={hash}&{query}");
        invalid(&delete(client, &with_hash).await, named);
        invalid(&delete(client, &format!("{}?{query}", store.path)).await, named);
    }
    let on_store = format!("{}?expected_content_sha256={hash}", store.path);
    invalid(&delete(client, &on_store).await, "expected_content_sha256");
    assert_eq!(store.read(&memory).await["content"], "one");
    ok(&delete(client, &format!("{at}?beta=true&expected_content_sha256={hash}")).await);
    ok(&delete(client, &format!("{}?beta=true", store.path)).await);
}

pub(super) async fn parameter_given_twice_is_400(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let hash = text(&memory["content_sha256"]);
    let at = store.memory(&memory);
    for (path, query, named) in [
        (STORES, "limit=1&limit=1", "limit"),
        (STORES, "include_archived=true&include_archived=false", ""),
        (STORES, "created_at[gte]=2020-01-01&created_at%5Bgte%5D=2021-01-01", "created_at"),
        (&store.memories(), "depth=0&depth=1", ""),
        (&store.memories(), "path_prefix=/&path_prefix=/a/", ""),
        (&store.memories(), "limit=5&l%69mit=6", ""),
        (&at, "view=basic&view=full", ""),
        (&store.versions(), "operation=created&operation=deleted", ""),
        (&store.versions(), "page=page_a&page=page_b", ""),
    ] {
        let name = query.split('=').next().unwrap();
        let named = if named.is_empty() { name } else { named };
        invalid(&client.get(&format!("{path}?{query}")).await, named);
    }
    let update = client.post(&format!("{at}?view=full&view=full"), &json!({})).await;
    invalid(&update, "view");
    let twice = format!("{at}?expected_content_sha256={hash}&expected_content_sha256={hash}");
    invalid(&delete(client, &twice).await, "expected_content_sha256");
    assert_eq!(store.read(&memory).await["content"], "one");
}

/// The names that a listing of stores answers to a query.
async fn names(client: &Client, query: &str) -> Vec<String> {
    let query = query.replace('+', "%2B");
    strings(&all(client, &format!("{STORES}?limit=100&{query}")).await, "name")
}

fn micros(time: &Value) -> i64 {
    Timestamp::parse(text(time)).unwrap().as_micros()
}

fn at(micros: i64) -> String {
    Timestamp::from_micros(micros).to_rfc3339()
}

pub(super) async fn times_are_accepted_in_every_form(place: Place) {
    let client = &place.client;
    for name in ["one", "two", "three"] {
        place.new_store(name).await;
    }
    let listed = all(client, &format!("{STORES}?limit=100")).await;
    assert_eq!(strings(&listed, "name"), ["three", "two", "one", "notes"]);
    let two = micros(&listed[1]["created_at"]);
    // Both ends belong to the span.
    for [from, to] in [
        ["created_at[gte]", "created_at[lte]"],
        ["created_at%5Bgte%5D", "created_at%5Blte%5D"],
        ["created_at%5bgte%5d", "created_at%5blte%5d"],
        ["created_at_gte", "created_at_lte"],
    ] {
        let (at, before, after) = (at(two), at(two - 1), at(two + 1));
        for (query, expected) in [
            (format!("{from}={at}&{to}={at}"), &["two"][..]),
            (format!("{from}={at}"), &["three", "two"]),
            (format!("{from}={after}"), &["three"]),
            (format!("{to}={at}"), &["two", "one", "notes"]),
            (format!("{to}={before}"), &["one", "notes"]),
            (format!("{from}={after}&{to}={before}"), &[]),
        ] {
            assert_eq!(names(client, &query).await, expected, "{query}");
        }
    }
    let utc = at(two);
    let offsetless = utc.trim_end_matches('Z').to_owned();
    for time in [
        offsetless.clone(),
        offsetless.replace('T', "t") + "z",
        format!("{offsetless}+00:00"),
        at(two + 2 * 3_600_000_000).trim_end_matches('Z').to_owned() + "+02:00",
        at(two - 90 * 60_000_000).trim_end_matches('Z').to_owned() + "-01:30",
    ] {
        let query = format!("created_at[gte]={time}&created_at[lte]={time}");
        assert_eq!(names(client, &query).await, ["two"], "{query}");
    }
    for (query, count) in [
        ("created_at[gte]=2020-01-01", 4),
        ("created_at[lte]=2020-01-01", 0),
        ("created_at[gte]=2999-12-31", 0),
        ("created_at[lte]=2999-12-31", 4),
        ("created_at[gte]=2020-01-01T00:00:00Z", 4),
        ("created_at[gte]=2020-01-01T00:00:00.123Z", 4),
    ] {
        assert_eq!(names(client, query).await.len(), count, "{query}");
    }
    // A date is its midnight, not its day.
    let today = &utc[..10];
    let tomorrow = &at(two + 86_400_000_000)[..10];
    let midnight = format!("created_at[lte]={today}");
    let of_today = names(client, &format!("created_at[gte]={today}T00:00:00Z")).await;
    assert_eq!(names(client, &midnight).await.len() + of_today.len(), 4, "{midnight}");
    assert!(!names(client, &midnight).await.contains(&"two".to_owned()));
    assert_eq!(names(client, &format!("created_at[gte]={tomorrow}")).await, [""; 0]);
}

pub(super) async fn bad_parameters_are_refused_by_name(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (memories, versions) = (store.memories(), store.versions());
    let lists = [STORES, &memories, &versions];
    for list in lists {
        for page in ["x", "page_", "page_x", "page_%00", "PAGE_", "0"] {
            invalid(&client.get(&format!("{list}?page={page}")).await, "page");
        }
    }
    for list in [STORES, &versions] {
        for time in [
            "yesterday",
            "2020-13-01",
            "2020-02-30",
            "2020-01-01T25:00:00Z",
            "1577836800",
            "2020-01-01T00:00:00%2001:00",
            "+2020-01-01",
            "",
        ] {
            for name in "created_at[gte] created_at[lte] created_at_gte created_at_lte".split(' ') {
                invalid(&client.get(&format!("{list}?{name}={time}")).await, "created_at");
            }
        }
    }
    for (path, query, named) in [
        (STORES, "include_archived=maybe", "include_archived"),
        (&memories, "depth=2", "depth"),
        (&memories, "depth=-1", "depth"),
        (&memories, "depth=one", "depth"),
        (&memories, "path_prefix=%FF/", "UTF-8"),
        (&memories, "view=other", "view"),
        (&memories, "view=FULL", "view"),
        (&versions, "view=other", "view"),
        (&versions, "operation=other", "operation"),
        (&versions, "operation=CREATED", "operation"),
        (&store.memory(&memory), "view=other", "view"),
        (&store.version(&memory["memory_version_id"]), "view=other", "view"),
    ] {
        invalid(&client.get(&format!("{path}?{query}")).await, named);
    }
    let at = store.memory(&memory);
    let restore = format!("{}/restore", store.version(&memory["memory_version_id"]));
    for (path, body) in [
        (&memories, json!({"path": "/b", "content": "x"})),
        (&at, json!({"content": "x"})),
        (&restore, json!({})),
    ] {
        invalid(&client.post(&format!("{path}?view=other"), &body).await, "view");
    }
    let patched = patch(client, &format!("{at}?view=other"), &json!({"content": "x"})).await;
    invalid(&patched, "view");
    assert_eq!(store.paths().await, ["/a"]);
    assert_eq!(store.version_count().await, 1);
}

pub(super) async fn limit_is_1_to_100(place: Place) {
    let (client, store) = (&place.client, place.store());
    for n in 0..22 {
        store.create(&format!("/{n:02}"), "x").await;
        place.new_store("filler").await;
    }
    for list in [STORES, &store.memories(), &store.versions()] {
        let shown = async |query: &str| page_of(&client.get(&format!("{list}{query}")).await);
        assert_eq!(shown("").await.0.len(), 20, "{list}");
        assert_eq!(shown("?limit=1").await.0.len(), 1);
        assert_eq!(shown("?limit=21").await.0.len(), 21);
        let (items, next) = shown("?limit=100").await;
        assert!(items.len() >= 22 && next.is_none());
        for limit in "0 101 abc -1 1.5 1e1 %201 18446744073709551616 99999999999".split(' ') {
            invalid(&client.get(&format!("{list}?limit={limit}")).await, "limit");
        }
    }
}

pub(super) async fn view_shows_content_or_not(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memories = store.memories();
    let new = |path: &str| json!({"path": path, "content": "one"});
    let made = ok(&client.post(&memories, &new("/a")).await);
    let at = store.memory(&made);
    let version = store.version(&made["memory_version_id"]);
    let restore = format!("{version}/restore");
    let edit = |content: &str| json!({"content": content});
    let (nothing, moved) = (json!({}), json!({"path": "/moved"}));
    for (method, path, query, body, content) in [
        ("POST", &memories, "", new("/b"), None),
        ("POST", &memories, "?view=basic", new("/c"), None),
        ("POST", &memories, "?view=full", new("/d"), Some("one")),
        ("GET", &at, "", Value::Null, Some("one")),
        ("GET", &at, "?view=full", Value::Null, Some("one")),
        ("GET", &at, "?view=basic", Value::Null, None),
        ("POST", &at, "", edit("1"), None),
        ("PATCH", &at, "", edit("2"), None),
        ("POST", &at, "?view=full", edit("3"), Some("3")),
        ("PATCH", &at, "?view=full", edit("4"), Some("4")),
        ("POST", &at, "?view=full", moved, Some("4")),
        ("GET", &version, "", Value::Null, Some("one")),
        ("GET", &version, "?view=basic", Value::Null, None),
        ("POST", &restore, "", nothing.clone(), None),
        ("POST", &at, "", edit("5"), None),
        ("POST", &restore, "?view=full", nothing, Some("one")),
    ] {
        let request = client.request(method.parse().unwrap(), &format!("{path}{query}"));
        let shown = ok(&send(if body.is_null() { request } else { request.json(&body) }).await);
        assert_eq!(shown["content"].as_str(), content, "{method} {path}{query}");
    }
    let full = format!("{memories}?view=full");
    let upsert = json!({"path": "/d", "content": "two"});
    let upsert = post_with(client, &full, &upsert, ("anthropic-beta", PREVIEW)).await;
    assert_eq!(ok(&upsert)["content"], "two");

    for (list, contents) in
        [(&memories, json!(["one", "one", "one", "two"])), (&store.versions(), Value::Null)]
    {
        for query in ["", "?view=basic"] {
            let (items, _) = page_of(&client.get(&format!("{list}{query}")).await);
            assert!(items.iter().all(|item| item["content"].is_null()));
        }
        let (items, _) = page_of(&client.get(&format!("{list}?view=full")).await);
        let shown: Vec<_> = items.iter().map(|item| item["content"].clone()).collect();
        assert!(shown.iter().all(Value::is_string), "{shown:?}");
        if !contents.is_null() {
            assert_eq!(json!(shown), contents);
        }
    }
}

pub(super) async fn every_store_that_the_credential_may_read_is_searched(place: Place) {
    let (own, other) = (place.store(), place.new_store("other").await);
    for store in [&own, &other] {
        store.create("/found.md", "a zebra").await;
    }
    let search = "/v1/search?query=zebra";
    let found = async |client: &Client, path: &str| {
        let hits = all(client, path).await;
        let mut stores = strings(&hits, "memory_store_id");
        stores.sort();
        stores
    };
    let mut both = vec![own.id.clone(), other.id.clone()];
    both.sort();
    for client in [&place.client, &place.reader] {
        assert_eq!(found(client, search).await, both);
    }
    assert_eq!(found(&place.bound, search).await, std::slice::from_ref(&own.id));
    assert!(found(&place.stranger, search).await.is_empty());
    let chosen = format!("{search}&memory_store_ids[]={}", other.id);
    let twice = format!("{chosen}&memory_store_ids[]={}", other.id);
    for chosen in [&chosen, &twice] {
        assert_eq!(found(&place.client, chosen).await, std::slice::from_ref(&other.id));
    }
    for client in [&place.bound, &place.stranger] {
        not_found(&client.get(&chosen).await);
    }
    let (_, next) = page_of(&place.client.get(&format!("{search}&limit=1")).await);
    let next = next.unwrap();
    invalid(&place.client.get(&format!("{chosen}&page={next}")).await, "page");
    // A store that is created meanwhile does not end the pages.
    place.new_store("new").await;
    let rest = place.client.get(&format!("{search}&limit=1&page={next}")).await;
    let (hits, end) = page_of(&rest);
    assert_eq!((hits.len(), end), (1, None));
    refused(&place.writer.get(search).await, 403, "permission_error");
    other.archive().await;
    assert_eq!(found(&place.client, search).await, both);
    ok(&delete(&place.client, &other.path).await);
    assert_eq!(found(&place.client, search).await, std::slice::from_ref(&own.id));
}
