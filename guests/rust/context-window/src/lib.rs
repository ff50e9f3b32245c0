//! The context window of a model: an estimate of how many tokens a text has, the words by which providers say that a
//! request has too many, and where their lists of models say how many there may be. Nothing here fails: what cannot be
//! read counts as not said.

mod estimate;
mod listing;
mod overflow;

pub use estimate::tokens;
pub use listing::{Limits, limits};
pub use overflow::{CODE, in_error, is_told_by, window_told_by};
