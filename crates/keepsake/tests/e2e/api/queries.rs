use crate::prelude::*;

pub(super) async fn unknown_parameters_are_ignored_except_on_delete_and_bad_ones_refused(place: Place) {
    let (client, store) = (&place.client, place.new_store("queries").await);
    let memory = store.create("/a", "one").await;
    let at = store.memory(&memory);
    for path in [STORES, &store.path, &store.memories(), &at, &store.versions()] {
        ok(&client.get(&format!("{path}?unknown=1&other&beta=true&=x")).await);
    }
    ok(&client.post(&format!("{at}?unknown=1"), &json!({})).await);
    let hash = text(&memory["content_sha256"]);
    let right = format!("expected_content_sha256={hash}");
    let (memories, versions) = (store.memories(), store.versions());
    let version = store.version(&memory["memory_version_id"]);
    for (path, query, named) in [
        (STORES, "page=page_%00", "page"),
        (STORES, "include_archived=maybe", "include_archived"),
        (STORES, "created_at[gte]=2020-02-30", "created_at"),
        (STORES, "limit=1&l%69mit=1", "limit"),
        (STORES, "created_at[gte]=2020-01-01&created_at%5Bgte%5D=2021-01-01", "created_at"),
        (&memories, "path_prefix=%FF/", "UTF-8"),
        (&memories, "path_prefix=/%2", "percent-encoded"),
        (&memories, "path_prefix=/%zz", "percent-encoded"),
        (&versions, "view=other", "view"),
        (&versions, "created_at_lte=+2020-01-01", "created_at"),
        (&versions, "created_at_gte=2026-01-01T01:00:00+01:00", "write the `+` of its offset as `%2B`"),
        (&at, "view=basic&view=full", "view"),
        (&version, "view=other", "view"),
    ] {
        invalid(&client.get(&format!("{path}?{query}")).await, named);
    }
    invalid(&client.post(&format!("{version}/restore?view=other"), &json!({})).await, "view");
    invalid(&patch(client, &format!("{at}?view=other"), &json!({"content": "x"})).await, "view");
    assert_eq!(store.version_count().await, 1);
    for (path, query, named) in [
        (&at, "Expected_content_sha256=0", "Expected_content_sha256"),
        (&at, "beta=true&unknown=1", "unknown"),
        (&at, &format!("{right}&view=full"), "view"),
        (&at, "expected_content_sha256=", "expected_content_sha256"),
        (&at, &format!("{right}&{right}"), "expected_content_sha256"),
        (&store.path, "unknown", "unknown"),
        (&store.path, &right, "expected_content_sha256"),
    ] {
        invalid(&delete(client, &format!("{path}?{query}")).await, named);
    }
    ok(&delete(client, &format!("{at}?beta=true&{right}")).await);
    ok(&delete(client, &format!("{}?beta=true", store.path)).await);
}

pub(super) async fn every_store_that_the_credential_may_read_is_searched(place: Place) {
    let (own, other) = (place.store(), place.new_store("other").await);
    for store in [&own, &other] {
        store.create("/found.md", "a zebra").await;
    }
    let search = "/v1/search?query=zebra";
    let found = async |client: &Client, path: &str| {
        let mut stores = strings(&client.all(path).await, "memory_store_id");
        stores.sort();
        stores
    };
    let mut both = vec![own.id.clone(), other.id.clone()];
    both.sort();
    for client in [&place.client, &place.reader] {
        assert_eq!(found(client, search).await, both);
    }
    assert_eq!(found(&place.bound, search).await, std::slice::from_ref(&own.id));
    let chosen = format!("{search}&memory_store_ids[]={}", other.id);
    let twice = format!("{chosen}&memory_store_ids[]={}", other.id);
    for chosen in [&chosen, &twice] {
        assert_eq!(found(&place.client, chosen).await, std::slice::from_ref(&other.id));
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
