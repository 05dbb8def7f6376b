//! Runs of the binary that end by themselves.

use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdout};

use super::*;

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) line: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn borrowed<'a>(variables: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

pub(crate) async fn keepsake(arguments: &[&str]) -> Run {
    keepsake_with(arguments, &[]).await
}

/// Runs `keepsake` with only these of Keepsake's variables.
pub(crate) async fn keepsake_with(arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    keepsake_reading(arguments, variables, "").await
}

pub(crate) async fn keepsake_in(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(folder);
    run(command, variables, "").await
}

pub(crate) async fn keepsake_reading(arguments: &[&str], variables: &[(&str, &str)], input: &str) -> Run {
    let mut command = Command::new(binary());
    command.args(arguments);
    run(command, variables, input).await
}

/// A person types a secret again after this time without a reaction.
const TYPED_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// A server ends within this time after Ctrl-C, also on a slow machine.
const ENDS_WITHIN: Duration = Duration::from_mins(2);

/// Runs `keepsake` in a pseudo-terminal of this width, where a person types `input`.
///
/// Its stdout and stderr are one.
pub(crate) async fn keepsake_in_terminal(
    arguments: &[&str],
    variables: &[(&str, &str)],
    width: u16,
    input: &str,
) -> Run {
    let run = run(in_terminal(arguments, width), variables, input).await;
    Run { stdout: run.stdout.replace("\r\n", "\n"), ..run }
}

/// The same for a secret, which a person types after the prompt.
pub(crate) async fn keepsake_asking_in_terminal(
    arguments: &[&str],
    variables: &[(&str, &str)],
    (prompt, secret): (&str, &str),
) -> Run {
    let mut child = start(in_terminal(arguments, 80), variables);
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut shown = shown_until(&mut stdout, prompt).await;
    let mut rest = Vec::new();
    let mut end = std::pin::pin!(stdout.read_to_end(&mut rest));
    loop {
        // The terminal drops input between the prompt and the end of the echo.
        let _ = stdin.write_all(format!("{secret}\n").as_bytes()).await;
        if let Ok(read) = tokio::time::timeout(TYPED_AGAIN_AFTER, &mut end).await {
            read.unwrap();
            break;
        }
    }
    shown.extend(rest);
    Run {
        line: arguments.join(" "),
        code: child.wait().await.unwrap().code(),
        stdout: String::from_utf8(shown).unwrap(),
        stderr: String::new(),
    }
}

/// Runs a server in a pseudo-terminal of this width. When it has shown `awaited` and `work` is done, a
/// person presses Ctrl-C.
pub(crate) async fn keepsake_serving_in_terminal(
    arguments: &[&str],
    variables: &[(&str, &str)],
    width: u16,
    (awaited, work): (&str, impl Future<Output = ()>),
) -> Run {
    let mut child = start(in_terminal(arguments, width), variables);
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut shown = shown_until(&mut stdout, awaited).await;
    work.await;
    stdin.write_all(b"\x03").await.unwrap();
    let end = stdout.read_to_end(&mut shown);
    tokio::time::timeout(ENDS_WITHIN, end).await.expect("Ctrl-C ends the server").unwrap();
    Run {
        line: arguments.join(" "),
        code: child.wait().await.unwrap().code(),
        stdout: String::from_utf8(shown).unwrap().replace("\r\n", "\n"),
        stderr: String::new(),
    }
}

async fn shown_until(stdout: &mut ChildStdout, awaited: &str) -> Vec<u8> {
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains(awaited) {
        let read = stdout.read_buf(&mut shown).await.unwrap();
        assert!(read > 0, "no {awaited}: {}", String::from_utf8_lossy(&shown));
    }
    shown
}

fn in_terminal(arguments: &[&str], width: u16) -> Command {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let arguments: Vec<_> = arguments.iter().map(|argument| quoted(argument)).collect();
    let program = quoted(&binary().to_string_lossy());
    let line = format!("stty -echo rows 24 cols {width}; exec {program} {}", arguments.join(" "));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    command
}

/// Starts `keepsake`, which is killed when this value is dropped.
pub(crate) fn start_keepsake(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(binary());
    command.args(arguments);
    start(command, variables)
}

fn start(mut command: Command, variables: &[(&str, &str)]) -> Child {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KEEPSAKE_") {
            command.env_remove(name);
        }
    }
    command.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

async fn run(command: Command, variables: &[(&str, &str)], input: &str) -> Run {
    let line = format!("{:?}", command.as_std());
    let mut child = start(command, variables);
    let mut stdin = child.stdin.take().unwrap();
    // A program that ends without reading its input breaks the pipe.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    Run {
        line,
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Run {
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}: {}{}", self.line, self.stdout, self.stderr);
        self.stdout
    }

    #[track_caller]
    pub(crate) fn ends(&self, code: i32, cause: &str) {
        assert_eq!(self.code, Some(code), "{}: {}{}", self.line, self.stdout, self.stderr);
        assert!(self.stderr.contains(cause), "{}: {cause}: {}", self.line, self.stderr);
    }

    pub(crate) fn json(self) -> Value {
        let printed = self.ok();
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("not JSON ({error}): {printed}"))
    }
}
