//! The limit of open files, of which each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are open beside connections: models, the log, what the runtime waits with.
const OTHERS: u64 = 256;

/// Lets the process have as many files open as connections need, as far as the system lets it; most systems start
/// processes with 1,024.
pub(super) fn allow_for(connections: usize) {
    let wanted = connections as u64 + OTHERS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|files| files >= wanted) {
        return;
    }
    let most = maximum.map_or(wanted, |files| files.min(wanted));
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum }).is_ok();
    let files = if is_raised { Some(most) } else { current };
    if files.is_some_and(|files| files < wanted) {
        let files = files.unwrap_or_default();
        eprintln!(
            "gannet: note: this process may have {files} files open, and {connections} connections need {wanted}; raise \
             the limit (ulimit -n, LimitNOFILE) or lower --max-connections"
        );
    }
}
