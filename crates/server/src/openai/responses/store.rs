//! Kept responses, in memory, within limits: the oldest go first. Each belongs to the key that made it.

use crate::config::KeyIndex;
use crate::error::ApiError;
use crate::limits::Limits;
use crate::wire::fields::shortened;
use gannet_text::chat::{Content, Message};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A kept response.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    key: Option<KeyIndex>,
    pub(crate) response: Value,
    /// The conversation with the answer, without instructions.
    pub(crate) messages: Arc<Vec<Message>>,
    /// Tells the task that makes it to stop.
    pub(crate) cancel: Arc<Notify>,
    bytes: usize,
}

/// All kept responses.
#[derive(Debug)]
pub(crate) struct Store {
    kept: Mutex<Kept>,
    limits: Arc<Limits>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<String, Entry>,
    /// Oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

impl Entry {
    pub(crate) fn new(key: Option<KeyIndex>, response: Value, messages: Vec<Message>) -> Self {
        let said = messages.iter().map(|message| match &message.content {
            Content::Text(text) => text.len(),
            Content::Parts(parts) => parts.iter().map(|part| part.to_string().len()).sum(),
            Content::Null | Content::Absent => 0,
        });
        let bytes = response.to_string().len() + said.sum::<usize>();
        Self { key, response, messages: Arc::new(messages), cancel: Arc::default(), bytes }
    }
}

impl Store {
    pub(crate) fn new(limits: &Arc<Limits>) -> Self {
        Self { kept: Mutex::default(), limits: limits.clone() }
    }

    /// Keeps a response, in place of an earlier state of it.
    pub(crate) fn keep(&self, id: &str, mut entry: Entry) {
        let mut kept = self.lock();
        match kept.entries.remove(id) {
            Some(earlier) => {
                kept.bytes -= earlier.bytes;
                entry.cancel = earlier.cancel;
            }
            None => kept.order.push_back(id.to_owned()),
        }
        kept.bytes += entry.bytes;
        kept.entries.insert(id.to_owned(), entry);
        let Limits { stored_responses, stored_bytes, .. } = *self.limits;
        while kept.entries.len() > stored_responses || kept.bytes > stored_bytes {
            let Some(oldest) = kept.order.front().cloned() else { return };
            kept.forget(&oldest);
        }
    }

    /// The response of this id, if it belongs to this key.
    pub(crate) fn find(&self, id: &str, key: Option<KeyIndex>) -> Result<Entry, ApiError> {
        let entry = self.lock().entries.get(id).filter(|entry| entry.key == key).cloned();
        entry.ok_or_else(|| ApiError::NotFound { what: "response", id: shortened(id) })
    }

    pub(crate) fn cancellation(&self, id: &str) -> Option<Arc<Notify>> {
        self.lock().entries.get(id).map(|entry| entry.cancel.clone())
    }

    pub(crate) fn forget(&self, id: &str) {
        self.lock().forget(id);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn forget(&mut self, id: &str) {
        if let Some(entry) = self.entries.remove(id) {
            self.bytes -= entry.bytes;
        }
        self.order.retain(|kept| kept != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let limits = Limits { stored_responses: 4, stored_bytes: 1000, ..Limits::default() };
        let store = Store::new(&limits.into());
        for number in 0..6 {
            store.keep(&number.to_string(), Entry::new(None, json!(number), Vec::new()));
        }
        assert!(store.find("0", None).is_err() && store.find("1", None).is_err());
        assert_eq!(store.find("2", None).unwrap().response, 2);
        let large = Message::new("user", &"x".repeat(998));
        store.keep("large", Entry::new(None, json!(0), vec![large]));
        assert!(store.find("large", None).is_ok());
        assert!(store.find("3", None).is_err());
    }

    #[test]
    fn a_response_is_its_keys_own() {
        let store = Store::new(&Arc::default());
        store.keep("a", Entry::new(Some(1), json!(1), Vec::new()));
        assert!(store.find("a", Some(1)).is_ok());
        assert!(store.find("a", Some(0)).is_err());
        assert!(store.find("a", None).is_err());
        store.forget("a");
        assert!(store.find("a", Some(1)).is_err());
    }
}
