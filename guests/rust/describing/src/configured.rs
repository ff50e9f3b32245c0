//! Numbers that an operator may set.

use std::time::Duration;

use astrid_sdk::{env, log};

/// The configuration key `key` as a number; `default` where nobody set one, or what was set is none, which is logged.
#[must_use]
pub fn number(key: &str, default: u64) -> u64 {
    let set = env::var(key).unwrap_or_else(|error| {
        log::warn(format!("{key} cannot be read, so it is {default}: {error}"));
        String::new()
    });
    read(&set, default).unwrap_or_else(|| {
        log::warn(format!("{key} is {set:?}, which is no whole number: it counts as {default}"));
        default
    })
}

/// The same, in milliseconds.
#[must_use]
pub fn milliseconds(key: &str, default: u64) -> Duration {
    Duration::from_millis(number(key, default))
}

fn read(set: &str, default: u64) -> Option<u64> {
    match set.trim().trim_matches('"') {
        "" => Some(default),
        text => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn what_is_not_set_is_the_default_and_what_is_no_number_is_told() {
        assert_eq!(read("", 7), Some(7));
        assert_eq!(read(" 12 ", 7), Some(12));
        assert_eq!(read("\"12\"", 7), Some(12));
        for text in ["-1", "1.5", "soon"] {
            assert_eq!(read(text, 7), None);
        }
    }
}
