//! The README, from top to bottom: each block is run as it is written. A script takes the place
//! of the model, and the chart's tests test `docker compose`. Everything else is real.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use keepsake_testkit::{s3, s3_options};
use secrecy::ExposeSecret;

use crate::dev_mode::dev_command;
use crate::prelude::*;
use crate::support::script::{FakeModel, MCP_PYTHON};

fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language, text.join("\n")));
        }
    }
    blocks
}

/// A reader with a terminal, in a copy of the repository's folder.
struct Reader {
    folder: TempDir,
    printed: String,
    servers: Vec<Server>,
}

impl Reader {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path();
        fs::create_dir_all(path.join("target/debug")).unwrap();
        fs::create_dir(path.join("home")).unwrap();
        // Without what builds leave there.
        let copy = "tar --exclude=node_modules --exclude=dist --create --file=- clients | tar --extract --file=- --directory \"$0\"";
        let mut bash = Command::new("bash");
        script::run(bash.args(["-euo", "pipefail", "-c", copy]).arg(path).current_dir(repository())).await;
        let reader = Self { folder, printed: String::new(), servers: Vec::new() };
        // It keeps its files in this folder instead of the home folder.
        let program = format!(
            "#!/bin/sh\nXDG_CONFIG_HOME='{0}' XDG_DATA_HOME='{0}' exec '{1}' \"$@\"\n",
            reader.path("home").display(),
            binary().display()
        );
        fs::write(reader.path("target/debug/keepsake"), program).unwrap();
        fs::set_permissions(reader.path("target/debug/keepsake"), fs::Permissions::from_mode(0o755)).unwrap();
        reader
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs code in the terminal, whose variables outlive it.
    async fn paste(&mut self, code: &str, more: &[(&str, &str)]) {
        let begin = "set -euo pipefail\n[ ! -f variables ] || . ./variables";
        let terminal = format!("{begin}\n{code}\ndeclare -px >variables\n");
        let mut command = Command::new("bash");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KEEPSAKE_") {
                command.env_remove(name);
            }
        }
        let path = format!("{}:{}", self.path("target/debug").display(), std::env::var("PATH").unwrap());
        command.args(["-c", &terminal]).current_dir(self.folder.path());
        command.env("PATH", path).envs(more.iter().copied());
        self.printed = script::run(&mut command).await;
    }
}

/// Text of the configuration in the README, and what a test has instead.
fn placeholders(deployment: &Deployment) -> Vec<(&'static str, String)> {
    let options = s3_options(&s3::unique_prefix());
    let credentials = options.settings.credentials.unwrap();
    let secret = credentials.secret_access_key.expose_secret();
    vec![
        ("[index]", "[server]\nlisten = \"127.0.0.1:{port}\"\n[index]".to_owned()),
        ("postgres://keepsake:…@db/keepsake", deployment.postgres_url()),
        ("s3://agent-memory", format!("s3://{}/{}", options.bucket, options.prefix)),
        ("http://minio:9000", options.settings.endpoint.unwrap()),
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
    let mut reader = Reader::new().await;
    let mut config = String::new();
    let mut printed: Vec<_> = PRINTED.to_vec();
    for (language, text) in blocks(&readme) {
        match language {
            "sh" if text == "cargo run -- serve --dev" => {
                let home = reader.path("home");
                let command = dev_command(&home.join("keepsake"));
                let command = command.env("XDG_CONFIG_HOME", &home.display().to_string());
                reader.servers.push(Server::start(command).await);
            }
            // The chart's tests run what the compose file runs, and this test is in the other one.
            "sh" if text.starts_with("docker compose") || text == "./tests/run" => continue,
            "sh" if text.starts_with("keepsake serve") => {
                let command = ServerCommand::new(binary(), &config);
                reader.servers.push(Server::start(command).await);
            }
            "sh" => reader.paste(&text, &[]).await,
            "json" => {
                let [wanted, printed] =
                    [&text, &reader.printed].map(|text| serde_json::from_str::<Value>(text).unwrap());
                assert_eq!(printed, wanted);
            }
            "toml" => {
                config = placeholders(&deployment).iter().fold(text.clone(), |text, (shown, value)| {
                    assert!(text.contains(shown), "{shown}: {text}");
                    text.replacen(shown, value, 1)
                });
                fs::write(reader.path("keepsake.toml"), config.replace("{port}", "8080")).unwrap();
            }
            "python" => {
                fs::write(reader.path("agent.py"), &text).unwrap();
                reader.paste(".venv/bin/python agent.py", &model.variables()).await;
            }
            "js" => {
                fs::write(reader.path("agent.mjs"), &text).unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn scripted_agents_day_goes_as_the_docs_show_it() {
    let (_deployment, server, tenant, _) = on_sqlite().await;
    let mut agent = Command::new(script::from_environment(MCP_PYTHON));
    agent.arg(repository().join("tests/agent/day.py"));
    agent.env("KEEPSAKE_URL", server.url()).env("KEEPSAKE_API_KEY", &tenant.key);
    let transcript = script::run(&mut agent).await;
    let kept = fs::read_to_string(repository().join("docs/example-session.md")).unwrap();
    for (number, (line, kept)) in (1..).zip(transcript.lines().zip(kept.lines())) {
        assert_eq!(line, kept, "docs/example-session.md, line {number}");
    }
    assert_eq!(transcript.lines().count(), kept.lines().count());
}

/// Names of four words or more, such as those of tests; `…` stands for the rest of one.
#[tokio::test]
async fn every_name_of_the_docs_is_in_the_code() {
    let mut grep = Command::new("git");
    grep.args(["grep", "--untracked", "-h", "_", "--", "crates/*.rs", "tools/*.rs"]);
    let code = script::run(grep.current_dir(repository())).await;
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
