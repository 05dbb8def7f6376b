//! Times and sizes of the pages of the web console, alternately with retrievals of a
//! memory for comparison.

use std::fmt;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{COOKIE, SET_COOKIE};
use hyper::{Method, Request, Response};
use keepsake_config::{Failure, Settings};
use keepsake_engine::{Clock, SystemClock};
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::Connection;
use uuid::Uuid;

use super::load::{Latencies, histogram, record};
use super::provision::{self, LIMITS};
use super::report::{Machine, verdict};
use super::search::{Caller, MEMORIES, Script, seed};
use super::settings::{self, IndexPlace, Writer};
use super::words::Numbers;
use super::{BenchArgs, run_name, say};
use crate::product::Product;

/// The number of requests for each page in a round.
const REQUESTS: usize = 100;
/// Stores of the tenant, and days in which each was used. They are written into the database at once.
const STORES: usize = 50;
const DAYS: i64 = 400;
const MICROS_PER_DAY: i64 = 86_400_000_000;
/// Writes the use of each store and tenant, on each of the days from `$2` to `$3`, at five places. A
/// row of a tenant has the store `$1`.
const FILL: &str = "WITH RECURSIVE days(day) AS ( \
        SELECT CAST($2 AS bigint) UNION ALL SELECT day + 1 FROM days WHERE day < $3), \
    surfaces(surface) AS (VALUES ('tool'), ('search'), ('api'), ('mcp'), ('console')), \
    places(tenant_id, store_id) AS ( \
        SELECT tenant_id, store_id FROM store UNION ALL SELECT tenant_id, $1 FROM tenant) \
    INSERT INTO daily_use (tenant_id, store_id, day, surface, reads, writes, refusals, conflicts, growth) \
    SELECT p.tenant_id, p.store_id, d.day, s.surface, 40 + d.day % 17, 20 + d.day % 13, d.day % 3, d.day % 2, \
        d.day % 5 - 1 \
    FROM places p CROSS JOIN days d CROSS JOIN surfaces s";
/// Maximum p50 of a page that was shown before.
const WARM_BAR_MS: f64 = 20.0;
/// Maximum size of a page.
const BAR_BYTES: usize = 150_000;

/// Options of `keepsake-bench --console`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ConsoleArgs {
    /// Measures the pages of the web console, with a store of 2,000 memories of 4 KB and 49
    /// others, all used for 400 days
    #[arg(long, conflicts_with_all = ["url", "credentials", "floor", "fairness", "search"])]
    pub(super) console: bool,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct ConsoleFinding {
    keepsake: &'static str,
    machine: Machine,
    memories: u64,
    warm_bar_ms: f64,
    bar_bytes: usize,
    pages: Vec<Shown>,
    /// Retrievals of a memory with its content, alternately with the pages.
    retrieve: Latencies,
}

/// The results of a page.
#[derive(Debug, Serialize)]
struct Shown {
    page: &'static str,
    bytes: usize,
    warm: Latencies,
}

/// Somebody who is signed in.
struct Person {
    caller: Caller,
    cookie: String,
}

impl Person {
    /// Signs in with the store's key.
    async fn sign_in(mut caller: Caller) -> Result<Self, Failure> {
        let form = send(&mut caller, Method::GET, "/console/sign-in", "", String::new()).await?;
        let cookie = cookie_of(&form)?;
        let page = String::from_utf8_lossy(form.body());
        let token = page
            .split_once("name=\"token\" value=\"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(token, _)| token)
            .ok_or_else(|| Failure::new("the form to sign in has no token"))?;
        let fields = format!("token={token}&credential={}&next=", caller.api_key);
        let path = "/console/sign-in";
        let answer = send(&mut caller, Method::POST, path, &cookie, fields).await?;
        let cookie = cookie_of(&answer)?;
        Ok(Self { caller, cookie })
    }

    /// Asks for a page; returns its size.
    async fn get(&mut self, path: &str) -> Result<usize, Failure> {
        let page = send(&mut self.caller, Method::GET, path, &self.cookie, String::new()).await?;
        if !page.status().is_success() {
            return Err(Failure::new(format!("{path} was answered with {}", page.status())));
        }
        Ok(page.body().len())
    }
}

async fn send(
    caller: &mut Caller,
    method: Method,
    path: &str,
    cookie: &str,
    form: String,
) -> Result<Response<Bytes>, Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", &caller.host)
        .header(COOKIE, cookie)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Full::new(Bytes::from(form)))
        .map_err(Failure::of("a request cannot be made"))?;
    let answered = caller.connection.respond(request).await;
    answered.map_err(Failure::of("a call failed"))
}

/// The cookie that a response sets and does not remove.
fn cookie_of(response: &Response<Bytes>) -> Result<String, Failure> {
    let cookies = response.headers().get_all(SET_COOKIE).iter();
    let mut pairs = cookies.filter_map(|cookie| cookie.to_str().ok()?.split(';').next());
    let cookie = pairs.find(|pair| !pair.ends_with('='));
    let missing = || Failure::new(format!("{} set no cookie", response.status()));
    cookie.map(str::to_owned).ok_or_else(missing)
}

/// Measures on a new server.
///
/// # Errors
/// [`Failure`] of the setup or of a call.
pub(super) async fn measure(args: &BenchArgs) -> Result<ConsoleFinding, Failure> {
    let machine = Machine::this();
    let configured = args.settings()?;
    let product = Product::of(args)?;
    product.run(&["migrate"]).await?;
    let name = format!("bench {} console", run_name());
    let tenant = provision::tenant(&product, &name, &LIMITS).await?;
    let (server, address) = product.serve().await?;
    let store = tenant.store(address).await?;
    let mut caller = Caller::open(address, &store).await?;
    say(&format!("making {MEMORIES} memories"));
    let memory = seed(&mut caller, Script::Latin, &mut Numbers::new(1), MEMORIES).await?;
    let (_, first) = caller.call(Method::GET, &memory, None).await?;
    let content = json!({"content": "another text\n"});
    let (_, second) = caller.call(Method::POST, &memory, Some(content)).await?;
    let pages = pages_of(&store.store_id.to_string(), &first, &second)?;
    for _ in 1..STORES {
        let mut other = Caller::open(address, &tenant.store(address).await?).await?;
        let body = json!({"path": "/note.md", "content": "Keep it short.\n"});
        other.call(Method::POST, "/memories", Some(body)).await?;
    }
    server.end().await?;
    fill(&configured).await.map_err(Failure::of("the use of days cannot be written"))?;
    settings::vacuum(&configured).await?;
    let (mut server, address) = product.serve().await?;
    let mut caller = Caller::open(address, &store).await?;
    let mut person = Person::sign_in(Caller::open(address, &store).await?).await?;
    let mut found = Vec::new();
    for (page, path) in &pages {
        found.push((*page, person.get(path).await?, histogram()?));
    }
    let mut retrieve = histogram()?;
    for round in 0..args.rounds {
        for _ in 0..REQUESTS {
            for ((_, path), (_, bytes, warm)) in pages.iter().zip(&mut found) {
                let began_at = Instant::now();
                *bytes = person.get(path).await?.max(*bytes);
                record(warm, began_at.elapsed());
                let (took, _) = caller.call(Method::GET, &memory, None).await?;
                record(&mut retrieve, took);
            }
        }
        let slowest = found.iter().map(|(_, _, warm)| Latencies::of(warm).p50_ms);
        let slowest = slowest.fold(0.0, f64::max);
        let done = round + 1;
        say(&format!("console, round {done} of {}: slowest p50 {slowest:.2} ms", args.rounds));
    }
    server.check()?;
    server.end().await?;
    Ok(ConsoleFinding {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        memories: MEMORIES,
        warm_bar_ms: WARM_BAR_MS,
        bar_bytes: BAR_BYTES,
        pages: found
            .into_iter()
            .map(|(page, bytes, warm)| Shown { page, bytes, warm: Latencies::of(&warm) })
            .collect(),
        retrieve: Latencies::of(&retrieve),
    })
}

/// Writes the use of all stores on the days before today.
async fn fill(configured: &Settings) -> sqlx::Result<()> {
    let today = SystemClock.now().as_micros() / MICROS_PER_DAY;
    let (whole_tenant, first, last) = (Uuid::nil(), today - DAYS, today - 1);
    match IndexPlace::of(configured).writer().await? {
        Writer::Postgres(mut owner) => {
            sqlx::query(FILL).bind(whole_tenant).bind(first).bind(last).execute(&mut owner).await?;
            owner.close().await
        }
        Writer::Sqlite(mut file) => {
            sqlx::query(FILL).bind(whole_tenant).bind(first).bind(last).execute(&mut file).await?;
            file.close().await
        }
    }
}

/// The pages that show a store and a memory with two versions.
fn pages_of(store: &str, first: &Value, second: &Value) -> Result<Vec<(&'static str, String)>, Failure> {
    let text = |value: &Value, field: &str| {
        let missing = || Failure::new(format!("a memory has no `{field}`"));
        value[field].as_str().map(str::to_owned).ok_or_else(missing)
    };
    let store_path = format!("/console/stores/{store}");
    let path = text(first, "path")?;
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let memory = format!("{store_path}/memories/{}", text(first, "id")?);
    let versions = (text(first, "memory_version_id")?, text(second, "memory_version_id")?);
    let (from, to) = &versions;
    let compare = format!("{store_path}/compare?from={from}&to={to}");
    Ok(vec![
        ("overview", "/console/overview".to_owned()),
        ("overview of 90 days", "/console/overview?days=90".to_owned()),
        ("stores", "/console/stores".to_owned()),
        ("store", store_path.clone()),
        ("directory", format!("{store_path}?path={directory}/")),
        ("memory", memory.clone()),
        ("memory as lines", format!("{memory}?raw=1")),
        ("edit", format!("{memory}/edit")),
        ("history of the memory", format!("{memory}/history")),
        ("history of the store", format!("{store_path}/history")),
        ("comparison", compare.clone()),
        ("comparison beside", format!("{compare}&view=split")),
        ("version", format!("{store_path}/versions/{from}")),
        ("settings", format!("{store_path}/settings")),
        ("usage of the store", format!("{store_path}/usage")),
        ("search", "/console/search?q=what+did+be+say".to_owned()),
        ("sessions", "/console/sessions".to_owned()),
        ("usage", "/console/usage".to_owned()),
        ("keys", "/console/keys".to_owned()),
        ("audit", "/console/audit".to_owned()),
        ("erasures", "/console/erasures".to_owned()),
        ("preview of an erasure", format!("/console/erasures/preview?store={store}")),
        ("import and export", format!("/console/transfer?store={store}")),
    ])
}

impl fmt::Display for ConsoleFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "pages of the console, {} memories in the store, {STORES} stores, {DAYS} days (bars: p50 {:.0} ms, {} bytes)\n",
            self.memories, self.warm_bar_ms, self.bar_bytes
        )?;
        for shown in &self.pages {
            let is_met = shown.warm.p50_ms <= self.warm_bar_ms && shown.bytes <= self.bar_bytes;
            let (warm, verdict) = (&shown.warm, verdict(is_met));
            writeln!(
                f,
                "{:<22} {:>7} bytes  p50 {:>7.2} ms  p99 {:>7.2} ms  max {:>7.2} ms  {verdict}",
                shown.page, shown.bytes, warm.p50_ms, warm.p99_ms, warm.max_ms
            )?;
        }
        let retrieve = &self.retrieve;
        writeln!(
            f,
            "\n{:<22} {:>7} calls  p50 {:>7.2} ms  p99 {:>7.2} ms",
            "retrieve (the floor)", retrieve.calls, retrieve.p50_ms, retrieve.p99_ms
        )?;
        let load = self.machine.load_before.unwrap_or_default();
        writeln!(f, "load of the machine before the run {load:.2}")
    }
}
