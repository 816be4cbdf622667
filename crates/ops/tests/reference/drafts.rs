//! drafts
