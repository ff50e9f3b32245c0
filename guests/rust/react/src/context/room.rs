//! How many tokens a request may have: by what the registry says of the model, by what a server said when it refused a
//! conversation, and by how its count differed from the estimate.

use std::collections::BTreeMap;

use context_window::tokens;
use serde::{Deserialize, Serialize};

use crate::ids::now_ms;
use crate::model::Limits;
use crate::store::{remember, remembered};
use crate::turn::Turn;

const KEY: &str = "react.windows";
/// What a server said of its window counts so long: it may be started anew with another one.
const LEARNED_MS: u64 = 24 * 60 * 60 * 1000;
/// So many models are remembered.
const MODELS: usize = 64;
/// The least and the most that an estimate is corrected by, in percent. What is beyond is no count of this request.
const CORRECTION: std::ops::RangeInclusive<u64> = 85..=300;
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 50..=400;

/// What was learned of a model.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
struct Learned {
    window: Option<u64>,
    until_ms: u64,
    /// What the server counts for each 100 estimated tokens.
    percent: u64,
}

impl Default for Learned {
    fn default() -> Self {
        Self { window: None, until_ms: 0, percent: 100 }
    }
}

/// The room of a request.
#[derive(Debug, PartialEq)]
pub(crate) struct Room {
    /// For all that is sent; None: nobody knows.
    pub(crate) tokens: Option<u64>,
    percent: u64,
}

impl Room {
    /// The room of the next request of a turn.
    pub(crate) fn of(turn: &Turn, told: Limits) -> Self {
        Self::new(&learned(turn), told, turn.fitting.most, now_ms())
    }

    fn new(learned: &Learned, told: Limits, most: Option<u64>, now: u64) -> Self {
        let said = learned.window.filter(|_| now < learned.until_ms);
        let window = [told.window, said].into_iter().flatten().min();
        let output = told.output.unwrap_or(0);
        let limit = window.map(|window| {
            let kept = if output == 0 { window / 8 } else { output.min(window / 4) };
            (window - kept) / 100 * 95 + (window - kept) % 100 * 95 / 100
        });
        let tokens = [limit, most].into_iter().flatten().min();
        Self { tokens, percent: learned.percent }
    }

    #[cfg(test)]
    pub(crate) fn fixed(tokens: u64) -> Self {
        Self { tokens: Some(tokens), percent: 100 }
    }

    /// About how many tokens a text has for this model.
    pub(crate) fn count(&self, text: &str) -> u64 {
        self.corrected(tokens(text))
    }

    pub(crate) fn corrected(&self, tokens: u64) -> u64 {
        (tokens * self.percent).div_ceil(100)
    }

    /// The same room in tokens that are not corrected.
    pub(crate) fn uncorrected(&self, tokens: u64) -> u64 {
        tokens * 100 / self.percent
    }
}

fn key(turn: &Turn) -> String {
    format!("{} {}", turn.topic, turn.model)
}

fn all() -> BTreeMap<String, Learned> {
    // What cannot be read is learned again.
    serde_json::from_str(&remembered(KEY)).unwrap_or_default()
}

fn learned(turn: &Turn) -> Learned {
    let learned = all().remove(&key(turn)).unwrap_or_default();
    Learned { percent: learned.percent.clamp(*CORRECTION.start(), *CORRECTION.end()), ..learned }
}

fn learn(turn: &Turn, change: impl FnOnce(&mut Learned)) {
    let mut all = all();
    let before = all.get(&key(turn)).cloned().unwrap_or_default();
    let mut after = before.clone();
    change(&mut after);
    if after == before {
        return;
    }
    if all.len() >= MODELS && !all.contains_key(&key(turn)) {
        all.pop_first();
    }
    all.insert(key(turn), after);
    if let Ok(text) = serde_json::to_string(&all) {
        remember(KEY, &text);
    }
}

/// A server said how many tokens there may be.
pub(crate) fn learn_window(turn: &Turn, window: u64) {
    let until_ms = now_ms().saturating_add(LEARNED_MS);
    learn(turn, |learned| (learned.window, learned.until_ms) = (Some(window), until_ms));
}

/// A server counted the tokens of a request that was estimated to have so many, without any correction.
pub(crate) fn learn_count(turn: &Turn, counted: u64) {
    let estimated = turn.fitting.estimated;
    if estimated >= 100 {
        learn(turn, |learned| learned.percent = corrected(learned.percent, counted * 100 / estimated));
    }
}

/// Too low an estimate is corrected at once, too high a one bit by bit.
fn corrected(percent: u64, measured: u64) -> u64 {
    if !PLAUSIBLE.contains(&measured) {
        return percent;
    }
    let next = if measured > percent { measured } else { (percent * 3 + measured) / 4 };
    next.clamp(*CORRECTION.start(), *CORRECTION.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(window: u64, output: u64) -> Limits {
        Limits { window: Some(window), output: Some(output) }
    }

    #[test]
    fn room_for_the_answer_is_kept_free_but_not_more_than_a_quarter() {
        let room = |told| Room::new(&Learned::default(), told, None, 0).tokens;
        assert_eq!(room(limits(128_000, 8_192)), Some(113_817));
        assert_eq!(room(limits(16_000, 8_192)), Some(11_400));
        assert_eq!(room(limits(16_000, 0)), Some(13_300));
        assert_eq!(room(Limits::default()), None);
    }

    #[test]
    fn what_a_server_said_counts_for_a_day_and_only_downwards() {
        let learned = Learned { window: Some(4000), until_ms: 10, percent: 100 };
        assert_eq!(Room::new(&learned, limits(128_000, 8_192), None, 9).tokens, Some(2850));
        assert_eq!(Room::new(&learned, limits(2000, 0), None, 9).tokens, Some(1662));
        assert_eq!(Room::new(&learned, limits(128_000, 8_192), None, 10).tokens, Some(113_817));
        assert_eq!(Room::new(&learned, limits(128_000, 8_192), Some(1000), 9).tokens, Some(1000));
    }

    #[test]
    fn a_count_corrects_the_estimate_unless_it_is_none() {
        assert_eq!(corrected(100, 150), 150);
        assert_eq!(corrected(150, 100), 137);
        assert_eq!(corrected(85, 60), 85);
        for odd in [0, 1, 49, 401, u64::MAX / 200] {
            assert_eq!(corrected(100, odd), 100, "{odd}");
        }
    }
}
