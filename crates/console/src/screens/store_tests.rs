//! The tests of a store: their file, and what becomes of them when a person runs them.

use askama::Template;
use keepsake_core::StoreId;
use keepsake_core::path::TESTS_PATH;
use keepsake_engine::{MemoryQuery, ShownItem, TestReport, View};
use keepsake_index::{Scope, Store};

use super::memory::CurrentMemory;
use crate::frame::Frame;
use crate::page::{PageResult, page};
use crate::path::Path;
use crate::request::{Caller, Form};
use crate::text::lines::Lines;
use crate::text::markup::{self, encoded};

#[derive(Template)]
#[template(path = "store_tests.html")]
struct TestsPage {
    frame: Frame,
    store: Store,
    /// The memory with the tests. `None`: the store has none.
    file: Option<CurrentMemory>,
    lines: Lines,
    /// `None`: the tests were not run.
    report: Option<TestReport>,
    may_write: bool,
    /// The page that writes the first tests.
    new_href: String,
}

pub(super) async fn show(caller: Caller, Path(store_id): Path<StoreId>) -> PageResult {
    tests(&caller, store_id, None).await
}

/// `POST /console/stores/{id}/tests`: runs the tests, which changes nothing
pub(super) async fn run(Path(store_id): Path<StoreId>, form: Form) -> PageResult {
    let report = form.engine.store_tests.run(&form.principal, store_id, None).await?;
    tests(&form, store_id, Some(report)).await
}

async fn tests(caller: &Caller, store_id: StoreId, report: Option<TestReport>) -> PageResult {
    let store = caller.engine.stores.get(&caller.principal, store_id).await?;
    let at_path = MemoryQuery { path: Some(TESTS_PATH.to_owned()), ..MemoryQuery::default() };
    let found = caller.engine.memories.list(&caller.principal, store_id, &at_path, View::Basic).await?;
    let file = match found.items.first() {
        Some(ShownItem::Memory(shown)) => {
            Some(CurrentMemory::inspect(caller, store_id, shown.memory.head.memory_id).await?)
        }
        _ => None,
    };
    page(&TestsPage {
        frame: caller.frame(format!("Tests of {}", store.name)),
        lines: file.as_ref().map(|file| Lines::from(file.content(), 1)).unwrap_or_default(),
        file,
        report,
        may_write: caller.may_write(&store) && caller.may(Scope::StoresAdmin),
        new_href: format!("/console/stores/{store_id}/new?path={}", encoded(TESTS_PATH)),
        store,
    })
}
