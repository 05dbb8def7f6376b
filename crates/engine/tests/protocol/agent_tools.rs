//! The agent tools: what they do to a store, and what they never do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::join_all;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::tool::agent::{AgentResult, ListingEntry, WriteOutcome};
use keepsake_core::{ContentHash, SessionId, StoreId};
use keepsake_engine::{
    Engine, EngineError, Mounted, Mounts, NewKey, Principal, StoreDraft, StoreEdit, ToolAnswer,
};
use keepsake_index::Scope;
use serde_json::{Value, json};

use crate::test_engine::{TestEngine, tool_call, view};

crate::on_both_databases! {
    files_are_written_read_edited_appended_to_and_deleted,
    listing_shows_first_lines_and_pages_repeat_no_file,
    missing_paths_files_and_directories_have_distinct_errors,
    preconditions_are_checked_against_the_stored_content,
    long_file_is_read_in_parts,
    reads_count_as_access_and_lists_do_not,
    appends_of_two_replicas_all_take_effect,
    repeated_block_gets_the_same_answer_and_changes_nothing,
    answer_of_a_redacted_write_is_the_same_when_sent_again,
    secrets_are_refused_or_redacted_by_policy,
    limit_errors_name_the_limit,
    archived_store_can_only_be_read,
    paths_address_the_stores_of_a_session,
    search_covers_only_the_mounted_stores,
    missing_scopes_and_unknown_tools_are_refused,
}

crate::with_object_store! {
    write_with_an_outdated_precondition_is_refused,
}

/// Calls a tool as a block.
async fn answer_of(
    engine: &Engine,
    principal: &Arc<Principal>,
    mounts: impl Into<Mounts>,
    name: &str,
    id: Option<&str>,
    input: Value,
) -> Result<ToolAnswer, EngineError> {
    engine
        .tools
        .call(principal, mounts, name, tool_call(id, input))
        .await
}

impl TestEngine {
    async fn agent(&self, name: &str, input: Value) -> ToolAnswer {
        self.agent_block(&self.engine, name, None, input).await
    }

    async fn agent_block(&self, engine: &Engine, name: &str, id: Option<&str>, input: Value) -> ToolAnswer {
        answer_of(engine, &self.principal, self.store_id, name, id, input)
            .await
            .unwrap()
    }

    /// The result of a call that must succeed.
    async fn done(&self, name: &str, input: Value) -> AgentResult {
        let answer = self.agent(name, input).await;
        assert!(!answer.is_error, "{}", answer.content);
        let result = answer.result.unwrap();
        assert_eq!(answer.content, result.to_text());
        result
    }

    /// The text of a call that must not.
    async fn not_done(&self, name: &str, input: Value) -> String {
        let answer = self.agent(name, input).await;
        assert!(answer.is_error && answer.result.is_none(), "{}", answer.content);
        answer.content
    }

    async fn content_at(&self, path: &str) -> String {
        let AgentResult::Read(part) = self.done("memory_read", json!({"path": path})).await else {
            panic!("not a part of a file");
        };
        assert_eq!(part.next_offset, None);
        part.content
    }

    async fn entries(&self, input: Value) -> (Vec<String>, Option<String>) {
        let AgentResult::List(listing) = self.done("memory_list", input).await else {
            panic!("not a listing");
        };
        let told = listing.entries.into_iter().map(|entry| match entry {
            ListingEntry::File {
                path,
                content_size_bytes,
                first_line,
                ..
            } => format!("{path} {content_size_bytes} {first_line}"),
            ListingEntry::Directory { path, read_only } => {
                format!("{path}{}", if read_only { " read-only" } else { "" })
            }
        });
        (told.collect(), listing.next_page)
    }
}

fn write(path: &str, content: &str) -> Value {
    json!({"path": path, "content": content})
}

/// Outcome, hash and size of a file that was written.
fn written(result: AgentResult) -> (WriteOutcome, String, u64) {
    match result {
        AgentResult::Write(file) => {
            assert!(file.memory_id.starts_with("mem_"));
            let (hash, size) = (file.content_sha256.unwrap(), file.content_size_bytes.unwrap());
            (file.outcome, hash, size)
        }
        other => panic!("{other:?}"),
    }
}

fn hash(text: &str) -> String {
    ContentHash::of(text.as_bytes()).to_string()
}

async fn files_are_written_read_edited_appended_to_and_deleted(setup: TestEngine) {
    let path = "/memories/notes/a.md";
    for (content, outcome) in [
        ("one\n", WriteOutcome::Created),
        ("two\n", WriteOutcome::Replaced),
    ] {
        let result = setup.done("memory_write", write(path, content)).await;
        assert_eq!(written(result), (outcome, hash(content), 4));
        assert_eq!(setup.content_at(path).await, content);
    }
    let edits = json!([{"old_str": "two", "new_str": "2"}, {"old_str": "2\n", "new_str": "2\n3\n"}]);
    let result = setup
        .done("memory_edit", json!({"path": path, "edits": edits}))
        .await;
    let AgentResult::Edit(edited) = result else {
        panic!("{result:?}")
    };
    assert_eq!(edited.content_sha256, Some(hash("2\n3\n")));
    assert_eq!(edited.snippets[0].text, "2\n3\n");
    let result = setup.done("memory_append", write(path, "4")).await;
    assert_eq!(written(result), (WriteOutcome::Appended, hash("2\n3\n4\n"), 6));
    let result = setup
        .done("memory_append", write("/memories/log.md", "began\n\n"))
        .await;
    assert_eq!(written(result), (WriteOutcome::Created, hash("began\n"), 6));
    // Both families see the same files.
    assert_eq!(setup.text_at(&setup.engine, path).await, "2\n3\n4\n");

    setup
        .done("memory_delete", json!({"path": "/memories/notes"}))
        .await;
    assert_eq!(
        setup.entries(json!({})).await,
        (vec!["/memories/log.md 6 began".to_owned()], None)
    );
    for (tool, input) in [
        ("memory_read", json!({"path": path})),
        ("memory_delete", json!({"path": path})),
        ("memory_edit", json!({"path": path, "edits": [{"old_str": "a"}]})),
    ] {
        let text = setup.not_done(tool, input).await;
        assert!(text.contains("/memories/notes/a.md does not exist"), "{text}");
    }
    let text = setup
        .not_done("memory_delete", json!({"path": "/memories"}))
        .await;
    assert_eq!(text, "Error: Cannot delete the /memories directory itself");
}

async fn listing_shows_first_lines_and_pages_repeat_no_file(setup: TestEngine) {
    assert_eq!(setup.entries(json!({})).await, (vec![], None));
    for number in 0..7 {
        setup
            .create(&format!("/memories/d/{number}.md"), &format!("# {number}\nmore"))
            .await;
    }
    setup.create("/memories/d/deep/x.md", "x").await;
    setup.create("/memories/.hidden", "").await;
    let all = [
        "/memories/.hidden 0 ",
        "/memories/d/0.md 8 # 0",
        "/memories/d/1.md 8 # 1",
        "/memories/d/2.md 8 # 2",
        "/memories/d/3.md 8 # 3",
        "/memories/d/4.md 8 # 4",
        "/memories/d/5.md 8 # 5",
        "/memories/d/6.md 8 # 6",
        "/memories/d/deep/x.md 1 x",
    ];
    let (mut told, mut page) = (Vec::new(), Value::Null);
    loop {
        let (entries, next) = setup.entries(json!({"limit": 4, "page": page})).await;
        assert!(!entries.is_empty());
        told.extend(entries);
        match next {
            Some(next) => page = json!(next),
            None => break,
        }
    }
    assert_eq!(told, all);
    let shallow = setup
        .entries(json!({"path_prefix": "/memories", "depth": 1}))
        .await;
    assert_eq!(shallow.0, ["/memories/.hidden 0 ", "/memories/d/"]);
    let deep = setup.entries(json!({"path_prefix": "/memories/d/deep/"})).await;
    assert_eq!(deep.0, ["/memories/d/deep/x.md 1 x"]);

    // A cursor is valid only for its own listing.
    let (_, next) = setup.entries(json!({"limit": 1})).await;
    let text = setup
        .not_done("memory_list", json!({"page": next, "depth": 1}))
        .await;
    assert_eq!(
        text,
        "Error: Field `page` must be the `next_page` of a response to the same query"
    );
}

async fn missing_paths_files_and_directories_have_distinct_errors(setup: TestEngine) {
    setup.create("/memories/d/a.md", "a").await;
    for (tool, input, text) in [
        (
            "memory_list",
            json!({"path_prefix": "/memories/nowhere"}),
            "Error: The path /memories/nowhere does not exist. Please provide a valid path.",
        ),
        (
            "memory_list",
            json!({"path_prefix": "/memories/d/a.md"}),
            "Error: /memories/d/a.md is a file, not a directory. Read it with memory_read.",
        ),
        (
            "memory_read",
            json!({"path": "/memories/d"}),
            "Error: /memories/d is a directory, not a file. List its entries with memory_list.",
        ),
        (
            "memory_write",
            write("/memories/d", "x"),
            "Error: /memories/d is a directory, not a file. List its entries with memory_list.",
        ),
        (
            "memory_append",
            write("/memories", "x"),
            "Error: /memories is a directory, not a file. List its entries with memory_list.",
        ),
        (
            "memory_write",
            write("/memories/d/a.md/b", "x"),
            "Error: Path /memories/d/a.md/b cannot be created, because /memories/d/a.md is a file and not a directory",
        ),
    ] {
        assert_eq!(setup.not_done(tool, input).await, text);
    }
    assert_eq!(setup.operations().await, ["created"]);
}

async fn preconditions_are_checked_against_the_stored_content(setup: TestEngine) {
    let not_exists = json!({"type": "not_exists"});
    let holds = |text: &str| json!({"type": "content_sha256", "content_sha256": hash(text)});
    let write = |content: &str, precondition: &Value| json!({"path": "/memories/a", "content": content, "precondition": precondition});
    let text = setup.not_done("memory_write", write("x", &holds("x"))).await;
    assert!(text.contains("/memories/a does not exist"), "{text}");
    setup.done("memory_write", write("one", &not_exists)).await;
    for tool in ["memory_write", "memory_append"] {
        let text = setup.not_done(tool, write("x", &not_exists)).await;
        assert!(
            text.contains(&format!(
                "/memories/a exists, with content_sha256 {}",
                hash("one")
            )),
            "{text}"
        );
        let text = setup.not_done(tool, write("x", &holds("other"))).await;
        assert!(
            text.contains(&format!("/memories/a has content_sha256 {}", hash("one"))),
            "{text}"
        );
    }
    let edit = |expected: &str| json!({"path": "/memories/a", "edits": [{"old_str": "one", "new_str": "two"}], "precondition": holds(expected)});
    setup.not_done("memory_edit", edit("other")).await;
    setup.done("memory_edit", edit("one")).await;
    setup.done("memory_append", write("three", &holds("two"))).await;
    // A retry of a write that already took effect succeeds.
    setup
        .done("memory_write", write("four", &holds("two\nthree\n")))
        .await;
    setup
        .done("memory_write", write("four", &holds("two\nthree\n")))
        .await;

    let delete =
        |path: &str, expected: &str| json!({"path": path, "expected_content_sha256": hash(expected)});
    setup.create("/memories/d/b", "b").await;
    let text = setup.not_done("memory_delete", delete("/memories/d", "b")).await;
    assert!(text.contains("has no content_sha256"), "{text}");
    setup
        .not_done("memory_delete", delete("/memories/a", "two"))
        .await;
    setup.done("memory_delete", delete("/memories/a", "four")).await;
    assert!(setup.head("/a").await.is_none());
}

async fn long_file_is_read_in_parts(setup: TestEngine) {
    let limits = LimitOverrides {
        max_view_chars: Some(10),
        ..LimitOverrides::default()
    };
    let (principal, store_id) = setup.tenant_with(limits).await;
    let content = "äöü🙂 is more than ten characters\n".repeat(3);
    let made = answer_of(
        &setup.engine,
        &principal,
        store_id,
        "memory_write",
        None,
        write("/memories/a", &content),
    );
    assert!(!made.await.unwrap().is_error);
    let (mut read, mut offset) = (String::new(), 0);
    loop {
        let input = json!({"path": "/memories/a", "offset": offset, "limit": 50});
        let answer = answer_of(&setup.engine, &principal, store_id, "memory_read", None, input);
        let Some(AgentResult::Read(part)) = answer.await.unwrap().result else {
            panic!("not a part of a file");
        };
        assert!(part.content.chars().count() <= 10);
        assert_eq!(part.content_sha256, hash(&content));
        read.push_str(&part.content);
        match part.next_offset {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(read, content);
}

async fn reads_count_as_access_and_lists_do_not(setup: TestEngine) {
    setup.create("/memories/a", "a").await;
    setup.entries(json!({})).await;
    setup
        .not_done("memory_read", json!({"path": "/memories/a", "offset": 9}))
        .await;
    assert_eq!(setup.engine.replica.flush().await.unwrap(), 0);
    setup.content_at("/memories/a").await;
    assert_eq!(setup.engine.replica.flush().await.unwrap(), 1);
}

async fn appends_of_two_replicas_all_take_effect(setup: TestEngine) {
    let other = setup.replica();
    let appends = (0..16).map(|number| {
        let engine = if number % 2 == 0 { &setup.engine } else { &other };
        setup.agent_block(
            engine,
            "memory_append",
            None,
            write("/memories/log", &format!("line {number}")),
        )
    });
    for answer in join_all(appends).await {
        assert!(!answer.is_error, "{}", answer.content);
    }
    let content = setup.content_at("/memories/log").await;
    let mut lines: Vec<_> = content.lines().map(str::to_owned).collect();
    lines.sort();
    let mut expected: Vec<_> = (0..16).map(|number| format!("line {number}")).collect();
    expected.sort();
    assert_eq!(lines, expected);
}

async fn write_with_an_outdated_precondition_is_refused(setup: TestEngine) {
    setup.create("/memories/a", "one").await;
    let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
    let raced = Arc::new(AtomicU32::new(0));
    setup.blobs.before_put(move |_| {
        let (other, principal, raced) = (other.clone(), Arc::clone(&principal), Arc::clone(&raced));
        async move {
            if raced.fetch_add(1, Ordering::SeqCst) == 0 {
                let theirs = answer_of(
                    &other,
                    &principal,
                    store_id,
                    "memory_write",
                    None,
                    write("/memories/a", "theirs"),
                );
                assert!(!theirs.await.unwrap().is_error);
            }
            Ok(())
        }
    });
    let precondition = json!({"type": "content_sha256", "content_sha256": hash("one")});
    let input = json!({"path": "/memories/a", "content": "ours", "precondition": precondition});
    let text = setup.not_done("memory_write", input).await;
    assert!(text.contains(&hash("theirs")), "{text}");
    assert_eq!(setup.content_at("/memories/a").await, "theirs");
}

async fn repeated_block_gets_the_same_answer_and_changes_nothing(setup: TestEngine) {
    let edits = json!([{"old_str": "one", "new_str": "1"}]);
    let calls = [
        ("memory_write", write("/memories/a", "one\n")),
        ("memory_append", write("/memories/a", "two")),
        ("memory_edit", json!({"path": "/memories/a", "edits": edits})),
        ("memory_append", write("/memories/b", "new")),
        ("memory_write", write("/memories/a", "three")),
        (
            "memory_delete",
            json!({"path": "/memories/a", "expected_content_sha256": hash("three")}),
        ),
    ];
    let mut told = Vec::new();
    for (position, (tool, input)) in calls.iter().enumerate() {
        let id = format!("toolu_{position}");
        let answer = setup
            .agent_block(&setup.engine, tool, Some(&id), input.clone())
            .await;
        assert!(!answer.is_error, "{}", answer.content);
        told.push((id, tool, input.clone(), answer));
    }
    let operations = setup.operations().await;
    assert_eq!(operations.len(), calls.len());
    // Long after, on another replica too.
    let other = setup.replica();
    for engine in [&setup.engine, &other] {
        for (id, tool, input, answer) in &told {
            let again = setup.agent_block(engine, tool, Some(id), input.clone()).await;
            assert_eq!(&again, answer);
        }
    }
    assert_eq!(setup.operations().await, operations);
    // The same id and input of another tool is another call.
    let (id, _, input, _) = &told[3];
    let answer = setup
        .agent_block(&setup.engine, "memory_write", Some(id), input.clone())
        .await;
    assert!(
        answer
            .content
            .starts_with("The content of /memories/b has been replaced"),
        "{}",
        answer.content
    );
}

fn token() -> String {
    format!("ghp_{}", "q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu")
}

async fn set_policy(setup: &TestEngine, policy: &str) {
    let edit = StoreEdit {
        policy: Some(policy.to_owned()),
        ..StoreEdit::default()
    };
    let store = setup
        .engine
        .stores
        .update(&setup.principal, setup.store_id, edit, None);
    store.await.unwrap();
}

async fn answer_of_a_redacted_write_is_the_same_when_sent_again(setup: TestEngine) {
    set_policy(&setup, "redact").await;
    let edits = json!([{"old_str": "kept", "new_str": format!("kept\nuse {}", token())}]);
    for (position, (tool, input)) in [
        (
            "memory_write",
            write("/memories/a", &format!("kept\n{}", token())),
        ),
        ("memory_append", write("/memories/a", &token())),
        ("memory_edit", json!({"path": "/memories/a", "edits": edits})),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("toolu_{position}");
        let first = setup
            .agent_block(&setup.engine, tool, Some(&id), input.clone())
            .await;
        assert!(
            first.content.contains("1 secret replaced by `[redacted:…]`"),
            "{}",
            first.content
        );
        let again = setup.agent_block(&setup.replica(), tool, Some(&id), input).await;
        assert_eq!(again, first);
    }
    let content = setup.content_at("/memories/a").await;
    assert!(!content.contains(&token()));
    assert_eq!(content.matches("[redacted:github_token]").count(), 3);
}

async fn secrets_are_refused_or_redacted_by_policy(setup: TestEngine) {
    setup
        .done("memory_write", write("/memories/old", &format!("{}\n", token())))
        .await;
    set_policy(&setup, "reject").await;
    let text = setup
        .not_done("memory_write", write("/memories/a", &format!("\n{}", token())))
        .await;
    assert!(
        text.contains("refuses github_token in line 2 of /memories/a") && !text.contains(&token()),
        "{text}"
    );
    // Existing lines are not scanned again, even when the whole content is replaced.
    setup.done("memory_append", write("/memories/old", "more")).await;
    setup
        .done(
            "memory_write",
            write("/memories/old", &format!("before\n{}\n", token())),
        )
        .await;
    assert!(setup.head("/a").await.is_none());
}

async fn limit_errors_name_the_limit(setup: TestEngine) {
    let limits = LimitOverrides {
        bytes_per_memory: Some(20),
        memories_per_store: Some(2),
        bytes_per_store: Some(30),
        ..LimitOverrides::default()
    };
    let (principal, store_id) = setup.tenant_with(limits).await;
    let call = async |tool: &str, input: Value| {
        let answer = answer_of(&setup.engine, &principal, store_id, tool, None, input);
        answer.await.unwrap()
    };
    let refused = async |tool: &str, input: Value, text: &str| {
        let answer = call(tool, input).await;
        assert!(
            answer.is_error && answer.content.contains(text),
            "{}",
            answer.content
        );
    };
    let long = "x".repeat(21);
    refused(
        "memory_write",
        write("/memories/a", &long),
        "21 bytes, over the limit of 20 bytes per file",
    )
    .await;
    assert!(
        !call("memory_write", write("/memories/a", &"x".repeat(19)))
            .await
            .is_error
    );
    refused(
        "memory_append",
        write("/memories/a", "y"),
        "22 bytes, over the limit of 20",
    )
    .await;
    let grown = json!({"path": "/memories/a", "edits": [{"old_str": &long[..19], "new_str": long}]});
    refused("memory_edit", grown, "over the limit of 20").await;
    refused(
        "memory_append",
        write("/memories/b", &"y".repeat(18)),
        "over its limit of 30 bytes",
    )
    .await;
    assert!(!call("memory_append", write("/memories/b", "y")).await.is_error);
    refused(
        "memory_write",
        write("/memories/c", "z"),
        "over its limit of 2 files",
    )
    .await;
    refused("memory_write", write("/memories/b", "a\0"), "NUL").await;
}

async fn archived_store_can_only_be_read(setup: TestEngine) {
    setup.create("/memories/a", "a").await;
    setup
        .engine
        .stores
        .archive(&setup.principal, setup.store_id)
        .await
        .unwrap();
    for (tool, input) in [
        ("memory_write", write("/memories/a", "b")),
        ("memory_write", write("/memories/b", "b")),
        ("memory_append", write("/memories/a", "b")),
        (
            "memory_edit",
            json!({"path": "/memories/a", "edits": [{"old_str": "a", "new_str": "b"}]}),
        ),
    ] {
        let text = setup.not_done(tool, input).await;
        assert!(text.contains("archived"), "{text}");
    }
    assert_eq!(setup.content_at("/memories/a").await, "a");
    setup.done("memory_delete", json!({"path": "/memories/a"})).await;
}

async fn other_store(setup: &TestEngine) -> StoreId {
    let draft = StoreDraft {
        name: "other".to_owned(),
        ..StoreDraft::default()
    };
    let store = setup
        .engine
        .stores
        .create(&setup.principal, draft, None)
        .await
        .unwrap();
    store.store_id
}

/// A session with the test's store and another one, which it may only read.
fn session_of(setup: &TestEngine, other: StoreId) -> Mounts {
    let mounted = |store_id, is_read_only| Mounted {
        store_id,
        is_read_only,
    };
    Mounts::of_session(
        SessionId::from_uuid(setup.engine.new_uuid()),
        [
            ("notes".to_owned(), mounted(setup.store_id, false)),
            ("handbook".to_owned(), mounted(other, true)),
        ],
    )
}

async fn paths_address_the_stores_of_a_session(setup: TestEngine) {
    let other = other_store(&setup).await;
    let mounts = session_of(&setup, other);
    let put = answer_of(
        &setup.engine,
        &setup.principal,
        other,
        "memory_write",
        None,
        write("/memories/rules.md", "# Rules"),
    );
    assert!(!put.await.unwrap().is_error);
    let call = async |tool: &str, input: Value| {
        let answer = answer_of(&setup.engine, &setup.principal, mounts.clone(), tool, None, input);
        answer.await.unwrap()
    };
    let root = call("memory_list", json!({})).await;
    assert!(
        root.content
            .ends_with(":\n/memories/notes/\n/memories/handbook/\t(read-only)"),
        "{}",
        root.content
    );
    let read = call("memory_read", json!({"path": "/memories/handbook/rules.md"})).await;
    assert!(read.content.ends_with(":\n# Rules"), "{}", read.content);
    let list = call("memory_list", json!({"path_prefix": "/mnt/memory/handbook"})).await;
    assert!(
        list.content.contains("\t/mnt/memory/handbook/rules.md\t# Rules"),
        "{}",
        list.content
    );
    let made = call("memory_append", write("/memories/notes/log", "x")).await;
    assert!(!made.is_error, "{}", made.content);
    assert_eq!(setup.content_at("/memories/log").await, "x\n");

    let edits = json!([{"old_str": "R", "new_str": "r"}]);
    let rules = "/memories/handbook/rules.md";
    for (tool, input) in [
        ("memory_write", write(rules, "x")),
        ("memory_append", write(rules, "x")),
        ("memory_edit", json!({"path": rules, "edits": edits})),
        ("memory_delete", json!({"path": rules})),
    ] {
        let answer = call(tool, input).await;
        assert!(
            answer.is_error && answer.content.contains("attached read-only"),
            "{}",
            answer.content
        );
    }
    for (tool, input, text) in [
        (
            "memory_delete",
            json!({"path": "/memories/notes"}),
            "a memory store is mounted there",
        ),
        (
            "memory_delete",
            json!({"path": "/memories"}),
            "Cannot delete the /memories directory itself",
        ),
        ("memory_write", write("/memories", "x"), "is a directory"),
        ("memory_write", write("/memories/notes", "x"), "is a directory"),
        (
            "memory_read",
            json!({"path": "/memories/elsewhere/a"}),
            "is in no memory store of this session",
        ),
    ] {
        let answer = call(tool, input).await;
        assert!(
            answer.is_error && answer.content.contains(text),
            "{}",
            answer.content
        );
    }
}

async fn search_covers_only_the_mounted_stores(setup: TestEngine) {
    let other = other_store(&setup).await;
    for (store, path, content) in [
        (
            setup.store_id,
            "/memories/tea.md",
            "# Drinks\nGreen tea at four.\n",
        ),
        (
            setup.store_id,
            "/memories/garden/herbs.md",
            "Mint makes a fine tea too.\n",
        ),
        (other, "/memories/rules.md", "No tea near the keyboard.\n"),
    ] {
        let put = answer_of(
            &setup.engine,
            &setup.principal,
            store,
            "memory_write",
            None,
            write(path, content),
        );
        assert!(!put.await.unwrap().is_error);
    }
    let found = async |mounts: Mounts, input: Value| {
        let answer = answer_of(
            &setup.engine,
            &setup.principal,
            mounts,
            "memory_search",
            None,
            input,
        );
        let answer = answer.await.unwrap();
        let Some(AgentResult::Search(hits)) = answer.result else {
            panic!("{}", answer.content);
        };
        for hit in &hits.hits {
            assert!(
                hit.snippet.contains('⟦') && answer.content.contains(&hit.snippet),
                "{hit:?}"
            );
        }
        let mut paths: Vec<_> = hits.hits.into_iter().map(|hit| (hit.path, hit.line)).collect();
        paths.sort();
        (paths, hits.next_page)
    };
    let one = Mounts::from(setup.store_id);
    let tea = ("/memories/tea.md".to_owned(), 2);
    let herbs = ("/memories/garden/herbs.md".to_owned(), 1);
    let (all, _) = found(one.clone(), json!({"query": "tea"})).await;
    assert_eq!(all, [herbs.clone(), tea]);
    let (below, _) = found(
        one.clone(),
        json!({"query": "tea", "path_prefix": "/memories/garden"}),
    )
    .await;
    assert_eq!(below, [herbs]);
    let (none, next) = found(one.clone(), json!({"query": "coffee"})).await;
    assert_eq!((none, next), (vec![], None));
    // A page at a time, each hit once.
    let (first, next) = found(one.clone(), json!({"query": "tea", "limit": 1})).await;
    let (second, last) = found(one, json!({"query": "tea", "limit": 1, "page": next.unwrap()})).await;
    assert_eq!((first.len(), second.len(), last), (1, 1, None));
    assert_ne!(first, second);
    let text = setup
        .not_done("memory_search", json!({"query": "tea", "page": "page_x"}))
        .await;
    assert!(text.starts_with("Error: Field `page` must be"), "{text}");

    let session = session_of(&setup, other);
    let (everywhere, _) = found(session.clone(), json!({"query": "tea"})).await;
    let paths: Vec<_> = everywhere.into_iter().map(|(path, _)| path).collect();
    assert_eq!(
        paths,
        [
            "/memories/handbook/rules.md",
            "/memories/notes/garden/herbs.md",
            "/memories/notes/tea.md"
        ]
    );
    let (in_one, _) = found(
        session,
        json!({"query": "tea", "path_prefix": "/mnt/memory/handbook"}),
    )
    .await;
    assert_eq!(in_one, [("/mnt/memory/handbook/rules.md".to_owned(), 1)]);

    // Deleted memories are no longer found.
    setup
        .done("memory_delete", json!({"path": "/memories/garden"}))
        .await;
    let (left, _) = found(setup.store_id.into(), json!({"query": "tea"})).await;
    assert_eq!(left.len(), 1);
}

async fn missing_scopes_and_unknown_tools_are_refused(setup: TestEngine) {
    let principal_with = async |scopes: &[Scope]| {
        let new = NewKey {
            tenant_id: setup.principal.tenant_id,
            name: "bound".to_owned(),
            scopes: scopes.to_vec(),
            store_ids: None,
            expires_at: None,
        };
        let (_, secret) = setup.engine.operator.keys.create(new).await.unwrap();
        setup.engine.auth.authenticate(secret.expose()).await.unwrap()
    };
    setup.create("/memories/a", "a").await;
    let reader = principal_with(&[Scope::MemoryRead]).await;
    let writer = principal_with(&[Scope::MemoryWrite]).await;
    let edit = json!({"path": "/memories/a", "edits": [{"old_str": "a", "new_str": "b"}]});
    for (principal, tool, input) in [
        (&reader, "memory_write", write("/memories/a", "x")),
        (&reader, "memory_append", write("/memories/a", "x")),
        (&reader, "memory_edit", edit.clone()),
        (&reader, "memory_delete", json!({"path": "/memories/a"})),
        // The answer of an edit would show existing content.
        (&writer, "memory_edit", edit),
        (&writer, "memory_read", json!({"path": "/memories/a"})),
        (&writer, "memory_list", json!({})),
        (&writer, "memory_search", json!({"query": "a"})),
    ] {
        let answer = answer_of(&setup.engine, principal, setup.store_id, tool, None, input).await;
        assert!(
            matches!(answer, Err(EngineError::PermissionDenied(_))),
            "{tool} {answer:?}"
        );
    }
    assert_eq!(setup.operations().await, ["created"]);

    let answer = setup.agent("memory_forget", json!({})).await;
    assert_eq!(
        answer.content,
        "Error: There is no tool of this name; the tools are `memory`, `memory_list`, `memory_search`, `memory_read`, `memory_write`, \
         `memory_edit`, `memory_append`, `memory_delete`"
    );
    assert!(answer.is_error);
    let nowhere = StoreId::from_uuid(setup.engine.new_uuid());
    for (tool, input) in [
        ("memory_forget", json!({})),
        ("memory_read", json!({})),
        ("memory_list", json!({})),
        ("memory_search", json!({"query": "a"})),
        ("memory_read", json!({"path": "/memories/a"})),
        ("memory_write", write("/memories/a", "x")),
        ("memory_delete", json!({"path": "/memories/a"})),
        ("memory", view("/memories")),
    ] {
        let answer = answer_of(&setup.engine, &setup.principal, nowhere, tool, None, input).await;
        assert!(
            matches!(answer, Err(EngineError::StoreNotFound)),
            "{tool} {answer:?}"
        );
    }
}
