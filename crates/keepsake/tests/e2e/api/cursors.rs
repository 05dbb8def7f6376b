//! Cursors: what they are good for, and what happens around them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::support::{Place, STORES, Store, all, delete, invalid, new_session, ok, page_of, strings, text};
use crate::support::Client;

/// The cursor behind the first page.
async fn cursor(client: &Client, list: &str) -> String {
    page_of(&client.get(list).await).1.unwrap()
}

pub(super) async fn page_before_another_one_is_never_empty(place: Place) {
    let (client, store) = (&place.client, place.new_store("pages").await);
    let (mut memories, mut resources) = (Vec::new(), Vec::new());
    for n in 0..6 {
        memories.push(store.create(&format!("/{n}"), "x").await);
        let other = place.new_store("one of seven").await;
        resources.push(json!({"type": "memory_store", "memory_store_id": other.id}));
    }
    let session = json!({"agent": "a", "environment_id": "e", "resources": resources});
    let session = new_session(client, &session).await;
    for list in [
        format!("{}?", store.memories()),
        format!("{}?depth=1&", store.memories()),
        format!("{}?", store.versions()),
        format!("{STORES}?created_at[gte]={}&", text(&store.object().await["created_at"])),
        format!("/v1/sessions/{}/resources?", text(&session["id"])),
    ] {
        let whole = all(client, &format!("{list}limit=100")).await;
        for limit in 1..=whole.len() {
            let pages = whole.len().div_ceil(limit);
            let mut page = String::new();
            for number in 1..=pages {
                let (items, next) = page_of(&client.get(&format!("{list}limit={limit}{page}")).await);
                let expected = &whole[(number - 1) * limit..whole.len().min(number * limit)];
                assert_eq!(items, expected, "{list} {limit}");
                assert_eq!(next.is_some(), number < pages, "{list} {limit}");
                page = format!("&page={}", next.unwrap_or_default());
            }
        }
    }
    // Items after the cursor may be deleted.
    let list = format!("{}?limit=3", store.memories());
    let next = cursor(client, &list).await;
    for memory in &memories {
        store.delete(memory).await;
    }
    for page in [format!("{list}&page={next}"), list] {
        let (items, next) = page_of(&client.get(&page).await);
        assert_eq!((items.len(), next), (0, None));
    }
}

pub(super) async fn cursor_is_valid_with_another_limit(place: Place) {
    let store = place.store();
    for n in 0..9 {
        store.create(&format!("/{n}"), "x").await;
        place.new_store("filler").await;
    }
    for list in [
        format!("{}?path_prefix=/", store.memories()),
        format!("{}?depth=1", store.memories()),
        format!("{}?operation=created", store.versions()),
        format!("{STORES}?include_archived=true"),
    ] {
        let whole = all(&place.client, &format!("{list}&limit=100")).await;
        let next = cursor(&place.client, &format!("{list}&limit=2")).await;
        for query in ["", "&limit=100", "&limit=99&beta=true", "&unknown=1"] {
            // Another key of the tenant may use the cursor.
            for client in [&place.client, &place.second] {
                let (items, end) = page_of(&client.get(&format!("{list}{query}&page={next}")).await);
                assert_eq!(items, whole[2..], "{list}{query}");
                assert_eq!(end, None);
            }
        }
        let (items, _) = page_of(&place.client.get(&format!("{list}&limit=1&page={next}")).await);
        assert_eq!(items, whole[2..3]);
        // It is no worse for having been used.
        let (items, _) = page_of(&place.client.get(&format!("{list}&limit=3&page={next}")).await);
        assert_eq!(items, whole[2..5]);
    }
}

pub(super) async fn cursor_is_valid_only_for_its_query(place: Place) {
    let (client, store) = (&place.client, place.store());
    let other = place.new_store("other").await;
    place.new_store("another").await;
    for n in 0..3 {
        let memory = store.create(&format!("/d/{n}"), "x").await;
        store.update(&memory, &json!({"content": "y"})).await;
        other.create(&format!("/d/{n}"), "x").await;
        ok(&place.stranger.post(STORES, &json!({"name": "a"})).await);
    }
    let first = store.history().await.pop().unwrap();
    let api_key_id = text(&first["created_by"]["api_key_id"]).to_owned();
    let memory_id = text(&first["memory_id"]).to_owned();
    let (memories, versions) = (store.memories(), store.versions());
    let queries = [
        STORES.to_owned() + "?",
        format!("{STORES}?include_archived=true"),
        format!("{STORES}?created_at[gte]=2020-01-01"),
        format!("{STORES}?created_at[lte]=2999-01-01"),
        format!("{memories}?"),
        format!("{memories}?depth=0&path_prefix=/d/"),
        format!("{memories}?depth=1&path_prefix=/d/"),
        format!("{}?", other.memories()),
        format!("{versions}?"),
        format!("{versions}?operation=created"),
        format!("{versions}?operation=modified"),
        format!("{versions}?memory_id={memory_id}"),
        format!("{versions}?api_key_id={api_key_id}"),
        format!("{versions}?created_at[gte]=2020-01-01"),
        format!("{versions}?created_at[lte]=2999-01-01"),
        format!("{}?", other.versions()),
    ];
    let mut cursors = Vec::new();
    for query in &queries {
        cursors.push(cursor(client, &format!("{query}&limit=1")).await);
    }
    for (asked, query) in queries.iter().enumerate() {
        for (made, next) in cursors.iter().enumerate() {
            let answer = client.get(&format!("{query}&limit=1&page={next}")).await;
            if asked == made {
                ok(&answer);
            } else {
                invalid(&answer, "page");
            }
        }
    }
    // The same list of another tenant's stores.
    let theirs = cursor(&place.stranger, &format!("{STORES}?limit=1")).await;
    invalid(&client.get(&format!("{STORES}?page={theirs}")).await, "page");
    let ours = format!("{STORES}?page={}", cursors[0]);
    invalid(&place.stranger.get(&ours).await, "page");

    let next = &cursors[4];
    for position in 0..next.len() {
        let mut tampered: Vec<_> = next.chars().collect();
        tampered[position] = if tampered[position] == 'A' { 'B' } else { 'A' };
        let tampered: String = tampered.into_iter().collect();
        invalid(&client.get(&format!("{memories}?page={tampered}")).await, "page");
    }
    for tampered in [
        &next[..next.len() - 1],
        &next[5..],
        &format!("{next}A"),
        &format!("{next}="),
        &format!("page_{next}"),
    ] {
        invalid(&client.get(&format!("{memories}?page={tampered}")).await, "page");
    }
}

/// A list that is read page after page.
struct Pages<'a> {
    client: &'a Client,
    list: String,
    page: String,
    /// The fields of all items so far.
    listed: Vec<String>,
}

impl<'a> Pages<'a> {
    fn of(client: &'a Client, list: String) -> Self {
        Self { client, list, page: String::new(), listed: Vec::new() }
    }

    /// Reads a page; its items, if there is another one.
    async fn turn(&mut self, field: &str) -> Option<Vec<Value>> {
        assert!(self.listed.len() < 1_000, "the listing does not end");
        let (items, next) = page_of(&self.client.get(&format!("{}{}", self.list, self.page)).await);
        self.listed.extend(strings(&items, field));
        self.page = format!("&page={}", next?);
        Some(items)
    }
}

/// Fails unless everything in `stays` is in `listed` exactly once.
#[track_caller]
fn assert_once(listed: &[String], stays: &[String]) {
    let mut times: BTreeMap<&String, usize> = BTreeMap::new();
    for item in listed {
        *times.entry(item).or_default() += 1;
    }
    for item in stays {
        assert_eq!(times.get(item), Some(&1), "{item} in {listed:?}");
    }
}

pub(super) async fn unchanged_memories_are_listed_once_while_others_change(place: Place) {
    let store = place.new_store("busy").await;
    let stays: Vec<_> = (0..20).map(|n| format!("/{n:02}/stays")).collect();
    let mut passing = Vec::new();
    for (n, path) in stays.iter().enumerate() {
        store.create(path, "x").await;
        passing.push(store.create(&format!("/{n:02}/goes"), "x").await);
    }
    for limit in [1, 3] {
        let mut pages = Pages::of(&place.second, format!("{}?limit={limit}", store.memories()));
        let mut round = 0;
        while let Some(items) = pages.turn("path").await {
            // The item at the cursor is deleted, recreated or moved.
            let at_cursor = items.last().unwrap();
            if text(&at_cursor["path"]).contains("/goes") {
                store.delete(at_cursor).await;
                passing.retain(|memory| memory["id"] != at_cursor["id"]);
            }
            let before = format!("/00/before-{limit}-{round:02}");
            passing.push(store.create(&before, "x").await);
            passing.push(store.create(&format!("/99/after-{limit}-{round:02}"), "x").await);
            if round % 2 == 0
                && let Some(memory) = passing.pop()
            {
                let moved = json!({"path": format!("/00/moved-{limit}-{round:02}")});
                store.update(&memory, &moved).await;
                passing.insert(0, memory);
            }
            round += 1;
        }
        assert_once(&pages.listed, &stays);
        assert!(pages.listed.is_sorted(), "{:?}", pages.listed);
    }

    let is_done = Arc::new(AtomicBool::new(false));
    let churning = {
        let (store, is_done) = (store.clone(), Arc::clone(&is_done));
        tokio::spawn(async move {
            for n in (0..).take_while(|_| !is_done.load(Ordering::Relaxed)) {
                let memory = store.create(&format!("/{:02}/churn", n % 20), "x").await;
                store.update(&memory, &json!({"path": format!("/{:02}/z", (n * 7) % 20)})).await;
                store.delete(&memory).await;
            }
        })
    };
    for limit in [1, 2, 5] {
        for depth in [0, 1] {
            let list = format!("{}?path_prefix=/&depth={depth}&limit={limit}", store.memories());
            let listed = strings(&all(&place.second, &list).await, "path");
            let stays: Vec<_> = (0..20).map(|n| format!("/{n:02}/")).collect();
            if depth == 1 {
                assert_once(&listed, &stays);
            } else {
                let stays: Vec<_> = stays.iter().map(|prefix| format!("{prefix}stays")).collect();
                assert_once(&listed, &stays);
            }
        }
    }
    is_done.store(true, Ordering::Relaxed);
    churning.await.unwrap();
}

pub(super) async fn unchanged_prefixes_are_listed_once_while_others_change(place: Place) {
    let store = place.new_store("busy").await;
    let mut stays = Vec::new();
    let mut inhabitants = Vec::new();
    for n in 0..8 {
        inhabitants.push(store.create(&format!("/{n}/old"), "x").await);
        stays.push(format!("/{n}/"));
        store.create(&format!("/{n}-file"), "x").await;
        stays.push(format!("/{n}-file"));
        store.create(&format!("/{n}-passing/x"), "x").await;
    }
    let mut pages = Pages::of(&place.client, format!("{}?depth=1&limit=1", store.memories()));
    while pages.turn("path").await.is_some() {
        // The directory at the cursor gets other files, or is removed.
        let path = pages.listed.last().unwrap();
        if let Some(directory) = path.strip_suffix("-passing/") {
            let below = format!("{}?path_prefix={directory}-passing/", store.memories());
            for memory in all(&place.client, &below).await {
                store.delete(&memory).await;
            }
        } else if let Ok(n) = path.trim_matches('/').parse::<usize>() {
            store.create(&format!("/{n}/new/deep"), "x").await;
            store.delete(&inhabitants[n]).await;
        }
        let came = format!("/0-came-{}/x", pages.listed.len());
        store.create(&came, "x").await;
    }
    assert_once(&pages.listed, &stays);
    assert!(pages.listed.is_sorted(), "{:?}", pages.listed);
}

pub(super) async fn unchanged_stores_are_listed_once_while_others_change(place: Place) {
    let client = &place.client;
    let mut stays = vec![place.tenant.store_id.to_string()];
    for _ in 0..10 {
        stays.push(place.new_store("stays").await.id);
        place.new_store("passing").await;
    }
    for limit in [1, 2] {
        let mut pages = Pages::of(client, format!("{STORES}?limit={limit}"));
        while let Some(items) = pages.turn("id").await {
            let at_cursor = items.last().unwrap();
            let at = Store::new(client, text(&at_cursor["id"]));
            if at_cursor["name"] != "passing" {
                ok(&client.post(&at.path, &json!({"description": "touched"})).await);
            } else if pages.listed.len().is_multiple_of(3) {
                at.archive().await;
            } else {
                ok(&delete(client, &at.path).await);
            }
            place.new_store("new").await;
        }
        assert_once(&pages.listed, &stays);
        assert!(pages.listed.is_sorted_by(|a, b| a > b), "{:?}", pages.listed);
    }
}

pub(super) async fn erasures_are_listed_once_newest_first(place: Place) {
    let prefix = json!({"memory_store_id": place.store().id, "path_prefix": "/p/"});
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.push(ok(&place.client.post("/v1/erasures", &prefix).await));
    }
    let mut ids = strings(&asked, "id");
    ids.sort();
    ids.reverse();
    for limit in [1, 2, 100] {
        let listed = all(&place.client, &format!("/v1/erasures?limit={limit}")).await;
        assert_eq!(strings(&listed, "id"), ids, "{limit}");
    }
}

pub(super) async fn versions_are_listed_once_while_new_ones_are_added(place: Place) {
    let store = place.new_store("busy").await;
    let mut memories = Vec::new();
    for n in 0..6 {
        let memory = store.create(&format!("/{n}"), "one").await;
        store.update(&memory, &json!({"content": "two"})).await;
        memories.push(memory);
    }
    let expected = strings(&store.history().await, "id");
    for limit in [1, 2, 5] {
        let mut pages = Pages::of(&place.client, format!("{}?limit={limit}", store.versions()));
        while let Some(items) = pages.turn("id").await {
            let round = pages.listed.len();
            let memory = &memories[round % memories.len()];
            let content = format!("{limit} {round}");
            store.update(memory, &json!({"content": content})).await;
            let at_cursor = items.last().unwrap();
            if at_cursor["operation"] == "created" {
                store.redact(&at_cursor["id"]).await;
            }
        }
        assert_once(&pages.listed, &expected);
        assert!(pages.listed.ends_with(&expected), "{:?}", pages.listed);
    }
    let none: [Value; 0] = [];
    let of_nobody = format!("{}?memory_id=mem_00000000000000000000000001", store.versions());
    assert_eq!(all(&place.client, &of_nobody).await, none);
}
