//! Cursors: what they are good for, and what happens around them.

use serde_json::{Value, json};

use super::support::{Place, STORES, all, invalid, new_session, ok, page_of, strings, text};
use crate::support::Client;

/// The cursor behind the first page.
async fn cursor(client: &Client, list: &str) -> String {
    page_of(&client.get(list).await).1.unwrap()
}

pub(super) async fn pages_of_any_size_make_one_list(place: Place) {
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
        format!("{}?operation=created&", store.versions()),
        format!("{STORES}?created_at[gte]={}&", text(&store.object().await["created_at"])),
        format!("/v1/sessions/{}/resources?", text(&session["id"])),
    ] {
        let whole = all(client, &format!("{list}limit=100")).await;
        assert!(whole.len() >= 6, "{list}");
        for limit in 1..=whole.len() {
            let pages = whole.len().div_ceil(limit);
            let mut page = String::new();
            for number in 1..=pages {
                let (items, next) = page_of(&client.get(&format!("{list}limit={limit}{page}")).await);
                let expected = &whole[(number - 1) * limit..whole.len().min(number * limit)];
                assert_eq!(items, expected, "{list} {limit}");
                // No page that is empty follows.
                assert_eq!(next.is_some(), number < pages, "{list} {limit}");
                page = format!("&page={}", next.unwrap_or_default());
            }
        }
        // A cursor is good for another limit and another key, and no worse for having been used.
        let next = cursor(client, &format!("{list}limit=2")).await;
        for (query, end) in
            [("", whole.len()), ("limit=1&", 3), ("limit=99&beta=true&unknown=1&", whole.len())]
        {
            for client in [client, &place.second] {
                let (items, _) = page_of(&client.get(&format!("{list}{query}page={next}")).await);
                assert_eq!(items, whole[2..end], "{list}{query}");
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
    let (memories, versions) = (store.memories(), store.versions());
    let queries = [
        format!("{STORES}?"),
        format!("{STORES}?include_archived=true"),
        format!("{STORES}?created_at[gte]=2020-01-01"),
        format!("{memories}?"),
        format!("{memories}?depth=1&path_prefix=/d/"),
        format!("{}?", other.memories()),
        format!("{versions}?"),
        format!("{versions}?operation=created"),
        format!("{versions}?memory_id={}", text(&first["memory_id"])),
        format!("{versions}?api_key_id={}", text(&first["created_by"]["api_key_id"])),
        format!("{versions}?created_at[gte]=2020-01-01"),
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
    invalid(&place.stranger.get(&format!("{STORES}?page={}", cursors[0])).await, "page");

    let next = &cursors[3];
    let with_other_letter = |position: usize| {
        let other = if next[position..].starts_with('A') { "B" } else { "A" };
        format!("{}{other}{}", &next[..position], &next[position + 1..])
    };
    let mut tampered: Vec<_> = (0..next.len()).map(with_other_letter).collect();
    tampered.extend([&next[..next.len() - 1], &next[5..]].map(str::to_owned));
    tampered.extend([format!("{next}A"), format!("{next}="), format!("page_{next}")]);
    for page in tampered {
        invalid(&client.get(&format!("{memories}?page={page}")).await, "page");
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
    for item in stays {
        let times = listed.iter().filter(|listed| *listed == item).count();
        assert_eq!(times, 1, "{item} in {listed:?}");
    }
}

pub(super) async fn unchanged_memories_are_listed_once_while_others_change(place: Place) {
    let directories: Vec<_> = (0..20).map(|n| format!("/{n:02}/")).collect();
    let files: Vec<_> = directories.iter().map(|directory| format!("{directory}stays")).collect();
    for (depth, limit, stays) in [(0, 1, &files), (0, 3, &files), (1, 1, &directories), (1, 3, &directories)]
    {
        let store = place.new_store("busy").await;
        let mut passing = Vec::new();
        for (n, path) in files.iter().enumerate() {
            store.create(path, "x").await;
            passing.push(store.create(&format!("/{n:02}-goes/x"), "x").await);
        }
        let list = format!("{}?depth={depth}&limit={limit}", store.memories());
        let mut pages = Pages::of(&place.second, list);
        let mut round = 0;
        while let Some(items) = pages.turn("path").await {
            // The memory at the cursor is deleted; others are created and moved.
            let at_cursor = text(&items.last().unwrap()["path"]);
            if let Some(gone) = passing.iter().position(|it| text(&it["path"]).starts_with(at_cursor)) {
                store.delete(&passing.remove(gone)).await;
            }
            passing.push(store.create(&format!("/00-before-{round:02}"), "x").await);
            let after = store.create(&format!("/99-after-{round:02}"), "x").await;
            let moved = json!({"path": format!("/00-moved-{round:02}")});
            passing.push(if round % 2 == 0 { store.update(&after, &moved).await } else { after });
            round += 1;
        }
        assert_once(&pages.listed, stays);
        assert!(pages.listed.is_sorted(), "{:?}", pages.listed);
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
            let edit = json!({"content": format!("{limit} {round}")});
            store.update(&memories[round % memories.len()], &edit).await;
            let at_cursor = items.last().unwrap();
            if at_cursor["operation"] == "created" {
                store.redact(&at_cursor["id"]).await;
            }
        }
        assert_once(&pages.listed, &expected);
        assert!(pages.listed.ends_with(&expected), "{:?}", pages.listed);
    }
}
