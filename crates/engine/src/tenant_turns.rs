//! A queue in which tenants take turns.

use std::collections::{HashMap, VecDeque};

use keepsake_core::TenantId;

/// A tenant's next element waits for an element of each other tenant.
#[derive(Debug)]
pub(crate) struct TenantTurns<T> {
    by_tenant: HashMap<TenantId, VecDeque<T>>,
    /// The tenants with elements.
    turns: VecDeque<TenantId>,
}

impl<T> Default for TenantTurns<T> {
    fn default() -> Self {
        Self { by_tenant: HashMap::new(), turns: VecDeque::new() }
    }
}

impl<T: PartialEq> TenantTurns<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(crate) fn push(&mut self, tenant_id: TenantId, element: T) {
        let own = self.by_tenant.entry(tenant_id).or_default();
        own.push_back(element);
        if own.len() == 1 {
            self.turns.push_back(tenant_id);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(TenantId, T)> {
        let tenant_id = self.turns.pop_front()?;
        let own = self.by_tenant.get_mut(&tenant_id)?;
        let element = own.pop_front()?;
        if own.is_empty() {
            self.by_tenant.remove(&tenant_id);
        } else {
            self.turns.push_back(tenant_id);
        }
        Some((tenant_id, element))
    }

    pub(crate) fn remove(&mut self, tenant_id: TenantId, element: &T) {
        if let Some(own) = self.by_tenant.get_mut(&tenant_id) {
            own.retain(|waiting| waiting != element);
            if own.is_empty() {
                self.by_tenant.remove(&tenant_id);
                self.turns.retain(|turn| *turn != tenant_id);
            }
        }
    }
}
