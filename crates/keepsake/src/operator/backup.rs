//! `keepsake backup` and `keepsake restore`

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use keepsake_blobs::BlobUrl;
use keepsake_client::Url;
use keepsake_config::{Failure, IndexUrl, Settings, cli::Result};
use keepsake_index::{FileContents, FileCounts, FileState, SqliteIndex};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempPath};

use super::target::CommandDatabase;
use crate::backends::{of_index, open_secrets};
use crate::cli::{LocalArgs, shell_quoted};
use crate::data_dir::{self, FolderLock, folder_of, name_of_time, with_suffix};
use crate::logs;
use crate::open_folder::if_there;
use crate::output::{Printer, bytes, counted, notice, printable};

/// The page that says how to back up a bucket.
const BUCKETS: &str = "docs/operations.md#backing-up-a-bucket";
/// What SQLite writes beside a database.
const LOGS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// The parameters of a URL that Postgres's own tools know, too.
const LIBPQ_PARAMETERS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

#[derive(Debug, Args)]
#[command(after_help = "\
Content in S3 is not in the file: back up the bucket after the database. On Postgres, this prints the commands \
of Postgres's tools and exits with 1.

Examples:
  keepsake backup keepsake-2026-11-20.db
  keepsake backup /backups/keepsake.db --force --config keepsake.toml")]
pub(crate) struct BackupArgs {
    /// The file to write; only its owner can read it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replaces the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: LocalArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The database that is replaced stays beside the new one. With content in S3, restore the bucket first. On Postgres, \
this prints the commands of Postgres's tools and exits with 1.

Examples:
  keepsake restore keepsake-2026-11-20.db
  keepsake restore /backups/keepsake.db --config keepsake.toml")]
pub(crate) struct RestoreArgs {
    /// A file of `keepsake backup`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: LocalArgs,
}

fn settings_of(place: &LocalArgs) -> Result<Settings> {
    let settings = CommandDatabase::find(place.sources.clone())?.settings;
    logs::start(&settings.log, None);
    Ok(settings)
}

/// Writes the database into a file; a server may use it meanwhile.
pub(crate) async fn back_up(args: BackupArgs) -> Result<()> {
    let printer = Printer::new(args.place.output.output);
    let settings = settings_of(&args.place)?;
    let database = sqlite_file(&settings, &printer, || dump_of(&settings, &args.file))?;
    let copied = copy_of(database, &args).await;
    let (copy, contents) =
        copied.map_err(|failure| failure.within(format_args!("{} was not backed up", database.display())))?;
    let placed = if args.force { copy.persist(&args.file) } else { copy.persist_noclobber(&args.file) };
    placed.map_err(|error| match error.error.kind() {
        ErrorKind::AlreadyExists => exists(&args.file),
        _ => unwritable(&args.file)(error.error),
    })?;
    sync_folder_of(&args.file).map_err(unwritable(&args.file))?;
    let report = report_of(&args.file, &contents, &settings)?;
    printer.done(&report, || sentence("backed up", &args.file, &report, &contents.counts))?;
    if contents.contents_elsewhere > 0 {
        notice(&contents_are_elsewhere(&contents, &settings, "back it up now, after the database"));
    }
    if settings.engine.vault.is_locked() {
        notice(
            "the file does not contain secrets.master_key and is useless without it: keep it with your other secrets",
        );
    }
    Ok(())
}

/// A copy of the database beside the file that it gets the name of.
async fn copy_of(database: &Path, args: &BackupArgs) -> Result<(TempPath, FileContents)> {
    if !database.exists() {
        return Err(Failure::not_found("the file does not exist: name it with --config or --data-dir"));
    }
    if args.file.exists() && args.file.canonicalize().ok() == database.canonicalize().ok() {
        return Err(Failure::usage("FILE is the database itself: name another file"));
    }
    refuse_to_overwrite(args)?;
    let (_, copy, contents) = copy(database, &args.file).await?;
    refuse_beside_a_log(&args.file)?;
    Ok((copy, contents))
}

/// Replaces the database with a backup, and keeps the old one beside it.
pub(crate) async fn restore(args: RestoreArgs) -> Result<()> {
    let printer = Printer::new(args.place.output.output);
    let settings = settings_of(&args.place)?;
    let database = sqlite_file(&settings, &printer, || restoration_of(&settings, &args))?;
    let (kept, contents) = replace(database, &args.file)
        .await
        .map_err(|failure| failure.within(format_args!("{} was not restored", database.display())))?;
    let mut report = report_of(database, &contents, &settings)?;
    report["replaced"] = kept.as_ref().map(|kept| kept.display().to_string()).into();
    printer.done(&report, || sentence("restored", database, &report, &contents.counts))?;
    if let Some(kept) = kept {
        let kept = kept.display();
        notice(&format!("the replaced database is in {kept}: remove it when you no longer need it"));
    }
    if contents.contents_elsewhere > 0 {
        notice(&contents_are_elsewhere(&contents, &settings, "it must hold what the database names"));
    }
    notice(
        "keys revoked since the backup work again, and memories erased since then are back: docs/operations.md#restore",
    );
    let secrets = SqliteIndex::secrets_in_file(database).await;
    let secrets = secrets.map_err(of_index(format!("{} cannot be read", database.display())))?;
    if let Err(error) = open_secrets(&settings, &secrets) {
        notice(&format!("secrets.master_key: a server with this configuration would not start: {error}"));
    }
    Ok(())
}

/// Puts a copy of `file` in the place of the database. Answers where the old one is.
async fn replace(database: &Path, file: &Path) -> Result<(Option<PathBuf>, FileContents)> {
    let shown = file.display();
    if !file.exists() {
        return Err(Failure::not_found(format!(
            "{shown} does not exist: FILE is a backup of the whole database; `keepsake memory restore` brings a memory back, \
             and `keepsake store restore` a memory store"
        )));
    }
    // A file that cannot be restored leaves no new folder.
    let is_new = !folder_of(database).exists();
    if is_new {
        refuse_unusable(file).await?;
    }
    data_dir::make_private_folder(folder_of(database))?;
    // What a link names, so that the link stays.
    let database = &database.canonicalize().unwrap_or_else(|_| database.to_owned());
    let _lock = FolderLock::take(database)?;
    if file.canonicalize().ok().as_ref() == Some(database) {
        return Err(Failure::usage("FILE is the database itself: name a backup"));
    }
    if !is_new {
        refuse_unusable(file).await?;
    }
    let (made, copy, contents) = self::copy(file, database).await?;
    data_dir::give_to_owner_of(database, &made).map_err(unwritable(database))?;
    let kept = keep_aside(database).await?;
    copy.persist(database).map_err(|error| unwritable(database)(error.error))?;
    sync_folder_of(database).map_err(unwritable(database))?;
    Ok((kept, contents))
}

/// Refuses a file that is no whole database, or one of another version.
async fn refuse_unusable(file: &Path) -> Result<()> {
    let (shown, contents) = (file.display(), inspect(file).await?);
    let (schema, newest) = (contents.schema_version, SqliteIndex::newest_schema());
    if schema > newest {
        return Err(Failure::conflict(format!(
            "{shown} has the schema {schema}, and this version of Keepsake knows {newest}: use the version that made it, or a newer one"
        )));
    }
    if !contents.is_usable {
        let text = format!("{shown} has the schema of another development state, which no release has");
        return Err(Failure::conflict(text));
    }
    Ok(())
}

/// Copies a database into a temporary file beside `into`, and checks the copy.
async fn copy(from: &Path, into: &Path) -> Result<(File, TempPath, FileContents)> {
    let folder = folder_of(into);
    // Absolute, since SQLite takes a path that begins with `file:` for a URL.
    let folder = folder.canonicalize().map_err(data_dir::unusable(folder))?;
    // Only its owner can read it.
    let made = tempfile::Builder::new().prefix(".keepsake-").suffix(".partial").tempfile_in(folder);
    let (file, path) = made.map(NamedTempFile::into_parts).map_err(unwritable(into))?;
    let copied = SqliteIndex::copy_file(from, &path).await;
    let copied = copied.map_err(of_index(format!("{} cannot be copied", from.display())))?;
    file.sync_all().map_err(unwritable(into))?;
    let contents = inspect(&path).await.map_err(|failure| {
        let next = "look for damage with `keepsake verify`, and for space on the disk";
        failure.within(format!("the copy of {} is not whole ({next})", from.display()))
    })?;
    match copied {
        Some(counts) if counts != contents.counts => {
            Err(Failure::new(format!("the copy of {} has other rows than it", from.display())))
        }
        _ => Ok((file, path, contents)),
    }
}

async fn inspect(file: &Path) -> Result<FileContents> {
    let shown = file.display();
    match SqliteIndex::inspect_file(file).await.map_err(of_index(format!("{shown} cannot be read")))? {
        FileState::Whole(contents) => Ok(contents),
        FileState::Damaged(damage) => {
            let first = damage.first().map(|first| printable(first)).unwrap_or_default();
            Err(Failure::new(format!("{shown} is damaged, or no database: {first}")))
        }
        FileState::Foreign => Err(Failure::new(format!("{shown} is no database of Keepsake"))),
    }
}

/// Gives the database, if there is one, a second name that stays when another file takes
/// its place.
async fn keep_aside(database: &Path) -> Result<Option<PathBuf>> {
    let exists = database.exists();
    // A damaged file keeps its log.
    if exists && SqliteIndex::empty_log(database).await.is_ok_and(|is_empty| !is_empty) {
        return Err(Failure::conflict("another process reads the database: end it, and try again"));
    }
    let kept = aside_of(database);
    let failed = || Failure::of(format!("{} cannot be kept as {}", database.display(), kept.display()));
    if exists {
        // A file system without links leaves no database for a moment.
        fs::hard_link(database, &kept).or_else(|_| fs::rename(database, &kept)).map_err(failed())?;
    }
    // SQLite would write a log that it finds into the restored file, also the log of a file that is gone.
    for suffix in LOGS {
        let log = fs::rename(with_suffix(database, suffix), with_suffix(&kept, suffix));
        if_there(log).map_err(failed())?;
    }
    Ok(exists.then_some(kept))
}

/// A free name with the time: `index.db.replaced-20261120T090000Z`.
fn aside_of(database: &Path) -> PathBuf {
    let name = with_suffix(database, &format!(".replaced-{}", name_of_time(Timestamp::now())));
    let others = (1..).map(|number| with_suffix(&name, &format!(".{number}")));
    std::iter::once(name.clone()).chain(others).find(|name| !name.exists()).unwrap_or(name)
}

fn sync_folder_of(file: &Path) -> io::Result<()> {
    File::open(folder_of(file))?.sync_all()
}

fn refuse_to_overwrite(args: &BackupArgs) -> Result<()> {
    match args.file.symlink_metadata() {
        Ok(found) if found.is_dir() => {
            Err(Failure::usage(format!("{} is a directory: name a file in it", args.file.display())))
        }
        Ok(_) if !args.force => Err(exists(&args.file)),
        _ => Ok(()),
    }
}

/// Refuses a place whose earlier file left a log: SQLite would write it into the backup.
fn refuse_beside_a_log(file: &Path) -> Result<()> {
    match LOGS.map(|suffix| with_suffix(file, suffix)).into_iter().find(|log| log.symlink_metadata().is_ok())
    {
        Some(log) => Err(Failure::conflict(format!(
            "{} is the log of an earlier database with this name: remove it, or name another file",
            log.display()
        ))),
        None => Ok(()),
    }
}

fn exists(file: &Path) -> Failure {
    Failure::conflict(format!("{} exists: name another file, or replace it with --force", file.display()))
}

fn unwritable(file: &Path) -> impl FnOnce(io::Error) -> Failure {
    Failure::of(format!("{} cannot be written", file.display()))
}

fn report_of(file: &Path, contents: &FileContents, settings: &Settings) -> Result<Value> {
    let size = file.metadata().map_err(Failure::of(format_args!("{} cannot be read", file.display())))?;
    let mut report = json!(contents);
    report["file"] = file.display().to_string().into();
    report["bytes"] = size.len().into();
    report["blobs_url"] = settings.blobs.url.to_string().into();
    Ok(report)
}

fn counted_rows(rows: i64, name: &str) -> String {
    counted(u64::try_from(rows).unwrap_or_default(), name)
}

/// The result for people: the file, its size and its counts.
fn sentence(done: &str, file: &Path, report: &Value, counts: &FileCounts) -> String {
    format!(
        "{done} {} ({}): {}, {}, {} in {}\n",
        file.display(),
        bytes(report["bytes"].as_u64().unwrap_or_default()),
        counted_rows(counts.tenants, "tenant"),
        counted_rows(counts.memory_stores, "memory store"),
        counted_rows(counts.memory_versions, "version"),
        counted_rows(counts.memories, "memory"),
    )
}

/// That content is not in the file, and where it is.
fn contents_are_elsewhere(contents: &FileContents, settings: &Settings, next: &str) -> String {
    let versions = counted_rows(contents.contents_elsewhere, "version");
    match &settings.blobs.url {
        BlobUrl::Index => format!(
            "the content of {versions} is not in the database, although blobs.url is `index:`: name the \
             server's configuration with --config, and see {BUCKETS}"
        ),
        bucket @ BlobUrl::S3 { .. } => {
            format!("the content of {versions} is in {bucket} and not in the file: {next} ({BUCKETS})")
        }
    }
}

/// The file of the database. With a database on Postgres, prints the commands of Postgres's tools, and fails: none
/// was run.
fn sqlite_file<'a>(
    settings: &'a Settings,
    printer: &Printer,
    commands: impl FnOnce() -> Vec<String>,
) -> Result<&'a Path> {
    if let IndexUrl::Sqlite { file, .. } = &settings.index.url {
        return Ok(file);
    }
    let commands = commands();
    printer.done(&json!({ "commands": commands }), || format!("{}\n", commands.join("\n")))?;
    if settings.blobs.url != BlobUrl::Index {
        notice(&format!("content is in {}: see {BUCKETS} for the bucket, and the order", settings.blobs.url));
    }
    Err(Failure::new(
        "nothing was done: the database is on Postgres, whose own tools do this. Run the commands above as a \
         superuser or a role with BYPASSRLS: write its name into the URL, unless the one there is such a role. \
         PGPASSWORD or ~/.pgpass has the password",
    ))
}

fn dump_of(settings: &Settings, file: &Path) -> Vec<String> {
    let [url, file] = [postgres_url(settings).as_str(), &*file.to_string_lossy()].map(shell_quoted);
    vec![
        format!("(umask 077 && pg_dump --format custom --file {file} --dbname {url})"),
        format!("pg_restore --list {file} > /dev/null"),
    ]
}

fn restoration_of(settings: &Settings, args: &RestoreArgs) -> Vec<String> {
    let [url, file] = [postgres_url(settings).as_str(), &*args.file.to_string_lossy()].map(shell_quoted);
    let config = args.place.sources.config.as_ref();
    let config = config.map(|config| format!(" --config {}", shell_quoted(&config.to_string_lossy())));
    vec![
        "# stop every server first; in a new database, `keepsake migrate` makes the roles".to_owned(),
        format!("pg_restore --clean --if-exists --single-transaction --exit-on-error --dbname {url} {file}"),
        format!("keepsake verify{}", config.unwrap_or_default()),
    ]
}

/// The owner's URL, without a password and without the parameters of other drivers.
fn postgres_url(settings: &Settings) -> String {
    let owner = settings.index.migrate_url.as_ref().unwrap_or(&settings.index.url);
    let IndexUrl::Postgres(secret) = owner else {
        return owner.to_string();
    };
    let Ok(mut url) = Url::parse(secret.expose_secret()) else {
        return owner.to_string();
    };
    let kept = |(name, _): &(String, String)| LIBPQ_PARAMETERS.contains(&name.as_str());
    let parameters: Vec<_> = url.query_pairs().into_owned().filter(kept).collect();
    url.set_query(None);
    if !parameters.is_empty() {
        url.query_pairs_mut().extend_pairs(parameters);
    }
    // A URL without a host has no password either.
    let _ = url.set_password(None);
    url.to_string()
}
