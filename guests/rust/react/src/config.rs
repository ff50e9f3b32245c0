//! What the operator may set. The manifest has the same defaults; these stand in where a host does not serve them.

use astrid_sdk::prelude::*;

pub(crate) const IDENTITY_TIMEOUT: Setting = Setting { key: "identity_timeout_secs", default: 30 };
pub(crate) const STREAMING_TIMEOUT: Setting = Setting { key: "streaming_timeout_secs", default: 120 };
pub(crate) const GENERATION_TIMEOUT: Setting = Setting { key: "generation_timeout_secs", default: 1800 };
pub(crate) const TOOL_TIMEOUT: Setting = Setting { key: "tool_timeout_secs", default: 150 };
pub(crate) const SESSION_TIMEOUT_MS: Setting = Setting { key: "session_timeout_ms", default: 2000 };
pub(crate) const REGISTRY_TIMEOUT_MS: Setting = Setting { key: "registry_timeout_ms", default: 5000 };
pub(crate) const COMPACT_TIMEOUT_MS: Setting = Setting { key: "compact_timeout_ms", default: 5000 };
pub(crate) const MAX_ITERATIONS: Setting = Setting { key: "max_iterations", default: 25 };
pub(crate) const MAX_RESPONSE_BYTES: Setting = Setting { key: "max_response_bytes", default: 512 * 1024 };
pub(crate) const MAX_RESULT_BYTES: Setting = Setting { key: "max_result_bytes", default: 256 * 1024 };
pub(crate) const SUMMARIES: Setting = Setting { key: "summaries", default: 1 };
pub(crate) const MAX_QUEUED_PROMPTS: Setting = Setting { key: "max_queued_prompts", default: 8 };

/// A number that the operator may set.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    default: u64,
}

impl Setting {
    /// What is set. What is no number is said in the log, and the default counts.
    pub(crate) fn get(&self) -> u64 {
        let text = text(self.key);
        if text.is_empty() {
            return self.default;
        }
        text.parse().unwrap_or_else(|_| {
            log::warn(format!("{} is {text:?}, which is no number: {} counts", self.key, self.default));
            self.default
        })
    }

    pub(crate) fn get_ms(&self) -> u64 {
        self.get().saturating_mul(1000)
    }
}

/// A text that the operator may set; empty when it is not set.
pub(crate) fn text(key: &str) -> String {
    match env::var(key) {
        Ok(text) => text.trim().trim_matches('"').to_owned(),
        Err(error) => {
            log::warn(format!("{key} cannot be read, its default counts: {error}"));
            String::new()
        }
    }
}
