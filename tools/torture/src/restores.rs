//! Restores of a backup under a reader of changes and a synchronised folder: no last copy of
//! a content is lost, and the reader either has the store's state or gets `history_removed`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::Settings;
use super::fleet::{Fleet, Pair};
use super::random::Random;
use super::report::RECOVERY_LIMIT;

/// Files of which each edit chooses one.
const NAMES: u64 = 16;
const EDITS: u64 = 6;
const POLL: Duration = Duration::from_millis(50);
/// Runs within which both sides must be equal.
const RUNS: usize = 6;

#[derive(Debug, Default)]
struct Figures {
    restores: u64,
    edits: u64,
    synchronisations: u64,
    kept_both: u64,
    told: u64,
}

/// A store, a folder that is synchronised with it, and a reader of its changes.
struct Scene {
    fleet: Fleet,
    random: Random,
    http: reqwest::Client,
    store_id: String,
    folder: PathBuf,
    backup: PathBuf,
    reader: Reader,
    figures: Figures,
    violations: Vec<String>,
}

/// A reader of changes: what it knows of the store, and its place.
#[derive(Debug, Default)]
struct Reader {
    place: String,
    paths: BTreeMap<String, String>,
}

/// Restores backups for the given time, and fails on any violation.
pub(crate) async fn run(pair: Pair, settings: Settings) {
    println!("restores: {pair:?}, seed {}", settings.seed);
    let mut scene = Scene::start(pair, settings.seed).await;
    let began_at = Instant::now();
    while began_at.elapsed() < settings.duration && scene.violations.is_empty() {
        scene.round().await;
    }
    println!("restores: {pair:?}: {:?}", scene.figures);
    assert!(scene.figures.restores > 0, "nothing was tested");
    assert!(scene.violations.is_empty(), "{:#?}", scene.violations);
}

impl Scene {
    async fn start(pair: Pair, seed: u64) -> Self {
        let fleet = Fleet::start(pair).await;
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let (folder, backup) = (fleet.folder().join("synchronised"), fleet.folder().join("backup"));
        std::fs::create_dir(&folder).unwrap();
        let mut scene = Self {
            fleet,
            random: Random::new(seed),
            http,
            store_id: String::new(),
            folder,
            backup,
            reader: Reader::default(),
            figures: Figures::default(),
            violations: Vec::new(),
        };
        let made = scene.send(Method::POST, "/v1/memory_stores", json!({"name": "restored"})).await.1;
        made["id"].as_str().unwrap().clone_into(&mut scene.store_id);
        "0".clone_into(&mut scene.reader.place);
        scene.read_changes().await;
        scene
    }

    /// Edits both sides, restores the state of before, and goes on.
    async fn round(&mut self) {
        self.remove_old_conflicts();
        self.edit_both().await;
        self.synchronise().await;
        self.read_changes().await;
        self.fleet.back_up(&self.backup).await;
        for _ in 0..self.random.below(3) {
            self.edit_both().await;
            self.synchronise().await;
            if self.random.percent(70) {
                self.read_changes().await;
            }
        }
        if self.random.percent(50) {
            self.edit_folder();
        }
        self.fleet.restore(&self.backup).await;
        self.figures.restores += 1;
        for _ in 0..self.random.below(4) {
            self.edit_store().await;
        }
        if self.random.percent(50) {
            self.read_changes().await;
        }
        let before: BTreeSet<_> = self.files().into_values().collect();
        self.synchronise().await;
        let kept = self.everything().await;
        for content in before.difference(&kept) {
            self.violations.push(format!("no side has {content:?}, which the folder had before the restore"));
        }
        self.read_changes().await;
    }

    fn remove_old_conflicts(&self) {
        let mut kept: Vec<_> = self.files().into_keys().collect();
        kept.retain(|name| name.contains(".conflict-"));
        let many = usize::try_from(NAMES).unwrap();
        for name in kept.iter().filter(|_| kept.len() > many) {
            std::fs::remove_file(self.folder.join(name)).unwrap();
        }
    }

    async fn edit_both(&mut self) {
        for _ in 0..EDITS {
            if self.random.percent(50) {
                self.edit_folder();
            } else {
                self.edit_store().await;
            }
        }
    }

    fn new_content(&mut self) -> String {
        self.figures.edits += 1;
        format!("content {}", self.figures.edits)
    }

    fn edit_folder(&mut self) {
        let file = self.folder.join(format!("{}.md", self.random.below(NAMES)));
        match self.random.below(10) {
            0..6 => std::fs::write(file, self.new_content()).unwrap(),
            // The file may not be there.
            6..8 => drop(std::fs::remove_file(file)),
            _ => {
                let to = self.folder.join(format!("{}.md", self.random.below(NAMES)));
                if !to.exists() {
                    let _ = std::fs::rename(file, to);
                }
            }
        }
    }

    async fn edit_store(&mut self) {
        let memories = self.memories().await;
        let path = format!("/{}.md", self.random.below(NAMES));
        let route = format!("/v1/memory_stores/{}/memories", self.store_id);
        let content = self.new_content();
        let Some((memory_id, _)) = memories.get(&path) else {
            self.send(Method::POST, &route, json!({"path": path, "content": content})).await;
            return;
        };
        let memory = format!("{route}/{memory_id}");
        match self.random.below(10) {
            0..6 => self.send(Method::POST, &memory, json!({"content": content})).await,
            6..8 => self.send(Method::DELETE, &memory, Value::Null).await,
            _ => {
                let to = format!("/{}.md", self.random.below(NAMES));
                self.send(Method::POST, &memory, json!({"path": to})).await
            }
        };
    }

    async fn synchronise(&mut self) {
        let folder = self.folder.to_string_lossy().into_owned();
        for _ in 0..RUNS {
            self.figures.synchronisations += 1;
            let arguments = ["sync", &folder, "--allow-emptying"];
            let gateway = &self.fleet.gateways[0];
            if !self.fleet.command(gateway, &self.store_id, &arguments).await {
                self.figures.kept_both += 1;
            }
            let memories = self.memories().await;
            let stored: BTreeMap<_, _> = memories
                .into_iter()
                .map(|(path, (_, content))| (path.trim_start_matches('/').to_owned(), content))
                .collect();
            if stored == self.files() {
                return;
            }
        }
        self.violations.push(format!("folder and store differ after {RUNS} synchronisations"));
    }

    /// Every content of the folder and of the store's history.
    async fn everything(&self) -> BTreeSet<String> {
        let mut all: BTreeSet<_> = self.files().into_values().collect();
        let versions = format!("/v1/memory_stores/{}/memory_versions", self.store_id);
        let versions = self.list(&versions).await;
        let content = |version: &Value| version["content"].as_str().map(str::to_owned);
        all.extend(versions.iter().filter_map(content));
        all
    }

    fn files(&self) -> BTreeMap<String, String> {
        let files = self.folder.read_dir().unwrap().map(|file| file.unwrap());
        files
            .filter(|file| file.path().is_file())
            .map(|file| {
                let name = file.file_name().to_string_lossy().into_owned();
                (name, std::fs::read_to_string(file.path()).unwrap())
            })
            .collect()
    }

    /// The memories by path: their ids and contents.
    async fn memories(&self) -> BTreeMap<String, (String, String)> {
        let text = |memory: &Value, field: &str| memory[field].as_str().unwrap_or_default().to_owned();
        let memories = self.list(&format!("/v1/memory_stores/{}/memories", self.store_id)).await;
        memories
            .iter()
            .map(|memory| {
                let known = (text(memory, "id"), text(memory, "content"));
                (text(memory, "path"), known)
            })
            .collect()
    }

    async fn list(&self, route: &str) -> Vec<Value> {
        let (mut all, mut page) = (Vec::new(), String::new());
        loop {
            let path = format!("{route}?view=full&limit=20{page}");
            let (_, mut answer) = self.send(Method::GET, &path, Value::Null).await;
            all.append(answer["data"].as_array_mut().unwrap());
            match answer["next_page"].as_str() {
                Some(next) => page = format!("&page={next}"),
                None => return all,
            }
        }
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let url = format!("{}{path}", self.fleet.gateways[0].url());
        let began_at = Instant::now();
        let (status, answer) = loop {
            let mut request = self.http.request(method.clone(), &url).header("x-api-key", &self.fleet.key);
            if !body.is_null() {
                request = request.json(&body);
            }
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            // A gateway may not have found its database yet.
            if status != 503 || began_at.elapsed() > RECOVERY_LIMIT {
                break (status, answer);
            }
            tokio::time::sleep(POLL).await;
        };
        // A path that is taken, or a memory that is gone.
        assert!(matches!(status, 200 | 404 | 409), "{path}: {status}: {}", answer.text().await.unwrap());
        (status, answer.json().await.unwrap())
    }

    /// Reads changes to their end, and compares what the reader knows with the store.
    async fn read_changes(&mut self) {
        loop {
            let path =
                format!("/v1/memory_stores/{}/changes?limit=100&after={}", self.store_id, self.reader.place);
            let (_, changes) = self.send(Method::GET, &path, Value::Null).await;
            if changes["history_removed"] == true {
                self.figures.told += 1;
                let memories = self.memories().await;
                let known = memories.into_iter().map(|(path, (id, _))| (id, path));
                self.reader.paths = known.collect();
            } else {
                for change in changes["data"].as_array().unwrap() {
                    let id = change["memory_id"].as_str().unwrap().to_owned();
                    if change["operation"] == "deleted" {
                        self.reader.paths.remove(&id);
                    } else {
                        let path = change["path"].as_str().unwrap().to_owned();
                        self.reader.paths.insert(id, path);
                    }
                }
            }
            changes["next_after"].as_str().unwrap().clone_into(&mut self.reader.place);
            if changes["has_more"] == false {
                break;
            }
        }
        let memories = self.memories().await;
        let stored: BTreeMap<_, _> = memories.into_iter().map(|(path, (id, _))| (id, path)).collect();
        if stored != self.reader.paths {
            let Reader { place, paths } = &self.reader;
            self.violations.push(format!("a reader at {place} knows {paths:?}, the store has {stored:?}"));
        }
    }
}
