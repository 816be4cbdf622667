//! Vectors of texts: what a client asks for, and what it hears.
//!
//! A request of this kind goes through the same queue and the same steps as one for tokens; it ends when its last row is
//! computed. Where the model's rows see the rows after them, a text is computed in one step and shares nothing of the
//! prefix cache; several texts may share a step.

use crate::handle::{EngineHandle, SubmitError};
use crate::request::{Event, FinishReason, Request, RequestId, Sink, Usage};
use crate::runner::Pooling;
use crossbeam_channel::Sender;
use gannet_ops::TokenId;
use std::sync::Arc;
use std::time::Instant;

/// What a client asks for.
pub struct EmbeddingRequest {
    /// The text, with what the tokenizer puts around it; at least one token.
    pub tokens: Vec<TokenId>,
    /// Elements of the vector that are kept, the first ones, brought to unit length again; all where absent.
    pub dimensions: Option<usize>,
    /// Higher ones go first.
    pub priority: i32,
    /// When the request is given up.
    pub deadline: Option<Instant>,
    /// Requests of different salts share nothing of the prefix cache.
    pub cache_salt: u64,
    /// Where the vector goes.
    pub sink: Arc<dyn EmbeddingSink>,
}

impl EmbeddingRequest {
    /// A request for the whole vector.
    pub fn whole(tokens: Vec<TokenId>, sink: Arc<dyn EmbeddingSink>) -> Self {
        Self { tokens, dimensions: None, priority: 0, deadline: None, cache_salt: 0, sink }
    }
}

/// A text's vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Of unit length.
    pub vector: Vec<f32>,
    /// What it took.
    pub usage: Usage,
}

/// The one result of a request: its vector, or why there is none.
pub type EmbeddingResult = Result<Embedding, FinishReason>;

/// Where the results of requests go; one sink may serve many. Never waits.
pub trait EmbeddingSink: Send + Sync {
    /// Takes the result of a request.
    fn deliver(&self, id: RequestId, result: EmbeddingResult);
}

/// A channel of results. Where it is closed or full, nobody listens.
impl EmbeddingSink for Sender<(RequestId, EmbeddingResult)> {
    fn deliver(&self, id: RequestId, result: EmbeddingResult) {
        // Each request has one result, so that nothing is left to be cancelled.
        let _ = self.try_send((id, result));
    }
}

/// Why a request for a vector is refused at the door.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The model makes text.
    #[error("the model was loaded to make text; load it for vectors to embed with it")]
    MakesText,
    /// There is nothing to embed.
    #[error("the text is empty; at least one token is needed")]
    Empty,
    /// The text is longer than the context or the memory.
    #[error(
        "the text has {tokens} tokens, and the longest that can be embedded here has {limit}; shorten it"
    )]
    TooLong {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens of the longest text.
        limit: usize,
    },
    /// The text is longer than a step.
    #[error(
        "the text has {tokens} tokens; this model reads a text in one step, and a step holds {limit}; shorten the text"
    )]
    LongerThanStep {
        /// Tokens of the text.
        tokens: usize,
        /// Rows of the largest step.
        limit: usize,
    },
    /// A part of the vector that isn't there.
    #[error("{asked} dimensions were asked for, and the vector has {width}; ask for 1 to {width}")]
    WrongDimensions {
        /// Elements asked for.
        asked: usize,
        /// Elements of the vector.
        width: usize,
    },
    /// A token that the model doesn't have.
    #[error("token id {id} is outside of the model's vocabulary of {vocabulary}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// The engine takes no request.
    #[error(transparent)]
    Refused(#[from] SubmitError),
}

/// What a sequence that ends in a vector needs beside its tokens.
#[derive(Clone)]
pub(crate) struct Goal {
    dimensions: Option<usize>,
    sink: Arc<dyn EmbeddingSink>,
}

impl Goal {
    /// The vector that the client asked for, of a pooled one of unit length.
    pub(crate) fn cut(&self, pooled: Vec<f32>) -> Vec<f32> {
        match self.dimensions {
            Some(dimensions) => shortened(pooled, dimensions),
            None => pooled,
        }
    }

    pub(crate) fn sink(&self) -> &Arc<dyn EmbeddingSink> {
        &self.sink
    }
}

/// The first elements, brought to unit length; as they are where all of them are zero.
fn shortened(mut vector: Vec<f32>, dimensions: usize) -> Vec<f32> {
    vector.truncate(dimensions);
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    vector
}

impl EngineHandle {
    /// Elements of the vectors that [`EngineHandle::embed`] gives; none where the model was loaded to make text.
    pub fn vector_width(&self) -> Option<usize> {
        self.pooling().map(|pooling| pooling.width)
    }

    /// Hands a text to the engine; its sink hears the result.
    ///
    /// # Errors
    /// All of [`EmbedError`]; nothing is cut to fit.
    pub fn embed(&self, request: EmbeddingRequest) -> Result<RequestId, EmbedError> {
        let pooling = self.pooling().ok_or(EmbedError::MakesText)?;
        self.check_embedding(&request, &pooling)?;
        let EmbeddingRequest { tokens, dimensions, priority, deadline, cache_salt, sink } = request;
        // The one token is never drawn: the row that would draw it gives the vector.
        let inner =
            Request { priority, deadline, cache_salt, ..Request::greedy(tokens, 1, Arc::new(Unheard)) };
        Ok(self.send_embedding(inner, Goal { dimensions, sink })?)
    }

    fn check_embedding(&self, request: &EmbeddingRequest, pooling: &Pooling) -> Result<(), EmbedError> {
        let (tokens, width, vocabulary) = (request.tokens.len(), pooling.width, self.vocabulary());
        if tokens == 0 {
            return Err(EmbedError::Empty);
        }
        let limit = self.context().min(self.longest_sequence());
        if tokens > limit {
            return Err(EmbedError::TooLong { tokens, limit });
        }
        if pooling.whole_prompt_only && tokens > pooling.step_rows {
            return Err(EmbedError::LongerThanStep { tokens, limit: pooling.step_rows });
        }
        if let Some(asked) = request.dimensions.filter(|asked| !(1..=width).contains(asked)) {
            return Err(EmbedError::WrongDimensions { asked, width });
        }
        match request.tokens.iter().find(|token| token.0 as usize >= vocabulary) {
            Some(token) => Err(EmbedError::UnknownToken { id: token.0, vocabulary }),
            None => Ok(()),
        }
    }
}

/// The events of the inner request, which its goal makes superfluous.
struct Unheard;

impl Sink for Unheard {
    fn deliver(&self, _events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_vector_has_unit_length() {
        assert_eq!(shortened(vec![0.6, 0.0, 0.8], 2), [1.0, 0.0]);
        assert_eq!(shortened(vec![0.48, 0.64, 0.6], 2), [0.6, 0.8]);
        assert_eq!(shortened(vec![0.0, 1.0], 1), [0.0]);
    }
}
