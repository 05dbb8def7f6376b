//! Runs of the binary that end by themselves.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use super::binary;

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `keepsake` without any variable of Keepsake's.
pub(crate) async fn keepsake(arguments: &[&str]) -> Run {
    keepsake_with(arguments, &[]).await
}

/// Runs `keepsake` with only these of Keepsake's variables.
pub(crate) async fn keepsake_with(arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KEEPSAKE_") {
            command.env_remove(name);
        }
    }
    let output = command
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Run {
    /// What it printed, for a run that must succeed.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The JSON object it printed, for a run that must succeed.
    pub(crate) fn json(self) -> Value {
        let printed = self.ok();
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("not JSON ({error}): {printed}"))
    }
}
