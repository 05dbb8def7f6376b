//! The limits and the rates of a tenant, and many writers at once, through two servers on Postgres.

use keepsake_engine::{Clock, SystemClock};

use crate::api::quotas::{made_up_to, over_quota};
use crate::console::browser::Browser;
use crate::prelude::*;
use crate::support::history::orphans;

const WRITERS: usize = 64;

/// Posts what each writer has to say, all at once; answers how many were let in. The others
/// are over the limit.
async fn race(clients: &[Client], limit: u64, post: impl Fn(usize) -> (String, Value)) -> usize {
    let writes = (0..WRITERS).map(|writer| {
        let (path, body) = post(writer);
        let client = &clients[writer % clients.len()];
        async move { client.post_patiently(&path, &body, &format!("writer {writer}")).await }
    });
    made_up_to(limit, join_all(writes).await).len()
}

on_pairs! { racing_writers_stop_exactly_at_every_limit }

async fn racing_writers_stop_exactly_at_every_limit(pair: Pair) {
    let limits = json!({
        "memories_per_store": 40, "bytes_per_store": 400, "bytes_per_tenant": 840, "stores_per_tenant": 50,
    });
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant_with(limits).await;
    // SQLite has one process.
    let count = if pair.has_postgres() { 2 } else { 1 };
    let mut servers = join_all((0..count).map(|_| deployment.start())).await;
    let clients: Vec<_> = servers.iter().map(|server| server.client(&tenant)).collect();
    let memory = |store: &Store, writer: usize, bytes: usize| {
        (store.memories(), json!({"path": format!("/{writer}"), "content": "x".repeat(bytes)}))
    };
    let first = Store::of(&clients[0], &tenant);
    assert_eq!(race(&clients, 40, |writer| memory(&first, writer, 1)).await, 40);
    let second = Store::make(&clients[0], "second").await;
    assert_eq!(race(&clients, 400, |writer| memory(&second, writer, 20)).await, 20);
    let mut eight = Vec::new();
    for number in 0..8 {
        eight.push(Store::make(&clients[0], &number.to_string()).await);
    }
    assert_eq!(race(&clients, 840, |writer| memory(&eight[writer % 8], writer, 10)).await, 40);
    eight.extend([first, second]);
    let held = eight.iter().map(async |store| store.object().await["content_bytes"].as_u64().unwrap());
    assert_eq!(join_all(held).await.iter().sum::<u64>(), 840);
    // Ten are there already.
    let name = |writer: usize| (STORES.to_owned(), json!({"name": writer.to_string()}));
    assert_eq!(race(&clients, 50, name).await, 40);
    assert_eq!(clients[0].all(&format!("{STORES}?limit=100")).await.len(), 50);
    // A lowered limit deletes nothing and lets nothing grow.
    for server in &mut servers {
        server.end().await;
    }
    let provision = deployment.provision().await;
    let lowered = json!({"memories_per_store": 10, "bytes_per_store": 20, "bytes_per_tenant": 20, "stores_per_tenant": 0});
    provision.set_limits(tenant.id, &lowered).await;
    provision.close().await;
    servers[0].restart().await;
    let store = Store::of(&servers[0].client(&tenant), &tenant);
    let memories = store.client.all(&format!("{}?limit=100", store.memories())).await;
    assert_eq!((memories.len(), &store.object().await["content_bytes"]), (40, &json!(40)));
    over_quota(&store.try_create("/more", "x").await, 10);
    over_quota(&store.client.post(STORES, &json!({"name": "more"})).await, 0);
    over_quota(&store.try_update(&memories[0], &json!({"content": "xx"})).await, 20);
    // Changing without growing, and shrinking, go on.
    for content in ["y", ""] {
        store.update(&memories[0], &json!({"content": content})).await;
    }
}

const FILE: &str = "/memories/shared.txt";
const EDITORS: usize = 16;
const EDITS: usize = 30;
/// Blobs that one edit may put on average.
const PUTS_AN_EDIT: usize = 3;

/// Whether an edit was acknowledged or refused, by the line that it adds.
type Edits = BTreeMap<String, bool>;

async fn write(client: &Client, tenant: &Tenant, writer: usize) -> Edits {
    let mut edits = Edits::new();
    for n in 0..EDITS {
        let line = format!("writer {writer:02} edit {n:02}");
        let input = json!({"command": "insert", "path": FILE, "insert_line": 0, "insert_text": line});
        let id = format!("toolu {line}");
        let block = json!({"type": "tool_use", "id": id, "name": "memory", "input": input});
        let result = client.tool(tenant, &block).await;
        let refusal = "was changed by others at the same time";
        let told = if result.is_error { refusal } else { "The file /memories/shared.txt has been edited." };
        assert!(result.content.contains(told), "{}", result.content);
        edits.insert(line, !result.is_error);
    }
    edits
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_edit_is_in_the_file_once_and_costs_few_puts() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant_with(json!({"max_view_chars": 1_000_000})).await;
    let operators = [Operator::new(), Operator::new()];
    let [first, second] = operators.each_ref().map(|operator| &operator.config);
    let servers = [deployment.start_with(first).await, deployment.start_with(second).await];
    let clients = servers.each_ref().map(|server| server.client(&tenant));
    clients[0].create_file(&tenant, FILE, "").await;

    let writers = (0..EDITORS).map(|writer| write(&clients[writer % 2], &tenant, writer));
    let edits: Edits = join_all(writers).await.into_iter().flatten().collect();
    assert_eq!(edits.len(), EDITORS * EDITS);
    let refused = edits.values().filter(|is_acknowledged| !**is_acknowledged).count();
    assert!(refused * 100 <= edits.len(), "{refused} of {} edits were refused", edits.len());
    let file = clients[0].lines(&tenant, FILE).await;
    for (line, is_acknowledged) in &edits {
        assert_eq!(file.iter().filter(|it| *it == line).count(), usize::from(*is_acknowledged), "{line}");
    }
    // Each edit made one version, and the attempts that lost left no content.
    let database = deployment.database().await;
    let versions = database.number("SELECT count(*) FROM version").await;
    assert_eq!(usize::try_from(versions).unwrap(), edits.len() - refused + 1);
    assert_eq!(orphans(&deployment, &tenant, &database).await, []);
    database.close().await;

    let mut puts = 0;
    for operator in &operators {
        let page = operator.send(Method::GET, "/metrics", None).await.text;
        let series = "keepsake_blob_call_duration_seconds_count{call=\"put\"";
        let counts = page.lines().filter(|line| line.starts_with(series));
        puts += counts.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum::<usize>();
    }
    assert!((1..=EDITORS * EDITS * PUTS_AN_EDIT).contains(&puts), "{puts} puts");
}

fn rate(requests_per_second: u64, request_burst: u64) -> Value {
    json!({"requests_per_second": requests_per_second, "request_burst": request_burst})
}

/// Asks at once; answers the refusals.
async fn ask(client: &Client, times: usize) -> Vec<Answer> {
    let answers = join_all((0..times).map(|_| client.get(STORES))).await;
    answers.into_iter().filter(|answer| answer.status != 200).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn default_rates_admit_256_simultaneous_uploads() {
    let config = ServerConfig { more: String::new(), ..ServerConfig::default() };
    let (_deployment, tenant, _server, client) = started_with(Pair::PostgresS3, &config).await;
    let store = Store::of(&client, &tenant);
    join_all((0..256).map(async |n| store.create(&format!("/{n}"), "x").await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_refusal_has_retry_after_and_affects_one_tenant() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (tenant, other) = (deployment.tenant_with(rate(1, 10)).await, deployment.tenant().await);
    // A process that crashed, or of which a backup was restored, takes no share of the rate.
    let now = SystemClock.now().as_micros();
    let crashed = format!("INSERT INTO replica VALUES (randomblob(16), 'all', {now}, {now})");
    deployment.execute(crashed).await;
    let server = deployment.start().await;
    let refusals = ask(&server.client(&tenant), 40).await;
    // Ten at once, and one more for each second that it took.
    assert!((26..=30).contains(&refusals.len()), "{} were refused", refusals.len());
    for answer in refusals {
        refused(&answer, 429, "rate_limit_error");
        assert!((1..=30).contains(&answer.header("retry-after").parse::<u64>().unwrap()));
    }
    assert!(ask(&server.client(&other), 40).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_share_a_rate_take_a_changed_one_and_do_not_count_one_that_ended() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant_with(rate(1, 40)).await;
    let index = deployment.index().await;
    let first = deployment.start().await;
    let mut second = deployment.start().await;
    let live = async || index.replicas.live_gateways(SystemClock.now()).await.unwrap();
    // One that was last heard of 90 seconds ago is taken for dead.
    let then = SystemClock.now().minus(Duration::from_secs(90)).as_micros();
    let silent = format!(
        "INSERT INTO replica (id, role, heartbeat_at, access_flushed_through) \
         VALUES (gen_random_uuid(), 'gateway', {then}, {then})"
    );
    deployment.execute(silent).await;
    assert_eq!(live().await, 2);
    // The second one knew of both from its start; half of the burst is its own.
    let refused = ask(&second.client(&tenant), 60).await.len();
    assert!((36..=40).contains(&refused), "{refused} were refused");
    second.end().await;
    assert_eq!(live().await, 1);

    let client = first.client(&tenant);
    assert!(ask(&client, 5).await.is_empty());
    deployment.provision().await.set_limits(tenant.id, &rate(0, 0)).await;
    let is_refused = async || ask(&client, 1).await.iter().any(|it| it.header("retry-after") == "30");
    eventually("nothing passes", Duration::from_secs(5), is_refused).await;
    // The console keeps its navigation.
    let mut browser = Browser::signed_in(&first.url(), &tenant.key).await;
    browser.get("/console/keys").await.answered(429).has("href=\"/console/sessions\"");
}
