//! Sixteen writers edit one file through two servers, at the same time.

use std::collections::BTreeMap;

use futures::future::join_all;
use keepsake_core::limits::LimitOverrides;
use reqwest::Method;
use serde_json::json;

use crate::support::client::send;
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Tenant, history};

const FILE: &str = "/memories/shared.txt";
const WRITERS: usize = 16;
const EDITS: usize = 30;
/// Blobs that one edit may put on average.
const PUTS_AN_EDIT: usize = 3;

/// Whether an edit was acknowledged or refused, by the line that it adds.
type Edits = BTreeMap<String, bool>;

/// Adds unique lines at the top of the file one by one.
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
    let limits = LimitOverrides { max_view_chars: Some(1_000_000), ..LimitOverrides::default() };
    let tenant = deployment.tenant_with(limits).await;
    let operated = [ServerConfig::operated(), ServerConfig::operated()];
    let servers = [deployment.start_with(&operated[0].0).await, deployment.start_with(&operated[1].0).await];
    let clients = servers.each_ref().map(|server| server.client(&tenant));
    let create = json!({"command": "create", "path": FILE, "file_text": ""});
    clients[0].tool_ok(&tenant, &create).await;

    let writers = (0..WRITERS).map(|writer| write(&clients[writer % 2], &tenant, writer));
    let edits: Edits = join_all(writers).await.into_iter().flatten().collect();
    assert_eq!(edits.len(), WRITERS * EDITS);
    let refused = edits.values().filter(|is_acknowledged| !**is_acknowledged).count();
    assert!(refused * 100 <= edits.len(), "{refused} of {} edits were refused", edits.len());
    let file = file_in_the_history(&deployment, &tenant, &edits).await;
    for (line, is_acknowledged) in edits {
        let times = file.lines().filter(|it| *it == line).count();
        assert_eq!(times, usize::from(is_acknowledged), "{line}");
    }
    // Both databases and what a client sees agree.
    assert_eq!(clients[0].lines(&tenant, FILE).await, file.split('\n').collect::<Vec<_>>());

    let mut puts = 0;
    for (_, operator, token) in &operated {
        let metrics = Client::new(operator, "");
        let page = send(metrics.bare(Method::GET, "/metrics").bearer_auth(token)).await.text;
        let series = "keepsake_blob_call_duration_seconds_count{call=\"put\"";
        let counts = page.lines().filter(|line| line.starts_with(series));
        puts += counts.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum::<usize>();
    }
    assert!((1..=WRITERS * EDITS * PUTS_AN_EDIT).contains(&puts), "{puts} puts");
}

/// The file as the last version has it. Each version must be its predecessor with one
/// whole line of an edit added, and no other blob may be there.
async fn file_in_the_history(deployment: &Deployment, tenant: &Tenant, edits: &Edits) -> String {
    let database = deployment.database().await;
    let versions = database.versions(tenant.store_id).await;
    database.close().await;
    let texts = history::texts(deployment, tenant, &versions).await;
    let mut texts: Vec<_> = texts.into_iter().map(Option::unwrap).collect();
    assert_eq!((versions[0].seq, versions[0].prev_seq, versions[0].op.as_str()), (1, None, "created"));
    assert_eq!(texts[0], "");
    for (versions, texts) in versions.windows(2).zip(texts.windows(2)) {
        let (before, after) = (&versions[0], &versions[1]);
        assert_eq!((after.seq, after.prev_seq), (before.seq + 1, Some(before.seq)));
        assert_eq!((after.op.as_str(), after.path.as_str()), ("modified", "/shared.txt"));
        assert_eq!(after.blob_id, Some(after.id));
        assert!(after.created_at >= before.created_at);
        let (line, rest) = texts[1].split_once('\n').unwrap();
        assert!(edits.contains_key(line), "nobody wrote {line:?}");
        assert_eq!(rest, texts[0], "version {} lost or changed something", after.seq);
    }
    let orphans = history::orphans(deployment, tenant.id, &versions).await;
    assert!(orphans.is_empty(), "refused attempts left their blobs: {orphans:?}");
    texts.pop().unwrap()
}
