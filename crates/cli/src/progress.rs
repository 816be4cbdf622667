//! Progress on standard error, where somebody looks at it and where there is something to wait for.

use crate::failure::Failure;
use gannet_loader::{LoadOptions, Loaded, Progress};
use gannet_ops::Backend;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Work that is done by then shows no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar that appears only when its work takes long and standard error is a terminal.
pub(crate) struct Bar {
    what: &'static str,
    started: Instant,
    bar: OnceLock<ProgressBar>,
}

impl Bar {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, started: Instant::now(), bar: OnceLock::new() }
    }

    /// So much of the work is done.
    pub(crate) fn show(&self, done: usize, total: usize) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} ({eta} left)")
                .expect("the template is well-formed");
            ProgressBar::new(total as u64).with_style(style).with_message(self.what)
        });
        bar.set_position(done as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

/// Loads a model with a bar, and says what a person should know about it.
pub(crate) fn load(path: &Path, backend: &dyn Backend, options: &LoadOptions) -> Result<Loaded, Failure> {
    let bar = Bar::new("loading");
    let watch = |progress: Progress| bar.show(progress.weights, progress.total);
    let loaded = gannet_loader::load(path, backend, options, &watch)?;
    drop(bar);
    for remark in &loaded.remarks {
        eprintln!("gannet: note: {remark}");
    }
    if let Some(first) = loaded.unused.first() {
        let count = loaded.unused.len();
        eprintln!("gannet: note: {count} of the model's tensors are not read, among them `{first}`");
    }
    Ok(loaded)
}
