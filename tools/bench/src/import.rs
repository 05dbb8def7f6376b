//! The speed of `keepsake import` of a folder, alternately with the floor of
//! `create` for contents of the same size.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use keepsake_config::Failure;
use serde::Serialize;

use super::costs::{Backends, Costs};
use super::load::{self, Endpoint};
use super::plan::{Layout, Scenario};
use super::process;
use super::product::{Product, Served};
use super::report::{Machine, median, rounded};
use super::words::{Numbers, word};
use super::workload::Side;
use super::{BenchArgs, provision, run_name, say, scenarios};

const FILE_BYTES: usize = 4 << 10;
/// Files in a folder.
const FOLDER_FILES: usize = 100;

/// Options of `keepsake-bench --import`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ImportArgs {
    /// Measures the import of a folder with files of 4 KB, and the floor of `create`
    #[arg(long, conflicts_with_all = ["url", "credentials", "floor", "fairness", "search", "console"])]
    pub(super) import: bool,
    /// Number of files
    #[arg(long, default_value_t = 10_000, requires = "import", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    import_files: usize,
}

/// The results; medians of the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Imported {
    keepsake: &'static str,
    machine: Machine,
    files: usize,
    file_bytes: usize,
    rounds: usize,
    files_per_second: f64,
    floor_creates_per_second: f64,
    /// Imported files per second divided by the floor's creations, per round.
    ratios: Vec<f64>,
    median_ratio: f64,
    server_cpu_micros_per_file: Option<f64>,
    database_cpu_micros_per_file: Option<f64>,
    s3_cpu_micros_per_file: Option<f64>,
    /// Of the command.
    command_cpu_micros_per_file: Option<f64>,
}

/// A folder in the temporary folder, removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures imports into new stores of a new server.
///
/// # Errors
/// [`Failure`] of the setup or of an import.
pub(super) async fn measure(args: &BenchArgs) -> Result<Imported, Failure> {
    let machine = Machine::this();
    let settings = args.settings()?;
    let backends = Backends::of(&settings);
    let files = args.import.import_files;
    let product = Product::of(args)?;
    product.run(&["migrate"]).await?;
    let run = run_name();
    let tenant = provision::tenants(&product, 1, &run).await?;
    let folder = Folder(std::env::temp_dir().join(format!("keepsake-bench-import-{run}")));
    make_files(&folder.0, files).map_err(Failure::of("the files to import cannot be made"))?;
    let Served { mut process, address, operator } = product.serve_with(&[]).await?;
    let server =
        Endpoint { side: Side::Server, address, pid: process.pid(), backends, operator: Some(operator) };
    let shape = Layout::Store.shape(args.sizes);
    let stores = provision::stores(&tenant, 1, address).await?;
    let workload = args.workload(&stores, &run, shape)?;
    load::seed(server, &workload, args.load()).await?;
    let laid = [(Layout::Store, workload.clone())];
    let (mut floor, floor_endpoint) = scenarios::start_floor(args, server, &laid, FILE_BYTES).await?;

    let (mut rates, mut floor_rates) = (Vec::new(), Vec::new());
    let mut costs = None::<Costs>;
    let mut command_cpu = Some(Duration::ZERO);
    for round in 0..args.rounds {
        let seen = load::measure(floor_endpoint, &workload, Scenario::Create, args.load()).await?;
        if let Some(failure) = seen.failure {
            return Err(Failure::new(format!("a call of the floor failed: {failure}")));
        }
        let store = &provision::stores(&tenant, 1, address).await?[0];
        let before = Costs::now(server.pid, backends, None).await;
        let children_before = children_cpu();
        let began_at = Instant::now();
        let mut command = product.command();
        command
            .arg("import")
            .arg(&folder.0)
            .args(["--store", &store.store_id.to_string(), "-o", "json"])
            .env("KEEPSAKE_URL", format!("http://{address}"))
            .env("KEEPSAKE_API_KEY", &store.api_key);
        let output = command.output().await.map_err(Failure::of("keepsake import"))?;
        let took = began_at.elapsed();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new(format!("keepsake import: {}", said.trim_end())));
        }
        let used = Costs::now(server.pid, backends, None).await.since(before);
        costs = Some(costs.map_or(used, |costs| costs.plus(used)));
        command_cpu = command_cpu
            .zip(children_cpu().zip(children_before))
            .map(|(sum, (after, before))| sum + after.saturating_sub(before));
        rates.push(number(files) / took.as_secs_f64());
        floor_rates.push(seen.throughput());
        say(&format!(
            "import, round {} of {}: {:.0} files/s, floor {:.0}/s",
            round + 1,
            args.rounds,
            rates[round],
            floor_rates[round]
        ));
        process.check()?;
        floor.check()?;
    }
    floor.end().await?;
    process.end().await?;
    let ratios: Vec<_> = rates.iter().zip(&floor_rates).map(|(rate, floor)| rate / floor).collect();
    let all = number(files * args.rounds);
    let micros = |cpu: Option<Duration>| Some(rounded(cpu?.as_secs_f64() * 1e6 / all));
    let costs = costs.unwrap_or_default();
    Ok(Imported {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        files,
        file_bytes: FILE_BYTES,
        rounds: args.rounds,
        files_per_second: rounded(median(&rates).unwrap_or_default()),
        floor_creates_per_second: rounded(median(&floor_rates).unwrap_or_default()),
        median_ratio: median(&ratios).unwrap_or_default(),
        ratios,
        server_cpu_micros_per_file: micros(costs.server_cpu),
        database_cpu_micros_per_file: micros(costs.database_cpu),
        s3_cpu_micros_per_file: micros(costs.s3_cpu),
        command_cpu_micros_per_file: micros(command_cpu),
    })
}

/// CPU time of this program's ended children, such as the command.
fn children_cpu() -> Option<Duration> {
    Some(process::stat(std::process::id())?.ended_children)
}

/// Writes files of words.
fn make_files(folder: &Path, files: usize) -> std::io::Result<()> {
    let mut numbers = Numbers::new(1);
    for number in 0..files {
        let folder = folder.join(format!("d{:05}", number / FOLDER_FILES));
        std::fs::create_dir_all(&folder)?;
        let mut text = String::new();
        while text.len() < FILE_BYTES {
            text.push_str(&word(numbers.skewed(10_000)));
            text.push(if numbers.next().is_multiple_of(12) { '\n' } else { ' ' });
        }
        text.truncate(FILE_BYTES);
        std::fs::write(folder.join(format!("f{number:07}.md")), text)?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "no import has 2^52 files")]
fn number(value: usize) -> f64 {
    value as f64
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |micros: Option<f64>| micros.map_or("-".to_owned(), |micros| format!("{micros:.0}"));
        writeln!(
            f,
            "import of {} files of {} bytes: {:.0} files/s, floor of create {:.0}/s, ratio {:.2}",
            self.files,
            self.file_bytes,
            self.files_per_second,
            self.floor_creates_per_second,
            self.median_ratio
        )?;
        writeln!(
            f,
            "CPU µs for each file: server {}, database {}, S3 server {}, command {}",
            of(self.server_cpu_micros_per_file),
            of(self.database_cpu_micros_per_file),
            of(self.s3_cpu_micros_per_file),
            of(self.command_cpu_micros_per_file)
        )
    }
}
