//! Values of statements and rows: how both databases store the types of the domain.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{
    Actor, BlobKey, ContentHash, DirPath, Id, JsonText, MemoryPath, SearchMode, SensitiveDataPolicy, StoreId,
    Timestamp,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::error::BoxDynError;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use sqlx::{ColumnIndex, Decode, Encode, Postgres, Row as _, Sqlite, Type, ValueRef as _};
use uuid::Uuid;

use super::Query;
use super::packed::{PackedColumn, PackedRow, Unpack};
use crate::IndexError;
use crate::model::{
    Auditor, DeletionReason, DeletionState, Operation, RunReason, RunStatus, Scope, StoreOrigin, TenantStatus,
};
use crate::numbers::{signed, unsigned};

/// A value that both drivers can bind.
pub(crate) trait Value {
    /// The type that the drivers store.
    type Stored;

    fn into_stored(self) -> Self::Stored;
}

/// One value to bind, or a tuple of them.
pub(crate) trait Bind<'q> {
    fn bind_to(self, query: Query<'_>) -> Query<'_>;
}

impl<'q, V: Value> Bind<'q> for V
where
    V::Stored: Encode<'q, Postgres> + Type<Postgres> + Encode<'q, Sqlite> + Type<Sqlite>,
{
    fn bind_to(self, query: Query<'_>) -> Query<'_> {
        query.bind_stored(self.into_stored())
    }
}

macro_rules! bind_tuples {
    ($(($($part:ident $index:tt),+))+) => {$(
        impl<'q, $($part: Bind<'q>),+> Bind<'q> for ($($part,)+) {
            fn bind_to(self, query: Query<'_>) -> Query<'_> {
                $(let query = self.$index.bind_to(query);)+
                query
            }
        }
    )+};
}

bind_tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
}

impl Bind<'_> for () {
    fn bind_to(self, query: Query<'_>) -> Query<'_> {
        query
    }
}

/// A list of ids, for a statement of [`Tx::query_with_lists`](super::Tx::query_with_lists).
pub(crate) struct Ids<'a, T>(pub(crate) Option<&'a [T]>);

impl<T: Value<Stored = Uuid> + Copy> Bind<'_> for Ids<'_, T> {
    fn bind_to(self, query: Query<'_>) -> Query<'_> {
        query.bind_ids(self.0)
    }
}

impl Bind<'_> for &BlobKey {
    fn bind_to(self, query: Query<'_>) -> Query<'_> {
        query.bind((self.tenant_id, self.store_id, self.blob_id))
    }
}

/// Types that the drivers store as they are.
macro_rules! stored_as_they_are {
    ($($type:ty),+ $(,)?) => {$(
        impl Value for $type {
            type Stored = Self;

            fn into_stored(self) -> Self {
                self
            }
        }
    )+};
}

stored_as_they_are!(bool, i64, Uuid, String, Vec<u8>, &str, &String, &[u8], &Vec<u8>);

impl<T: Serialize> Value for Json<T> {
    type Stored = Self;

    fn into_stored(self) -> Self {
        self
    }
}

impl<K> Value for Id<K> {
    type Stored = Uuid;

    fn into_stored(self) -> Uuid {
        self.uuid()
    }
}

impl Value for Timestamp {
    type Stored = i64;

    fn into_stored(self) -> i64 {
        self.as_micros()
    }
}

impl Value for u64 {
    type Stored = i64;

    fn into_stored(self) -> i64 {
        signed(self)
    }
}

impl Value for u32 {
    type Stored = i64;

    fn into_stored(self) -> i64 {
        self.into()
    }
}

impl<T: Value> Value for Option<T> {
    type Stored = Option<T::Stored>;

    fn into_stored(self) -> Self::Stored {
        self.map(T::into_stored)
    }
}

/// A type that both drivers can read.
pub(crate) trait Readable:
    for<'r> Decode<'r, Postgres> + Type<Postgres> + for<'r> Decode<'r, Sqlite> + Type<Sqlite> + Unpack
{
}

impl<T> Readable for T where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres> + for<'r> Decode<'r, Sqlite> + Type<Sqlite> + Unpack
{
}

pub(crate) trait Column: Sized {
    /// The type that the drivers read.
    type Stored: Readable;

    fn from_stored(stored: Self::Stored) -> Result<Self, BoxDynError>;
}

/// Column types by the type that the drivers read, with the conversion.
macro_rules! columns {
    ($($type:ty: $stored:ty => $from:expr;)+) => {$(
        impl $crate::database::Column for $type {
            type Stored = $stored;

            fn from_stored(stored: $stored) -> Result<Self, sqlx::error::BoxDynError> {
                let from: fn($stored) -> Result<Self, sqlx::error::BoxDynError> = $from;
                from(stored)
            }
        }
    )+};
}

columns! {
    bool: bool => Ok;
    i64: i64 => Ok;
    Uuid: Uuid => Ok;
    String: String => Ok;
    Vec<u8>: Vec<u8> => Ok;
    Arc<[u8]>: Arc<[u8]> => Ok;
    u32: i64 => |number| Ok(u32::try_from(number).unwrap_or(u32::MAX));
    u64: i64 => |number| Ok(unsigned(number));
    Timestamp: i64 => |micros| Ok(Self::from_micros(micros));
    [u8; 32]: Vec<u8> => |bytes| Ok(bytes.as_slice().try_into()?);
    ContentHash: Vec<u8> => |bytes| Ok(<[u8; 32]>::try_from(bytes.as_slice())?.into());
    MemoryPath: String => |path| Ok(Self::from_trusted(path));
    DirPath: String => |path| Ok(Self::from_trusted(path));
    JsonText: String => |text| Ok(Self::from_trusted(&text));
    BlobKey: String => |key| Ok(key.parse()?);
}

impl<K> Column for Id<K> {
    type Stored = Uuid;

    fn from_stored(uuid: Uuid) -> Result<Self, BoxDynError> {
        Ok(Self::from_uuid(uuid))
    }
}

impl<T: DeserializeOwned + 'static> Column for Json<T> {
    type Stored = Self;

    fn from_stored(json: Self) -> Result<Self, BoxDynError> {
        Ok(json)
    }
}

impl<T: Column> Column for Option<T> {
    type Stored = Option<T::Stored>;

    fn from_stored(stored: Self::Stored) -> Result<Self, BoxDynError> {
        stored.map(T::from_stored).transpose()
    }
}

/// Column types that are stored as JSON.
macro_rules! json_columns {
    ($($type:ty),+ $(,)?) => {
        $crate::database::columns! { $($type: sqlx::types::Json<$type> => |json| Ok(json.0);)+ }
    };
}

json_columns!(
    BTreeMap<String, u64>,
    LimitOverrides,
    StoreOrigin,
    Vec<Scope>,
    Vec<StoreId>,
    Vec<String>,
    serde_json::Map<String, serde_json::Value>,
    serde_json::Value,
);

/// Column types that are stored by name.
macro_rules! named_columns {
    ($($type:ty),+ $(,)?) => {
        $crate::database::columns! { $($type: String => |name| Self::parse(&name).ok_or_else(|| "an unknown name".into());)+ }
    };
}

named_columns!(
    Auditor,
    DeletionReason,
    DeletionState,
    Operation,
    RunReason,
    RunStatus,
    SearchMode,
    SensitiveDataPolicy,
    TenantStatus,
);

pub(crate) enum Row {
    Postgres(PgRow),
    Sqlite(SqliteRow),
    Packed(PackedRow),
}

impl Row {
    pub(crate) fn get<T: Column>(&self, column: &str) -> Result<T, IndexError> {
        self.column(column)
    }

    /// Reads a value that takes several columns.
    pub(crate) fn read<T: FromRow>(&self) -> Result<T, IndexError> {
        T::from_row(self)
    }

    /// Reads a value that takes several columns, unless `key` is NULL.
    pub(crate) fn read_unless_null<T: FromRow>(&self, key: &str) -> Result<Option<T>, IndexError> {
        let is_null = match self {
            Self::Postgres(row) => row.try_get_raw(key)?.is_null(),
            Self::Sqlite(row) => row.try_get_raw(key)?.is_null(),
            Self::Packed(row) => row.value(key)?.is_null(),
        };
        if is_null { Ok(None) } else { self.read().map(Some) }
    }

    pub(crate) fn actor(&self, [kind, id]: [&str; 2]) -> Result<Option<Actor>, IndexError> {
        let stored = self.get::<Option<String>>(kind)?.zip(self.get::<Option<String>>(id)?);
        let actor = stored.map(|(kind, id)| {
            Actor::from_stored(&kind, &id).ok_or_else(|| BoxDynError::from("an unknown actor"))
        });
        Ok(actor.transpose().map_err(|error| undecodable(kind, error))?)
    }

    fn column<T, I>(&self, index: I) -> Result<T, IndexError>
    where
        T: Column,
        I: ColumnIndex<PgRow> + ColumnIndex<SqliteRow> + PackedColumn + Display,
    {
        let stored = match self {
            Self::Postgres(row) => row.try_get(index)?,
            Self::Sqlite(row) => row.try_get(index)?,
            Self::Packed(row) => T::Stored::unpack(row.value(index)?)
                .ok_or_else(|| undecodable(index, "another type".into()))?,
        };
        Ok(T::from_stored(stored).map_err(|error| undecodable(index, error))?)
    }
}

fn undecodable(column: impl Display, source: BoxDynError) -> sqlx::Error {
    let index = column.to_string();
    sqlx::Error::ColumnDecode { index, source }
}

pub(crate) trait FromRow: Sized {
    fn from_row(row: &Row) -> Result<Self, IndexError>;
}

/// Tuples are read by the position of the columns.
macro_rules! tuple_rows {
    ($(($($part:ident $index:tt),+))+) => {$(
        impl<$($part: Column),+> FromRow for ($($part,)+) {
            fn from_row(row: &Row) -> Result<Self, IndexError> {
                Ok(($(row.column::<$part, usize>($index)?,)+))
            }
        }
    )+};
}

tuple_rows! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
}

impl FromRow for BlobKey {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self {
            tenant_id: row.get("tenant_id")?,
            store_id: row.get("store_id")?,
            blob_id: row.get("blob_id")?,
        })
    }
}

/// Defines statements that read the same columns of the same rows: the text that they have
/// in common, and then the rest of each.
macro_rules! selects {
    ($common:literal; $($(#[$about:meta])* $visibility:vis const $name:ident = $rest:literal;)+) => {
        $($(#[$about])* $visibility const $name: &str = concat!("SELECT ", $common, " ", $rest);)+
    };
}

/// Implements [`FromRow`] for structs whose fields are columns. A column has the name
/// of its field unless another name is given. The fields after a semicolon take several
/// columns each: `content if "blob_id"` is `None` if the column `blob_id` is NULL, and
/// `created_by by ["actor_type", "actor_id"]` is an actor. The fields after `..` are not
/// stored, such as the `type` of an object in the API, and have their default.
macro_rules! from_row {
    ($($type:ty {
        $($field:ident $(= $column:literal)?),+ $(,)?
        $(; $($part:ident $(if $key:literal)? $(by [$kind:literal, $id:literal])?),+)?
        $(.. $($unstored:ident),+)?
    })+) => {$(
        impl $crate::database::FromRow for $type {
            fn from_row(row: &$crate::database::Row) -> Result<Self, $crate::IndexError> {
                Ok(Self {
                    $($field: row.get($crate::database::from_row!(@name $field $($column)?))?,)+
                    $($($part: $crate::database::from_row!(@part row $(if $key)? $(by $kind $id)?),)+)?
                    $($($unstored: Default::default(),)+)?
                })
            }
        }
    )+};
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $column:literal) => { $column };
    (@part $row:ident) => { $row.read()? };
    (@part $row:ident if $key:literal) => { $row.read_unless_null($key)? };
    (@part $row:ident by $kind:literal $id:literal) => { $row.actor([$kind, $id])? };
}
pub(crate) use {columns, from_row, json_columns, named_columns, selects};
