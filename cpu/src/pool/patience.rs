//! How long the caller of a redoable step waits for workers.

use std::time::{Duration, Instant};

/// Times the caller's own chunks, to judge how long a worker's can take.
pub(super) struct Stopwatch {
    last: Instant,
    /// The shortest chunk; longer ones may have been interrupted.
    chunk: Option<Duration>,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { last: Instant::now(), chunk: None }
    }

    /// A chunk of full length ends.
    pub(super) fn lap(&mut self) {
        let now = Instant::now();
        let chunk = now - self.last;
        self.chunk = Some(self.chunk.map_or(chunk, |least| least.min(chunk)));
        self.last = now;
    }

    /// When to stop waiting. A worker as fast as this thread, and running, is done one chunk's time after this thread has
    /// found nothing left to claim; half of one is added because no two cores are equal, and 3 µs for the hand-over.
    pub(super) fn deadline(&self) -> Instant {
        let chunk = self.chunk.unwrap_or(Duration::from_micros(50));
        Instant::now() + chunk * 3 / 2 + Duration::from_micros(3)
    }
}
