//! Irregular English forms.

/// The dictionary form of `form`, if `form` is irregular.
pub(super) fn base_of(form: &str) -> Option<&'static str> {
    let place = FORMS.binary_search_by(|(known, _)| (*known).cmp(form)).ok()?;
    Some(FORMS[place].1)
}

/// Every irregular form with its dictionary form, sorted by form.
pub(super) fn forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    FORMS.iter().copied()
}

#[rustfmt::skip]
const FORMS: &[(&str, &str)] = &[
    ("analyses", "analysis"), ("appendices", "appendix"), ("arisen", "arise"), ("arose", "arise"),
    ("ate", "eat"), ("awoke", "awake"), ("awoken", "awake"), ("axes", "axis"), ("beaten", "beat"),
    ("became", "become"), ("began", "begin"), ("begun", "begin"), ("bent", "bend"), ("best", "good"),
    ("better", "good"), ("bit", "bite"), ("bitten", "bite"), ("bled", "bleed"), ("blew", "blow"),
    ("blown", "blow"), ("bore", "bear"), ("borne", "bear"), ("bought", "buy"), ("bound", "bind"),
    ("bred", "breed"), ("broke", "break"), ("broken", "break"), ("brought", "bring"), ("built", "build"),
    ("burnt", "burn"), ("calves", "calf"), ("came", "come"), ("caught", "catch"), ("children", "child"),
    ("chose", "choose"), ("chosen", "choose"), ("clung", "cling"), ("crept", "creep"), ("crises", "crisis"),
    ("criteria", "criterion"), ("dealt", "deal"), ("did", "do"), ("does", "do"), ("done", "do"),
    ("drank", "drink"), ("drawn", "draw"), ("dreamt", "dream"), ("drew", "draw"), ("driven", "drive"),
    ("drove", "drive"), ("drunk", "drink"), ("dug", "dig"), ("dying", "die"), ("eaten", "eat"),
    ("fallen", "fall"), ("fed", "feed"), ("feet", "foot"), ("fell", "fall"), ("felt", "feel"),
    ("fled", "flee"), ("flew", "fly"), ("flies", "fly"), ("flown", "fly"), ("flung", "fling"),
    ("forbade", "forbid"), ("forbidden", "forbid"), ("forgave", "forgive"), ("forgiven", "forgive"),
    ("forgot", "forget"), ("forgotten", "forget"), ("fought", "fight"), ("found", "find"),
    ("froze", "freeze"), ("frozen", "freeze"), ("gave", "give"), ("geese", "goose"), ("given", "give"),
    ("goes", "go"), ("gone", "go"), ("got", "get"), ("gotten", "get"), ("grew", "grow"),
    ("ground", "grind"), ("grown", "grow"), ("had", "have"), ("halves", "half"), ("has", "have"),
    ("heard", "hear"), ("held", "hold"), ("hid", "hide"), ("hidden", "hide"), ("hung", "hang"),
    ("hypotheses", "hypothesis"), ("indices", "index"), ("kept", "keep"), ("knelt", "kneel"),
    ("knew", "know"), ("knives", "knife"), ("known", "know"), ("laid", "lay"), ("lain", "lie"),
    ("leant", "lean"), ("leapt", "leap"), ("learnt", "learn"), ("leaves", "leaf"), ("led", "lead"),
    ("left", "leave"), ("lent", "lend"), ("lit", "light"), ("lives", "life"), ("loaves", "loaf"),
    ("lost", "lose"), ("lying", "lie"), ("made", "make"), ("matrices", "matrix"), ("meant", "mean"),
    ("men", "man"), ("met", "meet"), ("mice", "mouse"), ("mistaken", "mistake"), ("mistook", "mistake"),
    ("overcame", "overcome"), ("paid", "pay"), ("people", "person"), ("persons", "person"),
    ("phenomena", "phenomenon"), ("proven", "prove"), ("ran", "run"), ("rang", "ring"),
    ("rebuilt", "rebuild"), ("redid", "redo"), ("redone", "redo"), ("rewritten", "rewrite"),
    ("rewrote", "rewrite"), ("ridden", "ride"), ("risen", "rise"), ("rode", "ride"), ("rose", "rise"),
    ("rung", "ring"), ("said", "say"), ("sang", "sing"), ("sank", "sink"), ("sat", "sit"), ("saw", "see"),
    ("schemata", "schema"), ("seen", "see"), ("sent", "send"), ("sewn", "sew"), ("shaken", "shake"),
    ("shelves", "shelf"), ("shone", "shine"), ("shook", "shake"), ("shot", "shoot"), ("shown", "show"),
    ("shrank", "shrink"), ("shrunk", "shrink"), ("slept", "sleep"), ("slid", "slide"), ("sold", "sell"),
    ("sought", "seek"), ("sped", "speed"), ("spent", "spend"), ("spilt", "spill"), ("spoilt", "spoil"),
    ("spoke", "speak"), ("spoken", "speak"), ("spun", "spin"), ("stole", "steal"), ("stolen", "steal"),
    ("stood", "stand"), ("stricken", "strike"), ("striven", "strive"), ("strove", "strive"),
    ("struck", "strike"), ("strung", "string"), ("stuck", "stick"), ("stung", "sting"), ("sung", "sing"),
    ("sunk", "sink"), ("swam", "swim"), ("swept", "sweep"), ("swollen", "swell"), ("swore", "swear"),
    ("sworn", "swear"), ("swum", "swim"), ("swung", "swing"), ("taken", "take"), ("taught", "teach"),
    ("teeth", "tooth"), ("theses", "thesis"), ("thieves", "thief"), ("thought", "think"),
    ("threw", "throw"), ("thrown", "throw"), ("told", "tell"), ("took", "take"), ("tore", "tear"),
    ("torn", "tear"), ("tying", "tie"), ("undergone", "undergo"), ("understood", "understand"),
    ("undertaken", "undertake"), ("undertook", "undertake"), ("underwent", "undergo"), ("undid", "undo"),
    ("undone", "undo"), ("vertices", "vertex"), ("went", "go"), ("wept", "weep"), ("withdrawn", "withdraw"),
    ("withdrew", "withdraw"), ("withstood", "withstand"), ("wives", "wife"), ("woke", "wake"),
    ("woken", "wake"), ("wolves", "wolf"), ("women", "woman"), ("won", "win"), ("wore", "wear"),
    ("worn", "wear"), ("worse", "bad"), ("worst", "bad"), ("wound", "wind"), ("wove", "weave"),
    ("woven", "weave"), ("written", "write"), ("wrote", "write"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_in_order() {
        assert!(FORMS.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(base_of("went"), Some("go"));
        assert_eq!(base_of("go"), None);
    }
}
