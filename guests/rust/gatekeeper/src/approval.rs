//! What is asked about.

use std::sync::atomic::{AtomicBool, Ordering};

use astrid_sdk::prelude::*;

use crate::flags::Flag;

/// The configuration key `approval`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Approval {
    Never,
    Mutable,
    Always,
}

impl Approval {
    /// What is configured. What cannot be read, or is none of the words, counts as `always`.
    pub(crate) fn configured() -> Self {
        let word = env::var("approval");
        let approval = word.as_ref().ok().and_then(|word| Self::named(word));
        approval.unwrap_or_else(|| {
            static TOLD: AtomicBool = AtomicBool::new(false);
            if !TOLD.swap(true, Ordering::Relaxed) {
                let what = word.map_or_else(|error| format!("cannot be read ({error})"), |word| format!("is {word:?}"));
                log::warn(format!("approval must be never, mutable or always; it {what} and counts as always"));
            }
            Self::Always
        })
    }

    fn named(word: &str) -> Option<Self> {
        match word.trim() {
            "never" => Some(Self::Never),
            "" | "mutable" => Some(Self::Mutable),
            "always" => Some(Self::Always),
            _ => None,
        }
    }

    /// Whether somebody is asked before a tool is called. A tool that asks itself, and more finely, is left alone.
    pub(crate) fn asks(self, flag: Flag) -> bool {
        match self {
            Self::Never => false,
            Self::Mutable => matches!(flag, Flag::Mutable | Flag::Unknown),
            Self::Always => flag != Flag::AsksItself,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_words_are_known_and_none_of_them_is_mutable() {
        assert_eq!(Approval::named(" always "), Some(Approval::Always));
        assert_eq!(Approval::named("never"), Some(Approval::Never));
        assert_eq!(Approval::named("mutable"), Approval::named(""));
        for word in ["Never", "no", "false", "mutable,never"] {
            assert_eq!(Approval::named(word), None);
        }
    }

    #[test]
    fn what_is_unknown_counts_as_mutable() {
        let asked = |approval: Approval| {
            [Flag::Plain, Flag::Mutable, Flag::Unknown, Flag::AsksItself].map(|flag| approval.asks(flag))
        };
        assert_eq!(asked(Approval::Never), [false; 4]);
        assert_eq!(asked(Approval::Mutable), [false, true, true, false]);
        assert_eq!(asked(Approval::Always), [true, true, true, false]);
    }
}
