//! The limits of a memory store, which an import is compared with before it writes anything.

use std::collections::HashMap;
use std::fmt::Display;

use keepsake_archive::plan::ImportStep;
use keepsake_archive::report::{Class, Outcome, Report};
use keepsake_config::{Failure, cli::Result};
use serde_json::Value;

use crate::contexts;
use crate::output::{limit, notice};
use crate::store_api::StoreApi;

const BYTES_PER_MEMORY: &str = "bytes_per_memory";
const BYTES_PER_TENANT: &str = "bytes_per_tenant";
const UNREADABLE: &str = "the limits of the memory store cannot be read";

/// The memories and bytes of a memory store, and its limits.
pub(super) struct Room<'a> {
    store: &'a StoreApi,
    memories: u64,
    bytes: u64,
    /// Bytes of the store that are not counted, because they are imported again.
    replaced_bytes: u64,
    /// The bytes of all stores of the tenant; `None`: the credential is bound to stores.
    bytes_of_tenant: Option<u64>,
    limits: Value,
    /// Whether the reader runs the server, by `serve --dev`.
    is_dev: bool,
}

impl<'a> Room<'a> {
    /// `None`: the credential may not read the limits.
    pub(super) async fn of(store: &'a StoreApi) -> Result<Option<Self>> {
        let usage: Option<Value> = store.usage(UNREADABLE, None).await?;
        Ok(usage.map(|usage| Self {
            store,
            memories: usage["memory_count"].as_u64().unwrap_or_default(),
            bytes: usage["content_bytes"].as_u64().unwrap_or_default(),
            replaced_bytes: 0,
            bytes_of_tenant: usage["tenant_content_bytes"].as_u64(),
            limits: usage["limits"].clone(),
            is_dev: contexts::is_dev(store.client.url()),
        }))
    }

    /// The same limits of an empty store.
    pub(super) fn emptied(self) -> Self {
        let bytes_of_tenant = self.bytes_of_tenant.map(|bytes| bytes.saturating_sub(self.bytes));
        Self { memories: 0, bytes: 0, replaced_bytes: self.bytes, bytes_of_tenant, ..self }
    }

    /// Refuses the steps with a content that is too large for a memory.
    pub(super) fn refuse_large(&self, steps: Vec<ImportStep>, report: &mut Report) -> Vec<ImportStep> {
        let Some(maximum) = self.limits[BYTES_PER_MEMORY].as_u64() else {
            return steps;
        };
        let is_large = |step: &ImportStep| step.item.size_bytes > maximum;
        let (large, fitting): (Vec<_>, Vec<_>) = steps.into_iter().partition(is_large);
        for step in &large {
            let size_bytes = step.item.size_bytes;
            let reason = format!("has {size_bytes} bytes, over the limit of {maximum} bytes for a memory");
            report.add_step(step, Outcome::refused(Class::Rule, reason));
        }
        if let Some(largest) = large.iter().map(|step| step.item.size_bytes).max() {
            notice(&format!(
                "some files are too large for a memory: {}",
                self.how_to_raise(BYTES_PER_MEMORY, largest)
            ));
        }
        fitting
    }

    /// Fails if the store cannot hold what the steps write. `sizes` are those of its memories by id.
    pub(super) async fn check_steps(&self, steps: &[ImportStep], sizes: &HashMap<String, u64>) -> Result<()> {
        let (mut created, mut added, mut removed) = (0, 0, 0);
        for step in steps {
            added += step.item.size_bytes;
            match &step.replaces {
                None => created += 1,
                Some(existing) => removed += sizes.get(&existing.id).copied().unwrap_or_default(),
            }
        }
        self.check(created, added.saturating_sub(removed)).await
    }

    /// Fails if the store or the tenant cannot hold this many further memories and bytes.
    pub(super) async fn check(&self, memories: u64, bytes: u64) -> Result<()> {
        for (name, holder, held, added, unit) in [
            ("memories_per_store", "memory store", self.memories, memories, " memories"),
            ("bytes_per_store", "memory store", self.bytes, bytes, ""),
            (BYTES_PER_TENANT, "tenant", self.bytes_of_tenant.unwrap_or_default(), bytes, ""),
        ] {
            let wanted = held.saturating_add(added);
            let Some(maximum) = self.limits[name].as_u64().filter(|maximum| added > 0 && wanted > *maximum)
            else {
                continue;
            };
            return Err(Failure::new(format!(
                "nothing was imported: the {holder} would hold {}{unit}, over the limit of {}; {}",
                limit(name, wanted),
                limit(name, maximum),
                self.how_to_raise(name, wanted)
            )));
        }
        if self.bytes_of_tenant.is_some()
            || self.fits_tenant(bytes.saturating_sub(self.replaced_bytes)).await?
        {
            return Ok(());
        }
        let maximum = self.limits[BYTES_PER_TENANT].as_u64().unwrap_or_default();
        Err(Failure::new(format!(
            "nothing was imported: the tenant would hold more than its limit of {}; {}",
            limit(BYTES_PER_TENANT, maximum),
            self.how_to_raise(BYTES_PER_TENANT, "BYTES")
        )))
    }

    /// Whether the tenant can hold so many further bytes, if the server does not say what it holds.
    async fn fits_tenant(&self, added_bytes: u64) -> Result<bool> {
        if added_bytes == 0 {
            return Ok(true);
        }
        let usage: Option<Value> = self.store.usage(UNREADABLE, Some(added_bytes)).await?;
        Ok(usage.is_none_or(|usage| usage["fits_tenant"] != false))
    }

    /// The setting of a limit, and how to set it to a value.
    fn how_to_raise(&self, name: &str, wanted: impl Display) -> String {
        if self.is_dev {
            let variable = format!("KEEPSAKE_LIMITS_{}", name.to_uppercase());
            return format!(
                "stop the server, and start it again with the variable `{variable}={wanted}` to raise the limit"
            );
        }
        format!(
            "the operator raises the limit: `limits.{name}` in the configuration, or \
             `keepsake tenant update TENANT --limit {name}={wanted}`"
        )
    }
}
