//! Queries. Every text is a valid query; there are no syntax errors.
//!
//! In `"quoted words"` the words must be adjacent. A term after `-` must not occur.
//! `prefix*` matches terms that begin with the prefix, and `path:notes/` limits the
//! result to a directory. All other words are optional: a memory matches if it has
//! any of them.

use crate::analyse::{Kind, UnspacedScript, analyse, unspaced};
use crate::function_words::{is_function_word, language_of, mask};
use crate::stems::{Language, has_forms};

pub const MAX_QUERY_CHARS: usize = 1_000;

/// Maximum number of ranked terms of a query; further terms are ignored.
const MAX_RANKED_TERMS: usize = 256;

/// Maximum number of phrases, exclusions and path filters together; further ones
/// are ignored. The same number limits prefixes; further prefixes become words.
const MAX_CLAUSES: usize = 16;
const MAX_PREFIXES: usize = 16;

/// The weight of a function word; other words have the weight 1.
const FUNCTION_WEIGHT: f64 = 0.1;
/// The weight of the parts of a compound; the whole has the weight 1.
const PART_WEIGHT: f64 = 0.4;
/// The weight of a pair with one half in a function word, or in another word.
const EDGE_WEIGHT: f64 = 0.5;
/// The weight of a pair of hiragana; most such pairs are endings.
const HIRAGANA_WEIGHT: f64 = 0.4;
/// The weight of a single character between function words.
const LONE_WEIGHT: f64 = 0.8;
/// The weight of one character of a Han word, in addition to its pairs.
const HAN_WEIGHT: f64 = 0.2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("has {chars} characters, over the limit of {MAX_QUERY_CHARS}")]
pub struct QueryTooLong {
    pub chars: usize,
}

impl QueryTooLong {
    pub(crate) fn check(text: &str) -> Result<(), Self> {
        let chars = text.chars().count();
        if chars > MAX_QUERY_CHARS { Err(Self { chars }) } else { Ok(()) }
    }
}

/// The unit that the index looks up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Atom {
    Term(String),
    /// Terms that begin with this text, which has two bytes at least.
    Prefix(String),
    /// A character of a script without spaces, by itself or in a pair.
    Character(char),
}

/// A ranked part of a query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RankedTerm {
    pub(crate) atom: Atom,
    pub(crate) weight: f64,
    /// Whether other forms of the word are found too.
    pub(crate) has_forms: bool,
    /// Whether snippets show the match, and nearness counts it. `false` for terms that
    /// only support others.
    pub(crate) is_shown: bool,
    /// The position in the query.
    pub(crate) position: u32,
}

/// Atoms that must occur at these distances.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sequence(pub(crate) Vec<(Atom, u32)>);

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    pub(crate) ranked: Vec<RankedTerm>,
    pub(crate) phrases: Vec<Sequence>,
    pub(crate) excluded: Vec<Sequence>,
    pub(crate) paths: Vec<PathFilter>,
    /// The languages whose word forms are included.
    pub(crate) languages: &'static [Language],
    /// The words outside of quotation marks, without filters.
    plain: String,
}

/// What a search by meaning compares with the memories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeaningText {
    /// The query without its filters.
    Text(String),
    /// The query has a quoted phrase, which is found only as written.
    Quoted,
    /// The query has no words, or only filters.
    NoWords,
}

/// A condition on a memory's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathFilter {
    /// Folded, without a leading slash.
    start: String,
    /// Whether the path is relative to the root, instead of to any directory.
    is_absolute: bool,
    pub(crate) is_excluded: bool,
}

impl Query {
    pub fn parse(text: &str) -> Result<Self, QueryTooLong> {
        QueryTooLong::check(text)?;
        let mut parser = Parser::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            rest = parser.take_clause(rest).trim_start();
        }
        Ok(parser.finish())
    }

    /// Whether the query has nothing to look for; such a query finds nothing.
    pub fn is_empty(&self) -> bool {
        self.ranked.is_empty() && self.phrases.is_empty() && !self.is_path_only()
    }

    /// The text to embed, for a search by meaning.
    pub fn meaning_text(&self) -> MeaningText {
        if !self.phrases.is_empty() {
            MeaningText::Quoted
        } else if self.ranked.is_empty() {
            MeaningText::NoWords
        } else {
            MeaningText::Text(self.plain.clone())
        }
    }

    /// Whether memories are also found by their meaning.
    pub(crate) const fn has_meaning(&self) -> bool {
        self.phrases.is_empty() && !self.ranked.is_empty()
    }

    /// Whether the query has path filters but no words. Such a query finds every memory
    /// at these paths, ordered by path.
    pub(crate) fn is_path_only(&self) -> bool {
        self.ranked.is_empty() && self.phrases.is_empty() && self.paths.iter().any(|path| !path.is_excluded)
    }
}

impl PathFilter {
    fn of(text: &str, is_excluded: bool) -> Self {
        let bare = text.trim_start_matches('/');
        Self { start: folded_path(bare), is_absolute: bare.len() < text.len(), is_excluded }
    }

    /// Whether the filter accepts the memory at the folded `path`.
    pub(crate) fn allows(&self, path: &str) -> bool {
        let is_there = if self.is_absolute {
            path.strip_prefix('/').is_some_and(|bare| bare.starts_with(&self.start))
        } else {
            path.match_indices('/').any(|(slash, _)| path[slash + 1..].starts_with(&self.start))
        };
        is_there != self.is_excluded
    }
}

/// A path in the form that filters compare. Each segment is folded separately, so
/// that long paths are not cut.
pub(crate) fn folded_path(path: &str) -> String {
    use unicode_normalization::UnicodeNormalization;
    if path.is_ascii() {
        return path.to_ascii_lowercase();
    }
    path.nfkc().flat_map(char::to_lowercase).collect()
}

#[derive(Default)]
struct Parser {
    /// The parsed clauses; equal terms are merged at the end.
    query: Query,
    prefixes: usize,
    position: u32,
}

impl Parser {
    /// Takes the first clause of `text`, which does not start with a space, and returns
    /// the rest.
    fn take_clause<'a>(&mut self, text: &'a str) -> &'a str {
        let body = text
            .strip_prefix('-')
            .filter(|body| body.starts_with(|next: char| next == '"' || next.is_alphanumeric()));
        let is_excluded = body.is_some();
        let text = body.unwrap_or(text);
        if let Some((phrase, rest)) = quoted(text) {
            self.take_phrase(phrase, is_excluded);
            return rest;
        }
        if let Some(place) = strip_path(text) {
            let (place, rest) = quoted(place).unwrap_or_else(|| word(place));
            if !place.trim_matches('/').is_empty() {
                let has_room = self.has_room();
                keep(has_room, &mut self.query.paths, PathFilter::of(place, is_excluded));
                return rest;
            }
        }
        let (text, rest) = word(text);
        let prefix = text.strip_suffix('*');
        let prefix = prefix.filter(|bare| bare.ends_with(char::is_alphanumeric));
        let (bare, is_prefix) = (prefix.unwrap_or(text), prefix.is_some());
        if is_excluded {
            let has_room = self.has_room();
            if let Some(sequence) = sequence(bare, is_prefix) {
                keep(has_room, &mut self.query.excluded, sequence);
            }
        } else {
            if !self.query.plain.is_empty() {
                self.query.plain.push(' ');
            }
            self.query.plain.push_str(bare);
            self.take_text(bare, is_prefix);
        }
        rest
    }

    fn take_phrase(&mut self, phrase: &str, is_excluded: bool) {
        let Some(sequence) = sequence(phrase, false) else {
            return;
        };
        let has_room = self.has_room();
        if is_excluded {
            keep(has_room, &mut self.query.excluded, sequence);
            return;
        }
        for (atom, offset) in &sequence.0 {
            self.query.ranked.push(RankedTerm {
                atom: atom.clone(),
                weight: 1.0,
                has_forms: false,
                is_shown: true,
                position: self.position + offset,
            });
        }
        self.position += sequence.0.last().map_or(0, |(_, offset)| offset + 1);
        keep(has_room, &mut self.query.phrases, sequence);
    }

    const fn has_room(&self) -> bool {
        self.query.phrases.len() + self.query.excluded.len() + self.query.paths.len() < MAX_CLAUSES
    }

    /// Takes ranked words; if `is_prefix`, the last one is a prefix.
    fn take_text(&mut self, text: &str, is_prefix: bool) {
        let mut terms: Vec<(Kind, String, u32)> = Vec::new();
        let length = analyse(text, |token| {
            terms.push((token.kind, token.term.to_owned(), token.position));
        });
        if is_prefix
            && self.prefixes < MAX_PREFIXES
            && let Some(sequence) = sequence(text, true)
            && let Some((Atom::Prefix(start), offset)) = sequence.0.last()
        {
            self.prefixes += 1;
            terms.retain(|(_, term, position)| term != start || position != offset);
            self.want(Atom::Prefix(start.clone()), 1.0, false, *offset);
        }
        let mut terms = terms.as_slice();
        while let Some((kind, _, position)) = terms.first() {
            let count = match kind {
                Kind::Pair => pairs_of_run(terms),
                _ => terms.iter().take_while(|(_, _, other)| other == position).count(),
            };
            let (these, others) = terms.split_at(count);
            match kind {
                Kind::Pair => self.take_run(these),
                Kind::Single => self.take_single(&these[0].1, *position),
                Kind::Word | Kind::Compound => self.take_word(these),
            }
            terms = others;
        }
        self.position += length;
    }

    fn want(&mut self, atom: Atom, weight: f64, has_forms: bool, position: u32) {
        let is_shown = weight > HAN_WEIGHT;
        self.query.ranked.push(RankedTerm {
            atom,
            weight,
            has_forms,
            is_shown,
            position: self.position + position,
        });
    }

    /// Takes a word, or the parts of a compound and the whole.
    fn take_word(&mut self, terms: &[(Kind, String, u32)]) {
        let is_compound = terms.iter().any(|(kind, ..)| *kind == Kind::Compound);
        for (kind, term, position) in terms {
            let weight = match kind {
                Kind::Compound => 1.0,
                _ if is_function_word(term) => FUNCTION_WEIGHT,
                _ if is_compound => PART_WEIGHT,
                _ => 1.0,
            };
            let has_forms = *kind == Kind::Word && weight > FUNCTION_WEIGHT && has_forms(term);
            self.want(Atom::Term(term.clone()), weight, has_forms, *position);
        }
    }

    fn take_single(&mut self, term: &str, position: u32) {
        let Some(letter) = term.chars().next() else {
            return;
        };
        let is_masked = unspaced(letter).is_some_and(|script| mask(script, &[letter])[0]);
        let weight = if is_masked { FUNCTION_WEIGHT } else { LONE_WEIGHT };
        self.want(Atom::Character(letter), weight, false, position);
    }

    /// Takes the pairs of a run of one script, and single characters that add
    /// information.
    fn take_run(&mut self, pairs: &[(Kind, String, u32)]) {
        let mut run: Vec<char> = pairs.iter().filter_map(|(_, pair, _)| pair.chars().next()).collect();
        run.extend(pairs.last().and_then(|(_, pair, _)| pair.chars().nth(1)));
        let Some(script) = run.first().copied().and_then(unspaced) else {
            return;
        };
        let masked = mask(script, &run);
        let first = pairs[0].2;
        for ((_, pair, position), masks) in pairs.iter().zip(masked.windows(2)) {
            let weight = match (masks, script) {
                ([true, true], _) => FUNCTION_WEIGHT,
                (_, UnspacedScript::Hiragana) => HIRAGANA_WEIGHT,
                ([false, false], _) => 1.0,
                _ => EDGE_WEIGHT,
            };
            self.want(Atom::Term(pair.clone()), weight, false, *position);
        }
        for (place, letter) in run.iter().enumerate() {
            let is_masked = |place: usize| masked.get(place).copied().unwrap_or(true);
            let is_lone = !is_masked(place) && is_masked(place + 1) && (place == 0 || is_masked(place - 1));
            let position = first + u32::try_from(place).unwrap_or(u32::MAX);
            if is_lone && script != UnspacedScript::Hiragana {
                self.want(Atom::Character(*letter), LONE_WEIGHT, false, position);
            } else if script == UnspacedScript::Han && !is_masked(place) {
                self.want(Atom::Character(*letter), HAN_WEIGHT, false, position);
            }
        }
    }

    fn finish(mut self) -> Query {
        let all = std::mem::take(&mut self.query.ranked);
        let mut ranked: Vec<RankedTerm> = Vec::with_capacity(all.len());
        for new in all.into_iter().take(MAX_RANKED_TERMS) {
            match ranked.iter_mut().find(|known| known.atom == new.atom) {
                Some(known) => {
                    known.weight = known.weight.max(new.weight);
                    known.has_forms |= new.has_forms;
                    known.is_shown |= new.is_shown;
                }
                None => ranked.push(new),
            }
        }
        // If all words of a query are function words, they are its topic.
        if ranked.iter().all(|one| !one.is_shown) {
            for one in &mut ranked {
                one.is_shown = true;
            }
        }
        Query { languages: languages(&ranked), ranked, ..self.query }
    }
}

/// The languages whose forms are included: both, unless all function words of the
/// query are of one language.
fn languages(ranked: &[RankedTerm]) -> &'static [Language] {
    let mut has_english = false;
    let mut has_indonesian = false;
    for one in ranked {
        if let Atom::Term(term) = &one.atom {
            match language_of(term) {
                Some(Language::English) => has_english = true,
                Some(Language::Indonesian) => has_indonesian = true,
                None => {}
            }
        }
    }
    match (has_english, has_indonesian) {
        (true, false) => &[Language::English],
        (false, true) => &[Language::Indonesian],
        _ => &[Language::English, Language::Indonesian],
    }
}

/// Adds `new` to a list, unless the list contains it already.
fn keep<T: PartialEq>(has_room: bool, list: &mut Vec<T>, new: T) {
    if has_room && !list.contains(&new) {
        list.push(new);
    }
}

/// Whether a text is long enough for a prefix: two letters, or one character of a
/// script with thousands of characters.
fn is_start(text: &str) -> bool {
    text.len() > 2 || text.chars().count() > 1
}

/// The number of pairs at the start of `terms` that belong to one run.
fn pairs_of_run(terms: &[(Kind, String, u32)]) -> usize {
    1 + terms.windows(2).take_while(|two| two[1].0 == Kind::Pair && two[1].2 == two[0].2 + 1).count()
}

/// The terms of `text` with their distances; a compound gives its parts. If
/// `is_prefix`, the last term is a prefix.
fn sequence(text: &str, is_prefix: bool) -> Option<Sequence> {
    let mut atoms = Vec::new();
    analyse(text, |token| {
        let atom = match (token.kind, token.term.chars().next()) {
            (Kind::Compound, _) => return,
            (Kind::Single, Some(letter)) => Atom::Character(letter),
            _ => Atom::Term(token.term.to_owned()),
        };
        atoms.push((atom, token.position));
    });
    if is_prefix && let Some((last, _)) = atoms.last_mut() {
        let mut start = String::new();
        match last {
            Atom::Term(term) | Atom::Prefix(term) => start.push_str(term),
            Atom::Character(letter) => start.push(*letter),
        }
        if is_start(&start) {
            *last = Atom::Prefix(start);
        }
    }
    (!atoms.is_empty()).then_some(Sequence(atoms))
}

/// The text in quotation marks at the start of `text`, and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let (body, closing) = if let Some(body) = text.strip_prefix('"') {
        (body, '"')
    } else {
        (text.strip_prefix('“')?, '”')
    };
    body.split_once(closing)
}

fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

fn strip_path(text: &str) -> Option<&str> {
    let (label, place) = text.split_once(':')?;
    label.eq_ignore_ascii_case("path").then_some(place)
}

#[cfg(test)]
mod tests;
