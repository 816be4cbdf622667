//! What all routes share.

use crate::config::Config;
use crate::http::keys::KeyUse;
use crate::limits::ENCODERS;
use crate::models::Models;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

use crate::http::serve::Phase;

/// What all routes share.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) models: Models,
    pub(crate) keys: KeyUse,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Places for renderings and encodings.
    pub(crate) encoders: Arc<Semaphore>,
}

impl App {
    pub(crate) fn new(config: Config, models: Models, phase: watch::Receiver<Phase>) -> Arc<Self> {
        let keys = KeyUse::new(config.keys.len().max(1), &config.limits);
        Arc::new(Self { config, models, keys, phase, encoders: Arc::new(Semaphore::new(ENCODERS)) })
    }

    /// Whether new requests are taken.
    pub(crate) fn is_open(&self) -> bool {
        *self.phase.borrow() == Phase::Serving
    }
}
