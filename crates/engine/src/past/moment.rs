//! The moment of the past that a request names.

use keepsake_core::{ObjectKind, Timestamp};
use keepsake_index::{CLOCK_AHEAD_AT_MOST, Moment, PointError};

use crate::EngineError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedMoment {
    pub field: &'static str,
    moment: Moment,
}

impl NamedMoment {
    /// The moment of a parameter with a time or of one with a sequence number; not of both.
    pub fn parse(
        (time_field, at): (&'static str, Option<Timestamp>),
        (seq_field, seq): (&'static str, Option<u64>),
    ) -> Result<Option<Self>, EngineError> {
        match (at, seq) {
            (None, None) => Ok(None),
            (Some(at), None) => Ok(Some(Self { field: time_field, moment: Moment::Time(at) })),
            (None, Some(seq)) => {
                let seq = i64::try_from(seq).unwrap_or(i64::MAX);
                Ok(Some(Self { field: seq_field, moment: Moment::Seq(seq) }))
            }
            (Some(_), Some(_)) => {
                Err(EngineError::invalid(time_field, format!("cannot be combined with `{seq_field}`")))
            }
        }
    }

    /// The moment that is meant without the parameter `field`.
    pub(super) const fn default_of(field: &'static str, moment: Moment) -> Self {
        Self { field, moment }
    }

    /// The moment in the identity of a query.
    pub(super) fn key(&self) -> String {
        match self.moment {
            Moment::Time(at) => format!("at {}", at.as_micros()),
            Moment::Seq(seq) => seq.to_string(),
            Moment::Oldest => "oldest".to_owned(),
            Moment::Newest => "newest".to_owned(),
        }
    }

    /// Refuses a time in the future. The clock of another replica may have been ahead.
    pub(crate) fn checked(&self, now: Timestamp) -> Result<Moment, EngineError> {
        match self.moment {
            Moment::Time(at) if at > now.plus(CLOCK_AHEAD_AT_MOST) => {
                Err(EngineError::invalid(self.field, "must not be in the future"))
            }
            moment => Ok(moment),
        }
    }
}

/// A function for `map_err` that names the parameter with the refused moment.
pub(crate) fn refusal(field: &'static str) -> impl Fn(PointError) -> EngineError {
    move |error| {
        let rule = match error {
            PointError::NoStore => return EngineError::NotFound(ObjectKind::Store),
            PointError::Index(error) => return error.into(),
            PointError::Removed { oldest_seq, oldest_at } => format!(
                "is before the history that is kept; the oldest point that can be shown is the sequence number \
                 {oldest_seq}, of {}",
                oldest_at.to_rfc3339()
            ),
            PointError::NotYet { newest_seq } => {
                format!("must be at most {newest_seq}, the sequence number of the newest change")
            }
        };
        EngineError::invalid(field, rule)
    }
}
