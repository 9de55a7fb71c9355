//! What loading leaves behind goes back to the system.

/// Gives memory that is free to the system. A text and the messages made of it are far larger than what is kept of
/// them, and glibc would hold on to their pages for as long as something younger is in use.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "no safe interface offers it")]
pub(super) fn give_back() {
    // SAFETY: it takes no pointer and may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators give it back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(super) fn give_back() {}
