use super::*;
use crate::support::meaning;
use keepsake_testkit::{EmbeddingsFault, EmbeddingsServer};

const MAX_PAGE_BYTES: usize = 150 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_memories_in_parts_and_errors() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    let made = store.create("/fact.md", "# A fact\n").await;
    let base = format!("/console/stores/{}", store.id);
    let path = format!("{base}/memories/{}", made["id"].as_str().unwrap());
    let restore = format!("{base}/versions/{}/restore", made["memory_version_id"].as_str().unwrap());
    for _ in 0..2 {
        let page = browser.open(&path).await;
        let never_read = "Last read</dt><dd><span class=\"none\">never by an agent</span>";
        says(&page.text, &["<h1>A fact</h1>", "/console/keys/apikey_", never_read]);
        // It changes nothing, and is no use by an agent.
        browser.act(&page, &restore, &[]).await;
    }
    let file = browser.open(&format!("{path}/file")).await;
    assert_eq!(file.text, "# A fact\n");
    assert_eq!(file.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(file.header("content-disposition"), "attachment; filename*=UTF-8''fact.md");
    // A directory has the number, the size and the last change of the memories below it.
    store.create("/notes/2026/plan.md", "12345").await;
    let root = browser.open(&base).await;
    root.has(">1 memory</span></td><td class=\"num\">5 B</td><td><time datetime=\"");
    let directory = browser.open(&format!("{base}?path=%2Fnotes%2F2026%2F")).await;
    let changed = "<dt>Last change</dt><dd><time datetime=\"";
    let erase = "prefix=%2Fnotes%2F2026%2F\">Erase the directory";
    says(&directory.text, &["<dt>Memories</dt><dd>1</dd>", changed, "aria-current=\"page\"><svg", erase]);
    // The calls of a session have a directory without its last slash.
    let leads = browser.get(&format!("{base}?path=%2Fnotes%2F2026")).await.answered(303);
    assert_eq!(leads.location(), format!("{base}?path=%2Fnotes%2F2026%2F"));
    // The name of a file counts more than its directories, however many memories are before it.
    for part in 0..2 {
        let create = |n| json!({"type": "create", "path": format!("/a-fact/{part}-{n}"), "content": "x"});
        let operations: Vec<_> = (0..500).map(create).collect();
        ok(&store.batch(&json!({"operations": operations})).await);
    }
    for query in ["q=FACT", "q=%2Ffact", &format!("q=fact&store={}", store.id)] {
        // The palette does not wait for a store that takes long to load.
        let palette = format!("/console/palette?{query}");
        soon(&palette, async || browser.clone().open(&palette).await.text.contains(&path)).await;
    }
    browser.open("/console/palette?q=%2Fnotes%2Ffact").await.lacks(&path);
    browser.open("/console/overview").await.has("#never-read\">200 of 200</a>");
    let at_path = browser.get(&format!("{base}?path=%2Ffact.md")).await.answered(303);
    assert_eq!(at_path.location(), path);

    for (path, content) in [
        ("/lines.md", "<a&b>\n".repeat(17_000)),
        ("/line.md", "\"'<&>".repeat(20_000)),
        ("/markdown.md", "* <b>\n".repeat(15_000)),
        ("/quotes.md", "> ".repeat(48 << 10)),
    ] {
        let made = store.create(path, &content).await;
        let memory = format!("/console/stores/{}/memories/{}", store.id, made["id"].as_str().unwrap());
        for view in ["", "?raw=1", "?line=500", "/history", "/delete"] {
            let bytes = browser.open(&format!("{memory}{view}")).await.text.len();
            assert!(bytes <= MAX_PAGE_BYTES, "{path}{view}: {bytes}");
        }
        assert_eq!(browser.open(&format!("{memory}/file")).await.text, content);
    }

    let missing = browser.get("/console/stores/memstore_00000000000000000000000001").await.answered(404);
    let id = missing.header("request-id");
    says(&missing.text, &["The memory store was not found.", "/console/sign-out", id]);
    let unknown = browser.get("/console/nothing").await.answered(404);
    assert_eq!(unknown.header("content-type"), "text/html; charset=utf-8");
    says(&unknown.text, &["There is no such page.", "/console/sign-out"]);
    browser.get("/console/sign-out").await.answered(405).has("A form leads to this address");
    browser.open("/console/search?q=%22&prefix=..").await.has("role=\"alert\"");
    let wrong = browser.get("/console/audit?from=yesterday&action=session.create").await.answered(400);
    says(&wrong.text, &["From must be a day", "value=\"session.create\" selected", "aria-invalid"]);
    browser.open("/console/audit?action=tenant.create").await.has("<td><bdi>tests</bdi></td>");
    assert_eq!(browser.get("/").await.answered(303).location(), "/console");
    let program = browser.request(Method::GET, "/").header("accept", "application/json");
    browser.send(program).await.answered(404);
    assert_eq!(browser.get("/console").await.answered(303).location(), "/console/overview");
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_shows_what_was_read_and_written_and_by_whom() {
    let (_deployment, _, _server, store, mut browser) = store_in_console().await;
    browser.open("/console/overview").await.has("Nothing was written yet");
    let made = store.create("/plan.md", "one").await;
    let in_an_hour = Timestamp::from_micros(micros(&made["created_at"]) + 3_600_000_000).to_rfc3339();
    for content in ["two", "three"] {
        store.update(&made, &json!({"content": content, "expires_at": in_an_hour})).await;
    }
    let taken = store.client.post(&store.memories(), &json!({"path": "/plan.md", "content": "four"})).await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    let attached = json!([{"type": "memory_store", "memory_store_id": store.id}]);
    let bot = json!({"type": "agent", "id": "a", "name": "support-bot"});
    let new = json!({"agent": bot, "environment_id": "e", "title": "<Ticket>", "resources": attached});
    let session = new_session(&store.client, &new).await;
    let path = format!("{}/by-bot.md", text(&session["resources"][0]["mount_path"]));
    let call = block("memory", &json!({"command": "create", "path": path, "file_text": "one"}));
    let calls = format!("/v1/sessions/{}/tool_calls", text(&session["id"]));
    ok(&store.client.with_key(text(&session["token"])).post(&calls, &call).await);
    let read = store.read(&made).await;
    let readers = format!("/console/stores/{}/memories/{}/readers", store.id, text(&made["id"]));
    browser.open(readers.trim_end_matches("/readers")).await.has(&format!("<dd><a href=\"{readers}\">"));
    // The answer comes after a flush.
    ok(&store.client.get(&format!("{}/readers", store.path)).await);
    let shown = "\">modified <time datetime=";
    let of_readers = [">by the API<", ">in the console<", ">Changes of this reader<"];
    let parts = ["Open the memory", "aria-current=\"page\">Memories", "through 20", shown];
    let page = browser.open(&readers).await;
    says(&page.text, &parts);
    says(&page.text, &of_readers);
    let of_version =
        format!("/console/stores/{}/versions/{}/readers", store.id, text(&read["memory_version_id"]));
    browser.open(&of_version).await.has(shown);
    let of_session = browser.open(&format!("/console/sessions/{}/reads", text(&session["id"]))).await;
    of_session.has("support-bot · &lt;Ticket&gt;</bdi></a></nav>");
    browser.open("/console/palette?q=Support-b").await.has("&lt;Ticket&gt;");
    let palette = browser.open(&format!("/console/palette?q=undo&store={}", store.id)).await;
    palette.has(&format!("/console/stores/{}/undo", store.id));
    let page = browser.open("/console/overview?days=90").await;
    let history = format!("/console/stores/{}/history", store.id);
    let often = format!("/memories/{}/history\">3</a>", text(&made["id"]));
    let totals = ["#written\">1 read by agents</a></h2>", "#written\">4 writes</a></h2>"];
    says(&page.text, &totals);
    says(&page.text, &[": 4 writes – Tools 1, API 3</title>", "Show as table", "plan.md", &often]);
    says(&page.text, &["#refused\">0 refused changes, 1 conflict</a></h2>"]);
    says(&page.text, &["support-bot · &lt;Ticket&gt;", "API keys", "for backups: Console\u{a0}1.</p>"]);
    says(&page.text, &["<td class=\"wide\"><bdi>support-bot</bdi></td>", "\">+2 memories</a>"]);
    says(&page.text, &["/usage#expires\">1</a>", "/usage#never-read\">1</a>"]);
    assert_eq!(page.text.matches("class=\"day\"").count(), 270);
    let by_bot = browser.open(&format!("{history}?actor=Support-bot+%C2%B7+%3Cticket%3E&period=7")).await;
    by_bot.has("by-bot.md");
    by_bot.lacks("plan.md");
    for (filter, problem) in [
        ("actor=sesn_1", "The author fits no name or id"),
        ("period=2", "Period must be 1, 7 or 30 days"),
        ("operation=seen", "Operation must be created, modified or deleted"),
        ("from=2026-02-01&to=2026-01-31", "To must not be before the first day"),
    ] {
        browser.get(&format!("{history}?{filter}")).await.answered(400).has(problem);
    }
    browser.open(&format!("/console/sessions?store={}", &store.id[..14])).await.has("support-bot");
    browser.get("/console/search?q=a&store=none").await.answered(400).has("Store fits no name or id");
    page.has(&format!("<a href=\"{history}?from="));
    browser.open(&format!("/console/stores/{}/usage?days=7", store.id)).await.has(": 1 read");
    browser.get("/console/overview?days=500").await.answered(400).has("Days must be");
    let view = block("memory", &json!({"command": "view", "path": path}));
    ok(&store.client.with_key(text(&session["token"])).post(&calls, &view).await);
    let shown = browser.open(&format!("/console/sessions/{}/reads", text(&session["id"]))).await;
    shown.has(&format!("<span class=\"quiet\">in</span> <a href=\"/console/stores/{}\"><bdi>", store.id));
    shown.has("<td class=\"whole\">the agent</td>");
}

#[tokio::test(flavor = "multi_thread")]
async fn search_page_says_what_found_a_hit_and_why() {
    let embeddings = EmbeddingsServer::start(meaning::CONCEPTS).await;
    let operator = Operator::new();
    let config = ServerConfig { more: meaning::config(&embeddings).more, ..operator.config.clone() };
    let (_deployment, tenant, server, client) = started_with(Pair::Sqlite, &config).await;
    let mut browser = Browser::signed_in(&server.url(), &tenant.key).await;
    let store = Store::of(&client, &tenant);
    for (path, content) in [
        ("/style.md", "She prefers terse replies.\n"),
        ("/ship.md", "We ship on Tuesdays.\n"),
        ("/trip.md", "Bring an umbrella.\n"),
    ] {
        store.create(path, content).await;
    }
    meaning::is_complete(&client, tenant.store_id).await;
    let page = browser.open("/console/search?q=keep+it+short").await;
    says(&page.text, &["3 hits on this page, best first.</p>", "She prefers terse replies."]);
    says(&page.text, &["found by meaning, line 1", "<summary>Why</summary><p>Score 0."]);
    page.has(": words 0.00, meaning 0.");
    page.has("one of the closest, line 1");
    browser.open("/console/search?q=ship+on+tuesdays").await.has("found by words and meaning, line 1");
    let quoted = browser.open("/console/search?q=%22terse+replies%22").await;
    quoted.has("Note: only words were searched, because the query has a quoted phrase.");
    quoted.lacks("found by");
    embeddings.fail(EmbeddingsFault::Unavailable);
    let words = browser.open("/console/search?q=invoices+and+umbrellas").await;
    words.has("Note: only words were searched, because the meaning of the query could not be computed.");
    words.has("/memories/");
    let health = Browser::signed_in(&operator.url, &operator.token).await.open("/console/health").await;
    health.has("At the last search, the meaning of the query could not be computed.");
    soon("the log says why", async || server.output().contains("endpoint answered 503")).await;
    let usage = browser.open(&format!("/console/stores/{}/usage", tenant.store_id)).await;
    usage.has("<dt>Searched by meaning</dt><dd>3 memories, ");
    usage.lacks("<dd>3 memories, 0 B of vectors");
}
