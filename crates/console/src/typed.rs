//! Forms that were refused, with the text that a person typed into them.
//!
//! The page after a refusal gives the text back in a form that can be sent again. If the sign-in
//! has ended, that page signs in and carries the refused form: only the browser keeps it.
//!
//! A form is given back only to the person who sent it. Its token must be the token of the current
//! sign-in. Otherwise the browser must say that a page of this console sent the form, and this
//! server must have made its token for a sign-in. Nothing is saved before the person has sent the
//! form again, with the token of a valid sign-in.

use axum::http::HeaderMap;
use keepsake_core::TenantId;
use keepsake_engine::{Audience, Engine, EngineError};

use crate::next::is_safe;
use crate::request::{Fields, TOKEN, check_token, count_form_fields, is_surely_own};
use crate::sign_in::FormToken;
use crate::text::markup::encoded;

/// The path of the sign-in form, which may carry a refused form.
const SIGN_IN: &str = "/console/sign-in";
/// The sign-in form's field with the path of the carried form.
const ACTION: &str = "typed_action";
/// The sign-in form's field that says that the carried form has a file.
const HAS_FILE: &str = "typed_file";
/// In the sign-in form, names of the carried form's fields have this prefix.
const PREFIX: &str = "typed.";
/// Fields that a person types. Other fields are chosen, or made by the page.
const TYPED: [&str; 7] =
    ["path", "content", "name", "description", "expires_days", "expires_at", "external_id"];
/// The name of a field before which this stands has what the form showed first.
const WAS: &str = "was_";
/// Fields that the page makes and no person reads.
const HIDDEN: [&str; 8] =
    ["once", "base_sha256", "newlines", "sha256", "action", "preview", "before_seq", "from_list"];
/// The person types the word that confirms an irreversible action again, on the action's own page.
const CONFIRM: &str = "confirm";
/// Ends of the paths of actions whose form is on the page one level above.
const BELOW_THEIR_PAGE: [&str; 11] = [
    "/rename", "/expiry", "/archive", "/delete", "/restore", "/end", "/revoke", "/suspend", "/resume",
    "/run", "/cancel",
];
/// Longer texts, and texts of several lines, are shown in a box of several lines.
const MAX_LINE_CHARS: usize = 200;

#[derive(Debug, Clone)]
pub struct RefusedForm {
    pub(crate) action: String,
    fields: Fields,
    pub(crate) has_file: bool,
}

impl RefusedForm {
    /// The form of a request, or the form that a sign-in form carried. `None`: it is no form of the
    /// console.
    pub fn encoded(path: &str, body: &[u8]) -> Option<Self> {
        // Checked before parsing: no page has a form with more fields.
        count_form_fields(body)?;
        let fields = Fields::parse(str::from_utf8(body).ok()?);
        if path == SIGN_IN {
            return Self::carried_by(&fields);
        }
        Self::new(path, fields, false)
    }

    /// A form with a file. The file is not kept.
    pub fn with_file(path: &str, fields: &[(String, String)]) -> Option<Self> {
        Self::new(path, Fields::of_upload(fields), true)
    }

    /// The form that a sign-in form carries.
    pub(crate) fn carried_by(sign_in: &Fields) -> Option<Self> {
        let mut fields = Fields::default();
        for (name, value) in sign_in.pairs() {
            if let Some(name) = name.strip_prefix(PREFIX) {
                fields.add(name, value.to_owned());
            }
        }
        Self::new(sign_in.get(ACTION)?, fields, sign_in.is_on(HAS_FILE))
    }

    fn new(action: &str, fields: Fields, has_file: bool) -> Option<Self> {
        is_safe(action).then(|| Self { action: action.to_owned(), fields, has_file })
    }

    /// Whether the browser says that a page of this console sent the form.
    pub fn is_own(headers: &HeaderMap) -> bool {
        is_surely_own(headers)
    }

    /// The form with the token of the current sign-in, if there is one. `None`: the form may not
    /// have come from a page of this console of the audience.
    pub async fn checked(
        self,
        engine: &Engine,
        audience: Audience,
        headers: &HeaderMap,
        current: Option<&FormToken>,
    ) -> Result<Option<Self>, EngineError> {
        // No other site knows the token of the current sign-in.
        let is_current = current.is_some_and(|FormToken(token)| check_token(&self.fields, token).is_ok());
        let is_own = is_current
            || Self::is_own(headers)
                && engine.sign_ins.is_form_token(audience, self.fields.text(TOKEN)).await?;
        let token = current.map(|FormToken(token)| token.clone());
        Ok(is_own.then(|| match token {
            Some(token) => self.with_token(token),
            None => self,
        }))
    }

    pub(crate) fn with_token(self, token: String) -> Self {
        let mut fields = Fields::default();
        fields.add(TOKEN, token);
        for (name, value) in self.shown() {
            fields.add(name, value.to_owned());
        }
        Self { fields, ..self }
    }

    /// Whether the person typed a text into the form, or changed one that the form showed.
    pub(crate) fn has_text(&self) -> bool {
        let is_changed = |name: &str, value: &str| {
            self.fields.get(&was(name)).is_some_and(|was| was.trim() != value.trim())
        };
        let is_typed = |(name, value): (&str, &str)| {
            TYPED.contains(&name) && !value.trim().is_empty() || is_changed(name, value)
        };
        self.fields.get(CONFIRM).is_none() && self.fields.pairs().any(is_typed)
    }

    /// Whether the form has no text to keep: it is a button, perhaps with the word that confirms.
    pub(crate) fn is_button(&self) -> bool {
        let of_button = |name: &str| [TOKEN, CONFIRM].contains(&name) || is_hidden(name);
        self.fields.pairs().all(|(name, _)| of_button(name))
    }

    /// The path of the page with the form.
    pub(crate) fn page(&self) -> String {
        if self.action == "/console/erasures" {
            let others = self.fields.pairs().filter(|(name, _)| ![TOKEN, CONFIRM, "once"].contains(name));
            let query = others.map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
            return format!("{}/preview?{}", self.action, query.collect::<Vec<_>>().join("&"));
        }
        // A store has a page of this name, a version has none.
        if let Some((version, "")) = self.action.rsplit_once("/undo")
            && version.contains("/versions/")
        {
            return version.to_owned();
        }
        let above = BELOW_THEIR_PAGE.iter().find_map(|end| self.action.strip_suffix(end));
        above.unwrap_or(&self.action).to_owned()
    }

    /// The name of the form, and the id of what it is about; empty: it is about nothing.
    pub(crate) fn place(&self) -> (&'static str, &str) {
        let below = self.action.strip_prefix("/console/").unwrap_or(&self.action);
        let parts: Vec<&str> = below.split('/').collect();
        match parts[..] {
            ["tenants", "new"] => ("New tenant", ""),
            ["tenants", id] => ("Name and external id of the tenant", id),
            ["tenants", id, "limits"] => ("Limits of the tenant", id),
            ["tenants", id, "keys", "new"] => ("New key of the tenant", id),
            ["keys"] => ("New key", ""),
            ["stores"] => ("New store", ""),
            ["stores", id, "settings"] => ("Settings of the store", id),
            ["stores", id, "new"] => ("New memory in the store", id),
            ["stores", _, "memories", id, "edit"] => ("Text of the memory", id),
            ["stores", _, "memories", id, "rename"] => ("Path of the memory", id),
            ["stores", _, "memories", id, "expiry"] => ("Expiry of the memory", id),
            _ => ("Form of the page", self.action.as_str()),
        }
    }

    /// The tenant that an operator's form is about.
    pub(crate) fn tenant_id(&self) -> Option<TenantId> {
        self.place().1.parse().ok()
    }

    /// The fields of a sign-in form that carry this form.
    pub(crate) fn carried(&self) -> Vec<(String, String)> {
        let own = self.fields.pairs().map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()));
        let mut carried = vec![(ACTION.to_owned(), self.action.clone())];
        carried.extend(self.has_file.then(|| (HAS_FILE.to_owned(), "1".to_owned())));
        carried.extend(own);
        carried
    }

    /// The fields that its page shows.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.pairs().filter(|(name, _)| *name != TOKEN)
    }

    pub(crate) fn token(&self) -> &str {
        self.fields.text(TOKEN)
    }
}

/// The field with what the form first showed in a field.
pub(crate) fn was(name: &str) -> String {
    format!("{WAS}{name}")
}

/// The trimmed text of a field. `None`: the form has no such field, or changed at most spaces at its ends.
pub(crate) fn changed<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    let typed = fields.get(name).map(str::trim);
    typed.filter(|typed| fields.get(&was(name)).map(str::trim) != Some(*typed))
}

/// Adds the object's current values for the fields that the form lacks, and for what the form first showed
/// in them.
pub(crate) fn completed(mut typed: Fields, current: &Fields) -> Fields {
    for (name, text) in current.pairs() {
        for field in [name.to_owned(), was(name)] {
            if typed.get(&field).is_none() {
                typed.add(&field, text.to_owned());
            }
        }
    }
    typed
}

/// Prepares a refused form to be sent again: fields that the person changed keep their text, all other
/// fields get the object's current values, and the form counts as one that first showed these values.
pub(crate) fn renewed(mut typed: Fields, current: &Fields) -> Fields {
    for (name, text) in current.pairs() {
        let was = was(name);
        if typed.get(name).map(str::trim) == typed.get(&was).map(str::trim) {
            typed.set(name, text.to_owned());
        }
        typed.set(&was, text.to_owned());
    }
    typed
}

/// The fields of a form that takes a change back: only where the object still has what the change wrote.
/// Spaces at the ends of a text are not taken back, because forms are saved without them.
pub(crate) fn fields_before(old: &Fields, new: &Fields) -> Vec<(String, String)> {
    let written = new.pairs().filter(|(name, written)| old.text(name).trim() != written.trim());
    let of_field = |(name, written): (&str, &str)| {
        [(was(name), written.to_owned()), (name.to_owned(), old.text(name).to_owned())]
    };
    written.flat_map(of_field).collect()
}

/// Whether the page makes a field that no person reads.
pub(crate) fn is_hidden(name: &str) -> bool {
    HIDDEN.contains(&name) || name.starts_with(WAS)
}

/// Whether a text is shown in a box of several lines.
pub(crate) fn is_area(name: &str, value: &str) -> bool {
    name == "content" || value.contains('\n') || value.chars().nth(MAX_LINE_CHARS).is_some()
}

/// The name of a field as people read it.
pub(crate) fn label_of(name: &str) -> String {
    let name = match name {
        "expires_days" => "expires_after_days",
        "actor" => "the_author",
        "confirm" => "the_confirmation",
        "prefix" | "path_prefix" => "the_directory",
        "at" => "the_time",
        "at_seq" => "the_change",
        "api_keys_per_tenant" => "API_keys_per_tenant",
        "bytes_per_memory" => "size_of_a_memory",
        "bytes_per_store" => "size_of_a_store",
        "bytes_per_tenant" => "size_of_all_stores",
        "expires_unused_after" => "expiry_of_unread_memories",
        "memory_store_ids" => "stores",
        "max_view_chars" => "characters_of_a_view",
        "read_retention_secs" => "retention_of_records_of_readers",
        "recorded_reads_per_tenant" => "records_of_readers",
        "request_burst" => "requests_in_a_burst",
        "session_bytes_per_tenant" => "size_of_the_descriptions_of_sessions",
        "version_age_secs" => "retention_of_versions",
        "version_retention_secs" => "retention_of_deleted_memories",
        name => name,
    };
    let words = name.replace('_', " ");
    let mut letters = words.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_typed_texts_are_given_back_and_each_form_has_its_page() {
        let [edit, redact] =
            ["memories/m/edit", "versions/v/redact"].map(|of| format!("/console/stores/s/{of}"));
        let signed_out = "credential=k&typed_action=/console/stores&typed.name=n";
        for (path, body, has_text, page) in [
            (edit.as_str(), "content=a", true, edit.as_str()),
            ("/console/stores/s/memories/m/rename", "path=/a", true, "/console/stores/s/memories/m"),
            ("/console/stores/s/memories/m/expiry", "action=pin", false, "/console/stores/s/memories/m"),
            (&redact, "confirm=redact", false, &redact),
            ("/console/stores/s/versions/v/undo", "", false, "/console/stores/s/versions/v"),
            ("/console/stores/s/undo/u/cancel", "before_seq=1", false, "/console/stores/s/undo/u"),
            ("/console/erasures", "token=t&store=s&confirm=x", false, "/console/erasures/preview?store=s"),
            ("/console/keys", "name=+&scope=x", false, "/console/keys"),
            ("/console/tenants/t/limits", "was_a=1&a=2", true, "/console/tenants/t/limits"),
            ("/console/tenants/t/limits", "was_a=1&a=1&b=2", false, "/console/tenants/t/limits"),
            ("/console/tenants/t/suspend", "", false, "/console/tenants/t"),
            ("/console/sign-in", signed_out, true, "/console/stores"),
        ] {
            let form = RefusedForm::encoded(path, body.as_bytes()).unwrap();
            assert_eq!((form.has_text(), form.page().as_str()), (has_text, page), "{path}");
            assert!(!form.carried().iter().any(|(name, _)| name.contains("credential")), "{path}");
        }
        let many = "typed_action=/console/stores".to_owned() + &"&".repeat(1_000);
        for body in [
            "credential=k",
            "typed_action=//evil.example/&typed.name=n",
            "typed_action=/console/sign-out",
            many.as_str(),
        ] {
            assert!(RefusedForm::encoded("/console/sign-in", body.as_bytes()).is_none(), "{body}");
        }
    }
}
