//! What an import reads: an archive, a folder of text files, or another store.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use keepsake_archive::format::{MANIFEST, MAX_CONTENT_BYTES};
use keepsake_archive::plan::{Item, Origin};
use keepsake_archive::report::{Class, Outcome};
use keepsake_archive::verified::{Files, Found, Prefix, verify};
use keepsake_client::Client;
use keepsake_config::{Failure, FailureClass};
use keepsake_core::{ContentHash, MemoryPath, Purpose, Timestamp};
use serde::Deserialize;

use super::folder::{Folder, describe};
use super::progress::Progress;
use super::temporary::TemporaryFolder;
use super::unpacked::{Unpacked, is_packed};
use super::{FromArgs, export};
use crate::open_folder::Access;
use crate::people::find_store;
use crate::whole_store::{self, Read, WRONG_HASH};

/// A source of memories; read one by one, because not all fit in memory.
pub(super) enum Source {
    Files {
        folder: Folder,
        /// The folder of an unpacked archive; only its owner can read the folder.
        temporary: Option<TemporaryFolder>,
    },
    Store {
        client: Client,
        store_id: String,
    },
}

/// A memory as an API lists or shows it; other servers omit the optional fields.
#[derive(Deserialize)]
pub(super) struct ListedMemory {
    pub(super) id: String,
    pub(super) path: String,
    content: Option<String>,
    pub(super) content_sha256: String,
    content_size_bytes: u64,
    #[serde(default)]
    pinned: Option<bool>,
    #[serde(default)]
    expiry_time: Option<String>,
}

impl ListedMemory {
    /// All memories of a store, by id.
    pub(super) async fn list(client: &Client, store_id: &str) -> Result<BTreeMap<String, Self>, Failure> {
        let store = ["memory_stores", store_id];
        whole_store::list(client, &store, |listed: &Self| listed.id.clone()).await
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.pinned.unwrap_or_default()
    }

    /// The memory's own expiry time.
    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        self.expiry_time.as_deref().and_then(Timestamp::parse)
    }
}

impl Source {
    /// Opens a folder or an archive, which is verified as a whole.
    pub(super) fn open(path: &Path, prefix: &Prefix) -> Result<(Self, Found), Failure> {
        let about = fs::metadata(path).map_err(|error| {
            let class = match error.kind() {
                std::io::ErrorKind::NotFound => FailureClass::NotFound,
                _ => FailureClass::Failed,
            };
            Failure::of_class(class, format!("{} cannot be read: {error}", path.display()))
        })?;
        if !about.is_dir() && !is_packed(path) {
            return Err(Failure::of_class(
                FailureClass::Usage,
                format!(
                    "{} is neither a folder nor a .tar.zst: unpack another archive into a folder first",
                    path.display()
                ),
            ));
        }
        if !about.is_dir() {
            let temporary = TemporaryFolder::new()?;
            let unpacked = Unpacked::open(path, Folder::open(&temporary.path(), Access::OwnerOnly)?)?;
            let found = verified(&unpacked, path, prefix)?;
            let source = Self::Files { folder: unpacked.into_folder(), temporary: Some(temporary) };
            return Ok((source, found));
        }
        let folder = Folder::open(path, Access::OwnerOnly)?;
        let found = if folder.root().join(MANIFEST).exists() {
            verified(&folder, path, prefix)?
        } else if export::is_unfinished(&folder) {
            return Err(Failure::new(format!(
                "{} is an unfinished export: run `keepsake export` again",
                path.display()
            )));
        } else {
            read_texts(&folder, prefix)?
        };
        Ok((Self::Files { folder, temporary: None }, found))
    }

    /// Lists another store.
    pub(super) async fn connect(
        url: &str,
        args: &FromArgs,
        prefix: &Prefix,
    ) -> Result<(Self, Found), Failure> {
        let (client, store_id) = other_store(url, args).await?;
        let mut found = Found::default();
        let listed = ListedMemory::list(&client, &store_id).await;
        let listed = listed.map_err(|failure| failure.within(url))?;
        let mut listed: Vec<_> = listed.into_values().collect();
        listed.sort_by(|a, b| a.path.cmp(&b.path));
        for listed in listed {
            let sha256 = listed
                .content_sha256
                .parse()
                .map_err(Failure::of(format_args!("{url}: content_sha256 of {}", listed.id)))?;
            let (is_pinned, expires_at) = (listed.is_pinned(), listed.expires_at());
            let origin = Origin::Memory(listed.id);
            found.place(prefix, &listed.path, |path| Item {
                path,
                sha256,
                size_bytes: listed.content_size_bytes,
                is_pinned,
                expires_at,
                origin,
            });
        }
        Ok((Self::Store { client, store_id }, found))
    }

    /// The content of an item. The inner error is the reason why the item can no longer
    /// be imported.
    pub(super) async fn content(&self, item: &Item) -> Result<Result<String, String>, Failure> {
        match (self, &item.origin) {
            (Self::Files { folder, temporary }, Origin::File(name)) => {
                Ok(read_text(folder, name).map_err(|(_, reason)| reason).and_then(|text| {
                    let is_same = temporary.is_some() || ContentHash::of(text.as_bytes()) == item.sha256;
                    let changed = || "changed during the import".to_owned();
                    is_same.then_some(text).ok_or_else(changed)
                }))
            }
            (Self::Store { client, store_id }, Origin::Memory(id)) => {
                let store = ["memory_stores", store_id.as_str()];
                let memory = match whole_store::read::<ListedMemory>(client, &store, id, "full").await? {
                    Read::Memory(memory) => memory,
                    Read::Deleted => return Ok(Err("was deleted during the import".to_owned())),
                    Read::ContentLost(reason) => return Ok(Err(reason)),
                };
                let content = memory.content.unwrap_or_default();
                // The content may be newer than the listing, but must have the hash that
                // its own answer states.
                let is_same = ContentHash::of(content.as_bytes()).to_string() == memory.content_sha256;
                Ok(is_same.then_some(content).ok_or_else(|| WRONG_HASH.to_owned()))
            }
            (Self::Files { .. }, Origin::Memory(_)) | (Self::Store { .. }, Origin::File(_)) => {
                Ok(Err("is of another source".to_owned()))
            }
        }
    }
}

/// A client of another server, and the id of the store there.
pub(super) async fn other_store(url: &str, args: &FromArgs) -> Result<(Client, String), Failure> {
    let api_key = args.from_api_key.clone().unwrap_or_default();
    let client = Client::of_compatible(url, &api_key.into())
        .map_err(|error| Failure::of_class(FailureClass::Usage, format!("--from-{error}")))?
        .reading_for(Purpose::Backup);
    let store = args.from_store.as_deref().unwrap_or_default();
    let store_id = find_store(&client, store).await.map_err(|failure| failure.within(url))?;
    Ok((client, store_id))
}

fn verified(files: &impl Files, shown: &Path, prefix: &Prefix) -> Result<Found, Failure> {
    let mut shown_progress = None;
    let found = verify(files, prefix, |memories| {
        shown_progress.get_or_insert_with(|| Progress::new("verified", memories)).add(1);
    });
    found.map_err(|damage| Failure::new(format!("{} is damaged: {damage}", shown.display())))
}

fn refuse(found: &mut Found, prefix: &Prefix, name: &str, class: Class, reason: &str) {
    let (path, _) = prefix.place(&format!("/{name}"));
    found.report.add(path, Outcome::refused(class, reason));
}

/// Finds the texts of a folder, in the order of their names.
fn read_texts(folder: &Folder, prefix: &Prefix) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut taken = std::collections::HashSet::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let shown = folder.root().join(&directory);
        let failed = || Failure::of(format!("{} cannot be read", shown.display()));
        let items = fs::read_dir(&shown).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut items = match items {
            Ok(items) => items,
            Err(error) if directory.is_empty() => return Err(failed()(error)),
            Err(error) => {
                let name = directory.trim_end_matches('/');
                refuse(&mut found, prefix, name, Class::Rule, &format!("cannot be read: {error}"));
                continue;
            }
        };
        items.sort_by_key(fs::DirEntry::file_name);
        for item in items {
            let file_name = item.file_name();
            let Some(file_name) = file_name.to_str() else {
                let name = format!("{directory}{}", file_name.to_string_lossy());
                refuse(&mut found, prefix, &name, Class::Rule, "its name is not UTF-8");
                continue;
            };
            let name = format!("{directory}{file_name}");
            let about = match item.metadata() {
                Ok(about) => about,
                Err(error) => {
                    refuse(&mut found, prefix, &name, Class::Rule, &format!("cannot be read: {error}"));
                    continue;
                }
            };
            if file_name.starts_with('.') {
                refuse(&mut found, prefix, &name, Class::NotText, "is hidden");
            } else if about.is_dir() {
                directories.push(format!("{name}/"));
            } else if about.is_file() {
                add_text(&mut found, &mut taken, folder, &name, prefix);
            } else {
                refuse(&mut found, prefix, &name, Class::NotText, describe(&about));
            }
        }
    }
    Ok(found)
}

fn add_text(
    found: &mut Found,
    taken: &mut std::collections::HashSet<MemoryPath>,
    folder: &Folder,
    name: &str,
    prefix: &Prefix,
) {
    let text = match read_text(folder, name) {
        Ok(text) => text,
        Err((class, reason)) => return refuse(found, prefix, name, class, &reason),
    };
    if let (_, Ok(path)) = prefix.place(&format!("/{name}"))
        && !taken.insert(path)
    {
        return refuse(found, prefix, name, Class::Rule, "another file has the same path in NFC");
    }
    found.place(prefix, &format!("/{name}"), |path| Item {
        path,
        sha256: ContentHash::of(text.as_bytes()),
        size_bytes: text.len() as u64,
        is_pinned: false,
        expires_at: None,
        origin: Origin::File(name.to_owned()),
    });
}

/// Reads a text file; the error is the reason why it is not valid text.
fn read_text(folder: &Folder, name: &str) -> Result<String, (Class, String)> {
    let bytes = folder.read(name, MAX_CONTENT_BYTES).map_err(|reason| (Class::Rule, reason))?;
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err((Class::NotText, "is not text".to_owned())),
    }
}
