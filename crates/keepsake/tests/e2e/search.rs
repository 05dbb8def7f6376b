//! Search over HTTP.

use crate::prelude::*;

fn search_path(tenant: &Tenant, query: &str, rest: &str) -> String {
    format!("/v1/memory_stores/{}/search?query={query}{rest}", tenant.store_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_as_documented_also_of_many_stores() {
    let (_deployment, _server, tenant, client) = on_sqlite().await;
    let deploy = "# Deploys\n\nWe deployed on Tuesday.\nThe retry_count of HTTPServer is 5.\n";
    let notes = "Nobody deploys on Fridays. ⟦odd⟧ marks and `a.b.c`.\n";
    for (path, content) in [("/projects/deploy.md", deploy), ("/projects/notes.md", notes)] {
        Store::of(&client, &tenant).create(path, content).await;
    }
    let answer = ok(&client.get(&search_path(&tenant, "retry_count", "")).await);
    let hit = &answer["data"][0];
    assert_eq!((&hit["type"], &hit["line"]), (&json!("memory_search_hit"), &json!(4)));
    assert_eq!(hit["memory_store_id"], tenant.store_id.to_string());
    assert_eq!(hit["snippet"], "The ⟦retry_count⟧ of HTTPServer is 5.\n");
    assert_eq!(answer["next_page"], Value::Null);
    let (odd, _) = page_of(&client.get(&search_path(&tenant, "odd", "")).await);
    assert_eq!(odd[0]["snippet"], notes);

    let first = ok(&client.get(&search_path(&tenant, "deploy", "&limit=1")).await);
    let next = first["next_page"].as_str().unwrap();
    let elsewhere = format!("&path_prefix=/projects/&page={next}");
    for (path, field) in [
        (search_path(&tenant, "deploy", "&limit=51"), "limit"),
        (search_path(&tenant, "deploy", "&limit=0"), "limit"),
        (search_path(&tenant, "deploy", "&path_prefix=atlas"), "path_prefix"),
        (search_path(&tenant, "deploys", &format!("&page={next}")), "page"),
        (search_path(&tenant, "deploy", &elsewhere), "page"),
        (search_path(&tenant, &"x".repeat(1_001), ""), "query"),
        (format!("/v1/memory_stores/{}/search", tenant.store_id), "query"),
        ("/v1/search".to_owned(), "query"),
        ("/v1/search?query=a&memory_store_ids[]=mem_1".to_owned(), "memory_store_ids"),
    ] {
        invalid(&client.get(&path).await, &format!("`{field}`"));
    }

    let new_store = async || Store::make(&client, "one of many").await;
    let mut stores = Vec::new();
    for _ in 0..3 {
        let store = new_store().await;
        for (path, times) in [("/y", 0), ("/z", 0), ("/x", 1), ("/w", 2), ("/v", 3)] {
            store.create(path, &format!("tea{}", " and cake".repeat(times))).await;
        }
        stores.push(store.id);
    }
    let place = |hit: &Value| ["memory_store_id", "path"].map(|field| text(&hit[field]).to_owned());
    let whole = client.all("/v1/search?query=tea&limit=50").await;
    assert_eq!(whole.len(), 15, "{whole:?}");
    for pair in whole.windows(2) {
        let [higher, lower] = [&pair[0], &pair[1]].map(|hit| hit["score"].as_f64().unwrap());
        let is_tie = higher.to_bits() == lower.to_bits();
        assert!(higher >= lower && (!is_tie || place(&pair[0]) < place(&pair[1])), "{whole:?}");
    }
    stores.sort();
    let tied = stores.iter().flat_map(|store| ["/y", "/z"].map(|path| [store.clone(), path.to_owned()]));
    let first: Vec<_> = whole[..6].iter().map(place).collect();
    assert_eq!(first, tied.collect::<Vec<_>>(), "of the same content in each store");
    for limit in [1, 4, 7] {
        let paged = client.all(&format!("/v1/search?query=tea&limit={limit}")).await;
        assert_eq!(paged, whole, "{limit} a page");
    }
    stores.reverse();
    let chosen = format!("/v1/search?query=tea&limit=4{}", choice_of(&stores));
    assert_eq!(client.all(&chosen).await, whole, "in whatever order the stores are named");

    for _ in 3..101 {
        stores.push(new_store().await.id);
    }
    let search = async |choice: &str| client.get(&format!("/v1/search?query=a{choice}")).await;
    ok(&search(&choice_of(&stores[1..])).await);
    for choice in [String::new(), choice_of(&stores)] {
        invalid(&search(&choice).await, "`memory_store_ids`");
    }
}

fn choice_of(stores: &[String]) -> String {
    format!("&memory_store_ids[]={}", stores.join("&memory_store_ids[]="))
}
