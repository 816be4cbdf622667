//! Models by name: from the cache, else from the hub, with the reason for the choice of files and a bar a file.
//!
//! Ctrl-C stops a download so that the same command goes on from there.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::quantity::{bytes, plural};
use gannet_hub::{Hub, HubError, Located, ModelName, Phase, Plan, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use std::env;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Digits of a commit that are shown.
const COMMIT_DIGITS: usize = 12;

/// The hub that the environment describes.
pub(crate) fn hub() -> Result<Hub, Failure> {
    Ok(Hub::from_environment(|name| env::var(name).ok())?)
}

/// The path of a model, from the cache where it is there.
pub(crate) fn obtain(name: &ModelName) -> Result<PathBuf, Failure> {
    let hub = hub()?;
    match hub.locate(name) {
        Ok(located) => Ok(located.path),
        Err(HubError::NotCached { .. }) if !hub.is_offline() => Ok(fetch(&hub, name)?.path),
        Err(error) => Err(error.into()),
    }
}

/// The model as the hub has it now; what the cache lacks is fetched.
pub(crate) fn fetch(hub: &Hub, name: &ModelName) -> Result<Located, Failure> {
    let plan = hub.plan(name)?;
    eprintln!("{}", description(&plan));
    let stop = Arc::new(AtomicBool::new(false));
    let interrupt = Interrupt::of_process()?;
    interrupt.watch({
        let stop = Arc::clone(&stop);
        move || stop.store(true, Ordering::Relaxed)
    });
    let bars = FileBars::default();
    let watch = |progress: Progress<'_>| {
        bars.show(progress);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let fetched = hub.fetch(&plan, &watch);
    drop(bars);
    interrupt.release();
    match fetched {
        Err(HubError::Stopped) => {
            eprintln!("gannet: the download was stopped; the same command goes on from there");
            Err(Failure::Interrupted)
        }
        fetched => Ok(fetched?),
    }
}

/// What is fetched, and why just that.
fn description(plan: &Plan) -> String {
    let commit = plan.commit.get(..COMMIT_DIGITS).unwrap_or(&plan.commit);
    let (files, size) = (plural(plan.files.len(), "file"), bytes(plan.bytes()));
    format!("{} at {commit}: {files}, {size}; {}", plan.name, plan.reason)
}

/// The bar of the file that is being fetched. Files come one after the other, each from several threads.
#[derive(Default)]
struct FileBars {
    current: Mutex<Option<FileBar>>,
}

struct FileBar {
    file: String,
    phase: Phase,
    bar: ProgressBar,
}

impl FileBars {
    fn show(&self, progress: Progress<'_>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let shown =
            current.as_ref().filter(|shown| shown.file == progress.file && shown.phase == progress.phase);
        if shown.is_none() {
            if let Some(finished) = current.take() {
                finished.bar.finish_and_clear();
            }
            *current = Some(FileBar::new(&progress));
        }
        let bar = &current.as_ref().expect("a bar was just put there").bar;
        // Threads may report in another order than they were counted.
        bar.set_position(bar.position().max(progress.done));
    }
}

impl Drop for FileBars {
    fn drop(&mut self) {
        if let Some(shown) = self.current.lock().unwrap_or_else(PoisonError::into_inner).take() {
            shown.bar.finish_and_clear();
        }
    }
}

impl FileBar {
    fn new(progress: &Progress<'_>) -> Self {
        let style = ProgressStyle::with_template(
            "{msg} {bar:30} {bytes}/{total_bytes} ({bytes_per_sec}, {eta} left)",
        )
        .expect("the template is well-formed");
        let what = match progress.phase {
            Phase::Waiting => "waiting for another download of",
            Phase::Fetching => "fetching",
            Phase::Checking => "checking",
        };
        let bar = ProgressBar::new(progress.total)
            .with_style(style)
            .with_position(progress.done)
            .with_message(format!("{what} {}", progress.file));
        // What an earlier attempt fetched is no speed of this one.
        bar.reset_eta();
        Self { file: progress.file.to_owned(), phase: progress.phase, bar }
    }
}
