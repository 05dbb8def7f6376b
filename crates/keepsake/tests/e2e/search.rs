//! Search over HTTP: the same hits in the same order on both main pairs, on
//! every replica, and through restarts.

use serde_json::{Value, json};
use std::fmt::Write;

use crate::support::{Client, Deployment, Pair, Tenant};

/// Memories in the languages of the documents.
const MEMORIES: [(&str, &str); 8] = [
    (
        "/projects/atlas/deploy.md",
        "# Deploys\n\nWe deployed on Tuesday.\nThe retry_count of HTTPServer is 5.\n",
    ),
    ("/projects/atlas/notes.md", "Nobody deploys on Fridays. ⟦odd⟧ marks and `a.b.c`.\n"),
    ("/people/marisa.md", "Marisa went to Kiel; she prefers short answers.\n"),
    ("/id/rapat.md", "Pertemuan membahas anggaran pembayaran server.\n"),
    ("/ko/server.md", "서버를 재시작하고 로그를 확인했다.\n"),
    ("/ja/cache.md", "キャッシュサーバーを再起動する手順。\n"),
    ("/zh/hant.md", "我們在星期二部署了資料庫服務。\n"),
    ("/zh/hans.md", "我们在星期二部署了数据库服务。\n"),
];

const QUERIES: [&str; 17] = [
    "when do we deploy?",
    "retry count",
    "http server",
    "\"retry_count\"",
    "where did Marisa go",
    "bertemu membayar",
    "서버 로그",
    "キャッシュの再起動",
    "怎麼部署資料庫",
    "如何部署数据库",
    "deploy -Fridays",
    "depl* path:atlas/",
    "path:zh/",
    "a.b.c",
    "\"",
    "-nothing",
    "w14599",
];

fn search_path(tenant: &Tenant, query: &str, rest: &str) -> String {
    let query = query.bytes().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "%{byte:02X}");
        text
    });
    format!("/v1/memory_stores/{}/search?query={query}{rest}", tenant.store_id)
}

async fn search(client: &Client, tenant: &Tenant, query: &str) -> Value {
    let answer = client.get(&search_path(tenant, query, "")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text);
    answer.json()
}

fn shown(answer: &Value) -> Vec<(String, String, String)> {
    let hits = answer["data"].as_array().unwrap();
    let text = |hit: &Value, field: &str| hit[field].as_str().unwrap().to_owned();
    hits.iter().map(|hit| (text(hit, "path"), hit["score"].to_string(), text(hit, "snippet"))).collect()
}

async fn fill(client: &Client, tenant: &Tenant) {
    let memories = format!("/v1/memory_stores/{}/memories", tenant.store_id);
    for (path, content) in MEMORIES {
        let made = client.post(&memories, &json!({"path": path, "content": content})).await;
        assert_eq!(made.status, 200, "{}", made.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_pairs_find_the_same_in_the_same_order() {
    let mut found = Vec::new();
    for pair in [Pair::PostgresS3, Pair::Sqlite] {
        let deployment = Deployment::new(pair).await;
        let tenant = deployment.tenant().await;
        let mut server = deployment.start().await;
        let client = server.client(&tenant);
        fill(&client, &tenant).await;
        // As many words as a memory can have.
        let words: Vec<_> = (0..14_600).map(|number| format!("w{number:05}")).collect();
        let large = json!({"path": "/large.md", "content": words.join(" ")});
        let memories = format!("/v1/memory_stores/{}/memories", tenant.store_id);
        let made = client.post(&memories, &large).await;
        assert_eq!(made.status, 200, "{}", made.text);
        let mut answers = Vec::new();
        for query in QUERIES {
            answers.push(shown(&search(&client, &tenant, query).await));
        }
        // After a restart the index is loaded from rows; before, it was in memory.
        server.end().await;
        server.restart().await;
        let client = server.client(&tenant);
        for (query, before) in QUERIES.into_iter().zip(&answers) {
            assert_eq!(shown(&search(&client, &tenant, query).await), *before, "{query}");
        }
        found.push(answers);
    }
    assert_eq!(found[0], found[1]);
    for (query, path) in [
        ("when do we deploy?", "/projects/atlas/deploy.md"),
        ("where did Marisa go", "/people/marisa.md"),
        ("bertemu membayar", "/id/rapat.md"),
        ("서버 로그", "/ko/server.md"),
        ("キャッシュの再起動", "/ja/cache.md"),
        ("怎麼部署資料庫", "/zh/hant.md"),
        ("如何部署数据库", "/zh/hans.md"),
        ("w14599", "/large.md"),
    ] {
        let place = QUERIES.iter().position(|known| *known == query).unwrap();
        assert_eq!(found[0][place][0].0, path, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_found_at_once_on_another_replica() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let servers = [deployment.start().await, deployment.start().await];
    let [one, other] = servers.each_ref().map(|server| server.client(&tenant));
    for round in 0..20 {
        let path = format!("/memories/{round}.txt");
        let word = format!("walnut{round}");
        one.tool_ok(&tenant, &json!({"command": "create", "path": path, "file_text": word})).await;
        assert_eq!(shown(&search(&other, &tenant, &word).await).len(), 1, "{word}");
        other.tool_ok(&tenant, &json!({"command": "delete", "path": path})).await;
        assert_eq!(shown(&search(&one, &tenant, &word).await).len(), 0, "{word}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_and_refusals_are_those_of_the_document() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    fill(&client, &tenant).await;
    let answer = search(&client, &tenant, "retry_count").await;
    let hit = &answer["data"][0];
    assert_eq!(hit["type"], "memory_search_hit");
    assert_eq!(hit["memory_store_id"], tenant.store_id.to_string());
    assert_eq!(hit["line"], 4);
    assert_eq!(hit["snippet"], "The ⟦retry_count⟧ of HTTPServer is 5.\n");
    assert_eq!(answer["next_page"], Value::Null);
    let odd = search(&client, &tenant, "odd").await;
    assert_eq!(odd["data"][0]["snippet"], "Nobody deploys on Fridays. ⟦odd⟧ marks and `a.b.c`.\n");

    let first = client.get(&search_path(&tenant, "deploy", "&limit=1")).await.json();
    let page = first["next_page"].as_str().unwrap();
    let second = client.get(&search_path(&tenant, "deploy", &format!("&limit=1&page={page}"))).await.json();
    assert_ne!(first["data"][0]["path"], second["data"][0]["path"]);
    let elsewhere = format!("&path_prefix=/projects/&page={page}");
    for (path, field) in [
        (search_path(&tenant, "deploy", "&limit=51"), "limit"),
        (search_path(&tenant, "deploy", "&limit=0"), "limit"),
        (search_path(&tenant, "deploy", "&path_prefix=atlas"), "path_prefix"),
        (search_path(&tenant, "deploys", &format!("&page={page}")), "page"),
        (search_path(&tenant, "deploy", &elsewhere), "page"),
        (search_path(&tenant, &"x".repeat(1_001), ""), "query"),
        (format!("/v1/memory_stores/{}/search", tenant.store_id), "query"),
        ("/v1/search".to_owned(), "query"),
        ("/v1/search?query=a&memory_store_ids[]=mem_1".to_owned(), "memory_store_ids"),
    ] {
        let refused = client.get(&path).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        let message = refused.json()["error"]["message"].to_string();
        assert!(message.contains(&format!("`{field}`")), "{message}");
    }
}

/// The hits of all pages.
async fn all_hits(client: &Client, path: &str) -> Vec<Value> {
    let (mut hits, mut page) = (Vec::new(), String::new());
    loop {
        let answer = client.get(&format!("{path}{page}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let answer = answer.json();
        hits.extend(answer["data"].as_array().unwrap().clone());
        match answer["next_page"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => return hits,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_any_size_have_the_same_hits_and_ties_are_ordered_by_store_and_path() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let mut stores = vec![tenant.store_id.to_string()];
    for name in ["second", "third"] {
        stores.push(new_store(&client, name).await);
    }
    for store in &stores {
        for (path, times) in [("/y", 0), ("/z", 0), ("/x", 1), ("/w", 2), ("/v", 3)] {
            let content = format!("tea{}", " and cake".repeat(times));
            let memory = json!({"path": path, "content": content});
            let memories = format!("/v1/memory_stores/{store}/memories");
            let made = client.post(&memories, &memory).await;
            assert_eq!(made.status, 200, "{}", made.text);
        }
    }
    let place = |hit: &Value| {
        let text = |field: &str| hit[field].as_str().unwrap().to_owned();
        (text("memory_store_id"), text("path"))
    };
    let whole = all_hits(&client, "/v1/search?query=tea&limit=50").await;
    assert_eq!(whole.len(), 15, "{whole:?}");
    for pair in whole.windows(2) {
        let [before, after] = [&pair[0], &pair[1]];
        let [higher, lower] = [before, after].map(|hit| hit["score"].as_f64().unwrap());
        let is_tie = higher.to_bits() == lower.to_bits();
        assert!(higher >= lower && (!is_tie || place(before) < place(after)), "{whole:?}");
    }
    stores.sort();
    let mut tied = Vec::new();
    for store in &stores {
        tied.extend(["/y", "/z"].map(|path| (store.clone(), path.to_owned())));
    }
    let first: Vec<_> = whole[..6].iter().map(place).collect();
    assert_eq!(first, tied, "of the same content in each store");
    for limit in [1, 4, 7] {
        let paged = all_hits(&client, &format!("/v1/search?query=tea&limit={limit}")).await;
        assert_eq!(paged, whole, "{limit} a page");
    }
    stores.reverse();
    let chosen = stores.join("&memory_store_ids[]=");
    let chosen = format!("/v1/search?query=tea&limit=4&memory_store_ids[]={chosen}");
    let chosen = all_hits(&client, &chosen).await;
    assert_eq!(chosen, whole, "in whatever order the stores are named");
}

async fn new_store(client: &Client, name: &str) -> String {
    let made = client.post("/v1/memory_stores", &json!({"name": name})).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_hundred_stores_are_not_searched_at_once() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let mut stores = vec![tenant.store_id.to_string()];
    for _ in 0..100 {
        stores.push(new_store(&client, "one of many").await);
    }
    let chosen = |many: usize| {
        let named = stores[..many].join("&memory_store_ids[]=");
        format!("/v1/search?query=a&memory_store_ids[]={named}")
    };
    for (path, status) in [("/v1/search?query=a".to_owned(), 400), (chosen(100), 200), (chosen(101), 400)] {
        let answer = client.get(&path).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(answer.text.contains("`memory_store_ids`"), status == 400, "{}", answer.text);
    }
}
