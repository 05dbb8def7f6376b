//! The README, from top to bottom: each block is run as it is written.
//!
//! A script takes the place of the model.
//! The chart's tests test `docker compose`. Everything else is real.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use keepsake_testkit::{ServerCommand, s3, s3_options};
use secrecy::ExposeSecret;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::script::{self, FakeModel};
use crate::support::{Deployment, Pair, Server, binary, repository};

/// A block of the README.
#[derive(Debug)]
struct Block {
    language: String,
    text: String,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            continue;
        };
        let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push(Block { language: language.to_owned(), text: text.join("\n") });
    }
    blocks
}

/// A reader with a terminal, in a copy of the repository's folder.
struct Reader {
    folder: TempDir,
    /// What the last block printed.
    printed: String,
    servers: Vec<Server>,
}

impl Reader {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path();
        fs::create_dir_all(path.join("target/debug")).unwrap();
        fs::create_dir(path.join("home")).unwrap();
        copy(&repository().join("clients"), &path.join("clients"));
        let reader = Self { folder, printed: String::new(), servers: Vec::new() };
        // It keeps its files in this folder instead of the home folder.
        let program = format!(
            "#!/bin/sh\nXDG_CONFIG_HOME='{0}' XDG_DATA_HOME='{0}' exec '{1}' \"$@\"\n",
            reader.path("home").display(),
            binary().display()
        );
        reader.write("target/debug/keepsake", &program);
        let permissions = fs::Permissions::from_mode(0o755);
        fs::set_permissions(reader.path("target/debug/keepsake"), permissions).unwrap();
        reader
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs code in the terminal, whose variables outlive it.
    async fn paste(&mut self, code: &str, more: &[(&str, &str)]) {
        let terminal = format!(
            "set -euo pipefail\n[ ! -f variables ] || . ./variables\n{code}\ndeclare -px >variables\n"
        );
        let mut command = Command::new("bash");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KEEPSAKE_") {
                command.env_remove(name);
            }
        }
        let path = std::env::var("PATH").unwrap();
        command
            .args(["-c", &terminal])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.path("target/debug").display()))
            .envs(more.iter().copied());
        self.printed = script::run(&mut command).await;
    }

    /// Starts the server of the first command.
    async fn start_dev(&mut self) {
        let command = ServerCommand::new(binary(), "");
        let listen = format!("127.0.0.1:{}", command.port());
        let home = self.path("home").display().to_string();
        let data = format!("{home}/keepsake");
        let command = command
            .arguments(&["serve", "--dev", "--data-dir", &data, "--listen", &listen])
            .env("XDG_CONFIG_HOME", &home);
        self.servers.push(Server::start(command).await);
    }
}

/// Copies a folder without what builds leave there.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if entry.file_type().unwrap().is_dir() {
            if name != "node_modules" && name != "dist" {
                copy(&entry.path(), &to.join(name));
            }
        } else {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

/// Text of the configuration in the README, and what a test has instead.
fn placeholders(deployment: &Deployment) -> Vec<(&'static str, String)> {
    let options = s3_options(&s3::unique_prefix());
    let settings = options.settings;
    let credentials = settings.credentials.unwrap();
    let secret = credentials.secret_access_key.expose_secret();
    let url = format!("s3://{}/{}", options.bucket, options.prefix);
    vec![
        ("[index]", "[server]\nlisten = \"127.0.0.1:{port}\"\n[index]".to_owned()),
        ("postgres://keepsake:…@db/keepsake", deployment.postgres_url()),
        ("s3://agent-memory", url),
        ("http://minio:9000", settings.endpoint.unwrap()),
        ("access_key_id = \"…\"", format!("access_key_id = {:?}", credentials.access_key_id)),
        ("secret_access_key = \"…\"", format!("secret_access_key = {secret:?}")),
        ("master_key = \"…\"", format!("master_key = {:?}", "M".repeat(43) + "=")),
    ]
}

/// A part of a block, and a part of what it prints.
const PRINTED: [(&str, &str); 8] = [
    ("keepsake memory cat", "/memories/hello.md"),
    ("keepsake memory cat", "Remember me."),
    ("agent.py", ANSWER),
    ("@keepsake/memory", ANSWER),
    ("stores.py", "modified"),
    ("stores.mjs", "/hello.md"),
    ("keepsake migrate", "wrkspc_"),
    ("keepsake key create", "ks_live_"),
];
const ANSWER: &str = "You tag, then you build.";

#[tokio::test(flavor = "multi_thread")]
async fn readme_works_block_by_block() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let deployment = Deployment::unmigrated(Pair::PostgresS3).await;
    let model = FakeModel::start(ANSWER).await;
    let mut reader = Reader::new();
    let (mut tenant, mut config) = (String::new(), String::new());
    let mut printed: Vec<_> = PRINTED.to_vec();
    for Block { language, text } in blocks(&readme) {
        match language.as_str() {
            "sh" if text == "cargo run -- serve --dev" => reader.start_dev().await,
            // The chart's tests run what the compose file runs, and this test is in the other one.
            "sh" if text.starts_with("docker compose") || text == "./tests/run" => continue,
            "sh" if text.starts_with("keepsake serve") => {
                let command = ServerCommand::new(binary(), &config);
                reader.servers.push(Server::start(command).await);
            }
            "sh" => {
                reader.paste(&text.replace("wrkspc_…", &tenant), &[]).await;
                let mut words = reader.printed.split_whitespace();
                if let Some(id) = words.find(|word| word.starts_with("wrkspc_")) {
                    tenant = id.to_owned();
                }
            }
            "json" => {
                let [wanted, printed] = [&text, &reader.printed].map(|text| {
                    let value = serde_json::from_str::<Value>(text);
                    value.unwrap_or_else(|error| panic!("{error}: {text}"))
                });
                assert_eq!(printed, wanted);
            }
            "toml" => {
                config = placeholders(&deployment).iter().fold(text.clone(), |text, (shown, value)| {
                    assert!(text.contains(shown), "{shown}: {text}");
                    text.replacen(shown, value, 1)
                });
                reader.write("keepsake.toml", &config.replace("{port}", "8080"));
            }
            "python" => {
                reader.write("agent.py", &text);
                reader.paste(".venv/bin/python agent.py", &model.variables()).await;
            }
            // Its programs are JavaScript too, which each version of Node runs.
            "js" | "ts" => {
                reader.write("agent.mjs", &text);
                reader.paste("node agent.mjs", &model.variables()).await;
            }
            other => panic!("a block of the language {other:?}: {text}"),
        }
        printed.retain(|(part, wanted)| {
            let is_here = text.contains(part);
            assert!(!is_here || reader.printed.contains(wanted), "{text}: {}", reader.printed);
            !is_here
        });
    }
    assert!(printed.is_empty(), "no such blocks: {printed:?}");
}

/// Names of four words or more, such as those of tests; `…` stands for the rest of one.
#[test]
fn every_name_of_the_docs_is_in_the_code() {
    let mut folders = vec![repository().join("crates"), repository().join("tools")];
    let mut code = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                code.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    for page in ["security.md", "architecture.md", "reliability.md"] {
        let text = fs::read_to_string(repository().join("docs").join(page)).unwrap();
        for quoted in text.split('`').skip(1).step_by(2) {
            let name = quoted.trim_end_matches('…').rsplit("::").next().unwrap();
            let is_name = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
            if is_name && name.matches('_').count() >= 3 {
                assert!(code.contains(name), "{page} names `{quoted}`, which does not exist");
            }
        }
    }
}
