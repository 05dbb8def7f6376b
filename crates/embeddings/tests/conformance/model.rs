//! The embedded model.

use std::fs::{self, File};
use std::time::{Instant, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keepsake_embeddings::{
    DIMENSIONS, EmbeddedModel, LOOK_INTERVAL, MODEL, Missing, Model, ModelError, ModelFolder, Status,
};
use keepsake_testkit::{model_folder, model_wheel};
use serde::Deserialize;

/// A line of `reference/vectors.jsonl`.
#[derive(Deserialize)]
struct Reference {
    text: String,
    tokens: Vec<u32>,
    /// 127 for the largest value, in base64.
    vector: String,
}

#[test]
fn tokens_and_vectors_are_those_of_the_package() {
    let model = Model::open(&ModelFolder::new(model_folder())).unwrap();
    let lines = include_str!("../reference/vectors.jsonl").lines();
    let references: Vec<Reference> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(references.len(), 30);
    for Reference { text, tokens, vector } in references {
        assert_eq!(model.tokens(&text), tokens, "{text:?}");
        let bytes = BASE64_STANDARD.decode(vector).unwrap();
        let expected: Vec<f32> = bytes.iter().map(|byte| f32::from(byte.cast_signed())).collect();
        let found = &model.embed(&[&text]).unwrap()[0];
        assert!((cosine(found, found) - 1.0).abs() < 1e-5, "{text:?}");
        let similarity = cosine(found, &expected) / cosine(&expected, &expected).sqrt();
        // The reference has 8 bits.
        assert!(similarity > 0.9999, "{text:?}: {similarity}");
    }
}

#[test]
fn model_is_installed_replaced_and_removed_while_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let folder = ModelFolder::new(folder.path().join("new/model"));
    let model = EmbeddedModel::new(folder.clone());
    let start = Instant::now();
    // A killed installation leaves its file; another one may be under way.
    let [killed, other] = ["killed", "other"].map(|name| folder.path().join(format!(".installing-{name}")));
    let leave = || File::create(&killed).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    fs::create_dir_all(folder.path()).unwrap();
    fs::write(&other, "").unwrap();
    leave();
    assert_eq!(model.embed_query("text", start), Err(Missing::NotInstalled));
    assert!(!killed.exists() && other.exists());
    leave();

    assert_eq!(folder.install(&model_wheel()).unwrap(), MODEL);
    assert!(!killed.exists() && other.exists());
    assert_eq!(folder.status().unwrap(), Some(MODEL));
    assert_eq!((MODEL.dimensions, model.id()), (DIMENSIONS, "use-multilingual-3/512"));
    let file = fs::read(folder.path().join("use-multilingual-3.model")).unwrap();
    assert_eq!(file.len() as u64, MODEL.bytes);
    let text = str::from_utf8(&file[..16 << 10]).unwrap();
    assert!(text.starts_with("Keepsake embedding model") && text.contains("Apache License, Version 2.0"));

    // The folder is looked at once in a while.
    assert_eq!(model.embed_query("text", start + LOOK_INTERVAL / 2), Err(Missing::NotInstalled));
    let next_look = start + LOOK_INTERVAL;
    let vector = model.embed_query("text", next_look).unwrap();
    assert_eq!((vector.len(), model.status()), (DIMENSIONS, Status::Ready));
    // The texts beside a text do not change its vector.
    let texts = ["other", "text", "a longer text", "", "x", "text", "text"];
    let vectors = model.embed_documents(&texts, next_look).unwrap();
    assert!(vectors.len() == texts.len() && [1, 5, 6].iter().all(|at| vectors[*at] == vector));
    let opened = model.model(next_look).unwrap();
    // Texts of at most 32 tokens are computed in another way than longer ones.
    // The longest one is first: what it leaves in memory changes no vector after it.
    let texts = [512, 33, 4, 2, 32, 100, 31, 34, 3, 5].map(|tokens| {
        let words = "The user asked three times to keep answers short".split(' ').cycle().take(tokens - 2);
        let text = words.collect::<Vec<_>>().join(" ");
        assert_eq!(opened.tokens(&text).len(), tokens, "{text}");
        text
    });
    let vectors = opened.embed(&texts).unwrap();
    assert!(texts.iter().zip(vectors).all(|(text, vector)| opened.embed(&[text]).unwrap() == [vector]));
    assert!(opened.embed::<&str>(&[]).unwrap().is_empty());

    assert!(folder.remove().unwrap());
    assert_eq!(model.embed_query("text", next_look).unwrap(), vector);
    assert_eq!(model.embed_query("text", next_look + LOOK_INTERVAL), Err(Missing::NotInstalled));
    // An opened model stays usable.
    assert_eq!(opened.embed(&["text"]).unwrap(), [vector]);
}

#[test]
fn damaged_model_is_refused_until_it_is_installed_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("use-multilingual-3.model");
    let intact = fs::read(model_folder().join("use-multilingual-3.model")).unwrap();
    let folder = ModelFolder::new(folder.path());
    let model = EmbeddedModel::new(folder.clone());
    let mut now = Instant::now();
    let mut look = || {
        now += LOOK_INTERVAL;
        model.embed_query("text", now)
    };
    let changed = |place: usize| {
        let mut bytes = intact.clone();
        bytes[place] ^= 1;
        bytes
    };
    let longer = [&intact[..], b"\n"].concat();
    let damaged = [
        // The licence, the embeddings, the vocabulary.
        changed(2_000),
        changed(20_000_000),
        changed(intact.len() - 1),
        intact[..intact.len() - 1].to_vec(),
        intact[..10].to_vec(),
        longer,
        Vec::new(),
    ];
    for bytes in damaged {
        fs::write(&file, bytes).unwrap();
        assert!(matches!(Model::open(&folder), Err(ModelError::Damaged(_))));
        assert!(matches!(folder.status(), Err(ModelError::Damaged(_))));
        let Err(Missing::Unusable(reason)) = look() else { panic!("a damaged model is used") };
        assert!(reason.ends_with("use-multilingual-3.model is damaged: install the model again"), "{reason}");
        assert_eq!(model.status(), Status::Unusable(reason));
    }
    fs::write(&file, changed(3)).unwrap();
    assert!(matches!(Model::open(&folder), Err(ModelError::OtherFormat(_))));
    assert!(matches!(folder.status(), Err(ModelError::OtherFormat(_))));
    fs::write(&file, &intact).unwrap();
    assert!(look().is_ok());
    // The file of an opened model is truncated.
    let opened = Model::open(&folder).unwrap();
    fs::write(&file, &intact[..10]).unwrap();
    assert!(matches!(opened.embed(&["text"]), Err(ModelError::Damaged(_))));
}

fn cosine(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}
