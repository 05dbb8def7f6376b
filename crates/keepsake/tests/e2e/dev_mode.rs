//! `keepsake serve --dev`: the first command that anyone runs.

use std::os::unix::fs::PermissionsExt;

use crate::prelude::*;
use crate::support::command::keepsake_serving_in_terminal;

/// The path of the link that signs in to the console.
const SIGN_IN: &str = "/console/sign-in/once?token=";

pub(crate) fn dev_command(folder: &Path) -> ServerCommand {
    dev_command_with(folder, &["--no-model"])
}

pub(crate) fn dev_command_with(folder: &Path, more: &[&str]) -> ServerCommand {
    let command = ServerCommand::new(binary(), "");
    let listen = format!("127.0.0.1:{}", command.port());
    let folder = folder.display().to_string();
    command.arguments(&[&["serve", "--dev", "--data-dir", &folder, "--listen", &listen], more].concat())
}

pub(crate) fn credentials(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("dev-credentials.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

async fn paste(command: &str) -> Value {
    let printed = script::run(Command::new("bash").args(["-c", command])).await;
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{command}: {error}: {printed}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_prints_commands_that_work_and_the_second_finds_everything() {
    let base = TempDir::new().unwrap();
    let folder = base.path().join("keepsake");
    let command = dev_command(&folder);
    let mut first = command.start().await;

    let known = credentials(&folder);
    let fields: Vec<_> = known.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["api_key", "base_url", "memory_store_id", "tenant_id"]);
    let file = std::fs::metadata(folder.join("dev-credentials.json")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    assert_eq!(known["base_url"], first.url());
    let key = known["api_key"].as_str().unwrap();

    let printed = first.output();
    assert!(printed.starts_with("Keepsake keeps the memory of your agents, at http://127.0.0.1:"));
    assert!(printed.lines().last().unwrap().contains(SIGN_IN), "{printed}");
    assert!(printed.contains(key), "{printed}");
    let curls: Vec<_> = printed.split("\n\n").filter(|paragraph| paragraph.starts_with("curl ")).collect();
    let [create, view] = curls[..] else { panic!("{printed}") };
    let created = paste(create).await;
    assert_eq!(created["content"], "File created successfully at: /memories/hello.md");
    let viewed = paste(view).await;
    assert!(viewed["content"].as_str().unwrap().contains("     1\tRemember me.\n"), "{viewed}");
    assert_eq!(first.output(), printed, "requests are not logged");

    first.terminate().await;
    assert_eq!(first.wait().await.code(), Some(0), "{}", first.output());
    secrets::remember(key, "a development key");
    let logging = command.env("KEEPSAKE_LOG_FILTER", "info");
    let mut second = Server::start(logging).await; // checks that the key is not printed
    assert_eq!(credentials(&folder), known);
    assert_eq!(paste(view).await, viewed);
    let told = second.output();
    assert!(told.contains("dev-credentials.json") && told.contains("memory ls --context dev\n"), "{told}");
    let is_logged = async || second.output().contains("http.request ended");
    soon("the request is logged", is_logged).await;
    second.end().await;
    // The operator's commands find the folder, and make none.
    for (line, home, code, said) in [
        ("verify", base.path(), 0, "using the database of `keepsake serve --dev` in "),
        ("tenant get dev", base.path(), 0, "/keepsake\n"),
        ("job list", base.path(), 0, "/keepsake\n"),
        ("key list --tenant dev", base.path(), 0, "/keepsake\n"),
        ("tenant list", Path::new("/nowhere"), 3, "/nowhere/keepsake/index.db does not exist"),
        ("tenant audit --data-dir /nowhere", base.path(), 3, "/nowhere/index.db does not exist"),
        ("tenant list --data-dir /nowhere", base.path(), 3, "/nowhere/index.db does not exist"),
        ("job run sweep-blobs --data-dir /nowhere", base.path(), 3, "/nowhere/index.db does not exist"),
        ("token-key rotate --data-dir /nowhere", base.path(), 3, "/nowhere/index.db does not exist"),
    ] {
        let home = [("XDG_DATA_HOME", home.to_str().unwrap())];
        keepsake_with(&words(line), &home).await.ends(code, said);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn link_stays_in_sight_in_a_terminal_and_requests_show_nothing() {
    for width in [80, 120] {
        let base = TempDir::new().unwrap();
        let (home, data) = (base.path().display().to_string(), base.path().join("data"));
        let url = format!("http://127.0.0.1:{}", keepsake_testkit::keepsake_server::free_port());
        let (listen, folder) = (url.replace("http://", ""), data.display().to_string());
        let arguments = ["serve", "--dev", "--no-model", "--listen", &listen, "--data-dir", &folder];
        let request = async {
            let known = credentials(&data);
            ok(&Client::new(&url, text(&known["api_key"])).get(STORES).await);
        };
        let variables = [("XDG_CONFIG_HOME", home.as_str())];
        let shown =
            keepsake_serving_in_terminal(&arguments, &variables, width, (SIGN_IN, request)).await.ok();
        assert!(shown.starts_with("Keepsake keeps the memory of your agents, at http://"), "{shown}");
        // A terminal has 24 lines.
        assert!(
            shown.lines().rev().take(24).any(|line| line.starts_with(&format!("{url}{SIGN_IN}"))),
            "{shown}"
        );
        assert!(!shown.contains("http.request"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn second_process_on_the_folder_is_refused_and_the_first_continues() {
    let base = TempDir::new().unwrap();
    let mut first = dev_command(base.path()).start().await;
    let elsewhere = TempDir::new().unwrap();
    let (address, other) = (first.url().replace("http://", ""), elsewhere.path().display().to_string());
    let same_address = ["serve", "--dev", "--no-model", "--listen", &address, "--data-dir", &other];
    let same_address = dev_command(elsewhere.path()).arguments(&same_address);
    let is_used = format!("another process is using the folder {}", base.path().display());
    for (command, why) in [
        (same_address, "another process listens there; end it, or --listen names another"),
        (dev_command(base.path()), is_used.as_str()),
    ] {
        let mut refused = command.spawn();
        assert_eq!(refused.wait().await.code(), Some(1), "{}", refused.output());
        says(&refused.output(), &[why]);
    }
    let mcp = keepsake(&["mcp", "--data-dir", &base.path().display().to_string()]).await;
    mcp.ends(1, "`keepsake mcp` with --context or --url is a bridge to it");

    let known = credentials(base.path());
    let client = Client::new(&first.url(), known["api_key"].as_str().unwrap());
    let view = json!({"command": "view", "path": "/memories"});
    ok(&client.call(known["memory_store_id"].as_str().unwrap(), &view).await);
    // As Ctrl+C does it.
    signal(first.pid().unwrap(), "INT").await;
    assert_eq!(first.wait().await.code(), Some(0), "{}", first.output());
}
