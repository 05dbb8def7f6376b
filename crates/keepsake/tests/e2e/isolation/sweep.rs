//! Every operation with ids in every combination, for each who asks.

use std::{iter, slice};

use aho_corasick::AhoCorasick;
use keepsake_core::StoreId;
use reqwest::RequestBuilder;

use super::*;

/// The shortest text that is looked for in answers: shorter ones are anywhere.
const LEAST_CHARS: usize = 8;

/// An operation, and objects of the owner's to try it on.
pub(super) struct Target {
    operation: Operation,
    ids: Ids,
}

/// Something of a tenant's for each operation to be tried on.
pub(super) async fn targets(owner: &Client, label: &str, operations: &[Operation]) -> Vec<Target> {
    let mut targets = Vec::new();
    for operation in operations {
        let mut ids = Ids::of_new(owner, label).await;
        if operation.path.contains("{undo}") {
            let undo = undo_in(owner, label, ids.get("store")).await;
            ids.set("undo", &undo);
        }
        targets.push(Target { operation: operation.clone(), ids });
    }
    // A list has a second page once all are there.
    for Target { operation, ids } in &mut targets {
        if operation.is_paged() {
            let page = next_page(owner, operation, ids).await;
            ids.set("page", &page);
        }
    }
    targets
}

pub(super) struct Attacker {
    name: &'static str,
    pub(super) client: Client,
    own: Ids,
    /// The status of its requests for an unknown store.
    refusal: u16,
    /// Whether it is of the owner's tenant, so that the owner's cursors are valid for it.
    is_of_tenant: bool,
}

struct Form {
    query: Vec<String>,
    has_headers: bool,
    /// With its place among the operation's bodies.
    body: Option<(usize, &'static str)>,
}

impl Form {
    /// With only the parameters that the operation cannot be asked without. The owner has more
    /// stores than one search reads; the files of the text for models are those of a store.
    fn least(operation: &Operation) -> Self {
        let is_needed = |parameter: &&String| match parameter.split('=').next() {
            Some("query" | "memory_store_ids[]") => true,
            Some("memory_store_id") => operation.id == "tools.list",
            _ => false,
        };
        let query = operation.query.iter().filter(is_needed).cloned().collect();
        Self { query, has_headers: false, body: None }
    }

    /// All forms of an operation. For a GET: each optional parameter separately.
    /// Otherwise: each body, without and with all parameters and headers.
    fn all(operation: &Operation) -> Vec<Self> {
        let queries: Vec<Vec<String>> = if operation.method == Method::GET {
            let needed = Self::least(operation).query;
            let others = operation.query.iter().filter(|parameter| !needed.contains(parameter));
            let alone = others.map(|parameter| [needed.as_slice(), slice::from_ref(parameter)].concat());
            iter::once(needed.clone()).chain(alone).collect()
        } else {
            vec![Vec::new(), operation.query.clone()]
        };
        let bodies = cases::bodies(&operation.id).iter().copied();
        let mut bodies: Vec<_> = bodies.enumerate().map(Some).collect();
        if bodies.is_empty() {
            bodies.push(None);
        }
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

    fn kinds(&self, operation: &Operation) -> Vec<&'static str> {
        let body = self.body.map_or("", |(_, body)| body);
        kinds_in(&format!("{} {} {body}", operation.path, self.query.join(" ")))
    }

    /// The request. A POST has an idempotency key, the same for all who send it.
    fn request(&self, client: &Client, method: &Method, operation: &Operation, ids: &Ids) -> RequestBuilder {
        let path = format!("{}?{}", operation.path, self.query.join("&"));
        let mut request = client.request(method.clone(), &ids.fill(&path));
        for (name, value) in operation.headers.iter().filter(|_| self.has_headers) {
            request = request.header(name, *value);
        }
        if let Some((number, body)) = self.body {
            request = request.json(&ids.body(body));
            if *method == Method::POST {
                request = request.header("idempotency-key", format!("isolation {number}"));
            }
        }
        request
    }
}

impl Attacker {
    pub(super) async fn stranger(client: Client) -> Self {
        let own = Ids::of_new(&client, "cleo").await;
        // For lists to have a second page.
        Ids::of_new(&client, "cleo").await;
        Self { name: "another tenant", client, own, refusal: 404, is_of_tenant: false }
    }

    pub(super) async fn bound(client: Client, store_id: StoreId) -> Self {
        let own = Ids::in_store(&client, "bela", &store_id.to_string()).await;
        Self { name: "a key bound to another store", client, own, refusal: 404, is_of_tenant: true }
    }

    pub(super) fn nobody(client: Client) -> Self {
        Self { name: "nobody", client, own: Ids::of_nobody(), refusal: 401, is_of_tenant: false }
    }

    /// Tries every operation with the owner's ids in all combinations with its own; `listed` is
    /// what the owner has.
    pub(super) async fn attack(&self, targets: &[Target], listed: &[Value]) {
        let is_known = self.refusal != 401;
        let own_before = if is_known { snapshot(&self.client).await } else { Vec::new() };
        let secrets = Secrets::of_others(listed, &own_before);
        let mut tried = 0;
        for target in targets {
            let own = self.ids_for(&target.operation).await;
            for form in Form::all(&target.operation) {
                let kinds = form.kinds(&target.operation);
                if self.is_of_tenant && kinds == ["page"] {
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
            let own = unread(snapshot(&self.client).await);
            assert_eq!(own, unread(own_before), "{} changed what it has", self.name);
        }
    }

    async fn compare(
        &self,
        at: &Target,
        form: &Form,
        own: &Ids,
        foreign: &[&'static str],
        secrets: &Secrets,
    ) {
        let operation = &at.operation;
        let theirs = own.with(foreign, &at.ids);
        let nobodys = own.with(foreign, &nobodys(&at.ids));
        let mut methods = vec![operation.method.clone()];
        if operation.method == Method::GET {
            methods.push(Method::HEAD);
        }
        for method in methods {
            let ask = async |ids: &Ids| send(form.request(&self.client, &method, operation, ids)).await;
            let (answer, never) = (ask(&theirs).await, ask(&nobodys).await);
            let Operation { path, .. } = operation;
            let what = format!("{}: {method} {path} {:?} with {foreign:?} of others", self.name, form.body);
            // A tool repeats the path that it was sent.
            let told = answer.text.replace(theirs.get("path"), nobodys.get("path"));
            let answer = Answer { text: told, ..answer };
            assert_eq!(answer.lasting(), never.lasting(), "{what}");
            assert_nothing_of(secrets, &answer, &what);
            let is_below_theirs = kinds_in(path).iter().any(|kind| foreign.contains(kind));
            let is_paged = form.kinds(operation).contains(&"page");
            if is_below_theirs && !is_paged {
                assert_eq!(answer.status, self.refusal, "{what}: {}", answer.text);
            }
        }
    }

    async fn ids_for(&self, operation: &Operation) -> Ids {
        let mut ids = self.own.clone();
        if operation.is_paged() {
            // A key that sees one store has no second page of stores and of a session's resources.
            let is_of_stores = !operation.path.contains('{') || operation.id == "sessions.resources.list";
            let has_none = self.refusal == 401 || self.is_of_tenant && is_of_stores;
            if has_none {
                ids.set("page", "page_none");
            } else {
                ids.set("page", &next_page(&self.client, operation, &ids).await);
            }
        }
        ids
    }
}

pub(super) struct Secrets {
    texts: Vec<String>,
    finder: AhoCorasick,
}

impl Secrets {
    /// The other tenants' values that are not in the own list.
    pub(super) fn of_others(listed: &[Value], own: &[Value]) -> Self {
        let own: BTreeSet<_> = secrets_of(own).into_iter().collect();
        let mut texts = secrets_of(listed);
        texts.retain(|secret| secret.len() >= LEAST_CHARS && !own.contains(secret));
        assert!(texts.len() > 20, "{texts:?}");
        Self { finder: AhoCorasick::new(&texts).unwrap(), texts }
    }

    /// The first secret in a text, except those that it may have.
    pub(super) fn find(&self, text: &str, may_have: impl Fn(&str) -> bool) -> Option<&str> {
        let found = self.finder.find_overlapping_iter(text);
        let mut found = found.map(|found| self.texts[found.pattern()].as_str());
        found.find(|secret| !may_have(secret))
    }
}

/// Every choice of at least one of `kinds`.
pub(super) fn combinations(kinds: &[&'static str]) -> Vec<Vec<&'static str>> {
    let choices = 1_u32..1 << kinds.len();
    let chosen = |choice: u32| {
        let chosen = kinds.iter().enumerate().filter(move |(number, _)| choice >> number & 1 == 1);
        chosen.map(|(_, kind)| *kind).collect()
    };
    choices.map(chosen).collect()
}

/// Nobody's ids; the cursor is the owner's with one letter changed.
fn nobodys(theirs: &Ids) -> Ids {
    let mut ids = Ids::of_nobody();
    let mut page = theirs.fill("{page}");
    let middle = page.len() / 2;
    let other = if page[middle..].starts_with('A') { "B" } else { "A" };
    page.replace_range(middle..=middle, other);
    ids.set("page", &page);
    ids
}

#[track_caller]
fn assert_nothing_of(secrets: &Secrets, answer: &Answer, what: &str) {
    let headers = answer.headers.values().map(|value| value.to_str().unwrap());
    for told in headers.chain([answer.text.as_str()]) {
        assert_eq!(secrets.find(told, |_| false), None, "{what}: it is in {told}");
    }
}

async fn next_page(client: &Client, operation: &Operation, ids: &Ids) -> String {
    if operation.id == "sessions.events.list" {
        // An erasure of the store removed the earlier events.
        for _ in 0..2 {
            view_in(client, &ids.fill("/v1/sessions/{session}"), "/memories").await;
        }
    }
    let mut form = Form::least(operation);
    form.query.push("limit=1".to_owned());
    let answer = send(form.request(client, &Method::GET, operation, ids)).await;
    let page = answer.json()["next_page"].clone();
    assert!(page.is_string(), "{} has one page: {}", operation.id, answer.text);
    text(&page).to_owned()
}

pub(super) async fn ask(client: &Client, operation: &Operation, ids: &Ids, body: &Value) -> Answer {
    let request = Form::least(operation).request(client, &operation.method, operation, ids);
    send(if body.is_null() { request } else { request.json(body) }).await
}

/// Reads all that is there, so that it is in every cache.
pub(super) async fn warm(owner: &Client, targets: &[Target]) {
    for target in targets {
        if target.operation.method == Method::GET {
            call(owner, target).await;
        }
        let memory = target.ids.fill("/v1/memory_stores/{store}/memories/{memory}");
        assert_eq!(owner.get(&memory).await.status, 200);
    }
}

/// Carries out every operation for who may, which shows that its requests are good ones.
pub(super) async fn call_as_owner(owner: &Client, targets: &[Target]) {
    for target in targets {
        call(owner, target).await;
    }
}

/// Sends the owner's POSTs again: its keys were recorded, and are its own.
pub(super) async fn call_again_as_owner(owner: &Client, targets: &[Target]) {
    for Target { operation, ids } in targets.iter().filter(|target| target.operation.method == Method::POST) {
        for form in Form::in_turn(operation) {
            let again = send(form.request(owner, &operation.method, operation, ids)).await;
            assert_eq!(again.status, status_for_owner(operation), "{}: {}", operation.id, again.text);
        }
    }
}

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
        remember_secret_of(&body);
        answers.push(answer);
    }
    answers
}

/// Sends every operation for own objects with idempotency keys that other tenants used: the
/// answers contain no data of other tenants.
pub(super) async fn call_own(attacker: &Attacker, operations: &[Operation], listed: &[Value]) {
    let targets = targets(&attacker.client, "cleo", operations).await;
    let before = snapshot(&attacker.client).await;
    let mut answers = Vec::new();
    for target in &targets {
        answers.append(&mut call(&attacker.client, target).await);
    }
    let own = [before, snapshot(&attacker.client).await].concat();
    let secrets = Secrets::of_others(listed, &own);
    for answer in answers {
        assert_nothing_of(&secrets, &answer, "a call for own objects");
    }
}

pub(super) async fn assert_open(operations: &[Operation], one: &Client, other: &Client) {
    for Operation { id, path, .. } in operations {
        // A store's metadata exist only with an issuer.
        let expected = if path.contains('{') { 404 } else { 200 };
        let path = Ids::of_nobody().fill(path);
        let told = send(one.bare(Method::GET, &path)).await;
        assert_eq!(told.status, expected, "{id}");
        for client in [one, other] {
            assert_eq!(client.get(&path).await.lasting(), told.lasting());
        }
    }
}
