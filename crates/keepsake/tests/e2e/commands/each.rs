//! Each command for people, in a pipe and in a terminal, with its failures.

use std::collections::BTreeMap;

use futures::future::join_all;
use serde_json::json;

use super::Person;
use crate::support::command::{Run, keepsake_asking_in_terminal};

/// A port without a server.
const NOWHERE: &str = "http://127.0.0.1:9";
const UNKNOWN_KEY: &str = "ks_live_unknown";
const COLUMNS: u16 = 100;

/// A command with its arguments, in which `{name}` stands for a value.
pub(super) struct Each {
    /// As in the name of its manual page.
    pub(super) name: &'static str,
    arguments: &'static str,
    input: &'static str,
    pub(super) calls_server: bool,
    /// Whether it names something that can be missing.
    names_something: bool,
    prints_table: bool,
}

const fn command(name: &'static str, arguments: &'static str) -> Each {
    Each { name, arguments, input: "", calls_server: true, names_something: true, prints_table: false }
}

impl Each {
    const fn reading(self, input: &'static str) -> Self {
        Self { input, ..self }
    }

    const fn local(self) -> Self {
        Self { calls_server: false, ..self }
    }

    const fn of_everything(self) -> Self {
        Self { names_something: false, ..self }
    }

    const fn table(self) -> Self {
        Self { prints_table: true, ..self }
    }

    pub(super) fn filled(&self, values: &BTreeMap<&str, String>) -> (Vec<String>, String) {
        let fill = |text: &str| {
            values
                .iter()
                .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
        };
        let words = self.name.split('-').chain(self.arguments.split_whitespace());
        (words.map(fill).collect(), fill(self.input))
    }
}

/// All commands for people, in an order in which each one works.
pub(super) const COMMANDS: [Each; 34] = [
    command("login", "{url} --name work-{place}").reading("{key}\n").of_everything(),
    command("context-list", "").local().of_everything().table(),
    command("context-use", "{context}").local(),
    command("context-env", "{context}").local(),
    command("context-remove", "{context}").local(),
    command("store-list", "").of_everything().table(),
    command("store-create", "made-{place}").of_everything(),
    command("store-get", "{store}").table(),
    command("store-update", "{store} --description changed"),
    command("store-usage", "{store}").table(),
    command("store-archive", "{store} --yes"),
    command("store-delete", "{store} --yes"),
    command("memory-put", "put-{place}.md").reading("text\n"),
    command("memory-ls", "-R").table(),
    command("memory-cat", "a.md"),
    command("memory-edit", "a.md"),
    command("memory-mv", "moved-{place}.md elsewhere-{place}.md"),
    command("memory-rm", "removed-{place}.md --yes"),
    command("memory-pin", "a.md"),
    command("memory-expire", "a.md --in 30d"),
    command("memory-search", "text").table(),
    command("memory-log", "a.md").table(),
    command("memory-diff", "a.md"),
    command("memory-restore", "{restored}"),
    command("memory-redact", "{redacted} --yes"),
    command("export", "{folder}/archive-{place}"),
    command("import", "{folder}/notes"),
    command("session-list", "").of_everything().table(),
    command("session-show", "{session}").table(),
    command("session-events", "{session}").table(),
    command("sync", "{folder}/synced-{place}"),
    command("audit", "").of_everything().table(),
    command("usage", "").of_everything().table(),
    command("completions", "fish").local().of_everything(),
];

impl Person {
    /// Prepares what the commands change in this place; answers the values of their
    /// arguments.
    async fn values(&self, place: &str, session: &str) -> BTreeMap<&'static str, String> {
        for name in ["moved", "removed"] {
            self.put(&format!("{name}-{place}.md"), "text").await;
        }
        let mut older = Vec::new();
        for name in ["restored", "redacted"] {
            let path = format!("{name}-{place}.md");
            self.put(&path, "older text").await;
            self.put(&path, "newer text").await;
            let log = self.run(&["memory", "log", &path, "-o", "json"]).await.json();
            older.push(log["data"][1]["id"].as_str().unwrap().to_owned());
        }
        let [restored, redacted] = <[_; 2]>::try_from(older).unwrap();
        BTreeMap::from([
            ("place", place.to_owned()),
            ("url", self.server.url()),
            ("key", self.tenant.key.clone()),
            ("context", format!("work-{place}")),
            ("store", format!("made-{place}")),
            ("session", session.to_owned()),
            ("folder", self.home.path().display().to_string()),
            ("restored", restored),
            ("redacted", redacted),
        ])
    }

    async fn in_pipe(&self, each: &Each, values: &BTreeMap<&str, String>, more: &[(&str, &str)]) -> Run {
        let (words, input) = each.filled(values);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let more = [&[("EDITOR", "true")], more].concat();
        self.run_with(&words, &more, &input).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_is_in_this_test() {
    let for_operators =
        ["serve", "mcp", "config", "migrate", "tenant", "key", "token", "job", "verify", "blobs", "openapi"];
    let pages = crate::support::repository().join("docs/man");
    let names = std::fs::read_dir(pages).unwrap().map(|page| {
        let name = page.unwrap().file_name().into_string().unwrap();
        name.trim_start_matches("keepsake-").trim_end_matches(".1").to_owned()
    });
    // `man` is of both, and its pages are compared with the code.
    let groups = ["keepsake", "man", "context", "store", "memory", "session"];
    let is_for_people = |name: &String| {
        let first = name.split('-').next().unwrap();
        !for_operators.contains(&first) && !groups.contains(&name.as_str())
    };
    let mut names: Vec<_> = names.filter(is_for_people).collect();
    let mut tested: Vec<_> = COMMANDS.iter().map(|each| each.name.to_owned()).collect();
    names.sort();
    tested.sort();
    assert_eq!(tested, names);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_works_in_a_pipe_and_in_a_terminal() {
    let person = Person::new().await;
    let session = person.prepare().await;
    let values = person.values("pipe", &session).await;
    for each in &COMMANDS {
        let printed = person.in_pipe(each, &values, &[]).await.ok();
        assert!(!printed.contains('\u{1b}'), "{}: {printed:?}", each.name);
    }
    let values = person.values("terminal", &session).await;
    let (url, home) = (person.server.url(), person.home.path().to_string_lossy());
    let said = keepsake_asking_in_terminal(
        &["login", &url, "--name", "work-terminal"],
        &[("XDG_CONFIG_HOME", &home)],
        ("API key for", &person.tenant.key),
    )
    .await
    .ok();
    assert!(said.contains("the current context is work-terminal"), "{said}");
    assert!(!said.contains(&person.tenant.key), "{said}");
    for each in COMMANDS.iter().filter(|each| each.name != "login") {
        let (words, input) = each.filled(&values);
        let (line, variables) = (words.join(" "), [("EDITOR", "true")]);
        let run = person.run_in_terminal(&line, &variables, COLUMNS, &input);
        let printed = run.await.ok();
        for line in printed.lines().filter(|_| each.prints_table) {
            let width = console::measure_text_width(line);
            assert!(width <= usize::from(COLUMNS), "{}: {printed}", each.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_fails_with_the_code_and_the_cause() {
    let person = Person::new().await;
    let session = person.prepare().await;
    let values = person.values("pipe", &session).await;
    person.ok("store create made-pipe").await;
    let with = |changed: &[(&'static str, &str)]| {
        let mut values = values.clone();
        values.extend(changed.iter().map(|(name, value)| (*name, (*value).to_owned())));
        values
    };
    let nowhere = with(&[("url", NOWHERE)]);
    let unknown = with(&[("key", UNKNOWN_KEY)]);
    let missing = with(&[
        ("store", "no such store"),
        ("context", "no such context"),
        ("session", "sesn_00000000000000000000000001"),
    ]);
    let person = &person;
    // They try again for a while, and so run at the same time.
    let remote = COMMANDS.iter().filter(|each| each.calls_server);
    join_all(remote.clone().map(|each| async {
        let run = person.in_pipe(each, &nowhere, &[("KEEPSAKE_URL", NOWHERE)]).await;
        let cause = format!("{NOWHERE} cannot be reached: tcp connect error: Connection refused");
        run.ends(6, &cause);
    }))
    .await;
    for each in remote {
        let key = [("KEEPSAKE_API_KEY", UNKNOWN_KEY)];
        person.in_pipe(each, &unknown, &key).await.ends(5, "API key");
    }
    for each in COMMANDS.iter().filter(|each| each.names_something) {
        let store = [("KEEPSAKE_STORE", "no such store")];
        let run = person.in_pipe(each, &missing, &store).await;
        assert_eq!(run.code, Some(3), "{run:?}");
        assert!(run.stderr.starts_with("keepsake: "), "{run:?}");
    }
    for each in &COMMANDS {
        let (words, _) = each.filled(&values);
        let line = format!("{} --no-such-option", words.join(" "));
        person.ends(&line, 2, "--no-such-option").await;
    }
}

impl Person {
    /// Makes what every command reads: a memory, a folder to import, and a session with
    /// an event, whose id it answers.
    async fn prepare(&self) -> String {
        self.put("a.md", "older text\n").await;
        self.put("a.md", "newer text\n").await;
        let folder = self.home.path().join("notes");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("imported.md"), "text").unwrap();
        for place in ["pipe", "terminal"] {
            std::fs::create_dir(self.home.path().join(format!("synced-{place}"))).unwrap();
        }
        let client = self.server.client(&self.tenant);
        let store = json!({"type": "memory_store", "memory_store_id": self.tenant.store_id});
        let session = json!({"agent": "agent", "environment_id": "env", "resources": [store]});
        let session = client.post("/v1/sessions", &session).await.json();
        let id = session["id"].as_str().unwrap().to_owned();
        let call = json!({"command": "view", "path": "/memories"});
        let called = client.post(&format!("/v1/sessions/{id}/tool_calls"), &call).await;
        assert_eq!(called.status, 200, "{}", called.text);
        id
    }
}
