//! Search by meaning, with vectors of an endpoint of the tests.

use std::fmt::Display;

use keepsake_testkit::{EMBEDDINGS_DIMENSIONS, EMBEDDINGS_KEY, EMBEDDINGS_MODEL, EmbeddingsServer};

use super::*;

/// Words of equal meaning.
pub(crate) const CONCEPTS: &[&[&str]] =
    &[&["terse", "short", "brief"], &["deploy", "ship"], &["umbrella", "rain"], &["invoice", "bill"]];

pub(crate) fn config(embeddings: &EmbeddingsServer) -> ServerConfig {
    let more = format!(
        "{FREE_RATES}[search]\nmeaning = \"endpoint\"\n[search.embeddings]\nurl = \"{}\"\n\
         model = \"{EMBEDDINGS_MODEL}\"\nkey = \"{EMBEDDINGS_KEY}\"\ndimensions = {EMBEDDINGS_DIMENSIONS}\n",
        embeddings.url()
    );
    ServerConfig { more, ..ServerConfig::default() }
}

/// Waits until every memory of the store is searched by meaning.
pub(crate) async fn is_complete(client: &Client, store_id: impl Display) {
    let path = format!("/v1/memory_stores/{store_id}/search?query=zebra");
    soon("all memories have vectors", || async {
        let meaning = &ok(&client.get(&path).await)["meaning"];
        meaning["used"] == true && meaning["pending"] == 0
    })
    .await;
}
