//! Every operation with ids in every combination, for each who asks.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;
use keepsake_core::{StoreId, TenantId};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::cases::{self, Body, Meaning};
use super::document::Operation;
use super::fixture::{Fixture, Ids, Kind, NEVER, secrets_of, snapshot, text, unread};
use crate::support::client::send;
use crate::support::{Answer, Client, secrets};

const WORKSPACE: &str = "anthropic-workspace-id";
/// The shortest text that is looked for in answers: shorter ones are anywhere.
const LEAST_CHARS: usize = 8;

/// An operation, and objects of the owner's to try it on.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) operation: Operation,
    pub(super) ids: Ids,
}

/// A caller that requests another tenant's objects.
pub(super) struct Attacker {
    name: &'static str,
    pub(super) client: Client,
    own: Ids,
    /// The status of its requests for an unknown store.
    refusal: u16,
    /// Whether the caller belongs to the owner's tenant, so that the owner's
    /// cursors are valid for it.
    is_of_tenant: bool,
}

/// One form of an operation's request.
struct Form {
    query: Vec<(String, Meaning)>,
    has_headers: bool,
    /// With its place among the operation's bodies.
    body: Option<(usize, &'static Body)>,
}

impl Form {
    /// All forms of an operation. For a GET: each optional parameter separately.
    /// Otherwise: each body, without and with all parameters and headers.
    fn all(operation: &Operation) -> Vec<Self> {
        let query: Vec<_> =
            operation.in_query.iter().map(|name| (name.clone(), cases::meaning(name))).collect();
        let queries: Vec<_> = if operation.method == Method::GET {
            let needed = needed_query(operation);
            let others = query.into_iter().filter(|parameter| !needed.contains(parameter));
            let alone = others.map(|parameter| [needed.as_slice(), &[parameter]].concat());
            std::iter::once(needed.clone()).chain(alone).collect()
        } else {
            vec![Vec::new(), query]
        };
        let bodies = cases::bodies(&operation.id);
        let bodies: Vec<_> =
            if bodies.is_empty() { vec![None] } else { bodies.iter().enumerate().map(Some).collect() };
        let numbered = queries.into_iter().enumerate();
        let forms = numbered.flat_map(|(number, query)| {
            bodies.iter().map(move |body| Self { query: query.clone(), has_headers: number > 0, body: *body })
        });
        forms.collect()
    }

    /// The forms that the owner of all objects can send one after the other.
    fn in_turn(operation: &Operation) -> Vec<Self> {
        let mut forms = Self::all(operation);
        if operation.method != Method::GET {
            forms.retain(|form| form.has_headers);
        }
        forms
    }

    /// The kinds of ids that it holds.
    fn kinds(&self, operation: &Operation) -> Vec<Kind> {
        let mut kinds = operation.kinds_in_path();
        kinds.extend(self.query.iter().filter_map(|(_, meaning)| match meaning {
            Meaning::Of(kind) => Some(*kind),
            Meaning::Plain(_) => None,
        }));
        kinds.extend(self.body.into_iter().flat_map(|(_, body)| body.kinds));
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// The request. A POST has an idempotency key, the same for all who send it.
    fn request(&self, client: &Client, method: &Method, operation: &Operation, ids: &Ids) -> RequestBuilder {
        let value = |meaning: &Meaning| match meaning {
            Meaning::Of(kind) => ids.get(*kind).to_owned(),
            Meaning::Plain(value) => (*value).to_owned(),
        };
        let mut path = operation.path.clone();
        for name in &operation.in_path {
            path = path.replace(&format!("{{{name}}}"), &value(&cases::meaning(name)));
        }
        let query: Vec<_> =
            self.query.iter().map(|(name, meaning)| format!("{name}={}", value(meaning))).collect();
        let mut request = client.request(method.clone(), &format!("{path}?{}", query.join("&")));
        for name in operation.in_headers.iter().filter(|_| self.has_headers) {
            request = request.header(name, value(&cases::meaning(name)));
        }
        if let Some((number, body)) = self.body {
            request = request.json(&(body.of)(ids));
            if *method == Method::POST {
                request = request.header("idempotency-key", format!("isolation {number}"));
            }
        }
        request
    }
}

impl Attacker {
    /// Another tenant, with a key that may do everything.
    pub(super) async fn stranger(client: Client) -> Self {
        let own = Fixture::new(&client, "cleo").await.ids;
        // For lists to have a second page.
        Fixture::new(&client, "cleo").await;
        Self { name: "another tenant", client, own, refusal: 404, is_of_tenant: false }
    }

    /// A key of the owner with all scopes in only one store.
    pub(super) async fn bound(client: Client, store_id: StoreId) -> Self {
        let own = Fixture::in_store(&client, "bela", &store_id.to_string()).await.ids;
        Self { name: "a key bound to another store", client, own, refusal: 404, is_of_tenant: true }
    }

    /// Somebody without a good credential.
    pub(super) fn nobody(client: Client) -> Self {
        Self { name: "nobody", client, own: Ids::of_nobody(), refusal: 401, is_of_tenant: false }
    }

    /// Tries every operation with the owner's ids in all combinations with its
    /// own; `listed` is what the owner has.
    pub(super) async fn attack(&self, targets: &[Target], listed: &[Value]) {
        let is_known = self.refusal != 401;
        let own_before = if is_known { snapshot(&self.client).await } else { Vec::new() };
        let secrets = Secrets::of_others(listed, &own_before);
        let mut tried = 0;
        for target in targets {
            let own = self.ids_for(&target.operation).await;
            for form in Form::all(&target.operation) {
                let kinds = form.kinds(&target.operation);
                let is_tenants_list = kinds == [Kind::Page];
                if self.is_of_tenant && is_tenants_list {
                    continue;
                }
                for foreign in combinations(&kinds) {
                    self.compare(target, &form, &own, &foreign, &secrets).await;
                    tried += 1;
                }
            }
        }
        assert!(tried > 2 * targets.len(), "only {tried} requests were tried");
        if is_known {
            // Its own memories it may have read.
            let own = unread(snapshot(&self.client).await);
            assert_eq!(own, unread(own_before), "{} changed what it has", self.name);
        }
    }

    /// Compares the answers for foreign ids of some kinds and for unknown ids.
    async fn compare(&self, target: &Target, form: &Form, own: &Ids, foreign: &[Kind], secrets: &Secrets) {
        let operation = &target.operation;
        let theirs = own.with(foreign, &target.ids);
        let nobodys = own.with(foreign, &nobodys(&target.ids));
        let mut methods = vec![operation.method.clone()];
        if operation.method == Method::GET {
            methods.push(Method::HEAD);
        }
        for method in methods {
            let ask = async |ids: &Ids| send(form.request(&self.client, &method, operation, ids)).await;
            let (answer, never) = (ask(&theirs).await, ask(&nobodys).await);
            let what = format!(
                "{}: {method} {} with {foreign:?} of others, {:?}",
                self.name,
                operation.path,
                form.body.map(|(_, body)| (body.of)(&theirs))
            );
            // A tool repeats the path that it was sent.
            let told = answer.text.replace(theirs.path(), nobodys.path());
            let answer = Answer { text: told, ..answer };
            assert_eq!(answer.lasting(), never.lasting(), "{what}");
            assert_nothing_of(secrets, &answer, &what);
            let is_below_theirs = operation.kinds_in_path().iter().any(|kind| foreign.contains(kind));
            let is_paged = form.kinds(operation).contains(&Kind::Page);
            if is_below_theirs && !is_paged {
                assert_eq!(answer.status, self.refusal, "{what}: {}", answer.text);
            }
        }
    }

    /// Sends the owner's workspace in the header, with its own ids.
    pub(super) async fn claim_workspace(&self, targets: &[Target], owner: TenantId) {
        let before = unread(snapshot(&self.client).await);
        let owners = Secrets::new(vec![owner.to_string()]);
        for Target { operation, .. } in targets {
            let own = self.ids_for(operation).await;
            for form in Form::all(operation) {
                let claim = async |workspace: &str| {
                    let request = form.request(&self.client, &operation.method, operation, &own);
                    send(request.header(WORKSPACE, workspace)).await
                };
                let claimed = claim(&owner.to_string()).await;
                let never = claim(&format!("wrkspc_{NEVER}")).await;
                assert_eq!(claimed.status, 403, "{}: {}", operation.id, claimed.text);
                assert_eq!(claimed.lasting(), never.lasting(), "{}", operation.id);
                assert_nothing_of(&owners, &claimed, &operation.id);
            }
        }
        // A search for a cursor reads memories.
        assert_eq!(unread(snapshot(&self.client).await), before);
    }

    /// Its own ids, with a cursor of the operation's list.
    async fn ids_for(&self, operation: &Operation) -> Ids {
        let mut ids = self.own.clone();
        if operation.is_paged() {
            // A key that sees one store has no second page of stores.
            // It also has no second page of a session's resources.
            let is_of_stores = operation.in_path.is_empty() || operation.id == "sessions.resources.list";
            let has_none = self.refusal == 401 || self.is_of_tenant && is_of_stores;
            let page =
                if has_none { "page_none".to_owned() } else { page_of(&self.client, operation, &ids).await };
            ids.set(Kind::Page, page);
        }
        ids
    }
}

/// Texts that no answer may have.
pub(super) struct Secrets {
    texts: Vec<String>,
    finder: AhoCorasick,
}

impl Secrets {
    fn new(texts: Vec<String>) -> Self {
        let finder = AhoCorasick::new(&texts).unwrap();
        Self { texts, finder }
    }

    /// The other tenants' values that are not in the own list.
    pub(super) fn of_others(listed: &[Value], own: &[Value]) -> Self {
        let own: BTreeSet<_> = secrets_of(own).into_iter().collect();
        let mut secrets = secrets_of(listed);
        secrets.retain(|secret| secret.len() >= LEAST_CHARS && !own.contains(secret));
        assert!(secrets.len() > 20, "{secrets:?}");
        Self::new(secrets)
    }

    /// The first secret in a text, except those that it may have.
    pub(super) fn find(&self, text: &str, may_have: impl Fn(&str) -> bool) -> Option<&str> {
        let found = self.finder.find_overlapping_iter(text);
        let mut found = found.map(|found| self.texts[found.pattern()].as_str());
        found.find(|secret| !may_have(secret))
    }
}

/// Every choice of at least one of `kinds`.
pub(super) fn combinations(kinds: &[Kind]) -> Vec<Vec<Kind>> {
    let choices = 1_u32..1 << kinds.len();
    let chosen = |choice: u32| {
        let numbered = kinds.iter().enumerate();
        let chosen = numbered.filter(move |(number, _)| choice >> number & 1 == 1);
        chosen.map(|(_, kind)| *kind).collect()
    };
    choices.map(chosen).collect()
}

/// Nobody's ids; the cursor is the owner's with one letter changed.
fn nobodys(theirs: &Ids) -> Ids {
    let mut ids = Ids::of_nobody();
    if theirs.has(Kind::Page) {
        let mut page = theirs.get(Kind::Page).to_owned();
        let middle = page.len() / 2;
        let other = if page[middle..].starts_with('A') { "B" } else { "A" };
        page.replace_range(middle..=middle, other);
        ids.set(Kind::Page, page);
    }
    ids
}

#[track_caller]
fn assert_nothing_of(secrets: &Secrets, answer: &Answer, what: &str) {
    let headers = answer.headers.values().map(|value| value.to_str().unwrap());
    for told in headers.chain([answer.text.as_str()]) {
        assert_eq!(secrets.find(told, |_| false), None, "{what}: it is in {told}");
    }
}

/// The cursor to the second page of an operation's list.
async fn page_of(client: &Client, operation: &Operation, ids: &Ids) -> String {
    if operation.id == "sessions.events.list" {
        // An erasure of the store removed the earlier events.
        let calls = format!("/v1/sessions/{}/tool_calls", ids.get(Kind::Session));
        for _ in 0..2 {
            let view = json!({"command": "view", "path": "/memories"});
            assert_eq!(client.post(&calls, &view).await.status, 200);
        }
    }
    let mut query = needed_query(operation);
    query.push(("limit".to_owned(), Meaning::Plain("1")));
    let form = Form { query, has_headers: false, body: None };
    let answer = send(form.request(client, &Method::GET, operation, ids)).await;
    let page = answer.json()["next_page"].clone();
    assert!(page.is_string(), "{} has one page: {}", operation.id, answer.text);
    text(&page).to_owned()
}

/// The cursor to the second page of a target's list.
pub(super) async fn next_page(owner: &Client, target: &Target) -> String {
    page_of(owner, &target.operation, &target.ids).await
}

/// The parameters that an operation cannot be asked without. The owner has more
/// stores than one search reads; the files of the text for models are those of a store.
fn needed_query(operation: &Operation) -> Vec<(String, Meaning)> {
    let is_needed = |name: &&String| match name.as_str() {
        "query" | "memory_store_ids[]" => true,
        "memory_store_id" => operation.id == "tools.list",
        _ => false,
    };
    let needed = operation.in_query.iter().filter(is_needed);
    needed.map(|name| (name.clone(), cases::meaning(name))).collect()
}

/// Sends one request with only the required parameters.
pub(super) async fn ask(client: &Client, operation: &Operation, ids: &Ids, body: Option<&Value>) -> Answer {
    let form = Form { query: needed_query(operation), has_headers: false, body: None };
    let request = form.request(client, &operation.method, operation, ids);
    send(match body {
        Some(body) => request.json(body),
        None => request,
    })
    .await
}

/// Reads all that is there, so that it is in every cache.
pub(super) async fn warm(owner: &Client, targets: &[Target]) {
    for target in targets {
        if target.operation.method == Method::GET {
            call(owner, target).await;
        }
        let memory = format!(
            "/v1/memory_stores/{}/memories/{}",
            target.ids.get(Kind::Store),
            target.ids.get(Kind::Memory)
        );
        assert_eq!(owner.get(&memory).await.status, 200);
    }
}

/// Carries out every operation for who may, which shows that its requests are
/// good ones.
pub(super) async fn call_as_owner(owner: &Client, targets: &[Target]) {
    for target in targets {
        call(owner, target).await;
    }
}

/// Sends the owner's POSTs again: its keys were recorded, and are its own.
pub(super) async fn call_again_as_owner(owner: &Client, targets: &[Target]) {
    for Target { operation, ids } in targets {
        if operation.method == Method::POST {
            for form in Form::in_turn(operation) {
                let again = send(form.request(owner, &operation.method, operation, ids)).await;
                assert_eq!(again.status, status_for_owner(operation), "{}: {}", operation.id, again.text);
            }
        }
    }
}

/// The status for the owner with all scopes.
fn status_for_owner(operation: &Operation) -> u16 {
    match operation.id.as_str() {
        // The fixture's stores have memories.
        "memory_stores.import" => 409,
        id if cases::OF_TOKENS.contains(&id) => 400,
        _ => 200,
    }
}

async fn call(client: &Client, Target { operation, ids }: &Target) -> Vec<Answer> {
    let mut answers = Vec::new();
    for form in Form::in_turn(operation) {
        let answer = send(form.request(client, &operation.method, operation, ids)).await;
        let expected = status_for_owner(operation);
        assert_eq!(answer.status, expected, "{}: {}", operation.id, answer.text);
        let body = answer.json();
        assert_ne!(body["is_error"], true, "{}", answer.text);
        assert_ne!(body["result"]["isError"], true, "{}", answer.text);
        if let Some(key) = body["api_key"].as_str() {
            secrets::remember(key, "an API key");
        }
        if let Some(token) = body["token"].as_str() {
            secrets::remember(token, "a session's token");
        }
        answers.push(answer);
    }
    answers
}

/// Sends every operation for own objects with idempotency keys that other tenants
/// used: the answers contain no data of other tenants.
pub(super) async fn call_own(attacker: &Attacker, operations: &[Operation], listed: &[Value]) {
    let mut targets = Vec::new();
    for operation in operations {
        let mut target =
            Target { operation: operation.clone(), ids: Fixture::new(&attacker.client, "cleo").await.ids };
        if operation.is_paged() {
            let page = next_page(&attacker.client, &target).await;
            target.ids.set(Kind::Page, page);
        }
        targets.push(target);
    }
    let mut own = snapshot(&attacker.client).await;
    let mut answers = Vec::new();
    for target in &targets {
        answers.push((&target.operation.id, call(&attacker.client, target).await));
    }
    own.append(&mut snapshot(&attacker.client).await);
    let secrets = Secrets::of_others(listed, &own);
    for (id, answers) in answers {
        for answer in answers {
            assert_nothing_of(&secrets, &answer, id);
        }
    }
}

/// Public operations have the same answer for all.
pub(super) async fn assert_open(operations: &[Operation], one: &Client, other: &Client) {
    for operation in operations {
        assert_eq!(operation.method, Method::GET, "{}", operation.id);
        let told = send(one.bare(Method::GET, &operation.path)).await;
        // A store's metadata exist only with an issuer.
        let expected = if operation.in_path.is_empty() { 200 } else { 404 };
        assert_eq!(told.status, expected, "{}", operation.id);
        for client in [one, other] {
            assert_eq!(client.get(&operation.path).await.lasting(), told.lasting());
        }
    }
}
