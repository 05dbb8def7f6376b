//! Sixteen writers edit one file through two servers, at the same time.

use crate::prelude::*;
use crate::support::history::orphans;

const FILE: &str = "/memories/shared.txt";
const WRITERS: usize = 16;
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

    let writers = (0..WRITERS).map(|writer| write(&clients[writer % 2], &tenant, writer));
    let edits: Edits = join_all(writers).await.into_iter().flatten().collect();
    assert_eq!(edits.len(), WRITERS * EDITS);
    let refused = edits.values().filter(|is_acknowledged| !**is_acknowledged).count();
    assert!(refused * 100 <= edits.len(), "{refused} of {} edits were refused", edits.len());
    let file = clients[0].lines(&tenant, FILE).await;
    for (line, is_acknowledged) in &edits {
        let times = file.iter().filter(|it| *it == line).count();
        assert_eq!(times, usize::from(*is_acknowledged), "{line}");
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
    assert!((1..=WRITERS * EDITS * PUTS_AN_EDIT).contains(&puts), "{puts} puts");
}
