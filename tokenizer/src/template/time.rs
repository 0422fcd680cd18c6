//! The time that `strftime_now` tells.

use minijinja::{Error, ErrorKind};

/// A date and time of day without a zone, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalTime(jiff::civil::DateTime);

impl LocalTime {
    /// The machine's local time, or UTC where its time zone is unknown.
    pub fn now() -> Self {
        Self(jiff::Zoned::now().datetime())
    }

    /// A given time. `None` if there is no such day or time.
    pub fn new(year: i16, month: i8, day: i8, hour: i8, minute: i8, second: i8) -> Option<Self> {
        jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).ok().map(Self)
    }

    /// The time in the notation of C's `strftime`.
    pub(super) fn strftime(self, format: &str) -> Result<String, Error> {
        jiff::fmt::strtime::format(format, self.0).map_err(|error| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now cannot write {format:?}: {error}"))
        })
    }
}
