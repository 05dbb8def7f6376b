//! `keepsake serve --dev`: the first command that anyone runs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use keepsake_testkit::ServerCommand;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::client::try_send;
use crate::support::command::keepsake;
use crate::support::server::signal as send_signal;
use crate::support::{Client, Server, binary, eventually, secrets};

/// `keepsake serve --dev` on a folder.
pub(crate) fn dev_command(folder: &Path) -> ServerCommand {
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
    let file = std::fs::metadata(folder.join("dev-credentials.json")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    assert_eq!(known["base_url"], first.url());
    let key = known["api_key"].as_str().unwrap();

    let printed = first.output();
    assert!(printed.contains(key), "{printed}");
    let curls = curls(&printed);
    assert_eq!(curls.len(), 2, "{printed}");
    let created = paste(&curls[0]).await;
    assert_eq!(created["is_error"], false, "{created}");
    let told = "File created successfully at: /memories/hello.md";
    assert_eq!(created["content"], told);
    let viewed = paste(&curls[1]).await;
    let content = viewed["content"].as_str().unwrap();
    assert!(content.contains("     1\tRemember me.\n"), "{viewed}");

    first.terminate().await;
    assert_eq!(first.wait().await.code(), Some(0), "{}", first.output());
    secrets::remember(key, "a development key");
    let second = Server::start(command).await; // checks that the key is not printed
    assert_eq!(credentials(&folder), known);
    assert_eq!(paste(&curls[1]).await, viewed);
    let told = second.output();
    assert!(told.contains("dev-credentials.json"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_process_on_the_folder_is_refused_and_the_first_continues() {
    let base = TempDir::new().unwrap();
    let first = dev_command(base.path()).start().await;
    let mut second = dev_command(base.path()).spawn();
    assert_eq!(second.wait().await.code(), Some(1), "{}", second.output());
    let folder = base.path().display().to_string();
    let told = format!("another process is using the folder {folder}");
    assert!(second.output().contains(&told), "{}", second.output());

    let operators = ["tenant", "create", "--name", "x", "--data-dir", &folder];
    keepsake(&operators).await.ends(1, "another process is using");

    let known = credentials(base.path());
    let client = Client::new(&first.url(), known["api_key"].as_str().unwrap());
    let store = known["memory_store_id"].as_str().unwrap();
    let view = json!({"command": "view", "path": "/memories"});
    let viewed = client.call(store, &view).await;
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
            let live = try_send(client.bare(Method::GET, "/livez")).await;
            live.is_ok_and(|answer| answer.status == 200)
        };
        eventually("the server answers", Duration::from_mins(1), is_live).await;
        send_signal(server.pid().unwrap(), signal).await;
        let ended = server.wait().await;
        assert_eq!(ended.code(), Some(0), "SIG{signal}: {}", server.output());
    }
}
