//! The atomics and threads of the pool: std's, or loom's when its model checker explores the interleavings.

#[cfg(not(loom))]
mod imp {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::sync::{Arc, Mutex};
    pub(crate) use std::thread;

    /// How often a thread looks again before it parks: some 20 to 60 µs where a spin hint takes 10 to 40 ns.
    pub(crate) const SPINS: u32 = 1500;

    std::thread_local! {
        /// The pools (by address) whose step this thread is in, and its number there.
        pub(crate) static INSIDE: std::cell::RefCell<Vec<(usize, usize)>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    /// std's cell with loom's interface.
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
    pub(crate) use loom::sync::{Arc, Mutex};
    pub(crate) use loom::thread;

    /// Spinning adds nothing to the model but repetition; and loom lets no thread that yielded see an old value again.
    pub(crate) const SPINS: u32 = 0;

    loom::thread_local! {
        pub(crate) static INSIDE: std::cell::RefCell<Vec<(usize, usize)>> = std::cell::RefCell::new(Vec::new());
    }

    /// The model's scheduler must be told that another thread has to move.
    pub(crate) fn spin_loop() {
        loom::thread::yield_now();
    }
}

pub(crate) use imp::*;
