//! A server from start to end, for a caller that isn't async: its threads, the models that are loaded at once, and the
//! signals that end it.

use crate::config::Config;
use crate::http::serve::{Bound, ServeError};
use crate::models::ModelEntry;
use std::net::SocketAddr;
use tokio::runtime::Builder;
use tokio::signal;

/// Threads that serve connections: enough to keep streams going while the engine's own threads compute.
const THREADS: usize = 2;
/// The exit code of a process that Ctrl-C ended at once.
const INTERRUPTED: i32 = 130;

/// Serves until Ctrl-C or a signal to terminate; a second one ends the process at once. `ready` hears the address when
/// the first model is loaded.
///
/// # Errors
/// The address, the TLS files or the first model can't be had.
pub fn serve(
    config: Config,
    models: Vec<ModelEntry>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("server")
        .enable_all()
        .build()
        .map_err(ServeError::Threads)?;
    let result = runtime.block_on(async {
        let first = models.first().map(|model| model.name.clone());
        let bound = Bound::bind(config, models).await?;
        if let Some(first) = first {
            bound.preload(&first).await.map_err(ServeError::Model)?;
        }
        ready(bound.address());
        bound.run(asked_to_stop()).await;
        Ok(())
    });
    runtime.shutdown_background();
    result
}

/// Waits for the first signal; from then on the next one ends the process.
async fn asked_to_stop() {
    one_signal().await;
    tokio::spawn(async {
        one_signal().await;
        std::process::exit(INTERRUPTED);
    });
}

#[cfg(unix)]
async fn one_signal() {
    let terminate = signal::unix::signal(signal::unix::SignalKind::terminate());
    match terminate {
        Ok(mut terminate) => {
            tokio::select! {
                // Without a handler there is nothing to wait for, and the signal ends the process by itself.
                _ = signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => drop(signal::ctrl_c().await),
    }
}

#[cfg(not(unix))]
async fn one_signal() {
    drop(signal::ctrl_c().await);
}
