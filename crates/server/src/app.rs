//! What all routes share.

use crate::config::Config;
use crate::http::keys::KeyUse;
use crate::http::serve::Phase;
use crate::models::Models;
use crate::openai::responses::Store;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// What all routes share.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) models: Models,
    pub(crate) keys: KeyUse,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Kept responses.
    pub(crate) responses: Store,
    /// Places for renderings and encodings.
    pub(crate) encoders: Arc<Semaphore>,
}

impl App {
    pub(crate) fn new(config: Config, models: Models, phase: watch::Receiver<Phase>) -> Arc<Self> {
        let keys = KeyUse::new(config.keys.len().max(1), &config.limits);
        let responses = Store::new(&config.limits);
        let encoders = Arc::new(Semaphore::new(config.limits.encoders));
        Arc::new(Self { config, models, keys, phase, responses, encoders })
    }

    /// Whether new requests are taken.
    pub(crate) fn is_open(&self) -> bool {
        *self.phase.borrow() == Phase::Serving
    }
}
