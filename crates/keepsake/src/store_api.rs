//! The API of one memory store.

use keepsake_client::{Client, ClientError, Parameter};
use keepsake_config::{Failure, FailureClass};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failures::{class_of, failure_of};

/// A memory store on a server.
#[derive(Debug, Clone)]
pub(crate) struct StoreApi {
    pub(crate) client: Client,
    pub(crate) id: String,
}

impl StoreApi {
    /// The path of the store, and what is below it.
    pub(crate) fn path<'a>(&'a self, below: &[&'a str]) -> Vec<&'a str> {
        [&["memory_stores", self.id.as_str()], below].concat()
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        below: &[&str],
        query: &[Parameter<'_>],
    ) -> Result<T, ClientError> {
        self.client.get(&self.path(below), query).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        below: &[&str],
        body: &Value,
    ) -> Result<T, ClientError> {
        self.client.post(&self.path(below), body).await
    }

    pub(crate) async fn delete(&self, below: &[&str], query: &[Parameter<'_>]) -> Result<Value, ClientError> {
        self.client.delete(&self.path(below), query).await
    }

    /// The size and the limits of the store; `None` if the credential may not read them.
    pub(crate) async fn usage<T: DeserializeOwned>(&self, failed: &str) -> Result<Option<T>, Failure> {
        match self.get(&["usage"], &[("limit", Some("1"))]).await {
            Ok(usage) => Ok(Some(usage)),
            Err(error) if class_of(&error) == FailureClass::NotAllowed => Ok(None),
            Err(error) => Err(failure_of(failed)(error)),
        }
    }
}
