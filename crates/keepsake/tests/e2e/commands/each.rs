//! Each command for people, in a pipe and in a terminal, with its failures.

use super::*;
use crate::support::command::keepsake_asking_in_terminal;

const NOWHERE: &str = "http://127.0.0.1:9";
const UNKNOWN_KEY: &str = "ks_live_unknown";

/// All commands for people with their arguments, in an order in which each one works. The names
/// are those of the manual pages; `{name}` stands for a value.
pub(super) const COMMANDS: [(&str, &str); 48] = [
    ("login", "{url} --name work-{place}"),
    ("context-list", ""),
    ("context-use", "{context}"),
    ("context-env", "{context}"),
    ("context-remove", "{context}"),
    ("store-list", ""),
    ("store-create", "made-{place}"),
    ("store-get", "{store}"),
    ("store-update", "{store} --description changed"),
    ("store-usage", "{store}"),
    ("store-diff", "{store}"),
    ("store-restore", "{store} --at-seq 0 --dry-run"),
    ("store-fork", "{store} forked-{place}"),
    ("copy", "--from {url}#{store} --to {url}#copied-{place}"),
    ("erase", "{store} --under nothing --yes"),
    ("erasure-list", ""),
    ("erasure-show", "{erasure}"),
    ("store-archive", "{store} --yes"),
    ("store-delete", "{store} --yes"),
    ("memory-put", "put-{place}.md"),
    ("memory-ls", "-R"),
    ("memory-cat", "a.md"),
    ("memory-edit", "a.md"),
    ("memory-mv", "moved-{place}.md elsewhere-{place}.md"),
    ("memory-rm", "removed-{place}.md --yes"),
    ("memory-pin", "a.md"),
    ("memory-expire", "a.md --in 30d"),
    ("memory-search", "text"),
    ("memory-log", "a.md"),
    ("memory-diff", "a.md"),
    ("memory-readers", "a.md"),
    ("memory-restore", "{restored}"),
    ("memory-redact", "{redacted} --yes"),
    ("undo", "--under nothing-{place} --dry-run"),
    ("test", "--file {folder}/tests.yaml"),
    ("export", "{folder}/archive-{place}"),
    ("import", "{folder}/notes"),
    ("key-list", ""),
    ("key-create", "--name made-{place}"),
    ("key-revoke", "{key_id} --yes"),
    ("session-list", ""),
    ("session-show", "{session}"),
    ("session-events", "{session}"),
    ("sync", "{folder}/synced-{place}"),
    ("doctor", "{folder}/synced-{place}"),
    ("audit", ""),
    ("usage", ""),
    ("completions", "fish"),
];

pub(super) fn calls_server(name: &str) -> bool {
    !name.starts_with("context-") && name != "completions"
}

fn names_something(name: &str) -> bool {
    let names_nothing = ["login", "store-create", "key-create", "doctor", "audit", "usage", "completions"];
    !name.ends_with("-list") && !names_nothing.contains(&name)
}

pub(super) type Values = BTreeMap<&'static str, String>;

pub(super) fn filled((name, arguments): (&str, &str), values: &Values) -> String {
    let line = format!("{} {arguments}", name.replace('-', " "));
    values.iter().fold(line, |line, (name, value)| line.replace(&format!("{{{name}}}"), value))
}

/// What a person types. `script` waits a second after the end of a command that does not
/// read it.
pub(super) fn typed_for(line: &str) -> &'static str {
    if line.starts_with("memory put") { "text\n" } else { "" }
}

/// Whether there is a part of an id, which is not marked as one.
fn breaks_an_id(shown: &str) -> bool {
    let kinds = ["apikey", "erasure", "memstore", "memver", "mem", "sesn"];
    let words = shown.split(|letter: char| !letter.is_alphanumeric() && !"_…".contains(letter));
    let mut ids = words.filter_map(|word| word.split_once('_')).filter(|(kind, _)| kinds.contains(kind));
    ids.any(|(_, rest)| rest.chars().count() != 26 && !rest.ends_with('…'))
}

impl Person {
    /// Makes what every command reads: a memory, a folder to import, and a session with
    /// an event, whose id it answers.
    async fn prepare(&self) -> String {
        self.put("a.md", "older text\n").await;
        self.put("a.md", "newer text\n").await;
        for folder in ["notes", "synced-pipe", "synced-80", "synced-120"] {
            fs::create_dir(self.path(folder)).unwrap();
        }
        fs::write(self.path("notes/imported.md"), "text").unwrap();
        fs::write(self.path("tests.yaml"), "tests:\n- max_files: 500\n").unwrap();
        let session = self.session("read_only").await;
        let id = session["id"].as_str().unwrap();
        view_in(&self.client(), &format!("/v1/sessions/{id}"), "/memories").await;
        id.to_owned()
    }

    /// Prepares what the commands change in this place; answers the values of their
    /// arguments.
    async fn values(&self, place: &str, session: &str) -> Values {
        for name in ["moved", "removed"] {
            self.put(&format!("{name}-{place}.md"), "text").await;
        }
        let with_history = async |name: &str| {
            let path = format!("{name}-{place}.md");
            self.put(&path, "older text").await;
            self.put(&path, "newer text").await;
            let log = self.json(&format!("memory log {path} -o json")).await;
            log["data"][1]["id"].as_str().unwrap().to_owned()
        };
        let (_, key_path) = self.client().new_key(&["memory:read"]).await;
        let nothing = json!({"memory_store_id": self.tenant.store_id, "path_prefix": "/nothing/"});
        let erasure = self.client().post("/v1/erasures", &nothing).await.json();
        BTreeMap::from([
            ("key_id", key_path.rsplit('/').next().unwrap().to_owned()),
            ("erasure", erasure["id"].as_str().unwrap().to_owned()),
            ("place", place.to_owned()),
            ("url", self.server.url()),
            ("key", self.tenant.key.clone()),
            ("context", format!("work-{place}")),
            ("store", format!("made-{place}")),
            ("session", session.to_owned()),
            ("folder", self.home.path().display().to_string()),
            ("restored", with_history("restored").await),
            ("redacted", with_history("redacted").await),
        ])
    }

    async fn in_pipe(&self, command: (&str, &str), values: &Values, more: &[(&str, &str)]) -> Run {
        let input = if command.0 == "login" { values["key"].as_str() } else { "text" };
        let more = [&[("EDITOR", "true")], more].concat();
        self.line_with(&filled(command, values), &more, &format!("{input}\n")).await
    }
}

#[test]
fn each_command_is_in_this_test() {
    let for_operators = [
        "serve", "mcp", "config", "migrate", "model", "tenant", "token", "job", "backup", "restore",
        "verify", "blobs", "openapi",
    ];
    // `man` is of both, and its pages are compared with the code.
    let groups = ["keepsake", "man", "context", "store", "memory", "key", "erasure", "session"];
    let pages = fs::read_dir(crate::support::repository().join("docs/man")).unwrap();
    let names: Vec<_> = pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    let names = names.iter().map(|name| name.trim_start_matches("keepsake-").trim_end_matches(".1"));
    let ours =
        |name: &&str| !for_operators.contains(&name.split('-').next().unwrap()) && !groups.contains(name);
    assert_eq!(names.filter(ours).collect::<BTreeSet<_>>(), BTreeSet::from(COMMANDS.map(|it| it.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_works_in_a_pipe_and_in_a_terminal() {
    let person = Person::new().await;
    let session = person.prepare().await;
    let values = person.values("pipe", &session).await;
    for command in COMMANDS {
        let printed = person.in_pipe(command, &values, &[]).await.ok();
        assert!(!printed.contains('\u{1b}'), "{command:?}: {printed:?}");
    }
    let (url, home) = (person.server.url(), person.home.path().to_string_lossy());
    let (variables, asked) = ([("XDG_CONFIG_HOME", &*home)], ("API key for", person.tenant.key.as_str()));
    for width in [80, 120] {
        let values = person.values(&width.to_string(), &session).await;
        let context = values["context"].as_str();
        let login = ["login", &url, "--name", context];
        let said = keepsake_asking_in_terminal(&login, &variables, asked).await.ok();
        assert!(said.contains(&format!("the current context is {context}")), "{said}");
        assert!(!said.contains(&person.tenant.key), "{said}");
        for command in COMMANDS.into_iter().filter(|(name, _)| *name != "login") {
            let line = filled(command, &values);
            let run = person.run_in_terminal(&line, &[("EDITOR", "true")], width, typed_for(&line)).await;
            let shown = run.ok();
            assert!(!breaks_an_id(&shown), "{line} in {width} columns: {shown}");
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
        ("store", "no-such-store"),
        ("context", "no-such-context"),
        ("session", "sesn_00000000000000000000000001"),
        ("key_id", "apikey_00000000000000000000000001"),
        ("erasure", "erasure_00000000000000000000000001"),
    ]);
    // They try again for a while, and so run at the same time.
    // `doctor` ends with 1: `commands::doctor`.
    let remote = COMMANDS.into_iter().filter(|(name, _)| calls_server(name) && *name != "doctor");
    let elsewhere = [("KEEPSAKE_URL", NOWHERE)];
    let unreached = remote.clone().map(|command| person.in_pipe(command, &nowhere, &elsewhere));
    for run in join_all(unreached).await {
        run.ends(6, &format!("{NOWHERE} cannot be reached: tcp connect error: Connection refused"));
    }
    for command in remote {
        let key = [("KEEPSAKE_API_KEY", UNKNOWN_KEY)];
        person.in_pipe(command, &unknown, &key).await.ends(5, "API key");
    }
    for command in COMMANDS.into_iter().filter(|(name, _)| names_something(name)) {
        let store = [("KEEPSAKE_STORE", "no-such-store")];
        person.in_pipe(command, &missing, &store).await.ends(3, "keepsake: ");
    }
    for command in COMMANDS {
        let line = format!("{} --no-such-option", filled(command, &values));
        person.ends(&line, 2, "--no-such-option").await;
    }
}
