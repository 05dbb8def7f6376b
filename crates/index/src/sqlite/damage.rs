//! Finds damaged pages and values of the file.

use futures::TryStreamExt;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Column, Decode, Row, Sqlite, TypeInfo, ValueRef};

use crate::IndexError;

/// Checks the structure of every page, and that the tables and their indexes agree. The
/// number limits the messages.
const CHECK: &str = "PRAGMA integrity_check(100)";
/// The answer of [`CHECK`] if there is no damage.
const WELL: &str = "ok";
/// The line of [`CHECK`]'s answer that names the database; there is one database.
const HEADING: &str = "*** in database main ***";

const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";

/// The damage in the file, in SQLite's messages; empty: none was found.
pub(super) async fn find(connection: &mut SqliteConnection) -> Result<Vec<String>, IndexError> {
    let checked = sqlx::query_scalar(CHECK).fetch_all(&mut *connection).await;
    let messages: Vec<String> = checked.or_else(|error| Ok::<_, IndexError>(vec![words_of(error)?]))?;
    let lines = messages.iter().flat_map(|message| message.lines());
    let mut damage: Vec<_> =
        lines.filter(|line| ![WELL, HEADING].contains(line)).map(str::to_owned).collect();
    let tables = sqlx::query_scalar(TABLES).fetch_all(&mut *connection).await;
    let tables: Vec<String> = match tables {
        Ok(tables) => tables,
        Err(error) => {
            damage.push(words_of(error)?);
            Vec::new()
        }
    };
    for table in tables {
        damage.extend(read_rows(connection, &table).await?);
    }
    Ok(damage)
}

/// Reads every row of a table; returns the first damage.
async fn read_rows(connection: &mut SqliteConnection, table: &str) -> Result<Option<String>, IndexError> {
    let all = AssertSqlSafe(format!("SELECT * FROM \"{}\"", table.replace('"', "\"\"")));
    let mut rows = sqlx::query(all).fetch(connection);
    loop {
        match rows.try_next().await {
            Ok(Some(row)) => {
                if let Some(column) = undecodable_column(&row) {
                    let what = format!("table {table}: a text of column {column} is not UTF-8");
                    return Ok(Some(what));
                }
            }
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(format!("table {table}: {}", words_of(error)?))),
        }
    }
}

/// The first column with a text that is not UTF-8, which SQLite does not check.
fn undecodable_column(row: &SqliteRow) -> Option<String> {
    let is_undecodable = |ordinal: usize| {
        let Ok(value) = row.try_get_raw(ordinal) else {
            return true;
        };
        let is_text = !value.is_null() && value.type_info().name() == "TEXT";
        is_text && <&str as Decode<Sqlite>>::decode(value).is_err()
    };
    let mut columns = row.columns().iter();
    let column = columns.find(|column| is_undecodable(column.ordinal()))?;
    Some(column.name().to_owned())
}

/// The message of SQLite for an error that damage can cause. Fails with an error after
/// which the file may be readable later.
fn words_of(error: sqlx::Error) -> Result<String, IndexError> {
    match IndexError::from(error) {
        error if error.is_passing() => Err(error),
        error => Ok(error.words()),
    }
}
