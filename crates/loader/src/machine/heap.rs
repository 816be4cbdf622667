//! What was freed goes back to the system.
//!
//! Reading a tokenizer and converting weights leaves the allocator with hundreds of megabytes that nobody holds any
//! more. It would keep them for later, and the process would take more than was planned.

/// Gives memory that was freed back to the system; a moment's work after a load, far too slow for a step.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call has no requirements; it looks through the allocator's own lists, under their locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
