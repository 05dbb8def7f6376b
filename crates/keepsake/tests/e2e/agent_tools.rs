//! The agent tools over HTTP, beside the memory tool.

use crate::api::support::holds;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn agent_tools_answer() {
    let (_deployment, _server, tenant, client) = on_sqlite().await;
    let model = Model { client: &client, tenant: &tenant };
    let tools = ok(&client.get("/v1/tools").await)["data"].as_array().unwrap().clone();
    assert_eq!((tools.len(), &tools[0]), (8, &json!({"type": "memory_20250818", "name": "memory"})));
    for tool in &tools[1..] {
        assert_eq!(tool["input_schema"]["type"], "object", "{tool}");
        assert!(tool["description"].is_string() && tool.as_object().unwrap().len() == 3, "{tool}");
    }
    for name in strings(&tools, "name") {
        let told = client.tool(&tenant, &block(&name, &json!({}))).await.content;
        assert!(!told.contains("no tool of this name"), "{name} is offered: {told}");
    }
    model.listing_shows_first_lines_and_pages_repeat_no_file().await;
    model.preconditions_are_checked_against_the_stored_content().await;
    model.errors_name_the_path_and_what_is_there().await;
    model.edits_without_a_change_write_no_version().await;
    model.pages_of_long_paths_fit_into_the_view_limit().await;
}

struct Model<'a> {
    client: &'a Client,
    tenant: &'a Tenant,
}

impl Model<'_> {
    async fn done(&self, name: &str, input: Value) -> String {
        self.client.tool_ok(self.tenant, &block(name, &input)).await
    }

    async fn not_done(&self, name: &str, input: Value) -> String {
        let result = self.client.tool(self.tenant, &block(name, &input)).await;
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
        (listing.lines().skip(1).map(entry).collect(), page_in(note))
    }

    async fn listing_shows_first_lines_and_pages_repeat_no_file(&self) {
        assert_eq!(self.done("memory_list", json!({})).await, "/memories is empty.");
        self.done("memory_write", write("/memories/.hidden", "")).await;
        self.done("memory_write", write("/memories/d/0.md", "# Zero\nmore")).await;
        self.done("memory_write", write("/memories/d/deep/x.md", "x")).await;
        let (first, next) = self.entries(json!({"limit": 2})).await;
        assert_eq!(first, ["/memories/.hidden 0B ", "/memories/d/0.md 11B # Zero"]);
        let (second, end) = self.entries(json!({"limit": 2, "page": next})).await;
        assert_eq!((second, end), (vec!["/memories/d/deep/x.md 1B x".to_owned()], None));
        let input = json!({"path_prefix": "/memories/", "depth": 1.0, "limit": null, "page": null});
        let (shallow, _) = self.entries(input).await;
        assert_eq!(shallow, ["/memories/.hidden 0B ", "/memories/d/"]);
        // A cursor is valid only for its own listing.
        let (_, next) = self.entries(json!({"limit": 1})).await;
        let text = self.not_done("memory_list", json!({"page": &next, "depth": 1})).await;
        assert!(text.starts_with("Error: Field `page` must be"), "{text}");
        // A setting of the store is not listed, and leaves no page empty.
        self.done("memory_write", write("/memories/.keepsake/a", "")).await;
        let (second, _) = self.entries(json!({"limit": 1, "page": next})).await;
        assert_eq!(second, ["/memories/d/0.md 11B # Zero"]);
    }

    async fn preconditions_are_checked_against_the_stored_content(&self) {
        let path = "/memories/checked";
        let not_exists = json!({"type": "not_exists"});
        let write = |content: &str, precondition: &Value| json!({"path": path, "content": content, "precondition": precondition});
        let edit = |expected: &str| json!({"path": path, "edits": [{"old_str": "one", "new_str": "two"}], "precondition": holds(expected)});
        let delete = |path: &str, old: &str| json!({"path": path, "expected_content_sha256": sha256(old)});
        let told = self.not_done("memory_write", write("x", &holds("x"))).await;
        says(&told, &["/memories/checked does not exist"]);
        self.done("memory_write", write("one", &not_exists)).await;
        for tool in ["memory_write", "memory_append"] {
            for (precondition, how) in [(&not_exists, "exists, with"), (&holds("other"), "has")] {
                let told = self.not_done(tool, write("x", precondition)).await;
                assert!(told.contains(&format!("{how} content_sha256 {}", sha256("one"))), "{told}");
            }
        }
        self.not_done("memory_edit", edit("other")).await;
        self.done("memory_edit", edit("one")).await;
        self.done("memory_append", write("three", &holds("two"))).await;
        // The second write finds that it was made already.
        for _ in 0..2 {
            self.done("memory_write", write("four", &holds("two\nthree\n"))).await;
        }
        let told = self.not_done("memory_delete", delete("/memories/d", "x")).await;
        assert!(told.contains("has no content_sha256"), "{told}");
        self.not_done("memory_delete", delete(path, "two")).await;
        self.done("memory_delete", delete(path, "four")).await;
        self.not_done("memory_read", json!({"path": path})).await;
    }

    async fn edits_without_a_change_write_no_version(&self) {
        let path = "/memories/same.md";
        let route = format!("/v1/memory_stores/{}/memory_versions?limit=1", self.tenant.store_id);
        let newest = async || self.client.get(&route).await.json()["data"][0]["id"].clone();
        self.done("memory_write", write(path, "one\ntwo\n")).await;
        let before = newest().await;
        let mut again = block("memory_write", &write(path, "one\ntwo\n"));
        again["id"] = json!("toolu_same");
        let first = self.client.tool(self.tenant, &again).await.content;
        assert!(first.starts_with("The content of"), "{first}");
        let replace = json!({"command": "str_replace", "path": path, "old_str": "two", "new_str": "two"});
        assert!(self.done("memory", replace).await.ends_with("     1\tone\n     2\ttwo\n     3\t"));
        let edits = json!([{"old_str": "one", "new_str": "1"}, {"old_str": "1", "new_str": "one"}]);
        let told = self.done("memory_edit", json!({"path": path, "edits": edits})).await;
        assert!(told.contains(&state("one\ntwo\n")), "{told}");
        assert_eq!(newest().await, before);
        // The call is remembered all the same: its retry does not undo a later change.
        self.done("memory_write", write(path, "three")).await;
        assert_eq!(self.client.tool(self.tenant, &again).await.content, first);
        let read = self.done("memory_read", json!({"path": path})).await;
        assert!(read.contains(&state("three")), "{read}");
    }

    async fn pages_of_long_paths_fit_into_the_view_limit(&self) {
        let name = "x".repeat(900);
        for number in 10..35 {
            self.done("memory_write", write(&format!("/memories/long/{number}{name}"), "zebra")).await;
        }
        let below = "/memories/long";
        for (tool, mut input) in [
            ("memory_list", json!({"path_prefix": below, "limit": 100})),
            ("memory_search", json!({"path_prefix": below, "limit": 50, "query": "zebra"})),
        ] {
            let mut found = 0;
            loop {
                let told = self.done(tool, input.clone()).await;
                assert!(told.chars().count() <= 16_000, "{tool}: {}", told.len());
                found += told.matches(&name).count();
                let Some(page) = page_in(&told) else { break };
                input["page"] = json!(page);
            }
            assert_eq!(found, 25, "{tool}");
        }
    }

    async fn errors_name_the_path_and_what_is_there(&self) {
        let of = |path: &str| json!({"path": path});
        let below = |path: &str| json!({"path_prefix": path});
        let missing = "The path /memories/none does not exist";
        let directory = "/memories/d is a directory, not a file. List its entries with memory_list.";
        let file = "/memories/d/0.md is a file, not a directory. Read it with memory_read.";
        let above = "Path /memories/d/0.md/b cannot be created, because /memories/d/0.md is a file";
        let nul = "File /memories/d/0.md would contain a NUL character";
        for (tool, input, text) in [
            ("memory_list", below("/memories/none"), missing),
            ("memory_list", below("/memories/d/0.md"), file),
            ("memory_read", of("/memories/d"), directory),
            ("memory_write", write("/memories/d", "x"), directory),
            ("memory_write", write("/memories/d/0.md/b", "x"), above),
            ("memory_write", write("/memories/d/0.md", "a\0"), nul),
            ("memory_forget", json!({}), "There is no tool of this name; the tools are `memory`"),
        ] {
            let told = self.not_done(tool, input).await;
            assert!(told.starts_with(&format!("Error: {text}")), "{told}");
        }
    }
}

fn write(path: &str, content: &str) -> Value {
    json!({"path": path, "content": content})
}

fn state(content: &str) -> String {
    format!("{} bytes, content_sha256 {}", content.len(), sha256(content))
}

fn page_in(note: &str) -> Option<String> {
    let (_, page) = note.split_once("Continue with page `")?;
    Some(page.split('`').next()?.to_owned())
}
