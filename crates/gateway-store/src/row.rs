//! Statement parameters and row columns, the same for both databases: text, 64-bit integers, floats and bytes. All
//! other types are stored as one of these.

use std::str::FromStr;
use std::sync::Arc;

use gateway_core::access::{Plan, Role};
use gateway_core::accounts::KeyHash;
use gateway_core::evaluators::EvaluatorKind;
use gateway_core::exports::ExportKind;
use gateway_core::ids::{
    AlertId, AppId, BudgetId, CaseId, DatasetId, DeliveryId, EvaluationId, EventId, ExportId, InstallLinkId,
    InviteId, JobId, KeyId, LimitId, ModelId, OrgId, PlayId, PromptId, RubricId, SkillId, TeamId, TokenId,
    UserId, VerdictId, ViewId, WebhookId,
};
use gateway_core::statuses::{DeliveryStatus, RunStatus};
use gateway_core::time::Timestamp;
use gateway_core::views::ViewPage;
use gateway_core::webhooks::WebhookFormat;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, Row as _};

use crate::StoreError;

/// One bound parameter. `None` is a NULL of the column's type.
#[derive(Debug, Clone)]
pub enum Arg {
    Text(Option<String>),
    /// A text without NUL characters that other parameters share.
    Shared(Arc<str>),
    Int(Option<i64>),
    Real(Option<f64>),
    Bytes(Option<Vec<u8>>),
}

/// Binds values of mixed types: `args![org, name, now]`.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::row::Arg::from($value)),*] };
}
pub(crate) use args;

macro_rules! arg_from {
    ($($type:ty => $kind:ident, $convert:expr;)+) => {$(
        impl From<$type> for Arg {
            fn from(value: $type) -> Self {
                Arg::$kind(Some(($convert)(value)))
            }
        }
        impl From<Option<$type>> for Arg {
            fn from(value: Option<$type>) -> Self {
                Arg::$kind(value.map($convert))
            }
        }
    )+};
}

arg_from! {
    String => Text, |v| v;
    &str => Text, |v: &str| v.to_owned();
    i64 => Int, |v| v;
    f64 => Real, |v| v;
    bool => Int, i64::from;
    Vec<u8> => Bytes, |v| v;
    Timestamp => Int, |v: Timestamp| v.0;
    Role => Text, |v: Role| v.as_str().to_owned();
    Plan => Text, |v: Plan| v.as_str().to_owned();
    KeyHash => Text, |v: KeyHash| v.to_hex();
    OrgId => Text, |v: OrgId| v.to_string();
    UserId => Text, |v: UserId| v.to_string();
    KeyId => Text, |v: KeyId| v.to_string();
    TeamId => Text, |v: TeamId| v.to_string();
    AppId => Text, |v: AppId| v.to_string();
    BudgetId => Text, |v: BudgetId| v.to_string();
    AlertId => Text, |v: AlertId| v.to_string();
    LimitId => Text, |v: LimitId| v.to_string();
    EventId => Text, |v: EventId| v.to_string();
    InviteId => Text, |v: InviteId| v.to_string();
    InstallLinkId => Text, |v: InstallLinkId| v.to_string();
    JobId => Text, |v: JobId| v.to_string();
    SkillId => Text, |v: SkillId| v.to_string();
    RubricId => Text, |v: RubricId| v.to_string();
    EvaluationId => Text, |v: EvaluationId| v.to_string();
    VerdictId => Text, |v: VerdictId| v.to_string();
    ViewId => Text, |v: ViewId| v.to_string();
    TokenId => Text, |v: TokenId| v.to_string();
    PromptId => Text, |v: PromptId| v.to_string();
    ModelId => Text, |v: ModelId| v.to_string();
    DatasetId => Text, |v: DatasetId| v.to_string();
    CaseId => Text, |v: CaseId| v.to_string();
    PlayId => Text, |v: PlayId| v.to_string();
    WebhookId => Text, |v: WebhookId| v.to_string();
    DeliveryId => Text, |v: DeliveryId| v.to_string();
    ExportId => Text, |v: ExportId| v.to_string();
}

impl From<&String> for Arg {
    fn from(value: &String) -> Self {
        Arg::Text(Some(value.clone()))
    }
}

/// JSON is stored as text.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Arg {
    Arg::Text(serde_json::to_string(value).ok())
}

/// A nullable column of JSON text.
pub(crate) fn optional_json<T: Serialize>(value: Option<&T>) -> Arg {
    Arg::Text(value.and_then(|value| serde_json::to_string(value).ok()))
}

pub(crate) fn to_arg<T: Clone + Into<Arg>>(value: &T) -> Arg {
    value.clone().into()
}

/// PostgreSQL rejects NUL characters in text. Texts of providers and tenants may contain them, so they are replaced by
/// spaces in every parameter, on both databases.
fn without_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', " ") } else { text }
}

macro_rules! arguments {
    ($($name:ident -> $arguments:ty, $shared:expr;)+) => {$(
        pub(crate) fn $name(args: Vec<Arg>) -> Result<$arguments, StoreError> {
            let mut bound = <$arguments>::default();
            bound.reserve(args.len(), 0);
            for arg in args {
                match arg {
                    Arg::Text(value) => bound.add(value.map(without_nul)),
                    Arg::Shared(text) => bound.add($shared(text)),
                    Arg::Int(value) => bound.add(value),
                    Arg::Real(value) => bound.add(value),
                    Arg::Bytes(value) => bound.add(value),
                }
                .map_err(|error| StoreError::Other(error.to_string()))?;
            }
            Ok(bound)
        }
    )+};
}
arguments! {
    sqlite_arguments -> SqliteArguments, std::convert::identity::<Arc<str>>;
    postgres_arguments -> PgArguments, |text: Arc<str>| text.to_string();
}

/// The values of one column in many rows, bound as one array parameter. PostgreSQL only.
#[derive(Debug)]
pub(crate) enum List {
    Text(Vec<Option<String>>),
    Int(Vec<Option<i64>>),
    Real(Vec<Option<f64>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl List {
    /// An empty list for values of the same type.
    pub(crate) fn of_kind(arg: &Arg) -> Self {
        match arg {
            Arg::Text(_) | Arg::Shared(_) => Self::Text(Vec::new()),
            Arg::Int(_) => Self::Int(Vec::new()),
            Arg::Real(_) => Self::Real(Vec::new()),
            Arg::Bytes(_) => Self::Bytes(Vec::new()),
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "TEXT[]",
            Self::Int(_) => "BIGINT[]",
            Self::Real(_) => "DOUBLE PRECISION[]",
            Self::Bytes(_) => "BYTEA[]",
        }
    }

    pub(crate) fn push(&mut self, arg: Arg) -> Result<(), StoreError> {
        match (self, arg) {
            (Self::Text(list), Arg::Text(value)) => list.push(value.map(without_nul)),
            (Self::Text(list), Arg::Shared(text)) => list.push(Some(text.to_string())),
            (Self::Int(list), Arg::Int(value)) => list.push(value),
            (Self::Real(list), Arg::Real(value)) => list.push(value),
            (Self::Bytes(list), Arg::Bytes(value)) => list.push(value),
            (list, arg) => {
                return Err(StoreError::Other(format!("{arg:?} is not a {}", list.type_name())));
            }
        }
        Ok(())
    }
}

pub(crate) fn postgres_lists(lists: Vec<List>) -> Result<PgArguments, StoreError> {
    let mut bound = PgArguments::default();
    for list in lists {
        match list {
            List::Text(values) => bound.add(values),
            List::Int(values) => bound.add(values),
            List::Real(values) => bound.add(values),
            List::Bytes(values) => bound.add(values),
        }
        .map_err(|error| StoreError::Other(error.to_string()))?;
    }
    Ok(bound)
}

/// A row of either database.
pub enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// The value of a column, converted to the target type.
    pub fn get<T: FromColumn>(&self, column: &'static str) -> Result<T, StoreError> {
        T::from_column(self, column)
    }

    /// A column of JSON text.
    pub fn json<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, StoreError> {
        let text: String = self.get(column)?;
        serde_json::from_str(&text).map_err(|error| unreadable(column, &error.to_string()))
    }

    /// A nullable column of JSON text; invalid JSON reads as NULL.
    pub fn optional_json<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, StoreError> {
        let text: Option<String> = self.get(column)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

pub trait FromColumn: Sized {
    fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError>;
}

macro_rules! plain_columns {
    ($($type:ty),+) => {$(
        impl FromColumn for $type {
            fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError> {
                match row {
                    Row::Sqlite(row) => row.try_get(column),
                    Row::Postgres(row) => row.try_get(column),
                }
                .map_err(StoreError::from)
            }
        }
        impl FromColumn for Option<$type> {
            fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError> {
                match row {
                    Row::Sqlite(row) => row.try_get(column),
                    Row::Postgres(row) => row.try_get(column),
                }
                .map_err(StoreError::from)
            }
        }
    )+};
}
plain_columns!(String, i64, f64, Vec<u8>);

impl FromColumn for bool {
    fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError> {
        i64::from_column(row, column).map(|value| value != 0)
    }
}

impl FromColumn for Timestamp {
    fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError> {
        i64::from_column(row, column).map(Timestamp)
    }
}

impl FromColumn for Option<Timestamp> {
    fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError> {
        Option::<i64>::from_column(row, column).map(|value| value.map(Timestamp))
    }
}

impl FromColumn for KeyHash {
    fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError> {
        KeyHash::from_hex(&String::from_column(row, column)?).ok_or_else(|| unreadable(column, "not a hash"))
    }
}

macro_rules! parsed_columns {
    ($($type:ty),+ $(,)?) => {$(
        impl FromColumn for $type {
            fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError> {
                parse(column, &String::from_column(row, column)?)
            }
        }
        impl FromColumn for Option<$type> {
            fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError> {
                Option::<String>::from_column(row, column)?.map(|text| parse(column, &text)).transpose()
            }
        }
    )+};
}
parsed_columns!(
    Role,
    Plan,
    AlertId,
    AppId,
    BudgetId,
    CaseId,
    DatasetId,
    DeliveryId,
    EvaluationId,
    EventId,
    ExportId,
    InviteId,
    InstallLinkId,
    JobId,
    KeyId,
    LimitId,
    OrgId,
    PlayId,
    PromptId,
    ModelId,
    RubricId,
    SkillId,
    TeamId,
    TokenId,
    UserId,
    VerdictId,
    ViewId,
    WebhookId
);

/// Enums that are stored by name.
macro_rules! named_columns {
    ($($type:ty),+ $(,)?) => {$(
        impl From<$type> for Arg {
            fn from(value: $type) -> Self {
                Arg::Text(Some(value.as_str().to_owned()))
            }
        }
        impl FromColumn for $type {
            fn from_column(row: &Row, column: &'static str) -> Result<Self, StoreError> {
                let name = String::from_column(row, column)?;
                <$type>::parse(&name).ok_or_else(|| unreadable(column, &format!("unknown value {name:?}")))
            }
        }
    )+};
}
named_columns!(DeliveryStatus, EvaluatorKind, ExportKind, RunStatus, ViewPage, WebhookFormat);

fn parse<T: FromStr>(column: &str, text: &str) -> Result<T, StoreError>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| unreadable(column, &error.to_string()))
}

fn unreadable(column: &str, why: &str) -> StoreError {
    StoreError::Other(format!("column {column} cannot be read: {why}"))
}
