//! Cursors: what they are good for, and what happens around them. `tests/sdk` sends each list
//! the cursors of others.

use crate::prelude::*;

pub(super) async fn pages_of_any_size_make_one_list(place: Place) {
    let (client, store) = (&place.client, place.new_store("pages").await);
    let (mut memories, mut resources) = (Vec::new(), Vec::new());
    for n in 0..6 {
        memories.push(store.create(&format!("/{n}"), "x").await);
        resources.push(attached(&place.new_store("one of seven").await, "read_only"));
    }
    let session = new_session(client, &attaching(&resources)).await;
    for list in [
        format!("{}?", store.memories()),
        format!("{}?depth=1&", store.memories()),
        format!("{}?operation=created&", store.versions()),
        format!("{STORES}?created_at[gte]={}&", text(&store.object().await["created_at"])),
        format!("/v1/sessions/{}/resources?", text(&session["id"])),
    ] {
        let whole = client.all(&format!("{list}limit=100")).await;
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
        let next = page_of(&client.get(&format!("{list}limit=2")).await).1.unwrap();
        for (query, end) in [("", whole.len()), ("limit=1&", 3), ("limit=99&beta=true&x=1&", whole.len())] {
            for client in [client, &place.second] {
                let (items, _) = page_of(&client.get(&format!("{list}{query}page={next}")).await);
                assert_eq!(items, whole[2..end], "{list}{query}");
            }
        }
    }
    // Items after the cursor may be deleted.
    let list = format!("{}?limit=3", store.memories());
    let next = page_of(&client.get(&list).await).1.unwrap();
    for memory in &memories {
        store.delete(memory).await;
    }
    for page in [format!("{list}&page={next}"), list] {
        let (items, next) = page_of(&client.get(&page).await);
        assert_eq!((items.len(), next), (0, None));
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
        let (mut listed, mut page) = (Vec::<String>::new(), String::new());
        for round in 0..1_000 {
            let (items, next) = page_of(&place.second.get(&format!("{list}{page}")).await);
            listed.extend(strings(&items, "path"));
            let Some(next) = next else { break };
            page = format!("&page={next}");
            // The memory at the cursor is deleted; others are created and moved.
            let at_cursor = listed.last().unwrap();
            if let Some(gone) = passing.iter().position(|it| text(&it["path"]).starts_with(at_cursor)) {
                store.delete(&passing.remove(gone)).await;
            }
            passing.push(store.create(&format!("/00-before-{round:02}"), "x").await);
            let after = store.create(&format!("/99-after-{round:02}"), "x").await;
            let moved = json!({"path": format!("/00-moved-{round:02}")});
            passing.push(if round % 2 == 0 { store.update(&after, &moved).await } else { after });
        }
        assert!(listed.is_sorted(), "{listed:?}");
        listed.retain(|path| stays.contains(path));
        assert_eq!(listed, *stays);
    }
}

pub(super) async fn stores_and_versions_are_listed_once_while_others_change(place: Place) {
    let (client, store) = (&place.client, place.new_store("stays").await);
    let memory = store.create("/a", "first").await;
    for n in 0..9 {
        place.new_store(["stays", "is deleted", "is archived"][n % 3]).await;
        store.update(&memory, &json!({"content": n.to_string()})).await;
    }
    for list in [format!("{STORES}?limit=1"), format!("{}?limit=1", store.versions())] {
        let mut stay = client.all(&list).await;
        stay.retain(|item| item["name"] != "is deleted" && item["name"] != "is archived");
        let stay = strings(&stay, "id");
        let (mut listed, mut page) = (Vec::<String>::new(), String::new());
        for round in 0..100 {
            let (items, next) = page_of(&place.second.get(&format!("{list}{page}")).await);
            listed.extend(strings(&items, "id"));
            let Some(next) = next else { break };
            page = format!("&page={next}");
            place.new_store("new").await;
            store.update(&memory, &json!({"content": format!("{list} {round}")})).await;
            // The one at the cursor.
            let (last, at) = (&items[0], Store::new(client, text(&items[0]["id"])));
            match last["name"].as_str().or(last["operation"].as_str()) {
                Some("is deleted") => drop(ok(&delete(client, &at.path).await)),
                Some("is archived") => drop(at.archive().await),
                Some("modified") => drop(store.redact(&last["id"]).await),
                _ => {}
            }
        }
        listed.retain(|id| stay.contains(id));
        assert_eq!(listed, stay, "{list}");
    }
}
