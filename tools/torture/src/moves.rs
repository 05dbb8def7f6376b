//! Moves of the content between S3 and Postgres, with servers that come at any moment: every
//! acknowledged memory is read afterwards where the move left the content.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use keepsake_testkit::ServerCommand;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Settings;
use super::audit::Reader;
use super::fleet::{Fleet, Pair};
use super::random::Random;

const MEMORIES: u64 = 60;
/// Between the start of a move and that of a server.
const MAX_DELAY_MILLIS: u64 = 1_500;
const SERVES_FOR: Duration = Duration::from_millis(1_500);
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Figures {
    moved: u64,
    kept: u64,
    refused_servers: u64,
    written_meanwhile: u64,
}

struct Scene {
    fleet: Fleet,
    random: Random,
    http: reqwest::Client,
    /// Servers with the content in S3, and in the index.
    servers: [ServerCommand; 2],
    /// The place of the content among them.
    place: usize,
    store_id: String,
    acknowledged: u64,
    figures: Figures,
    violations: Vec<String>,
}

/// Moves content to and fro for the given time, and fails on any violation.
pub(crate) async fn run(settings: Settings) {
    println!("moves: seed {}", settings.seed);
    let mut scene = Scene::start(settings.seed).await;
    let began_at = Instant::now();
    while began_at.elapsed() < settings.duration && scene.violations.is_empty() {
        scene.round().await;
    }
    println!("moves: {:?}, {} memories", scene.figures, scene.acknowledged);
    let Figures { written_meanwhile, refused_servers, .. } = scene.figures;
    assert!(written_meanwhile + refused_servers > 0, "no server met a move");
    assert!(scene.violations.is_empty(), "{:#?}", scene.violations);
}

impl Scene {
    async fn start(seed: u64) -> Self {
        let fleet = Fleet::start(Pair::PostgresS3).await;
        for gateway in &fleet.gateways {
            gateway.terminate().await;
        }
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().unwrap();
        let mut scene = Self {
            servers: fleet.servers_of_both_places(),
            fleet,
            random: Random::new(seed),
            http,
            place: 0,
            store_id: String::new(),
            acknowledged: 0,
            figures: Figures::default(),
            violations: Vec::new(),
        };
        let mut server = scene.servers[0].start().await;
        let made = scene.post(0, "/v1/memory_stores", &json!({"name": "moved"})).await.unwrap();
        made["id"].as_str().unwrap().clone_into(&mut scene.store_id);
        for _ in 0..MEMORIES {
            assert!(scene.write(0).await);
        }
        server.terminate().await;
        server.wait().await;
        // Without a server, a move succeeds.
        for (place, to) in [(0, 1), (1, 0)] {
            let moved = scene.fleet.start_move(to == 1).wait().await.unwrap();
            assert!(moved.success(), "a move from {place} failed");
        }
        scene
    }

    /// Moves the content while a server of the old place starts; then reads everything.
    async fn round(&mut self) {
        let (from, to) = (self.place, 1 - self.place);
        let delay = Duration::from_millis(self.random.below(MAX_DELAY_MILLIS));
        let before = self.acknowledged;
        let (mut moving, mut server);
        if self.random.percent(50) {
            server = self.servers[from].spawn();
            self.write_for(delay, from).await;
            moving = self.fleet.start_move(to == 1);
        } else {
            moving = self.fleet.start_move(to == 1);
            sleep(delay).await;
            server = self.servers[from].spawn();
        }
        self.write_for(SERVES_FOR, from).await;
        self.figures.written_meanwhile += self.acknowledged - before;
        server.terminate().await;
        if server.wait().await.code() == Some(6) {
            self.figures.refused_servers += 1;
        }
        // `true`: the originals were removed.
        if moving.wait().await.unwrap().success() {
            self.place = to;
            self.figures.moved += 1;
        } else {
            self.figures.kept += 1;
        }

        let mut server = self.servers[self.place].start().await;
        let found = self.read_all().await;
        for number in 0..self.acknowledged {
            if !found.contains(&number.to_string()) {
                self.violations.push(format!("memory {number} is lost after {:?}", self.figures));
            }
        }
        server.terminate().await;
        server.wait().await;
    }

    async fn write_for(&mut self, duration: Duration, place: usize) {
        let began_at = Instant::now();
        while began_at.elapsed() < duration {
            if !self.write(place).await {
                sleep(POLL).await;
            }
        }
    }

    /// Writes the next memory; whether that was acknowledged.
    async fn write(&mut self, place: usize) -> bool {
        let number = self.acknowledged;
        let body = json!({"path": format!("/{number}.md"), "content": number.to_string()});
        let route = format!("/v1/memory_stores/{}/memories", self.store_id);
        // An attempt that was not answered may have made it.
        let is_done = self.post(place, &route, &body).await.is_some_and(|answer| {
            answer["id"].is_string() || answer["error"]["type"] == "memory_path_conflict_error"
        });
        self.acknowledged += u64::from(is_done);
        is_done
    }

    async fn post(&self, place: usize, path: &str, body: &Value) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}{path}", self.servers[place].port());
        let request = self.http.post(url).header("x-api-key", &self.fleet.key);
        request.json(body).send().await.ok()?.json().await.ok()
    }

    async fn read_all(&self) -> HashSet<String> {
        let url = format!("http://127.0.0.1:{}", self.servers[self.place].port());
        let reader = Reader::new(&url, &self.fleet.key);
        let memories = reader.list(&format!("/v1/memory_stores/{}/memories", self.store_id)).await.unwrap();
        memories.iter().filter_map(|memory| memory["content"].as_str().map(str::to_owned)).collect()
    }
}
