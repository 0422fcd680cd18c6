//! Whether it is worth telling the system what is read next.
//!
//! Of a file that is all in the system's cache a hint costs a look at every page of it, which is some percent of the time
//! that reading them takes. So hints are given for a while after reading has had to wait for the disk.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

/// Hints that follow a wait: those of the matrices of some layers, so that one wait is found out every few layers where all
/// others are avoided.
const HINTS_PER_WAIT: i64 = 64;

/// What is known of a file's waits.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// The process's page faults that waited for a disk, when last looked at.
    waits: AtomicI64,
    /// Hints that are still to be given. Threads that race lose or gain a hint, which is as good.
    hints: AtomicI64,
}

impl ReadAhead {
    /// Whether the next hint should be given.
    pub(crate) fn is_worth_it(&self) -> bool {
        self.after(waits())
    }

    fn after(&self, waits: i64) -> bool {
        if self.waits.swap(waits, Relaxed) != waits {
            self.hints.store(HINTS_PER_WAIT, Relaxed);
        }
        self.hints.load(Relaxed) > 0 && self.hints.fetch_sub(1, Relaxed) > 0
    }
}

/// The process's page faults so far that waited for a disk.
#[cfg(unix)]
fn waits() -> i64 {
    // SAFETY: a structure of plain numbers, of which all zeros are one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills in the structure that it is given.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    #[allow(clippy::useless_conversion)] // the number is narrower on some systems
    let waits = i64::from(usage.ru_majflt);
    if answer == 0 { waits } else { 0 }
}

#[cfg(not(unix))]
fn waits() -> i64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_follow_a_wait_for_a_while() {
        let state = ReadAhead::default();
        assert!(!state.after(0));
        for waits in [3, 5] {
            let given = (0..1000).filter(|_| state.after(waits)).count();
            assert_eq!(given as i64, HINTS_PER_WAIT);
        }
    }
}
