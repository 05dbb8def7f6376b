//! Commands that trust a server with nothing but its own memories.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use keepsake_testkit::{EndlessPages, HostileServer, Hostility};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::each::COMMANDS;
use crate::support::command::{Run, borrowed, keepsake_in_terminal, keepsake_reading, words};

const STORE: &str = "memstore_00000000000000000000000001";
const VERSION: &str = "memver_00000000000000000000000001";
/// Sets the title of a terminal, clears its screen, and turns the order of letters.
const CONTROLS: &str = "a\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}z";

/// A person with a home folder, whose server is hostile.
struct Victim {
    home: TempDir,
    server: HostileServer,
}

impl Victim {
    async fn new(hostility: Hostility) -> Self {
        let home = TempDir::new().unwrap();
        fs::create_dir(home.path().join("notes")).unwrap();
        fs::write(home.path().join("notes/imported.md"), "text").unwrap();
        Self { home, server: HostileServer::start(hostility).await }
    }

    /// With memories at these paths.
    async fn with_paths(paths: &[&str]) -> Self {
        Self::new(Hostility {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            ..Hostility::default()
        })
        .await
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let home = self.home.path().display().to_string();
        vec![
            ("KEEPSAKE_URL", self.server.url().to_owned()),
            ("KEEPSAKE_API_KEY", "ks_live_x".to_owned()),
            ("KEEPSAKE_STORE", STORE.to_owned()),
            ("XDG_CONFIG_HOME", home),
            ("EDITOR", "true".to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ]
    }

    async fn run(&self, arguments: &[&str]) -> Run {
        keepsake_reading(arguments, &borrowed(&self.variables()), "text\n").await
    }

    async fn run_in_terminal(&self, arguments: &[&str], input: &str) -> Run {
        // Wide enough for every line.
        keepsake_in_terminal(arguments, &borrowed(&self.variables()), 1_000, input).await
    }

    /// The values of the commands' arguments.
    fn values(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("place", "terminal".to_owned()),
            ("url", self.server.url().to_owned()),
            ("key", "ks_live_x".to_owned()),
            ("store", STORE.to_owned()),
            ("session", "sesn_00000000000000000000000001".to_owned()),
            ("folder", self.home.path().display().to_string()),
            ("restored", VERSION.to_owned()),
            ("redacted", VERSION.to_owned()),
        ])
    }
}

/// All files and directories below a folder, by their relative paths.
fn everything(folder: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(current) = folders.pop() {
        for item in fs::read_dir(&current).unwrap() {
            let path = item.unwrap().path();
            found.push(path.strip_prefix(folder).unwrap().display().to_string());
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

const OUTSIDE: [&str; 6] = ["../proj/x.py", "/../proj/x.py", "/a/../../y.md", "/%2e%2e/z.md", "/", ""];

#[tokio::test(flavor = "multi_thread")]
async fn sync_writes_only_below_its_folder() {
    let paths = [&OUTSIDE[..], &["/good.md", "/link/in.md"]].concat();
    let victim = Victim::with_paths(&paths).await;
    let (folder, elsewhere) = (victim.path("work/memory"), victim.path("elsewhere"));
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(&elsewhere).unwrap();
    symlink(&elsewhere, folder.join("link")).unwrap();
    let folder_name = folder.display().to_string();
    for _ in 0..2 {
        let run = victim.run(&["sync", &folder_name]).await;
        for named in [
            "skipped ../proj/x.py: the store's path must start with `/`",
            "skipped a/../../y.md: the store's path must not have a `.` or `..` segment",
            "skipped link",
            "some files were refused",
        ] {
            run.ends(1, named);
        }
        assert_eq!(fs::read_to_string(folder.join("good.md")).unwrap(), "content \n");
        assert_eq!(
            everything(&victim.path("work")),
            [
                "memory",
                "memory/.keepsake",
                "memory/.keepsake/state.json",
                "memory/.keepsake/state.json.lock",
                "memory/.keepsake/swap",
                "memory/good.md",
                "memory/link",
            ]
        );
        assert!(everything(&elsewhere).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_with_a_path_outside_does_not_stop_sync() {
    let victim = Victim::with_paths(&["/good.md"]).await;
    let folder = victim.path("memory");
    let folder_name = folder.display().to_string();
    victim.run(&["sync", &folder_name]).await.ok();
    let state_file = folder.join(".keepsake/state.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&state_file).unwrap()).unwrap();
    state["memories"]["../proj/x.py"] = state["memories"]["/good.md"].clone();
    fs::write(&state_file, state.to_string()).unwrap();
    let run = victim.run(&["sync", &folder_name]).await;
    run.ends(0, "skipped ../proj/x.py: ");
    run.ends(0, "state.json has a malformed entry");
    let again = victim.run(&["sync", &folder_name]).await;
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_follows_no_link_in_place_of_its_own_folder() {
    let victim = Victim::with_paths(&["/good.md"]).await;
    let (folder, elsewhere) = (victim.path("memory"), victim.path("elsewhere"));
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(&elsewhere).unwrap();
    symlink(&elsewhere, folder.join(".keepsake")).unwrap();
    let run = victim.run(&["sync", &folder.display().to_string()]).await;
    run.ends(1, ".keepsake is a symbolic link");
    assert!(everything(&elsewhere).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn export_leaves_out_paths_that_lead_elsewhere() {
    let victim = Victim::with_paths(&[&OUTSIDE[..], &["/good.md"]].concat()).await;
    let target = victim.path("work/archive");
    fs::create_dir(victim.path("work")).unwrap();
    let target_name = target.display().to_string();
    let run = victim.run(&["export", &target_name]).await;
    run.ends(1, "its path ../proj/x.py must start with `/`");
    run.ends(1, "6 memories were left out");
    assert_eq!(
        everything(&victim.path("work")),
        [
            "archive",
            "archive/index.jsonl",
            "archive/keepsake.json",
            "archive/memories",
            "archive/memories/good.md",
        ]
    );
    // The archive is complete without them.
    let good = Victim::with_paths(&[]).await;
    good.run(&["import", &target_name]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn import_reports_paths_that_lead_elsewhere() {
    let paths = [&OUTSIDE[..], &["/good.md"]].concat();
    let (source, good) = (Victim::with_paths(&paths).await, Victim::with_paths(&[]).await);
    let url = source.server.url();
    let from = format!("import --from-url {url} --from-store {STORE} --from-api-key ks_live_x -o json");
    let run = good.run(&words(&from)).await;
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let results: Value = serde_json::from_str(&run.stdout).unwrap();
    let count = |of: &str| {
        let results = results["data"].as_array().unwrap().iter();
        results.filter(|result| result["result"] == of).count()
    };
    assert_eq!((count("created"), count("refused")), (1, 6), "{results}");

    // And those of the destination.
    let notes = source.path("notes").display().to_string();
    let run = source.run(&["import", &notes, "-o", "json"]).await;
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let results: Value = serde_json::from_str(&run.stdout).unwrap();
    let imported = json!({"path": "/imported.md", "result": "created", "reason": null});
    let results = results["data"].as_array().unwrap();
    assert!(results.contains(&imported), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_lets_a_server_control_the_terminal() {
    let [answering, refusing] = [false, true].map(|refuses| {
        Victim::new(Hostility {
            paths: vec!["/a.md".to_owned(), format!("/{CONTROLS}/b.md")],
            text: CONTROLS.to_owned(),
            refuses,
            ..Hostility::default()
        })
    });
    for victim in [answering.await, refusing.await] {
        let values = victim.values();
        for each in COMMANDS.iter().filter(|each| each.calls_server && each.name != "login") {
            let (words, input) = each.filled(&values);
            for format in ["table", "json"] {
                let words: Vec<_> = words.iter().map(String::as_str).chain(["-o", format]).collect();
                let run = victim.run_in_terminal(&words, &input).await;
                let controls = ["\u{1b}]", "\u{1b}[2J", "\u{7}", "\u{9b}", "\u{7f}"];
                let turning = ["\u{202e}", "\u{2066}", "\u{200f}", "\u{61c}"];
                for control in controls.iter().chain(&turning) {
                    assert!(!run.stdout.contains(control), "{words:?}: {:?}", run.stdout);
                }
            }
        }
        let shown = victim.run_in_terminal(&["store", "list"], "").await.stdout;
        assert!(shown.contains(r"a\u001b]0;title\u0007"), "{shown:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn error_does_not_control_the_terminal_when_stdout_is_a_file() {
    let victim =
        Victim::new(Hostility { text: CONTROLS.to_owned(), refuses: true, ..Hostility::default() }).await;
    let line = format!("{} store list > /dev/null", crate::support::binary().display());
    let output = tokio::process::Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .envs(victim.variables())
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains(r"a\u001b]0;title\u0007"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipe_gets_contents_as_they_are() {
    let victim = Victim::new(Hostility {
        paths: vec!["/a.md".to_owned()],
        text: CONTROLS.to_owned(),
        ..Hostility::default()
    })
    .await;
    let content = format!("content {CONTROLS}\n");
    assert_eq!(victim.run(&["memory", "cat", "a.md"]).await.ok(), content);
    let shown = victim.run_in_terminal(&["memory", "cat", "a.md"], "").await;
    assert!(shown.ok().starts_with(r"content a\u001b]0;title\u0007"));
    let cat = ["memory", "cat", "a.md", "-o", "json"];
    for json in [victim.run(&cat).await, victim.run_in_terminal(&cat, "").await] {
        assert_eq!(json.json()["content"], content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_without_an_end_ends_a_command() {
    for (pages, reason) in [
        (EndlessPages::Same, "the list names a next page for the second time"),
        (EndlessPages::Empty, "the list has no end"),
    ] {
        let victim =
            Victim::new(Hostility { paths: vec!["/a.md".to_owned()], pages, ..Hostility::default() }).await;
        let path = |name: &str| victim.path(name).display().to_string();
        let (folder, archive, notes) = (path("memory"), path("archive"), path("notes"));
        for arguments in [
            &["memory", "ls", "-R"][..],
            &["memory", "log", "-n", "100000"],
            &["store", "list"],
            &["store", "get", "name"],
            &["usage"],
            &["sync", &folder],
            &["export", &archive],
            &["import", &notes],
            &["session", "events", "sesn_00000000000000000000000001"],
        ] {
            victim.run(arguments).await.ends(1, reason);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_without_an_end_end_a_command() {
    let victim = Victim::new(Hostility {
        paths: vec!["/a.md".to_owned()],
        pages: EndlessPages::Changes,
        ..Hostility::default()
    })
    .await;
    let path = |name: &str| victim.path(name).display().to_string();
    let (folder, archive, notes) = (path("memory"), path("archive"), path("notes"));
    for arguments in [["sync", &folder], ["export", &archive], ["import", &notes]] {
        let told = "changes faster than it can be read";
        victim.run(&arguments).await.ends(4, told);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_without_an_end_ends_a_command() {
    let victim = Victim::new(Hostility { is_endless: true, ..Hostility::default() }).await;
    let folder = victim.path("memory").display().to_string();
    for arguments in
        [&["memory", "cat", "a.md"][..], &["memory", "put", "a.md"], &["store", "list"], &["sync", &folder]]
    {
        let reason = format!("it has more than {} bytes", (64 << 20) + (64 << 10));
        victim.run(arguments).await.ends(1, &reason);
    }
}
