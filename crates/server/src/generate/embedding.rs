//! Texts to vectors, in the engine of a model that was loaded for them.

use crate::admission::Permit;
use crate::error::{ApiError, TimeLimit};
use crate::http::serve::Phase;
use crate::models::Served;
use gannet_engine::{
    EmbedError, Embedding, EmbeddingRequest, EmbeddingResult, EmbeddingSink, FinishReason, RequestId,
};
use gannet_ops::TokenId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What is asked for.
pub(crate) struct Embeddings {
    /// Each with its place in the request, for errors.
    pub(crate) texts: Vec<(String, Vec<TokenId>)>,
    pub(crate) dimensions: Option<usize>,
    pub(crate) priority: i32,
    pub(crate) cache_salt: u64,
    /// From now to the end.
    pub(crate) time: TimeLimit,
}

/// Vectors that are being made; who drops it wants no more of them.
struct Running {
    served: Arc<Served>,
    running: HashMap<RequestId, usize>,
    _permit: Permit,
}

/// Hands the engine's results over to a task.
struct Inbox(UnboundedSender<(RequestId, EmbeddingResult)>);

impl EmbeddingSink for Inbox {
    fn deliver(&self, id: RequestId, result: EmbeddingResult) {
        // A task that is gone has given its requests up already.
        let _ = self.0.send((id, result));
    }
}

/// The vectors of all texts, in their order.
pub(crate) async fn embed(served: Arc<Served>, asked: Embeddings) -> Result<Vec<Embedding>, ApiError> {
    let (sender, results) = unbounded_channel();
    let sink: Arc<dyn EmbeddingSink> = Arc::new(Inbox(sender));
    let count = asked.texts.len();
    let permit = served.admit(count, "input")?;
    let mut running = Running { served, running: HashMap::new(), _permit: permit };
    let Embeddings { texts, dimensions, priority, cache_salt, time } = asked;
    for (place, (path, tokens)) in texts.into_iter().enumerate() {
        let (deadline, sink) = (Some(Instant::now() + time.length), sink.clone());
        let request = EmbeddingRequest { tokens, dimensions, priority, deadline, cache_salt, sink };
        let id = running.served.handle.embed(request).map_err(|error| refused(path, error))?;
        running.running.insert(id, place);
    }
    running.collect(results, count, time).await
}

impl Running {
    async fn collect(
        &mut self,
        mut results: UnboundedReceiver<(RequestId, EmbeddingResult)>,
        count: usize,
        time: TimeLimit,
    ) -> Result<Vec<Embedding>, ApiError> {
        let began = Instant::now();
        let mut embeddings: Vec<Option<Embedding>> = vec![None; count];
        while !self.running.is_empty() {
            let mut phase = self.served.phase.clone();
            let result = tokio::select! {
                result = results.recv() => result,
                _ = phase.wait_for(|phase| *phase == Phase::Aborting) => return Err(ApiError::Draining),
            };
            let (id, result) = result.ok_or_else(|| ApiError::Failed("the engine has stopped".to_owned()))?;
            let Some(place) = self.running.remove(&id) else { continue };
            let embedding = result.map_err(|reason| ended(reason, time))?;
            self.served.metrics.ended(&embedding.usage, "stop", began.elapsed());
            embeddings[place] = Some(embedding);
        }
        Ok(embeddings.into_iter().flatten().collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for &id in self.running.keys() {
            self.served.metrics.aborted();
            // An engine that is too busy to hear it makes a vector that nobody takes.
            let _ = self.served.handle.abandon(id);
        }
    }
}

fn refused(path: String, error: EmbedError) -> ApiError {
    match error {
        EmbedError::MakesText => ApiError::ModelLacks { path: "model".to_owned(), why: error.to_string() },
        EmbedError::WrongDimensions { .. } => {
            ApiError::Invalid { path: "dimensions".to_owned(), why: error.to_string() }
        }
        EmbedError::Empty
        | EmbedError::TooLong { .. }
        | EmbedError::LongerThanStep { .. }
        | EmbedError::UnknownToken { .. } => ApiError::Invalid { path, why: error.to_string() },
        EmbedError::Refused(error) => ApiError::submit("input", error),
    }
}

fn ended(reason: FinishReason, time: TimeLimit) -> ApiError {
    match reason {
        FinishReason::TimedOut => ApiError::TimedOut { limit: time },
        FinishReason::Cancelled => ApiError::Draining,
        FinishReason::Failed(why) => ApiError::Failed(why),
        FinishReason::EndToken(_)
        | FinishReason::Complete
        | FinishReason::MaxTokens
        | FinishReason::ContextFull
        | FinishReason::Unheard
        | FinishReason::NothingFits
        | FinishReason::Truncated => ApiError::Failed(reason.to_string()),
    }
}
