//! The time that templates print: `strftime_now("%d %B %Y")`.
//!
//! Knows no time zone but the machine's, and UTC for fixed times.

use jiff::fmt::strtime;
use jiff::{Timestamp, ZonedDateTime, tz::TimeZone};

/// Where the time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The machine's clock and time zone.
    System,
    /// Always this time, in UTC: seconds since 1970.
    Fixed {
        /// Seconds since 1970-01-01T00:00:00Z.
        unix_seconds: i64,
    },
}

impl Clock {
    /// The time in Python's `strftime` format; the error is the format's fault in words.
    pub(super) fn format(self, format: &str) -> Result<String, String> {
        strtime::format(format, &self.now()?).map_err(|error| error.to_string())
    }

    fn now(self) -> Result<ZonedDateTime, String> {
        match self {
            Self::System => Ok(ZonedDateTime::now()),
            Self::Fixed { unix_seconds } => {
                let timestamp = Timestamp::from_second(unix_seconds).map_err(|error| error.to_string())?;
                Ok(timestamp.to_zoned_datetime(TimeZone::UTC))
            }
        }
    }
}
