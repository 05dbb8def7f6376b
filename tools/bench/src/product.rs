//! The product's binary, which makes the tenants and is measured.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use keepsake_config::Failure;
use serde_json::Value;
use tokio::process::Command;

use super::operator::Operator;
use super::process::{LIVEZ, Process, free_address};
use super::{BenchArgs, settings};

/// The name of the product's binary.
const BINARY: &str = "keepsake";

/// The binary and the flags that give it the measured configuration.
#[derive(Debug)]
pub(super) struct Product {
    binary: PathBuf,
    flags: Vec<OsString>,
}

impl Product {
    /// The binary of `--keepsake`, or else the one beside this program.
    ///
    /// # Errors
    /// [`Failure`] when there is none.
    pub(super) fn of(args: &BenchArgs) -> Result<Self, Failure> {
        let binary = match &args.keepsake {
            Some(binary) => binary.clone(),
            None => std::env::current_exe()
                .map_err(Failure::of("this program cannot be found"))?
                .with_file_name(BINARY),
        };
        if !binary.is_file() {
            return Err(Failure::new(format!(
                "{} is missing: build it, or give --keepsake",
                binary.display()
            )));
        }
        Ok(Self { binary, flags: settings::to_flags(&args.sources) })
    }

    /// Runs a command to its end and returns what it printed.
    ///
    /// # Errors
    /// [`Failure`] with what it printed to stderr.
    pub(super) async fn run(&self, command: &[&str]) -> Result<Vec<u8>, Failure> {
        let name = || format!("keepsake {}", command.iter().take(2).copied().collect::<Vec<_>>().join(" "));
        let output = Command::new(&self.binary)
            .args(command)
            .args(&self.flags)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(Failure::of(name()))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(format!("{}: {}", name(), said.trim_end())))
    }

    /// Runs a command that prints a JSON object.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(super) async fn json(&self, command: &[&str]) -> Result<Value, Failure> {
        let printed = self.run(&[command, &["-o", "json"]].concat()).await?;
        serde_json::from_slice(&printed).map_err(Failure::of("a command printed no JSON"))
    }

    /// Starts a server on a free port and waits until it answers.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub(super) async fn serve(&self) -> Result<(Process, SocketAddr), Failure> {
        let served = self.serve_with(&[]).await?;
        Ok((served.process, served.address))
    }

    /// The same, with variables of the configuration and the operator's listener.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub(super) async fn serve_with(&self, variables: &[(&str, &str)]) -> Result<Served, Failure> {
        let address = free_address()?;
        let operator = Operator::at(free_address()?);
        let process = Process::start(&self.binary, "server", (address, LIVEZ), |command| {
            operator.configure(command);
            command
                .arg("serve")
                .args(&self.flags)
                .arg("--listen")
                .arg(address.to_string())
                .envs(variables.iter().copied());
        })
        .await?;
        Ok(Served { process, address, operator })
    }

    /// A command of the product, without the configuration's flags.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// A running server.
pub(super) struct Served {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
    pub(super) operator: Operator,
}
