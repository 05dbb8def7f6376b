//! The agent tools over HTTP, beside the memory tool.

use keepsake_core::ContentHash;
use serde_json::{Value, json};

use crate::support::client::ToolResult;
use crate::support::{Client, Deployment, Pair, Tenant};

#[tokio::test(flavor = "multi_thread")]
async fn agent_tools_answer() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let tools = offered_tools(&client).await;
    let mut used = every_tool_works_on_the_files_of_the_others(&client, &tenant).await;
    used.sort_unstable();
    used.dedup();
    let mut offered: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    offered.sort_unstable();
    assert_eq!(used, offered, "every offered tool can be called");

    let model = Model { client: &client, tenant: &tenant };
    model.listing_shows_first_lines_and_pages_repeat_no_file().await;
    model.changes_tell_hash_and_size().await;
    model.preconditions_are_checked_against_the_stored_content().await;
    model.errors_name_the_path_and_what_is_there().await;
    model.long_file_is_read_in_parts().await;
    model.search_stays_below_its_prefix_and_pages_repeat_no_hit().await;
    model.secret_that_is_there_already_is_not_refused().await;
}

/// What a harness sends as `tools`.
async fn offered_tools(client: &Client) -> Vec<Value> {
    let answer = client.get("/v1/tools").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["next_page"], Value::Null);
    let tools = body["data"].as_array().unwrap().clone();
    assert_eq!(tools[0], json!({"type": "memory_20250818", "name": "memory"}));
    for tool in &tools[1..] {
        let fields: Vec<_> = tool.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields.len(), 3, "{fields:?}");
        assert_eq!(tool["input_schema"]["type"], "object", "{tool}");
        assert!(tool["description"].as_str().unwrap().len() > 40, "{tool}");
    }
    tools
}

/// Calls each tool; answers the names of all.
async fn every_tool_works_on_the_files_of_the_others(client: &Client, tenant: &Tenant) -> Vec<&'static str> {
    let path = "/memories/day.md";
    let of = json!({"path": path});
    let write = json!({"path": path, "content": "# Day\none\n", "precondition": {"type": "not_exists"}});
    let append = json!({"path": path, "content": "two"});
    let insert = json!({"command": "insert", "path": path, "insert_line": 3, "insert_text": "three"});
    let edits = json!([{"old_str": "one", "new_str": "1"}, {"old_str": "two", "new_str": "2"}]);
    let edits = json!({"path": path, "edits": edits});
    let view = json!({"command": "view", "path": path});
    let shown =
        "Here's the content of PATH with line numbers:\n     1\t# Day\n     2\t1\n     3\t2\n     4\tthree";
    let calls = [
        ("memory_write", write, "File PATH has been created (10 bytes"),
        ("memory_append", append, "The text has been added at the end of PATH"),
        ("memory", insert, "The file PATH has been edited."),
        ("memory_edit", edits, "The file PATH has been edited, 2 edits"),
        ("memory_read", of.clone(), "PATH: 16 bytes"),
        ("memory_list", json!({}), "Files below /memories"),
        ("memory_search", json!({"query": "day"}), "Matching memories"),
        ("memory", view, shown),
        ("memory_delete", of, "Successfully deleted PATH"),
    ];
    for (position, (name, input, begins)) in calls.iter().enumerate() {
        let id = format!("toolu_{position}");
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
        let answer = client.call(tenant.store_id, &block).await;
        assert_eq!(answer.json()["tool_use_id"], id);
        let result = answer.tool_result();
        assert!(!result.is_error, "{result:?}");
        let begins = begins.replace("PATH", path);
        assert!(result.content.starts_with(&begins), "{result:?}");
    }
    let read = json!({"type": "tool_use", "name": "memory_read", "input": {"path": path}});
    let result = client.tool(tenant, &read).await;
    assert!(result.is_error, "{result:?}");
    // A bare input is the memory tool's.
    let bare = client.call(tenant.store_id, &json!({"path": path})).await;
    assert_eq!(bare.status, 400, "{}", bare.text);
    calls.map(|(name, ..)| name).to_vec()
}

/// A model that works on a store.
struct Model<'a> {
    client: &'a Client,
    tenant: &'a Tenant,
}

impl Model<'_> {
    async fn call(&self, name: &str, input: &Value) -> ToolResult {
        let block = json!({"type": "tool_use", "name": name, "input": input});
        self.client.tool(self.tenant, &block).await
    }

    /// The text of a call that must succeed.
    async fn done(&self, name: &str, input: Value) -> String {
        let result = self.call(name, &input).await;
        assert!(!result.is_error, "{name} {input}: {}", result.content);
        result.content
    }

    /// The text of a call that must not.
    async fn not_done(&self, name: &str, input: Value) -> String {
        let result = self.call(name, &input).await;
        assert!(result.is_error, "{name} {input}: {}", result.content);
        result.content
    }

    /// What is listed, without times, and the next page.
    async fn entries(&self, input: Value) -> (Vec<String>, Option<String>) {
        let told = self.done("memory_list", input).await;
        let (listing, note) = told.split_once("\n\n").unwrap_or((told.as_str(), ""));
        let entry = |line: &str| match *line.split('\t').collect::<Vec<_>>() {
            [size, _, path, first_line] => format!("{path} {size} {first_line}"),
            _ => line.to_owned(),
        };
        let entries = listing.lines().skip(1).map(entry).collect();
        (entries, page_in(note))
    }

    async fn listing_shows_first_lines_and_pages_repeat_no_file(&self) {
        let empty = self.done("memory_list", json!({})).await;
        assert_eq!(empty, "/memories is empty.");
        let mut all = vec!["/memories/.hidden 0B ".to_owned()];
        for number in 0..7 {
            let path = format!("/memories/d/{number}.md");
            self.done("memory_write", write(&path, &format!("# {number}\nmore"))).await;
            all.push(format!("{path} 8B # {number}"));
        }
        self.done("memory_write", write("/memories/d/deep/x.md", "x")).await;
        self.done("memory_write", write("/memories/.hidden", "")).await;
        all.push("/memories/d/deep/x.md 1B x".to_owned());
        let (mut told, mut page) = (Vec::new(), None);
        loop {
            let (entries, next) = self.entries(json!({"limit": 4, "page": page})).await;
            assert!(!entries.is_empty());
            told.extend(entries);
            page = next;
            if page.is_none() {
                break;
            }
        }
        assert_eq!(told, all);
        let (shallow, _) = self.entries(json!({"path_prefix": "/memories", "depth": 1})).await;
        assert_eq!(shallow, ["/memories/.hidden 0B ", "/memories/d/"]);
        let (deep, _) = self.entries(json!({"path_prefix": "/memories/d/deep/"})).await;
        assert_eq!(deep, ["/memories/d/deep/x.md 1B x"]);
        // A cursor is valid only for its own listing.
        let (_, next) = self.entries(json!({"limit": 1})).await;
        let text = self.not_done("memory_list", json!({"page": next.unwrap(), "depth": 1})).await;
        let why = "Error: Field `page` must be the `next_page` of a response to the same query";
        assert_eq!(text, why);
    }

    async fn changes_tell_hash_and_size(&self) {
        let path = "/memories/changed.md";
        let (write_tool, append) = ("memory_write", "memory_append");
        for (tool, content, begins, after) in [
            (write_tool, "one\n", "File PATH has been created", "one\n"),
            (write_tool, "two", "The content of PATH has been replaced", "two"),
            // The appended text is whole lines.
            (append, "3\n\n", "The text has been added at the end of PATH", "two\n3\n"),
        ] {
            let begins = begins.replace("PATH", path);
            let told = self.done(tool, write(path, content)).await;
            let state = format!("{} bytes, content_sha256 {}", after.len(), sha256(after));
            assert_eq!(told, format!("{begins} ({state})."));
            let read = self.done("memory_read", json!({"path": path})).await;
            assert_eq!(read, format!("{path}: {state}, the whole content follows:\n{after}"));
        }
    }

    async fn errors_name_the_path_and_what_is_there(&self) {
        let of = |path: &str| json!({"path": path});
        let below = |path: &str| json!({"path_prefix": path});
        let edit = json!({"path": "/memories/none", "edits": [{"old_str": "a"}]});
        let missing = "The path /memories/none does not exist";
        let directory = "/memories/d is a directory, not a file. List its entries with memory_list.";
        let file = "/memories/d/0.md is a file, not a directory. Read it with memory_read.";
        let above = "Path /memories/d/0.md/b cannot be created, because /memories/d/0.md is a file";
        let nul = "File /memories/d/0.md would contain a NUL character";
        let unknown = "There is no tool of this name; the tools are `memory`, `memory_list`, `memory_search`, \
                       `memory_read`, `memory_write`, `memory_edit`, `memory_append`, `memory_delete`";
        let root = "Cannot delete the /memories directory itself";
        for (tool, input, text) in [
            ("memory_list", below("/memories/none"), missing),
            ("memory_read", of("/memories/none"), missing),
            ("memory_delete", of("/memories/none"), missing),
            ("memory_edit", edit, missing),
            ("memory_list", below("/memories/d/0.md"), file),
            ("memory_read", of("/memories/d"), directory),
            ("memory_write", write("/memories/d", "x"), directory),
            ("memory_append", write("/memories", "x"), "/memories is a directory, not a file."),
            ("memory_write", write("/memories/d/0.md/b", "x"), above),
            ("memory_write", write("/memories/d/0.md", "a\0"), nul),
            ("memory_delete", of("/memories"), root),
            ("memory_forget", json!({}), unknown),
        ] {
            let text = format!("Error: {text}");
            let told = self.not_done(tool, input).await;
            assert!(told.starts_with(&text), "{told}");
        }
        self.done("memory_delete", of("/memories/d")).await;
        let told = self.not_done("memory_list", below("/memories/d")).await;
        assert!(told.contains("/memories/d does not exist"), "{told}");
    }

    async fn preconditions_are_checked_against_the_stored_content(&self) {
        let path = "/memories/checked";
        let not_exists = json!({"type": "not_exists"});
        let holds = |text: &str| json!({"type": "content_sha256", "content_sha256": sha256(text)});
        let write = |content: &str, precondition: &Value| json!({"path": path, "content": content, "precondition": precondition});
        let told = self.not_done("memory_write", write("x", &holds("x"))).await;
        assert!(told.contains("/memories/checked does not exist"), "{told}");
        self.done("memory_write", write("one", &not_exists)).await;
        let hash = sha256("one");
        for tool in ["memory_write", "memory_append"] {
            let told = self.not_done(tool, write("x", &not_exists)).await;
            assert!(told.contains(&format!("exists, with content_sha256 {hash}")), "{told}");
            let told = self.not_done(tool, write("x", &holds("other"))).await;
            assert!(told.contains(&format!("has content_sha256 {hash}")), "{told}");
        }
        let edit = |expected: &str| json!({"path": path, "edits": [{"old_str": "one", "new_str": "two"}], "precondition": holds(expected)});
        self.not_done("memory_edit", edit("other")).await;
        self.done("memory_edit", edit("one")).await;
        self.done("memory_append", write("three", &holds("two"))).await;
        // The second write finds that it was made already.
        for _ in 0..2 {
            self.done("memory_write", write("four", &holds("two\nthree\n"))).await;
        }
        let delete =
            |path: &str, expected: &str| json!({"path": path, "expected_content_sha256": sha256(expected)});
        let told = self.not_done("memory_delete", delete("/memories/d", "x")).await;
        assert!(told.contains("has no content_sha256"), "{told}");
        self.not_done("memory_delete", delete(path, "two")).await;
        self.done("memory_delete", delete(path, "four")).await;
        self.not_done("memory_read", json!({"path": path})).await;
    }

    async fn long_file_is_read_in_parts(&self) {
        let path = "/memories/long";
        let content = "äöü🙂 is more than thirty characters\n".repeat(600);
        self.done("memory_write", write(path, &content)).await;
        let (mut read, mut offset) = (String::new(), 0_u64);
        loop {
            let part = json!({"path": path, "offset": offset, "limit": 50_000});
            let told = self.done("memory_read", part).await;
            let (header, part) = told.split_once('\n').unwrap();
            assert!(header.contains(&sha256(&content)), "{header}");
            assert!(part.chars().count() <= 16_000);
            read.push_str(part);
            let Some((_, next)) = header.split_once("continue with offset ") else {
                break;
            };
            offset = next.trim_end_matches(':').parse().unwrap();
        }
        assert_eq!(read, content);
        assert_eq!(offset, 16_000);
        self.done("memory_delete", json!({"path": path})).await;
    }

    async fn search_stays_below_its_prefix_and_pages_repeat_no_hit(&self) {
        let found = async |input: Value| {
            let told = self.done("memory_search", input).await;
            let hits = told.lines().filter(|line| line.contains(", score "));
            let mut hits: Vec<_> =
                hits.map(|line| line.split(", score ").next().unwrap().to_owned()).collect();
            hits.sort();
            (hits, page_in(told.lines().last().unwrap()))
        };
        let tea = "# Drinks\nGreen tea at four.\n";
        self.done("memory_write", write("/memories/tea.md", tea)).await;
        let herbs = "Mint makes a fine tea too.\n";
        self.done("memory_write", write("/memories/garden/herbs.md", herbs)).await;
        let (herbs, tea) = ("/memories/garden/herbs.md, line 1", "/memories/tea.md, line 2");
        assert_eq!(found(json!({"query": "tea"})).await.0, [herbs, tea]);
        let below = json!({"query": "tea", "path_prefix": "/memories/garden"});
        assert_eq!(found(below).await.0, [herbs]);
        let (mut first, next) = found(json!({"query": "tea", "limit": 1})).await;
        let (second, last) = found(json!({"query": "tea", "limit": 1, "page": next.unwrap()})).await;
        first.extend(second);
        first.sort();
        assert_eq!((first, last), (vec![herbs.to_owned(), tea.to_owned()], None));
        let told = self.done("memory_search", json!({"query": "coffee"})).await;
        assert!(told.starts_with("No memory matches."), "{told}");
        let page = json!({"query": "tea", "page": "page_x"});
        let told = self.not_done("memory_search", page).await;
        assert!(told.starts_with("Error: Field `page` must be"), "{told}");
    }

    /// Also when the whole content is replaced.
    async fn secret_that_is_there_already_is_not_refused(&self) {
        let token = format!("ghp_{}", "q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu");
        let path = "/memories/old";
        self.done("memory_write", write(path, &format!("{token}\n"))).await;
        let store = format!("/v1/memory_stores/{}", self.tenant.store_id);
        let policy = json!({"sensitive_data_policy": "reject"});
        assert_eq!(self.client.post(&store, &policy).await.status, 200);
        self.done("memory_append", write(path, "more")).await;
        self.done("memory_write", write(path, &format!("before\n{token}\n"))).await;
        self.not_done("memory_write", write("/memories/new", &token)).await;
    }
}

fn write(path: &str, content: &str) -> Value {
    json!({"path": path, "content": content})
}

fn sha256(text: &str) -> String {
    ContentHash::of(text.as_bytes()).to_string()
}

/// The page that a note of a list or a search names.
fn page_in(note: &str) -> Option<String> {
    let (_, page) = note.split_once("Continue with page `")?;
    Some(page.split('`').next()?.to_owned())
}
