//! Names of actors and objects, shown in tables instead of their ids.

use serde_json::Value;

use super::connection::Connection;
use crate::cli::IdsArgs;
use crate::failures::class_of;
use crate::names::{Kind, Names};
use crate::output::actor_id;

/// Replaces actors, objects and ids at pointers in the items of a table by their names, unless ids are
/// wanted.
pub(super) async fn put_names(connection: &Connection, ids: IdsArgs, items: &mut [Value], pointers: &[&str]) {
    if ids.ids || !connection.printer.is_table() {
        return;
    }
    let of = items.iter().flat_map(|item| pointers.iter().filter_map(move |pointer| item.pointer(pointer)));
    let get = async |list: &str, id: &str| {
        connection.client.get::<Value>(&[list, id], &[]).await.map_err(|error| class_of(&error))
    };
    // Only the operator reads tenants.
    let lists = ["api_keys", "sessions", "memory_stores"];
    let names = Names::look_up(of.filter_map(named_id).collect(), &lists, &get).await;
    for item in items {
        for pointer in pointers {
            if let Some(named) = item.pointer_mut(pointer).filter(|named| !named.is_null()) {
                *named = in_words(named, &names).into();
            }
        }
    }
}

/// The text that a table shows for an actor, an object or an id. The kind of an actor stands before its
/// name, because a key may have the name `operator`.
fn in_words(named: &Value, known: &Names) -> String {
    let Some(id) = named_id(named) else {
        let is_imported = named["imported"] == true;
        let id = named["id"].as_str().or(named.as_str()).map_or_else(|| actor_id(named), str::to_owned);
        return if is_imported { format!("{id} (imported)") } else { id };
    };
    match (known.of(id), Kind::of(id)) {
        (Some(name), Some(kind)) if named.is_object() => format!("{} {name}", kind.noun()),
        (Some(name), _) => name.to_owned(),
        (None, kind) => kind.map_or(id, |kind| kind.words).to_owned(),
    }
}

/// The id of an object whose name can be looked up.
fn named_id(named: &Value) -> Option<&str> {
    if named["imported"] == true {
        return None;
    }
    let fields = [&named["api_key_id"], &named["session_id"], &named["id"], named];
    fields.into_iter().find_map(Value::as_str).filter(|id| Kind::of(id).is_some())
}
