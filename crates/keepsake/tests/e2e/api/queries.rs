//! Query parameters: accepted and refused values.

use keepsake_core::Timestamp;
use serde_json::{Value, json};

use super::support::{
    PREVIEW, Place, STORES, all, delete, invalid, not_found, ok, page_of, patch, post_with, refused, strings,
    text,
};
use crate::support::Client;

pub(super) async fn unknown_parameters_are_ignored_except_on_delete(place: Place) {
    let (client, store) = (&place.client, place.new_store("queries").await);
    let memory = store.create("/a", "one").await;
    let at = store.memory(&memory);
    let version = store.version(&memory["memory_version_id"]);
    for path in [
        STORES,
        &store.path,
        &store.memories(),
        &at,
        &store.versions(),
        &version,
    ] {
        ok(&client.get(&format!("{path}?unknown=1&other&beta=true&=x")).await);
    }
    ok(&client.post(&format!("{at}?unknown=1"), &json!({})).await);
    ok(&patch(client, &at, &json!({})).await);
    ok(&client
        .post(&format!("{STORES}?unknown=1"), &json!({"name": "b"}))
        .await);

    let hash = text(&memory["content_sha256"]);
    for query in [
        "expected_content_sha265=0",
        "expected_content_sha256_=0",
        "Expected_content_sha256=0",
        "content_sha256=0",
        "unknown",
        "unknown=",
        "beta=true&unknown=1",
        "view=full",
        "beta[]=true",
    ] {
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
        (
            STORES,
            "include_archived=true&include_archived=false",
            "include_archived",
        ),
        (
            STORES,
            "created_at[gte]=2020-01-01&created_at%5Bgte%5D=2021-01-01",
            "created_at",
        ),
        (&store.memories(), "depth=0&depth=1", "depth"),
        (&store.memories(), "path_prefix=/&path_prefix=/a/", "path_prefix"),
        (&store.memories(), "limit=5&l%69mit=6", "limit"),
        (&at, "view=basic&view=full", "view"),
        (
            &store.versions(),
            "operation=created&operation=deleted",
            "operation",
        ),
        (&store.versions(), "page=page_a&page=page_b", "page"),
    ] {
        invalid(&client.get(&format!("{path}?{query}")).await, named);
    }
    invalid(
        &client
            .post(&format!("{at}?view=full&view=full"), &json!({}))
            .await,
        "view",
    );
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
        assert_eq!(names(client, &format!("{from}={at}&{to}={at}")).await, ["two"]);
        assert_eq!(names(client, &format!("{from}={at}")).await, ["three", "two"]);
        assert_eq!(names(client, &format!("{from}={after}")).await, ["three"]);
        assert_eq!(
            names(client, &format!("{to}={at}")).await,
            ["two", "one", "notes"]
        );
        assert_eq!(names(client, &format!("{to}={before}")).await, ["one", "notes"]);
        assert_eq!(
            names(client, &format!("{from}={after}&{to}={before}")).await,
            [""; 0]
        );
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
    assert_eq!(
        names(client, &midnight).await.len() + of_today.len(),
        4,
        "{midnight}"
    );
    assert!(!names(client, &midnight).await.contains(&"two".to_owned()));
    assert_eq!(
        names(client, &format!("created_at[gte]={tomorrow}")).await,
        [""; 0]
    );
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
            for name in [
                "created_at[gte]",
                "created_at[lte]",
                "created_at_gte",
                "created_at_lte",
            ] {
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
    let body = json!({"path": "/b", "content": "x"});
    invalid(
        &client.post(&format!("{memories}?view=other"), &body).await,
        "view",
    );
    let at = format!("{}?view=other", store.memory(&memory));
    invalid(&client.post(&at, &json!({"content": "x"})).await, "view");
    invalid(&patch(client, &at, &json!({"content": "x"})).await, "view");
    let restore = format!(
        "{}/restore?view=other",
        store.version(&memory["memory_version_id"])
    );
    invalid(&client.post(&restore, &json!({})).await, "view");
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
        for limit in [
            "0",
            "101",
            "abc",
            "-1",
            "1.5",
            "1e1",
            "%201",
            "18446744073709551616",
            "99999999999",
        ] {
            invalid(&client.get(&format!("{list}?limit={limit}")).await, "limit");
        }
    }
}

pub(super) async fn view_shows_content_or_not(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memories = store.memories();
    let new = |path: &str| json!({"path": path, "content": "one"});
    let basic = ok(&client.post(&memories, &new("/a")).await);
    assert!(basic["content"].is_null());
    let made = ok(&client.post(&format!("{memories}?view=basic"), &new("/b")).await);
    assert!(made["content"].is_null());
    let made = ok(&client.post(&format!("{memories}?view=full"), &new("/c")).await);
    assert_eq!(made["content"], "one");
    let upsert = post_with(
        client,
        &format!("{memories}?view=full"),
        &json!({"path": "/c", "content": "two"}),
        ("anthropic-beta", PREVIEW),
    )
    .await;
    assert_eq!(ok(&upsert)["content"], "two");

    let at = store.memory(&basic);
    let edit = |content: &str| json!({"content": content});
    assert_eq!(ok(&client.get(&at).await)["content"], "one");
    assert_eq!(
        ok(&client.get(&format!("{at}?view=full")).await)["content"],
        "one"
    );
    assert!(ok(&client.get(&format!("{at}?view=basic")).await)["content"].is_null());
    assert!(ok(&client.post(&at, &edit("1")).await)["content"].is_null());
    assert!(ok(&patch(client, &at, &edit("2")).await)["content"].is_null());
    let full = format!("{at}?view=full");
    assert_eq!(ok(&client.post(&full, &edit("3")).await)["content"], "3");
    assert_eq!(ok(&patch(client, &full, &edit("4")).await)["content"], "4");
    let renamed = ok(&client.post(&full, &json!({"path": "/moved"})).await);
    assert_eq!(renamed["content"], "4");

    let version = store.version(&basic["memory_version_id"]);
    assert_eq!(ok(&client.get(&version).await)["content"], "one");
    assert!(ok(&client.get(&format!("{version}?view=basic")).await)["content"].is_null());
    assert!(ok(&client.post(&format!("{version}/restore"), &json!({})).await)["content"].is_null());
    store.update(&basic, &edit("5")).await;
    let restored = client
        .post(&format!("{version}/restore?view=full"), &json!({}))
        .await;
    assert_eq!(ok(&restored)["content"], "one");

    for (list, contents) in [
        (&memories, json!(["one", "one", "two"])),
        (&store.versions(), Value::Null),
    ] {
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
    assert_eq!(
        found(&place.client, &chosen).await,
        std::slice::from_ref(&other.id)
    );
    for client in [&place.bound, &place.stranger] {
        not_found(&client.get(&chosen).await);
    }
    refused(&place.writer.get(search).await, 403, "permission_error");
}
