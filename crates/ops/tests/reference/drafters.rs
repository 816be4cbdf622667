//! drafters
