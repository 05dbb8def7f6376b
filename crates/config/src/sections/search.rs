//! `[search]` and `[search.embeddings]`

use std::path::{Path, PathBuf};

use keepsake_embeddings::{EndpointConfig, MAX_DIMENSIONS};
use secrecy::SecretString;
use toml::Value;

use super::IndexUrl;
use crate::checks::{http_url, one_of, owned, whole};
use crate::reader::Reader;

pub(crate) const EMBEDDINGS: &str = "search.embeddings";
/// The model's folder if the index is no file: where the image has the model.
const SYSTEM_FOLDER: &str = "/usr/local/share/keepsake/model";
/// The model's folder beside the file of an index.
const FOLDER: &str = "model";

/// What makes the vectors for search by meaning.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// The model in [`SearchSettings::model_path`], in this process.
    Embedded,
    /// A server with the OpenAI API.
    Endpoint(EndpointConfig),
    /// Search is lexical only.
    Off,
}

#[derive(Debug, Clone)]
pub struct SearchSettings {
    pub meaning: Meaning,
    /// The folder of the embedded model, which may be missing.
    pub model_path: PathBuf,
}

impl SearchSettings {
    pub(super) fn read(reader: &mut Reader, index_url: &IndexUrl) -> Self {
        let name = reader.get("search.meaning", "embedded", meaning);
        let model_path = read_model_path(reader, Some(index_url));
        let endpoint = read_endpoint(reader, name);
        let meaning = match (name, endpoint) {
            (Name::Embedded, _) => Meaning::Embedded,
            (Name::Endpoint, Some(endpoint)) => Meaning::Endpoint(endpoint),
            // An endpoint with a problem, which was noted.
            (Name::Endpoint, None) | (Name::Off, _) => Meaning::Off,
        };
        Self { meaning, model_path }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Name {
    #[default]
    Embedded,
    Endpoint,
    Off,
}

fn meaning(value: &Value) -> Result<Name, String> {
    one_of(&[("embedded", Name::Embedded), ("endpoint", Name::Endpoint), ("off", Name::Off)])(value)
}

/// By default, the folder is beside the index's file.
pub(crate) fn read_model_path(reader: &mut Reader, index_url: Option<&IndexUrl>) -> PathBuf {
    let folder = match index_url {
        Some(IndexUrl::Sqlite { file, .. }) => file.parent().unwrap_or(Path::new("")).join(FOLDER),
        Some(IndexUrl::Postgres(_)) | None => SYSTEM_FOLDER.into(),
    };
    reader.get("search.model_path", folder.to_string_lossy().into_owned(), owned::<PathBuf>)
}

/// `None` unless all required keys are good.
fn read_endpoint(reader: &mut Reader, meaning: Name) -> Option<EndpointConfig> {
    let key = |field: &str| format!("{EMBEDDINGS}.{field}");
    let required = [
        ("url", "to the server's URL, such as http://ollama:11434/v1"),
        ("model", "to the server's name of the model"),
        ("dimensions", "to the number of dimensions of the model's vectors"),
    ];
    for (field, what) in required {
        let key = key(field);
        match meaning {
            Name::Endpoint => {
                reader.require(&key, &format!("search.meaning is \"endpoint\": set it {what}"));
            }
            Name::Embedded if reader.is_set(&key) => {
                reader.refuse(&key, "is allowed only if search.meaning is \"endpoint\" or \"off\"");
            }
            Name::Embedded | Name::Off => {}
        }
    }
    let url = reader.url(&key("url"), None, http_url);
    let model = reader.optional(&key("model"), owned::<String>);
    let api_key = reader.secret_or_file(&key("key"), "key", api_key);
    let dimensions = reader.optional(&key("dimensions"), whole(1..=MAX_DIMENSIONS as u64));
    let query_prefix = reader.optional(&key("query_prefix"), owned::<String>);
    let document_prefix = reader.optional(&key("document_prefix"), owned::<String>);
    let endpoint = EndpointConfig {
        url: url?,
        model: model?,
        key: api_key,
        dimensions: dimensions?,
        query_prefix: query_prefix.unwrap_or_default(),
        document_prefix: document_prefix.unwrap_or_default(),
    };
    match endpoint.check() {
        Ok(()) => Some(endpoint),
        Err(invalid) => {
            reader.refuse(&key(invalid.field), &invalid.reason);
            None
        }
    }
}

/// A key as a header can hold it.
fn api_key(text: &str) -> Result<SecretString, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be visible ASCII characters without spaces".to_owned());
    }
    Ok(SecretString::from(text))
}
