//! A scripted agent in two sessions; `docs/example-session.md` has the
//! transcript.

use crate::prelude::*;
use crate::support::script::MCP_PYTHON;

#[tokio::test(flavor = "multi_thread")]
async fn day_of_an_agent_goes_as_the_docs_show_it() {
    let (_deployment, server, tenant, _) = on_sqlite().await;
    let mut agent = Command::new(script::from_environment(MCP_PYTHON));
    agent.arg(repository().join("tests/agent/day.py"));
    agent.env("KEEPSAKE_URL", server.url()).env("KEEPSAKE_API_KEY", &tenant.key);
    let transcript = script::run(&mut agent).await;
    let kept = std::fs::read_to_string(repository().join("docs/example-session.md")).unwrap();
    for (number, (line, kept)) in (1..).zip(transcript.lines().zip(kept.lines())) {
        assert_eq!(line, kept, "docs/example-session.md, line {number}");
    }
    assert_eq!(transcript.lines().count(), kept.lines().count());
}
