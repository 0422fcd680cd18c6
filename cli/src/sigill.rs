//! A sentence for users whose CPU reports an instruction and then refuses it.
//!
//! The self-test of a kernel set cannot catch that: the first such instruction ends the process, and nothing but a signal
//! handler runs in between.

const MESSAGE: &[u8] =
    b"error: this CPU refused an instruction that it reports; LLAMAY_ISA=portable runs without, \
    and `LLAMAY_ISA=portable llamay version` lists the sets to try between\n";

/// From now on SIGILL writes a sentence to standard error before it ends the process as ever.
pub(crate) fn explain() {
    // SAFETY: all zeros is a valid `sigaction`: no flags, no signal blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_sigill as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_RESETHAND;
    // SAFETY: the handler calls only what signal-safety(7) allows. A refusal leaves things as they were.
    unsafe { libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn on_sigill(_: libc::c_int) {
    // SAFETY: both are async-signal-safe; the buffer is as long as is said. The second signal is taken when this returns,
    // and finds the default action, which SA_RESETHAND has put back.
    unsafe {
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::raise(libc::SIGILL);
    }
}
