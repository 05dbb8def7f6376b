//! Rows that SQLite packs into one JSON array.
//!
//! SQLite runs in a separate thread. That thread sends each row as a message, and each
//! message wakes the task that waits for the rows. A page of a list is therefore one row.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use uuid::Uuid;

/// A statement for SQLite that returns one row with all rows of another statement.
#[derive(Debug)]
pub(crate) struct Packing {
    text: SqlStr,
    columns: Vec<&'static str>,
}

impl Packing {
    /// Packs the rows of `statement`. `selected` are its columns, written as in a
    /// `SELECT`; the columns in `bytes` hold bytes.
    ///
    /// SQLite does not promise that an aggregate keeps the order of the rows.
    pub(crate) fn of(statement: &str, selected: &'static str, bytes: &[&str]) -> Self {
        let name_of = |column: &'static str| column.rsplit(' ').next().unwrap_or(column);
        let columns: Vec<_> = selected.split(", ").map(name_of).collect();
        let value_of = |column: &&str| {
            if bytes.contains(column) { format!("nullif(hex({column}), '')") } else { (*column).to_owned() }
        };
        let values: Vec<_> = columns.iter().map(value_of).collect();
        let values = values.join(", ");
        let text = format!("SELECT json_group_array(json_array({values})) FROM ({statement})");
        Self { text: AssertSqlSafe(text).into_sql_str(), columns }
    }

    pub(crate) fn text(&self) -> SqlStr {
        self.text.clone()
    }

    pub(super) fn rows(&'static self, rows: Vec<Vec<Value>>) -> impl Iterator<Item = PackedRow> {
        let columns = self.columns.as_slice();
        rows.into_iter().map(|values| PackedRow { columns, values })
    }
}

#[derive(Debug)]
pub(crate) struct PackedRow {
    columns: &'static [&'static str],
    values: Vec<Value>,
}

impl PackedRow {
    pub(super) fn value(&self, column: impl PackedColumn) -> sqlx::Result<&Value> {
        let position = column.position(self.columns);
        position.and_then(|position| self.values.get(position)).ok_or_else(|| column.missing())
    }
}

/// The name of a column, or its position.
pub(crate) trait PackedColumn: Copy {
    fn position(self, columns: &[&str]) -> Option<usize>;

    fn missing(self) -> sqlx::Error;
}

impl PackedColumn for &str {
    fn position(self, columns: &[&str]) -> Option<usize> {
        columns.iter().position(|column| *column == self)
    }

    fn missing(self) -> sqlx::Error {
        sqlx::Error::ColumnNotFound(self.to_owned())
    }
}

impl PackedColumn for usize {
    fn position(self, _: &[&str]) -> Option<usize> {
        Some(self)
    }

    fn missing(self) -> sqlx::Error {
        sqlx::Error::ColumnNotFound(self.to_string())
    }
}

/// A type that can be read from a packed row; `None`: the value has another type.
pub(crate) trait Unpack: Sized {
    fn unpack(value: &Value) -> Option<Self>;
}

impl Unpack for bool {
    fn unpack(value: &Value) -> Option<Self> {
        Some(value.as_i64()? != 0)
    }
}

impl Unpack for i64 {
    fn unpack(value: &Value) -> Option<Self> {
        value.as_i64()
    }
}

impl Unpack for String {
    fn unpack(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl Unpack for Uuid {
    fn unpack(value: &Value) -> Option<Self> {
        Self::try_parse(value.as_str()?).ok()
    }
}

impl Unpack for Vec<u8> {
    fn unpack(value: &Value) -> Option<Self> {
        hex::decode(value.as_str()?).ok()
    }
}

impl Unpack for Arc<[u8]> {
    fn unpack(value: &Value) -> Option<Self> {
        Vec::unpack(value).map(Self::from)
    }
}

impl<T: DeserializeOwned> Unpack for Json<T> {
    fn unpack(value: &Value) -> Option<Self> {
        serde_json::from_str(value.as_str()?).ok().map(Self)
    }
}

impl<T: Unpack> Unpack for Option<T> {
    fn unpack(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::unpack(value).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use sqlx::{Connection, Row as _, SqliteConnection};

    use super::*;
    use crate::database::{FromRow, Row};

    /// Text that JSON escapes, a number beyond those of floats, and an id.
    const STATEMENT: &str = "SELECT 1 AS flag, 9007199254740993 AS number, 'a\"\\' || char(1, 233) AS text, \
        '[\"x\"]' AS list, x'0102030405060708090a0b0c0d0e0f10' AS id, x'00ff' AS bytes, NULL AS no_text, NULL AS no_id";
    static PACKING: LazyLock<Packing> = LazyLock::new(|| {
        let selected = "1 AS flag, number, text, list, id, bytes, no_text, no_id";
        Packing::of(STATEMENT, selected, &["id", "bytes", "no_id"])
    });

    #[derive(Debug, PartialEq)]
    struct Values {
        flag: bool,
        number: i64,
        text: String,
        list: Vec<String>,
        id: Uuid,
        bytes: Vec<u8>,
        no_text: Option<String>,
        no_id: Option<Uuid>,
    }

    crate::database::from_row! {
        Values { flag, number, text, list, id, bytes, no_text, no_id }
    }

    #[tokio::test]
    async fn packed_rows_have_the_values_of_the_rows() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let row = sqlx::query(STATEMENT).fetch_one(&mut connection).await.unwrap();
        let plain = Values::from_row(&Row::Sqlite(row)).unwrap();
        let answer = sqlx::query(PACKING.text()).fetch_one(&mut connection).await;
        let rows: Json<Vec<Vec<Value>>> = answer.unwrap().get(0);
        let rows: Vec<_> = PACKING.rows(rows.0).map(Row::Packed).collect();
        let packed: Vec<_> = rows.iter().map(|row| Values::from_row(row).unwrap()).collect();
        assert_eq!(packed, [plain]);
        let row = &rows[0];
        assert!(row.read_unless_null::<Values>("no_id").unwrap().is_none());
        assert!(row.get::<i64>("text").is_err());
        assert!(row.get::<i64>("unknown").is_err());
    }
}
