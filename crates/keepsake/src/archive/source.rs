//! What an import reads: an archive, a folder of text files, or another store.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::Read;
use std::path::Path;
use std::{fs, io};

use keepsake_archive::format::{BLOBS, MANIFEST, MAX_CONTENT_BYTES, MEMORIES};
use keepsake_archive::plan::{ContentOrigin, SourceMemory};
use keepsake_archive::report::{Class, Outcome};
use keepsake_archive::verified::{Files, Prefix, SourceListing, read_manifest, verify};
use keepsake_client::Client;
use keepsake_config::{Failure, cli::Result};
use keepsake_core::{ContentHash, MemoryPath, Purpose};
use parking_lot::Mutex;

use super::folder::{Folder, describe};
use super::packed::{MAX_HISTORY_BYTES, Spooled, is_packed};
use super::report::Progress;
use super::{FromArgs, export};
use crate::cli::MomentArgs;
use crate::failures::unreadable;
use crate::open_folder::Access;
use crate::people::find_store;
use crate::store_api::{ListedMemory, ReadMemory, StoreApi, WRONG_HASH};

/// Contents of a folder that are kept in memory after they were verified, so that they are read and
/// hashed once.
const MAX_KEPT_BYTES: u64 = 64 << 20;

/// A source of memories; read one by one, because not all fit in memory.
pub(crate) enum Source {
    Folder(SourceFolder),
    Packed(Spooled),
    Store(StoreApi),
}

/// A folder, with the first contents that were read.
pub(crate) struct SourceFolder {
    folder: Folder,
    kept: Mutex<Kept>,
}

struct Kept {
    contents: HashMap<String, Vec<u8>>,
    left_bytes: u64,
}

const NOT_TEXT: &str = "is not text";
const OTHER_SOURCE: &str = "is of another source";

impl Source {
    /// Opens a folder or an archive, which is verified as a whole.
    pub(super) fn open(path: &Path, prefix: &Prefix) -> Result<(Self, SourceListing)> {
        let shown = path.display();
        let about = fs::metadata(path).map_err(unreadable(&shown))?;
        if !about.is_dir() && !is_packed(path) {
            return Err(Failure::usage(format!(
                "{shown} is neither a folder nor a .tar.zst: unpack another archive into a folder first"
            )));
        }
        if !about.is_dir() {
            let packed = Spooled::open(path)?;
            let found = verified(&packed, &shown, prefix)?;
            return Ok((Self::Packed(packed), found));
        }
        let folder = Folder::open(path, Access::OwnerOnly)?;
        let is_archive = folder.root().join(MANIFEST).exists();
        if !is_archive && export::is_unfinished(&folder) {
            return Err(Failure::new(format!(
                "{shown} is an unfinished export: run `keepsake export` again"
            )));
        }
        let folder = SourceFolder::new(folder);
        let found =
            if is_archive { verified(&folder, &shown, prefix)? } else { read_texts(&folder, prefix)? };
        Ok((Self::Folder(folder), found))
    }

    /// Receives the archive of another store with its history, so that it, too, is verified before
    /// anything is written.
    pub(super) async fn receive(
        url: &str,
        args: &FromArgs,
        prefix: &Prefix,
    ) -> Result<(Self, SourceListing)> {
        Self::receive_store(url, &other_store(url, args).await?, prefix).await
    }

    /// As [`Source::receive`], for a store that was found.
    pub(crate) async fn receive_store(
        url: &str,
        other: &StoreApi,
        prefix: &Prefix,
    ) -> Result<(Self, SourceListing)> {
        let store_id = other.id.clone();
        let of_server = |failure: Failure| failure.within(url);
        let total = export::memory_count(other).await.map_err(of_server)?;
        let damaged = |damage| Failure::new(format!("the archive of the server is damaged: {damage}"));
        let read = move |received| {
            let mut progress = Progress::new("exported", total);
            let packed = Spooled::read(received, MAX_HISTORY_BYTES, || progress.add(1));
            let packed = packed.map_err(|stopped| stopped.failure(damaged))?;
            let manifest = read_manifest(&packed).map_err(damaged)?;
            export::require_asked_for(&manifest, &store_id, true).map_err(damaged)?;
            Ok(packed)
        };
        let packed = export::receive(other, true, &MomentArgs::default(), read).await.map_err(of_server)?;
        let found = verified(&packed, url, prefix)?;
        Ok((Self::Packed(packed), found))
    }

    pub(super) async fn connect(
        url: &str,
        args: &FromArgs,
        prefix: &Prefix,
    ) -> Result<(Self, SourceListing)> {
        let store = other_store(url, args).await?;
        let listed = store.list().await;
        let listed = listed.map_err(|failure| failure.within(url))?;
        let found = placed(listed.0.values(), prefix).map_err(|failure| failure.within(url))?;
        Ok((Self::Store(store), found))
    }

    /// The source's content of an item when it is written. The reason why it is unusable follows the item's
    /// path in a report.
    pub(super) async fn content(&self, item: &SourceMemory) -> Result<ReadMemory<String>> {
        let (store, id) = match (self, &item.origin) {
            (Self::Store(store), ContentOrigin::Memory(id)) => (store, id),
            (_, ContentOrigin::Memory(_)) => return Ok(ReadMemory::Unusable(OTHER_SOURCE.to_owned())),
            (_, ContentOrigin::File(name)) => {
                let text = self.text(name, item.sha256);
                return Ok(text.map_or_else(ReadMemory::Unusable, ReadMemory::Memory));
            }
        };
        Ok(match store.read(id, "full").await? {
            ReadMemory::Deleted => ReadMemory::Deleted,
            ReadMemory::Unusable(reason) => ReadMemory::Unusable(reason),
            ReadMemory::Memory(memory) => {
                let content = memory.content.unwrap_or_default();
                // The content may be newer than the listing, but must have the hash that
                // its own answer states.
                let stated = memory.content_sha256;
                if stated.is_empty() || ContentHash::of(content.as_bytes()).to_string() == stated {
                    ReadMemory::Memory(content)
                } else {
                    ReadMemory::Unusable(WRONG_HASH.to_owned())
                }
            }
        })
    }

    /// The text of a file that was verified. The error is the reason, without the file's name.
    pub(super) fn text(&self, name: &str, sha256: ContentHash) -> Result<String, String> {
        let bytes = match self {
            Self::Folder(folder) => folder.read_again(name, sha256)?,
            Self::Packed(packed) => packed.bytes(name)?,
            Self::Store(_) => return Err(OTHER_SOURCE.to_owned()),
        };
        text_of(bytes).ok_or_else(|| NOT_TEXT.to_owned())
    }
}

impl SourceFolder {
    fn new(folder: Folder) -> Self {
        let kept = Kept { contents: HashMap::new(), left_bytes: MAX_KEPT_BYTES };
        Self { folder, kept: Mutex::new(kept) }
    }

    /// Keeps a content for [`Self::read_again`], if there is space.
    fn keep(&self, name: &str, content: Vec<u8>) {
        let mut kept = self.kept.lock();
        if let Some(left_bytes) = kept.left_bytes.checked_sub(content.len() as u64) {
            kept.left_bytes = left_bytes;
            kept.contents.insert(name.to_owned(), content);
        }
    }

    /// The content that was read first, which may have changed on the disk.
    fn read_again(&self, name: &str, sha256: ContentHash) -> Result<Vec<u8>, String> {
        if let Some(content) = self.kept.lock().contents.remove(name) {
            return Ok(content);
        }
        let content = self.folder.read(name, MAX_CONTENT_BYTES)?;
        let is_same = ContentHash::of(&content) == sha256;
        is_same.then_some(content).ok_or_else(|| "changed during the import".to_owned())
    }
}

impl Files for SourceFolder {
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, String> {
        Ok(Box::new(self.folder.open_file(name)?))
    }

    fn content(&self, name: &str) -> Result<(ContentHash, u64), String> {
        let content = self.folder.read(name, MAX_CONTENT_BYTES)?;
        let found = (ContentHash::of(&content), content.len() as u64);
        self.keep(name, content);
        Ok(found)
    }

    fn contents(&self) -> Result<Vec<String>, String> {
        let mut files = Vec::new();
        for directory in [MEMORIES, BLOBS] {
            let below = self.folder.files_below(directory);
            files.extend(below.map_err(|failure| failure.to_string())?);
        }
        Ok(files)
    }
}

/// The memories of another store at their paths in the destination, by path.
pub(crate) fn placed<'a>(
    listed: impl Iterator<Item = &'a ListedMemory>,
    prefix: &Prefix,
) -> Result<SourceListing> {
    let mut listed: Vec<_> = listed.collect();
    listed.sort_by(|a, b| a.path.cmp(&b.path));
    let mut found = SourceListing::default();
    for listed in listed {
        let sha256 = listed.content_sha256.parse();
        let sha256 = sha256.map_err(Failure::of(format_args!("content_sha256 of {}", listed.id)))?;
        found.place(prefix, &listed.path, |path| SourceMemory {
            path,
            sha256,
            size_bytes: listed.content_size_bytes,
            is_pinned: listed.is_pinned(),
            expires_at: listed.expires_at(),
            origin: ContentOrigin::Memory(listed.id.clone()),
        });
    }
    Ok(found)
}

async fn other_store(url: &str, args: &FromArgs) -> Result<StoreApi> {
    let api_key = args.from_api_key.clone().ok_or_else(|| {
        Failure::usage("--from-url needs an API key of the other server: set KEEPSAKE_FROM_API_KEY")
    })?;
    let client = Client::of_compatible(url, &api_key.into())
        .map_err(|error| Failure::usage(format!("--from-{error}")))?
        .reading_for(Purpose::Backup);
    let store = args.from_store.as_deref().unwrap_or_default();
    let id = find_store(&client, store).await.map_err(|failure| failure.within(url))?;
    Ok(StoreApi { client, id })
}

fn verified(files: &impl Files, shown: impl Display, prefix: &Prefix) -> Result<SourceListing> {
    let mut shown_progress = None;
    let found = verify(files, prefix, |memories| {
        shown_progress.get_or_insert_with(|| Progress::new("verified", memories)).add(1);
    });
    found.map_err(|damage| Failure::new(format!("{shown} is damaged: {damage}")))
}

fn refuse(found: &mut SourceListing, prefix: &Prefix, name: &str, class: Class, reason: &str) {
    let (path, _) = prefix.place(&format!("/{name}"));
    found.report.add(path, Outcome::refused(class, reason));
}

/// Finds the texts of a folder, in the order of their names.
fn read_texts(folder: &SourceFolder, prefix: &Prefix) -> Result<SourceListing> {
    let mut found = SourceListing::default();
    let mut taken = std::collections::HashSet::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let shown = folder.folder.root().join(&directory);
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
    found: &mut SourceListing,
    taken: &mut std::collections::HashSet<MemoryPath>,
    folder: &SourceFolder,
    name: &str,
    prefix: &Prefix,
) {
    let bytes = match folder.folder.read(name, MAX_CONTENT_BYTES) {
        Ok(bytes) => bytes,
        Err(reason) => return refuse(found, prefix, name, Class::Rule, &reason),
    };
    let Some(text) = text_of(bytes) else {
        return refuse(found, prefix, name, Class::NotText, NOT_TEXT);
    };
    if let (_, Ok(path)) = prefix.place(&format!("/{name}"))
        && !taken.insert(path)
    {
        return refuse(found, prefix, name, Class::Rule, "another file has the same path in NFC");
    }
    found.place(prefix, &format!("/{name}"), |path| SourceMemory {
        path,
        sha256: ContentHash::of(text.as_bytes()),
        size_bytes: text.len() as u64,
        is_pinned: false,
        expires_at: None,
        origin: ContentOrigin::File(name.to_owned()),
    });
    folder.keep(name, text.into_bytes());
}

/// `None`: no memory can have the content.
fn text_of(content: Vec<u8>) -> Option<String> {
    String::from_utf8(content).ok().filter(|text| !text.contains('\0'))
}
