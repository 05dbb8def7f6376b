//! The inputs that handlers extract from a request: the caller, fields and forms.

use std::fmt::{Display, Write};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, OriginalUri};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Uri, header};
use bytes::Bytes;
use keepsake_core::id::{Id, IdKind};
use keepsake_core::{ContentHash, Purpose, Timestamp};
use keepsake_engine::{Audience, Engine, PageRequest, Principal};
use keepsake_index::{Idempotency, Scope, Store};
use percent_encoding::percent_decode_str;
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use crate::frame::{Account, Frame, SECTIONS, Section, Undo};
use crate::notice::Notice;
use crate::page::{Refusal, sentence};
use crate::people::actor_text;
use crate::sign_in::FormToken;
use crate::text::markup::{encoded, id};

/// Far more than any page of the console has.
pub const MAX_FORM_FIELDS: usize = 1_000;

/// Counts the fields of an unparsed form. `None`: more than [`MAX_FORM_FIELDS`].
pub fn count_form_fields(form: &[u8]) -> Option<usize> {
    // Stops at the limit, so that a form of many more fields is not read to its end.
    let fields = form.split(|byte| *byte == b'&').take(MAX_FORM_FIELDS + 1).count();
    (fields <= MAX_FORM_FIELDS).then_some(fields)
}

/// The body of a form. The server has limited its size.
#[derive(Debug, Clone)]
pub struct FormBytes(pub Bytes);

/// A form with a file. The server has limited its size.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Text fields.
    pub fields: Vec<(String, String)>,
    /// Empty if the person chose no file.
    pub file_name: String,
    pub file: Bytes,
    /// When the request ends.
    pub deadline: Option<Instant>,
}

/// Whose sign-in a page needs: that of a tenant's person, or the operator's.
pub(crate) trait Person: Sized + Send {
    const AUDIENCE: Audience;
    const SECTIONS: &'static [Section];

    /// The person of a request or of an answer. `None`: it has no sign-in.
    fn of(extensions: &Extensions) -> Option<Self>;

    /// The same person, whose reads are no uses by an agent.
    #[must_use]
    fn reading(self) -> Self;

    fn may(&self, scope: Scope) -> bool;

    /// The names on every page.
    fn account(&self) -> Account;
}

impl Person for Arc<Principal> {
    const AUDIENCE: Audience = Audience::Tenant;
    const SECTIONS: &'static [Section] = &SECTIONS;

    fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().cloned()
    }

    fn reading(self) -> Self {
        Self::new(self.reading_for(Purpose::Console))
    }

    fn may(&self, scope: Scope) -> bool {
        self.require(scope).is_ok()
    }

    fn account(&self) -> Account {
        let name = self.key_name.as_ref().filter(|name| !name.is_empty());
        Account {
            name: name.map_or_else(|| actor_text(self.actor()), ToString::to_string),
            tenant: self.tenant_name.to_string(),
            tenant_id: id(self.tenant_id),
        }
    }
}

/// The path of a request, and the token of its sign-in's forms. `None`: the request has no sign-in.
pub(crate) fn path_and_token(extensions: &Extensions, uri: &Uri) -> Option<(String, String)> {
    let FormToken(token) = extensions.get().cloned()?;
    let uri = extensions.get().map_or(uri, |OriginalUri(uri)| uri);
    Some((uri.path().to_owned(), token))
}

/// The person who requests a page.
pub(crate) struct Caller<P = Arc<Principal>> {
    pub(crate) engine: Engine,
    pub(crate) principal: P,
    pub(crate) path: String,
    /// The fields of the address.
    pub(crate) query: Fields,
    /// Token of this sign-in's forms.
    pub(crate) token: String,
    /// The message about the action that led to this page.
    pub(crate) notice: Option<Notice>,
}

impl<P: Person> Caller<P> {
    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.principal.may(scope)
    }

    pub(crate) fn frame(&self, title: impl AsRef<str>) -> Frame {
        let (path, token) = (self.path.clone(), self.token.clone());
        let done = self.notice.as_ref().map(|notice| notice.done);
        Frame { done, ..Frame::of(&self.principal, path, token, title.as_ref(), self.engine.now()) }
    }

    /// The form of the message's undo button: it sends the fields of the message to `action`. `None`: the
    /// message has no fields for this sign-in.
    pub(crate) fn undo_at(&self, action: String) -> Option<Undo> {
        let fields = self.notice.as_ref()?.undo_fields(&self.token)?.to_vec();
        Some(Undo { action, fields })
    }
}

impl<P> Caller<P> {
    /// The same request of another person.
    pub(crate) fn by<Q>(&self, principal: Q) -> Caller<Q> {
        Caller {
            engine: self.engine.clone(),
            principal,
            path: self.path.clone(),
            query: self.query.clone(),
            token: self.token.clone(),
            notice: self.notice.clone(),
        }
    }
}

impl Caller {
    pub(crate) fn may_write(&self, store: &Store) -> bool {
        store.archived_at.is_none() && self.principal.require_writable(store.store_id).is_ok()
    }

    /// As [`Self::may_write`], for a memory that may be a setting of the store.
    pub(crate) fn may_change(&self, store: &Store, is_setting: bool) -> bool {
        self.may_write(store) && (!is_setting || self.may(Scope::StoresAdmin))
    }
}

impl<P: Person> FromRequestParts<Engine> for Caller<P> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, engine: &Engine) -> Result<Self, Refusal> {
        let (path, token) = path_and_token(&parts.extensions, &parts.uri).ok_or(Refusal::SignedOut)?;
        let person = P::of(&parts.extensions).ok_or(Refusal::SignedOut)?;
        Ok(Self {
            engine: engine.clone(),
            principal: person.reading(),
            path,
            query: Fields::of_query(parts),
            token,
            notice: parts.extensions.get().cloned(),
        })
    }
}

/// Header in which a browser says whether a page of the same site sent a request.
const SITE: &str = "sec-fetch-site";
/// Days up to today that a filter offers.
const PERIODS: [u64; 3] = [1, 7, 30];
/// Field with the form token of the sign-in.
pub(crate) const TOKEN: &str = "token";

/// Fields of a query or of a form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        });
        Self(pairs.collect())
    }

    pub(crate) fn of_upload(fields: &[(String, String)]) -> Self {
        Self(fields.iter().map(|(name, value)| (name.clone(), without_nul(value))).collect())
    }

    pub(crate) fn of_query(parts: &Parts) -> Self {
        Self::parse(parts.uri.query().unwrap_or_default())
    }

    /// Adds a field that the form did not have.
    pub(crate) fn add(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    /// Replaces a field, or adds it.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.0.retain(|(key, _)| key != name);
        self.add(name, value);
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The trimmed value of a field that is not empty.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).map(str::trim).filter(|value| !value.is_empty())
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// A directory, with the slashes at its ends, which a person may leave out. `None`: the field is
    /// empty. Repeated slashes stay, so that `//` is refused and is not the whole store.
    pub(crate) fn directory(&self, name: &str) -> Option<String> {
        let typed = self.filled(name)?;
        let below = typed.strip_prefix('/').unwrap_or(typed);
        let end = if below.is_empty() || below.ends_with('/') { "" } else { "/" };
        Some(format!("/{below}{end}"))
    }

    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let of_name = self.0.iter().filter(move |(key, _)| key == name);
        of_name.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_chosen(&self, name: &str, choice: &str) -> bool {
        self.text(name) == choice
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.filled(name).is_some()
    }

    pub(crate) fn page(&self, limit: u64) -> PageRequest {
        PageRequest { limit: Some(limit), page: self.filled("page").map(str::to_owned) }
    }

    /// A day or a time. `None`: the field is empty.
    pub(crate) fn time(&self, name: &'static str) -> Result<Option<Timestamp>, Refusal> {
        let rule = "must be a day or a time, such as 2026-01-31";
        self.parsed(name, |text| Timestamp::parse(text).ok_or(rule))
    }

    /// The end of a range; a day counts to its end.
    pub(crate) fn until(&self, name: &'static str) -> Result<Option<Timestamp>, Refusal> {
        let is_day = self.filled(name).is_some_and(|text| text.len() == 10);
        let end_of_day = Duration::from_micros(86_399_999_999);
        let at = self.time(name)?;
        Ok(if is_day { at.map(|at| at.plus(end_of_day)) } else { at })
    }

    /// The day of a time, as a field of days shows it.
    pub(crate) fn day(&self, name: &str) -> &str {
        self.filled(name).and_then(|at| at.get(..10)).unwrap_or_default()
    }

    /// Replaces a number of days up to today by their first day, and checks that the range is not
    /// empty.
    pub(crate) fn choose_period(&mut self, now: Timestamp) -> Result<(), Refusal> {
        if let Some(days) = self.number("period")? {
            if !PERIODS.contains(&days) {
                return Err(Refusal::invalid("`period` must be 1, 7 or 30 days"));
            }
            let first = now.minus(Duration::from_hours(24 * (days - 1))).to_rfc3339();
            self.0.retain(|(name, _)| !["period", "to"].contains(&name.as_str()));
            self.set("from", first[..10].to_owned());
        }
        self.time("from")?;
        self.until("to")?;
        if self.is_reversed() {
            return Err(Refusal::invalid("`to` must not be before the first day"));
        }
        Ok(())
    }

    /// Whether the range of times ends before it begins.
    pub(crate) fn is_reversed(&self) -> bool {
        matches!((self.time("from"), self.until("to")), (Ok(Some(from)), Ok(Some(to))) if from > to)
    }

    /// `None`: the field is empty.
    pub(crate) fn id<K: IdKind>(&self, name: &'static str) -> Result<Option<Id<K>>, Refusal> {
        self.parsed(name, str::parse::<Id<K>>)
    }

    pub(crate) fn hash(&self, name: &'static str) -> Result<ContentHash, Refusal> {
        let rule = |error| Refusal::Invalid(format!("`{name}` {error}"));
        self.text(name).parse().map_err(rule)
    }

    /// `None`: the field is empty.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<u64>, Refusal> {
        self.parsed(name, |text| text.parse::<u64>().map_err(|_| "must be a whole number"))
    }

    /// The number of the first line that a page shows.
    pub(crate) fn first_line(&self) -> Result<usize, Refusal> {
        Ok(usize::try_from(self.number("line")?.unwrap_or(1)).unwrap_or(1))
    }

    /// `None`: the field is empty.
    pub(crate) fn parsed<T, E: Display>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Refusal> {
        let parsed = self.filled(name).map(parse).transpose();
        parsed.map_err(|rule| Refusal::Invalid(format!("`{name}` {rule}")))
    }

    pub(crate) fn pager(&self, next: Option<String>) -> Pager {
        Pager {
            first: self.is_on("page").then(|| self.with_page("")),
            next: next.map(|next| self.with_page(&next)),
        }
    }

    /// The query with these fields and another `page`.
    pub(crate) fn with_page(&self, next: &str) -> String {
        let others = self.0.iter().filter(|(name, _)| name != "page");
        let mut query = String::from("?");
        for (name, value) in others {
            let _ = write!(query, "{}={}&", encoded(name), encoded(value));
        }
        query + "page=" + &encoded(next)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pager {
    /// `None`: this is the first page.
    pub(crate) first: Option<String>,
    /// `None`: this is the last page.
    pub(crate) next: Option<String>,
}

impl Pager {
    pub(crate) const fn is_first(&self) -> bool {
        self.first.is_none()
    }
}

fn decode(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8().ok()?;
    Some(without_nul(&decoded))
}

/// No database accepts NUL in a text.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

/// A form that a page of this sign-in sent.
pub(crate) struct Form<P = Arc<Principal>> {
    pub(crate) caller: Caller<P>,
    pub(crate) fields: Fields,
}

impl<P> Deref for Form<P> {
    type Target = Caller<P>;

    fn deref(&self) -> &Caller<P> {
        &self.caller
    }
}

impl Form {
    /// Makes the action idempotent: a form that is sent twice acts once.
    pub(crate) fn call(&self) -> Result<Option<Idempotency>, Refusal> {
        let Some(key) = self.fields.filled("once") else {
            return Ok(None);
        };
        // The token is left out: the form may be sent again after another sign-in.
        let others = self.fields.pairs().filter(|(name, _)| *name != TOKEN);
        let body: Vec<String> =
            others.map(|(name, value)| format!("{}:{name}{}:{value}", name.len(), value.len())).collect();
        let body = body.concat();
        let calls = &self.engine.calls;
        Ok(Some(calls.of_request(&self.principal, "POST", &self.path, key, body.as_bytes())?))
    }
}

impl<P> Form<P> {
    /// The message of the form that is given back unless the person typed the word that confirms its action.
    pub(crate) fn confirmation_problem(&self, word: &str, rule: &str) -> Option<String> {
        let is_confirmed = self.fields.text("confirm").trim() == word.trim();
        (!is_confirmed).then(|| sentence(&format!("`confirm` must be {rule}")))
    }
}

impl<P: Person> FromRequestParts<Engine> for Form<P> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, engine: &Engine) -> Result<Self, Refusal> {
        let caller = Caller::<P>::from_request_parts(parts, engine).await?;
        let fields = form_fields(parts)?;
        check_token(&fields, &caller.token)?;
        Ok(Self { caller, fields })
    }
}

pub(crate) fn form_fields(parts: &Parts) -> Result<Fields, Refusal> {
    check_source(&parts.headers)?;
    if let Some(upload) = parts.extensions.get::<Upload>() {
        return Ok(Fields::of_upload(&upload.fields));
    }
    let bytes = parts.extensions.get::<FormBytes>().ok_or(Refusal::Internal)?;
    let not_utf8 = || Refusal::invalid("the form must be UTF-8: nothing was done");
    let text = str::from_utf8(&bytes.0).map_err(|_| not_utf8())?;
    let (fields, sent) = (Fields::parse(text), text.split('&').filter(|pair| !pair.is_empty()).count());
    // A field that cannot be decoded must not count as an empty one.
    if fields.0.len() == sent { Ok(fields) } else { Err(not_utf8()) }
}

/// Checks the token that the page put into the form.
pub(crate) fn check_token(fields: &Fields, expected: &str) -> Result<(), Refusal> {
    let sent = fields.text(TOKEN);
    if sent.as_bytes().ct_eq(expected.as_bytes()).into() {
        return Ok(());
    }
    Err(Refusal::Forbidden(
        "the form is not one of this sign-in: open its page again, or send it from below if it is shown there",
    ))
}

/// Refuses a form if the browser says that another site sent it. If the browser says nothing, only
/// the form token decides.
pub(crate) fn check_source(headers: &HeaderMap) -> Result<(), Refusal> {
    match is_own(headers) {
        Some(false) if headers.contains_key(SITE) => {
            Err(Refusal::Forbidden("the form was sent by another site"))
        }
        Some(false) => Err(Refusal::Forbidden(
            "the form was sent by another site, or a proxy in front of the server replaces the `Host` of the \
             browser: the proxy must pass it on",
        )),
        Some(true) | None => Ok(()),
    }
}

/// Whether the browser says that a page of this console sent a form.
pub(crate) fn is_surely_own(headers: &HeaderMap) -> bool {
    is_own(headers) == Some(true)
}

/// Whether a page of this console sent a form. `None`: the browser does not say it.
fn is_own(headers: &HeaderMap) -> Option<bool> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(SITE) {
        return Some(site == "same-origin");
    }
    // Over plain HTTP, browsers do not send `sec-fetch-site`. For a form of this console they send
    // its origin, because of `referrer-policy: same-origin`. `null` may be any site.
    let origin = text(header::ORIGIN.as_str()).filter(|origin| *origin != "null")?;
    let (_, authority) = origin.split_once("://")?;
    Some(authority == text(header::HOST.as_str())?)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn fields_are_decoded_and_must_be_utf8() {
        let fields = Fields::parse("a=1&b=x+y%20z&a=2&empty=&%zz=%ff");
        assert_eq!(fields.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(fields.text("b"), "x y z");
        assert_eq!(fields.filled("empty"), None);
        assert_eq!(fields.get("nothing"), None);
        assert_eq!(fields.with_page("n/1"), "?a=1&b=x%20y%20z&a=2&empty=&page=n%2F1");
        for (form, is_good) in [(&b"a=%C3%A9&&b"[..], true), (b"a=%ff", false), (b"a=\xff", false)] {
            let (mut parts, ()) = axum::http::Request::new(()).into_parts();
            parts.extensions.insert(FormBytes(Bytes::from_static(form)));
            assert_eq!(form_fields(&parts).is_ok(), is_good, "{form:?}");
        }
    }

    #[test]
    fn forms_of_other_sites_are_refused() {
        for (lines, is_good, is_sure) in [
            (&[][..], true, false),
            (&[("sec-fetch-site", "same-origin")], true, true),
            (&[("sec-fetch-site", "cross-site")], false, false),
            (&[("sec-fetch-site", "same-site")], false, false),
            (&[("sec-fetch-site", "none")], false, false),
            (&[("host", "a:1"), ("origin", "http://a:1")], true, true),
            (&[("host", "a:1"), ("origin", "http://b:1")], false, false),
            (&[("host", "a:1"), ("origin", "null")], true, false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            let found = (check_source(&headers).is_ok(), is_surely_own(&headers));
            assert_eq!(found, (is_good, is_sure), "{lines:?}");
        }
    }
}
