//! Forwards MCP messages to a server.

use keepsake_client::{Client, StatusCode, body_of, from_json};
use keepsake_config::cli::Result;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::McpArgs;
use crate::people::{connect, find_store};

/// The variable with the store, if `--store` is not given. It is not a store in a folder.
const STORE_VARIABLE: &str = "KEEPSAKE_STORE";

/// A memory store on a server, or the stores of a session's token.
pub(super) struct Bridge {
    client: Client,
    url: String,
}

impl Bridge {
    /// Finds the store, without a message to MCP.
    pub(super) async fn open(args: &McpArgs) -> Result<Self> {
        let (client, of_context) = connect(&args.server)?;
        // The API key may be a session's token, which has its own stores.
        let of_context = of_context.filter(|_| args.server.api_key.is_none());
        let named = args.store.clone().or_else(|| std::env::var(STORE_VARIABLE).ok());
        let store_id = match named.or(of_context) {
            Some(store) => Some(find_store(&client, &store).await?),
            None => None,
        };
        let url = match store_id {
            Some(store_id) => format!("{}/mcp/{store_id}", client.url()),
            None => format!("{}/mcp", client.url()),
        };
        Ok(Self { client, url })
    }

    pub(super) async fn ask(&self, headers: HeaderMap, message: Vec<u8>) -> Result<Option<Value>, String> {
        let response = self
            .client
            .http()
            .post(&self.url)
            .headers(headers)
            .body(message)
            .send()
            .await
            .map_err(|error| self.client.unreachable(&error).to_string())?;
        if let Some(error) = self.client.misdirected(&response) {
            return Err(error.to_string());
        }
        let status = response.status();
        let body = body_of(response)
            .await
            .map_err(|error| format!("the server's answer cannot be read: {error}"))?;
        if status == StatusCode::ACCEPTED {
            return Ok(None);
        }
        let answer: Value = from_json(&body).map_err(|_| self.client.no_json(status))?;
        if answer.get("jsonrpc").is_some() {
            return Ok(Some(answer));
        }
        let why = answer["error"]["message"].as_str().unwrap_or("no reason is given");
        Err(format!("the server answered {status}: {why}"))
    }
}
