//! Search over the stores that the credential may read.

use askama::Template;
use keepsake_core::{Actor, StoreId, Timestamp, words};
use keepsake_engine::{SearchExplanation, SearchHit, SearchQuery};

use super::choices::{ChoiceField, Choices, StoreChoices};
use super::version::last_version;
use crate::frame::Frame;
use crate::page::{PageResult, Refusal, page, rule_of};
use crate::people::{People, actor_text};
use crate::request::{Caller, Fields, Pager};
use crate::text::markup::{self, Markup};

const PER_PAGE: u64 = 20;
/// Maximum number of engine pages read to fill one page after filters.
const MAX_PAGES: usize = 5;

struct Row {
    hit: SearchHit,
    /// The name of its store, or the id of a store that is not among those to choose from.
    store: String,
    by: Option<Markup>,
    /// The parts of the score, if meaning was used.
    found_by: Option<SearchExplanation>,
}

/// What found a hit.
fn finder(parts: &SearchExplanation) -> &'static str {
    match (parts.lexical > 0.0, parts.meaning > 0.0) {
        (true, true) => "found by words and meaning",
        (true, false) => "found by words",
        (false, true) => "found by meaning",
        // The closest memories fill up a list of few hits.
        (false, false) => "one of the closest",
    }
}

fn in_hundredths(score: f64) -> String {
    format!("{score:.2}")
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: Frame,
    query: Fields,
    store: ChoiceField,
    author: ChoiceField,
    hits: Vec<Row>,
    pager: Pager,
    is_asked: bool,
    problem: Option<String>,
    count: String,
    /// Why meaning was not used, or which memories it does not find yet.
    notice: Option<String>,
}

/// The filters applied to the hits of a search.
struct Filter {
    author: Option<String>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
}

impl Filter {
    fn of(fields: &Fields) -> Result<Self, Refusal> {
        Ok(Self {
            author: fields.filled("author").map(str::to_owned),
            from: fields.time("from")?,
            to: fields.until("to")?,
        })
    }

    fn has_time(&self, hit: &SearchHit) -> bool {
        self.from.is_none_or(|from| hit.updated_at >= from) && self.to.is_none_or(|to| hit.updated_at <= to)
    }
}

#[derive(Default)]
struct Hits {
    rows: Vec<Row>,
    /// The cursor of the next page.
    next: Option<String>,
    notice: Option<String>,
    /// What is wrong with the query.
    problem: Option<String>,
}

pub(super) async fn show(mut caller: Caller) -> PageResult {
    let stores = StoreChoices::of(&caller, true).await?;
    let chosen = stores.resolve(&mut caller, "store").await?;
    let authors = Choices::authors(&caller, chosen).await;
    authors.resolve_author(&mut caller.query, "author")?;
    caller.query.choose_period(caller.engine.now())?;
    let is_asked = caller.query.filled("q").is_some();
    let hits = if is_asked { search(&caller, chosen, &stores).await? } else { Hits::default() };
    page(&SearchPage {
        frame: caller.frame("Search"),
        store: stores.field("store", "Store", "all stores", &caller.query),
        author: authors.field("author", "Author", "everybody", &caller.query),
        count: words::counted(hits.rows.len() as u64, "hit"),
        hits: hits.rows,
        notice: hits.notice,
        pager: caller.query.pager(hits.next),
        is_asked,
        problem: hits.problem,
        query: caller.query,
    })
}

async fn search(caller: &Caller, chosen: Option<StoreId>, stores: &StoreChoices) -> Result<Hits, Refusal> {
    let fields = &caller.query;
    let filter = Filter::of(fields)?;
    let chosen: Vec<_> = chosen.into_iter().collect();
    let mut query = SearchQuery {
        query: fields.text("q").to_owned(),
        path_prefix: fields.directory("prefix"),
        page: fields.page(PER_PAGE),
        explain: true,
    };
    let mut hits = Hits::default();
    for _ in 0..MAX_PAGES {
        let found = match caller.engine.search.find_everywhere(&caller.principal, &chosen, &query).await {
            Ok(found) => found,
            Err(error) => return Ok(Hits { problem: Some(rule_of(error)?), ..Hits::default() }),
        };
        hits.notice = found.meaning.notice();
        let items: Vec<_> = found.items.into_iter().filter(|hit| filter.has_time(hit)).collect();
        let authors = authors_of(caller, &filter, &items).await?;
        let people = People::look_up(caller, authors.iter().flatten().collect()).await;
        for (place, hit) in items.into_iter().enumerate() {
            let actor = authors.get(place).and_then(Option::as_ref);
            let by = match &filter.author {
                Some(wanted) if !is_wanted(wanted, actor, &people) => continue,
                Some(_) => Some(people.show(actor)),
                None => None,
            };
            let store = stores.name_of(hit.store_id);
            let store = store.map_or_else(|| hit.store_id.to_string(), str::to_owned);
            let found_by = found.meaning.used.then_some(hit.explanation).flatten();
            hits.rows.push(Row { hit, store, by, found_by });
        }
        query.page.page = found.next;
        if query.page.page.is_none() || hits.rows.len() as u64 >= PER_PAGE {
            break;
        }
    }
    hits.next = query.page.page;
    Ok(hits)
}

/// The last author of each hit; of none, if the filter has no author.
async fn authors_of(
    caller: &Caller,
    filter: &Filter,
    hits: &[SearchHit],
) -> Result<Vec<Option<Actor>>, Refusal> {
    let mut found = Vec::new();
    if filter.author.is_none() {
        return Ok(found);
    }
    for hit in hits {
        let newest = last_version(caller, hit.store_id, hit.memory_id).await?;
        found.push(newest.and_then(|newest| newest.version.created_by));
    }
    Ok(found)
}

/// Whether a filter names an author, by the id or by a part of the name.
fn is_wanted(wanted: &str, actor: Option<&Actor>, people: &People) -> bool {
    let has = |name: &str| name.to_lowercase().contains(&wanted.to_lowercase());
    actor.is_some_and(|actor| actor.id() == wanted)
        || has(&actor_text(actor))
        || people.name_of(actor).is_some_and(has)
}

/// The line in which the shown part begins: a long memory's page begins near the hit.
const fn near(line: usize) -> usize {
    if line > 200 { line - 100 } else { 1 }
}
