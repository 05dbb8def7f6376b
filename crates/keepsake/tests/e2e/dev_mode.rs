//! `keepsake serve --dev`: the first command that anyone runs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use keepsake_testkit::ServerCommand;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{Client, Server, binary, eventually, secrets};

fn dev_command(folder: &Path) -> ServerCommand {
    let command = ServerCommand::new(binary(), "");
    let listen = format!("127.0.0.1:{}", command.port());
    let folder = folder.display().to_string();
    command.arguments(&["serve", "--dev", "--data-dir", &folder, "--listen", &listen])
}

fn credentials(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("dev-credentials.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The printed commands, ready to be pasted.
fn curls(output: &str) -> Vec<String> {
    let paragraphs = output.split("\n\n");
    let commands = paragraphs.filter(|paragraph| paragraph.starts_with("curl "));
    commands.map(str::to_owned).collect()
}

/// Pastes a command into a shell.
async fn paste(command: &str) -> Value {
    let output = Command::new("bash")
        .args(["-c", command])
        .env("no_proxy", "*")
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {printed}{errors}");
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{command}: {error}: {printed}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_prints_commands_that_work_and_the_second_finds_everything() {
    let base = TempDir::new().unwrap();
    let folder = base.path().join("data");
    let command = dev_command(&folder);
    let mut first = command.start().await;

    let known = credentials(&folder);
    let fields: Vec<_> = known.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["api_key", "base_url", "memory_store_id", "workspace_id"]);
    let mode = std::fs::metadata(folder.join("dev-credentials.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(known["base_url"], first.url());
    let key = known["api_key"].as_str().unwrap();

    let printed = first.output();
    assert!(printed.contains(key), "{printed}");
    let curls = curls(&printed);
    assert_eq!(curls.len(), 2, "{printed}");
    let created = paste(&curls[0]).await;
    assert_eq!(created["is_error"], false, "{created}");
    assert_eq!(
        created["content"],
        "File created successfully at: /memories/hello.md"
    );
    let viewed = paste(&curls[1]).await;
    assert!(
        viewed["content"]
            .as_str()
            .unwrap()
            .contains("     1\tRemember me.\n"),
        "{viewed}"
    );

    first.terminate().await;
    assert_eq!(first.wait().await.code(), Some(0), "{}", first.output());
    secrets::remember(key, "a development key");
    let second = Server::start(command).await; // checks that the key is not printed
    assert_eq!(credentials(&folder), known);
    assert_eq!(paste(&curls[1]).await, viewed);
    assert!(
        second.output().contains("dev-credentials.json"),
        "{}",
        second.output()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_of_a_development_server_loses_nothing_acknowledged() {
    let base = TempDir::new().unwrap();
    let command = dev_command(base.path());
    let mut server = command.start().await;
    let known = credentials(base.path());
    let client = Client::new(&server.url(), known["api_key"].as_str().unwrap());
    let store = known["memory_store_id"].as_str().unwrap();
    for n in 0..20 {
        let input = json!({"command": "create", "path": format!("/memories/{n}"), "file_text": "x"});
        assert_eq!(client.call(store, &input).await.status, 200);
    }
    server.kill9().await;
    let _again = command.start().await;
    let listing = client
        .call(store, &json!({"command": "view", "path": "/memories"}))
        .await
        .tool_result();
    assert_eq!(listing.content.lines().count(), 22, "{}", listing.content);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_process_on_the_folder_is_refused_and_the_first_continues() {
    let base = TempDir::new().unwrap();
    let first = dev_command(base.path()).start().await;
    let mut second = dev_command(base.path()).spawn();
    assert_eq!(second.wait().await.code(), Some(1), "{}", second.output());
    let told = second.output();
    let folder = base.path().display().to_string();
    assert!(
        told.contains(&format!("another process is using the folder {folder}")),
        "{told}"
    );

    let operators = ["tenant", "create", "--name", "x", "--data-dir", &folder];
    let operators = crate::support::command::keepsake(&operators).await;
    assert_eq!(operators.code, Some(1));
    assert!(
        operators.stderr.contains("another process is using"),
        "{}",
        operators.stderr
    );

    let known = credentials(base.path());
    let client = Client::new(&first.url(), known["api_key"].as_str().unwrap());
    let store = known["memory_store_id"].as_str().unwrap();
    let viewed = client
        .call(store, &json!({"command": "view", "path": "/memories"}))
        .await;
    assert_eq!(viewed.status, 200, "{}", viewed.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn either_signal_ends_the_server_with_0() {
    for signal in ["INT", "TERM"] {
        let base = TempDir::new().unwrap();
        let folder = base.path().display().to_string();
        // Any free port: the credentials tell which one it was.
        let command = ServerCommand::new(binary(), "");
        let command =
            command.arguments(&["serve", "--dev", "--data-dir", &folder, "--listen", "127.0.0.1:0"]);
        let mut server = command.spawn();
        let file = base.path().join("dev-credentials.json");
        let is_there = || async { file.exists() };
        eventually("the server introduces itself", Duration::from_mins(1), is_there).await;
        let url = credentials(base.path())["base_url"].as_str().unwrap().to_owned();
        let client = Client::new(&url, "");
        let is_live = || async {
            let live = client.bare(reqwest::Method::GET, "/livez");
            crate::support::client::try_send(live)
                .await
                .is_ok_and(|answer| answer.status == 200)
        };
        eventually("the server answers", Duration::from_mins(1), is_live).await;
        crate::support::server::signal(server.pid().unwrap(), signal).await;
        assert_eq!(
            server.wait().await.code(),
            Some(0),
            "SIG{signal}: {}",
            server.output()
        );
    }
}
