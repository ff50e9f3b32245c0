//! Which tools there are: every capsule is asked to describe its own, and the host which capsule provides what.
//!
//! A window closes as soon as the host tells that the last handler has ended, so asking takes as long as the slowest
//! capsule answers. A host that does not tell costs the whole window.

mod answers;
mod asking;
mod choosing;
mod collecting;
mod configured;
mod metadata;

pub use answers::Answer;
pub use asking::{Heard, describe};
pub use choosing::{Choice, Duplicate, Tool, choose};
pub use collecting::{Collected, Settled, Windows, collect};
pub use configured::{milliseconds, number};
pub use metadata::{Capsule, Capsules, Provided};
