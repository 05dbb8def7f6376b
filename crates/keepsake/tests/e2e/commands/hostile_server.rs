//! Commands that trust a server with nothing but its own memories.

use std::os::unix::fs::symlink;

use keepsake_testkit::{EndlessPages, HostileServer, Hostility};

use super::each::{COMMANDS, Values, calls_server, filled, typed_for};
use super::*;

const STORE: &str = "memstore_00000000000000000000000001";
const VERSION: &str = "memver_00000000000000000000000001";
const SESSION: &str = "sesn_00000000000000000000000001";
/// Sets the title of a terminal, clears its screen, and turns the order of letters.
const CONTROLS: &str = "a\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}z";

struct Victim {
    home: TempDir,
    server: HostileServer,
}

impl Victim {
    async fn new(hostility: Hostility) -> Self {
        let home = TempDir::new().unwrap();
        fs::create_dir(home.path().join("notes")).unwrap();
        fs::write(home.path().join("notes/imported.md"), "text").unwrap();
        fs::write(home.path().join("tests.yaml"), "tests:\n- max_files: 500\n").unwrap();
        Self { home, server: HostileServer::start(hostility).await }
    }

    async fn with_paths(paths: &[&str]) -> Self {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Self::new(Hostility { paths, ..Hostility::default() }).await
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("KEEPSAKE_URL", self.server.url().to_owned()),
            ("KEEPSAKE_API_KEY", "ks_live_x".to_owned()),
            ("KEEPSAKE_STORE", STORE.to_owned()),
            ("XDG_CONFIG_HOME", self.home.path().display().to_string()),
            ("EDITOR", "true".to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ]
    }

    async fn run(&self, line: &str) -> Run {
        keepsake_reading(&words(line), &borrowed(&self.variables()), "text\n").await
    }

    async fn run_in_terminal(&self, line: &str) -> Run {
        // Wide enough for every line.
        let (variables, typed) = (self.variables(), typed_for(line));
        keepsake_in_terminal(&words(line), &borrowed(&variables), 1_000, typed).await
    }

    fn values(&self) -> Values {
        BTreeMap::from([
            ("place", "terminal".to_owned()),
            ("url", self.server.url().to_owned()),
            ("key", "ks_live_x".to_owned()),
            ("store", STORE.to_owned()),
            ("session", SESSION.to_owned()),
            ("folder", self.home.path().display().to_string()),
            ("restored", VERSION.to_owned()),
            ("redacted", VERSION.to_owned()),
        ])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_writes_only_below_its_folder_and_import_leaves_out_paths_that_lead_elsewhere() {
    let outside = ["../proj/x.py", "/../proj/x.py", "/a/../../y.md", "/%2e%2e/z.md", "/", ""];
    let victim = Victim::with_paths(&[&outside[..], &["/good.md", "/link/in.md"]].concat()).await;
    let (folder, elsewhere) = (victim.path("work/memory"), victim.path("elsewhere"));
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(&elsewhere).unwrap();
    symlink(&elsewhere, format!("{folder}/link")).unwrap();
    let sync = format!("sync {folder}");
    for _ in 0..2 {
        let run = victim.run(&sync).await;
        for named in [
            "skipped ../proj/x.py: the store's path must start with `/`",
            "skipped a/../../y.md: the store's path must not have a `.` or `..` segment",
            "skipped link",
            "some files were refused",
        ] {
            run.ends(1, named);
        }
        assert_eq!(fs::read_to_string(format!("{folder}/good.md")).unwrap(), "content \n");
        let written = everything(victim.path("work"));
        let visible = written.keys().filter(|path| !path.starts_with("memory/.keepsake"));
        assert!(visible.eq(["memory", "memory/good.md", "memory/link"]), "{written:?}");
        assert!(everything(&elsewhere).is_empty());
    }
    // Nor does the command follow a link in place of `.keepsake`.
    fs::remove_dir_all(format!("{folder}/.keepsake")).unwrap();
    symlink(&elsewhere, format!("{folder}/.keepsake")).unwrap();
    victim.run(&sync).await.ends(1, ".keepsake is a symbolic link");
    assert!(everything(&elsewhere).is_empty());
    let good = Victim::with_paths(&[]).await;
    let from = format!("--from-url {} --from-store {STORE} --from-api-key ks_live_x", victim.server.url());
    let run = good.run(&format!("import {from} -o jsonl")).await;
    run.ends(1, "");
    let count = |of: &str| run.stdout.matches(&format!("\"result\":\"{of}\"")).count();
    assert_eq!((count("created"), count("refused")), (2, 6), "{}", run.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn export_keeps_nothing_but_the_archive_that_it_asked_for() {
    let victim = Victim::with_paths(&[]).await;
    for name in ["archive", "archive.tar.zst"] {
        let archive = victim.path(name);
        victim.run(&format!("export {archive}")).await.ends(1, "the archive of the server is damaged");
        for left in [archive.clone(), format!("{archive}.partial")] {
            assert!(!fs::exists(&left).unwrap(), "{left}");
        }
    }
    let person = Person::new().await;
    let (store, exported) = (person.tenant.store_id, person.path("archive.tar.zst"));
    for kind in ["", "--versions"] {
        person.ok(&format!("export {exported} {kind}")).await;
        let archive = fs::read(&exported).unwrap();
        fs::remove_file(&exported).unwrap();
        let victim = Victim::new(Hostility { archive, ..Hostility::default() }).await;
        let before = everything(victim.home.path());
        let other = if kind.is_empty() { "--versions" } else { "" };
        for wanted in [kind.to_owned(), format!("--store {store} {other}")] {
            let run = victim.run(&format!("export {} {wanted}", victim.path("archive"))).await;
            run.ends(1, "it is not the archive that was asked for");
            assert_eq!(everything(victim.home.path()), before);
        }
        // A history of another store, or an archive without one.
        let url = victim.server.url();
        let from = format!("--from-url {url} --from-store {STORE} --from-api-key ks_live_x");
        let run = victim.run(&format!("import {from} --versions --store {store}")).await;
        run.ends(1, "it is not the archive that was asked for");
        victim.run(&format!("export {} --store {store} {kind}", victim.path("archive"))).await.ok();
    }
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
    let victims = [answering.await, refusing.await];
    for victim in &victims {
        let values = victim.values();
        for command in COMMANDS.into_iter().filter(|(name, _)| calls_server(name) && *name != "login") {
            let line = filled(command, &values);
            for format in ["table", "json"] {
                let run = victim.run_in_terminal(&format!("{line} -o {format}")).await;
                let controls = "\u{1b}]|\u{1b}[2J|\u{7}|\u{9b}|\u{7f}|\u{202e}|\u{2066}|\u{200f}|\u{61c}";
                for control in controls.split('|') {
                    assert!(!run.stdout.contains(control), "{line}: {:?}", run.stdout);
                }
            }
        }
        let shown = victim.run_in_terminal("store list").await.stdout;
        assert!(shown.contains(r"a\u001b]0;title\u0007"), "{shown:?}");
    }
    // Nor does an error, when stdout is a file.
    let line = format!("'{}' store list > /dev/null", crate::support::binary().display());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).envs(victims[1].variables());
    let output = script.stdin(std::process::Stdio::null()).output().await.unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains(r"a\u001b]0;title\u0007"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_or_answer_without_an_end_ends_a_command() {
    let whole_store = ["sync {folder}/memory", "import {folder}/notes"];
    let events = format!("session events {SESSION}");
    let lists = ["memory ls -R", "memory log -n 100000", "store list", "store get name", "usage", &events];
    let all = [&whole_store[..], &lists].concat();
    for (pages, code, reason, lines) in [
        (EndlessPages::Same, 1, "the list names a next page for the second time", &all[..]),
        (EndlessPages::Empty, 1, "the list has no end", &all[..]),
        (EndlessPages::Changes, 4, "changes faster than it can be read", &whole_store[..]),
    ] {
        let paths = vec!["/a.md".to_owned()];
        let victim = Victim::new(Hostility { paths, pages, ..Hostility::default() }).await;
        for line in lines {
            victim.run(&line.replace("{folder}", &victim.path("."))).await.ends(code, reason);
        }
    }
    let victim = Victim::new(Hostility { is_endless: true, ..Hostility::default() }).await;
    let reason = format!("it has more than {} bytes", (64 << 20) + (64 << 10));
    let sync = format!("sync {}", victim.path("memory"));
    for line in ["memory cat a.md", "memory put a.md", "store list", &sync] {
        victim.run(line).await.ends(1, &reason);
    }
}
