//! What of a conversation is handed out where not all of it fits.
//!
//! Whole turns are kept, the newest ones: a result without the call it answers would make a model's provider refuse all.
//! The turn under way is always in it, begun by what the user wants. Where it alone is too long, its older results of
//! tools are shortened, and what still does not fit is left out of its middle.

use serde_json::Value;

use crate::message::{role, shortened, size};
use crate::thread::{Page, Thread};

/// What is left of a message that is shortened.
const SHORT_BYTES: usize = 1 << 10;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct History {
    pub(crate) messages: Vec<Value>,
    /// How many are not in it, of all that the conversation ever had.
    pub(crate) omitted: usize,
    pub(crate) shortened: usize,
    /// The number of its first message, counted from 0 over all that the conversation ever had.
    pub(crate) begins: usize,
}

/// The newest turns of a conversation, of at most `most_bytes` together: those that end after the message of number `after`,
/// and the turn under way in any case.
///
/// `page` reads a page; where one cannot be read, nothing from before it is handed out.
pub(crate) fn turns(
    thread: &Thread,
    after: usize,
    most_bytes: usize,
    page: impl Fn(&Page) -> Option<Vec<Value>>,
) -> History {
    let mut reader = newest_first(thread, &page);
    let mut history = current(&mut reader, most_bytes);
    let mut bytes: usize = history.messages.iter().map(size).sum();
    // What was left out of the middle stands before what was kept.
    history.begins = total(thread).saturating_sub(history.messages.len() + history.begins);
    while history.begins > after {
        let (turn, more) = earlier(&mut reader, most_bytes.saturating_sub(bytes));
        if turn.is_empty() {
            break;
        }
        bytes += more;
        history.begins = history.begins.saturating_sub(turn.len());
        history.messages.extend(turn);
    }
    finished(history, thread)
}

/// Which of the newest messages are wanted: at most `limit`, after the very newest ones are left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    pub(crate) skipped: usize,
    pub(crate) limit: usize,
}

impl Newest {
    pub(crate) fn first(limit: usize) -> Self {
        Self { skipped: 0, limit }
    }
}

/// The newest messages of a conversation, of at most `most_bytes` together. Those that are skipped do not count as omitted.
pub(crate) fn newest(
    thread: &Thread,
    wanted: Newest,
    most_bytes: usize,
    page: impl Fn(&Page) -> Option<Vec<Value>>,
) -> History {
    let mut history = History::default();
    let mut bytes = 0;
    for message in newest_first(thread, &page).skip(wanted.skipped).take(wanted.limit) {
        let more = size(&message);
        let message = match bytes + more <= most_bytes {
            true => message,
            false if bytes == 0 => match shortened(&message, most_bytes) {
                Some(short) => {
                    history.shortened += 1;
                    short
                }
                None => break,
            },
            false => break,
        };
        bytes += more;
        history.messages.push(message);
    }
    let mut history = finished(history, thread);
    history.omitted = history.omitted.saturating_sub(wanted.skipped);
    history
}

fn finished(mut history: History, thread: &Thread) -> History {
    history.messages.reverse();
    history.omitted = total(thread) - history.messages.len();
    history
}

/// How many messages the conversation ever had.
pub(crate) fn total(thread: &Thread) -> usize {
    thread.dropped + thread.count()
}

fn newest_first<'a>(
    thread: &'a Thread,
    page: &'a impl Fn(&Page) -> Option<Vec<Value>>,
) -> impl Iterator<Item = Value> + 'a {
    let older = thread.pages.iter().rev().map_while(page).flat_map(|messages| messages.into_iter().rev());
    thread.messages.iter().rev().cloned().chain(older)
}

/// The turn under way, the newest message first, up to the user's that began it. `begins` is how many of it are left out.
fn current(reader: &mut impl Iterator<Item = Value>, most_bytes: usize) -> History {
    // An eighth is for what the user wants, another one for messages that are shortened.
    let (for_whole, for_short) = (most_bytes / 8 * 6, most_bytes / 8 * 7);
    let mut history = History::default();
    let (mut bytes, mut skipping) = (0, false);
    for message in reader {
        let begins = role(&message) == "user";
        let whole = if begins { most_bytes } else { for_whole };
        let fitting = if bytes + size(&message) <= whole {
            Some((message, 0))
        } else if begins || bytes == 0 {
            shortened(&message, (whole - bytes).saturating_sub(SHORT_BYTES)).map(|short| (short, 1))
        } else {
            // Calls cannot be shortened, but are short.
            let short = shortened(&message, SHORT_BYTES).map_or((message, 0), |short| (short, 1));
            (bytes + size(&short.0) <= for_short).then_some(short)
        };
        skipping |= fitting.is_none();
        history.begins += 1;
        if let Some((message, shortened)) = fitting
            && (begins || !skipping)
        {
            if skipping {
                drop_orphans(&mut history.messages);
            }
            bytes += size(&message);
            history.shortened += shortened;
            history.messages.push(message);
        }
        if begins {
            history.begins -= history.messages.len();
            return history;
        }
    }
    drop_orphans(&mut history.messages);
    history.begins -= history.messages.len();
    history
}

/// Results whose calls are not there, at the older end of what is newest first.
fn drop_orphans(messages: &mut Vec<Value>) {
    while messages.last().is_some_and(|message| role(message) == "tool") {
        messages.pop();
    }
}

/// The next older turn, the newest message first, and its bytes; none where it has more than `most_bytes`.
fn earlier(reader: &mut impl Iterator<Item = Value>, most_bytes: usize) -> (Vec<Value>, usize) {
    let mut turn = Vec::new();
    let mut bytes = 0;
    for message in reader {
        let first = role(&message) == "user";
        bytes += size(&message);
        if bytes > most_bytes {
            return (Vec::new(), 0);
        }
        turn.push(message);
        if first {
            return (turn, bytes);
        }
    }
    drop_orphans(&mut turn);
    (turn, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn assistant(text: &str) -> Value {
        json!({"role": "assistant", "content": text})
    }

    fn call(id: usize) -> Value {
        json!({"role": "assistant", "content": [{"id": format!("c{id}"), "name": "x", "arguments": {}}]})
    }

    fn result(id: usize, bytes: usize) -> Value {
        let content = "r".repeat(bytes);
        json!({"role": "tool", "content": {"call_id": format!("c{id}"), "content": content, "is_error": false}})
    }

    fn thread(messages: Vec<Value>) -> Thread {
        Thread { messages, ..Thread::default() }
    }

    fn of(messages: Vec<Value>, most_bytes: usize) -> History {
        let history = turns(&thread(messages), 0, most_bytes, |_| None);
        let bytes: usize = history.messages.iter().map(size).sum();
        assert!(bytes <= most_bytes, "{bytes} of {most_bytes}");
        history
    }

    #[test]
    fn what_fits_is_handed_out_as_it_is() {
        let all = vec![json!({"role": "system", "content": "s"}), user("a"), call(1), result(1, 9), assistant("b")];
        assert_eq!(of(all.clone(), 4096), History { messages: all, ..History::default() });
        assert_eq!(of(vec![], 4096), History::default());
    }

    #[test]
    fn the_oldest_turns_are_left_out_whole() {
        let turn = |n: usize| vec![user(&format!("{n}")), call(n), result(n, 500), assistant("done")];
        let all: Vec<Value> = (0..20).flat_map(turn).collect();
        let history = of(all.clone(), 4096);
        assert_eq!(history.messages, all[all.len() - history.messages.len()..]);
        assert_eq!(role(&history.messages[0]), "user");
        assert_eq!((history.omitted + history.messages.len(), history.shortened), (80, 0));
        assert!(history.messages.len() >= 16);
    }

    #[test]
    fn turns_before_a_number_are_left_out_but_not_the_one_under_way() {
        let turn = |n: usize| vec![user(&format!("{n}")), call(n), result(n, 50), assistant("done")];
        let all: Vec<Value> = (0..5).flat_map(turn).collect();
        for (after, begins) in [(0, 0), (1, 0), (4, 4), (5, 4), (15, 12), (16, 16), (18, 16), (999, 16)] {
            let history = turns(&thread(all.clone()), after, 1 << 20, |_| None);
            assert_eq!((history.begins, &history.messages[..]), (begins, &all[begins..]), "{after}");
        }
        assert_eq!(turns(&Thread { dropped: 7, ..thread(all.clone()) }, 15, 1 << 20, |_| None).begins, 15);
    }

    #[test]
    fn the_older_results_of_a_long_turn_are_shortened() {
        let mut all = vec![user("earlier"), assistant("yes"), user("the task")];
        (0..10).for_each(|n| all.extend([call(n), result(n, 4000)]));
        let history = of(all.clone(), 30_000);
        assert_eq!((history.messages.len(), history.omitted), (23, 0));
        assert_eq!(history.messages[..4], all[..4]);
        assert_eq!(history.messages[22], all[22]);
        assert!(history.shortened > 0 && size(&history.messages[4]) < 1300);
        assert_eq!(history.messages[4]["content"]["call_id"], "c0");
    }

    #[test]
    fn a_turn_that_cannot_be_shortened_enough_loses_its_middle_but_not_its_task() {
        let mut all = vec![user("the task")];
        (0..100).for_each(|n| all.extend([call(n), result(n, 4000)]));
        let history = of(all.clone(), 30_000);
        assert_eq!(history.messages[0], user("the task"));
        assert_eq!(role(&history.messages[1]), "assistant");
        assert_eq!(history.messages.last(), all.last());
        assert_eq!(history.messages.len() % 2, 1);
        assert!(history.omitted > 0);
    }

    #[test]
    fn one_message_that_is_too_large_is_shortened() {
        for message in [user(&"u".repeat(9000)), assistant(&"a".repeat(9000))] {
            let history = of(vec![user("a"), message], 4096);
            assert!(history.messages.last().unwrap().to_string().contains("Left out here"));
            assert_eq!(history.shortened, 1);
        }
        let history = of(vec![user("the task"), call(1), result(1, 9000)], 4096);
        assert_eq!((history.messages.len(), history.omitted, history.shortened), (3, 0, 1));
    }

    #[test]
    fn pages_are_read_as_far_as_they_are_needed() {
        let mut thread = Thread::default();
        let all: Vec<Value> = (0..12).map(|n| user(&format!("{n} {}", "x".repeat(30 << 10)))).collect();
        let pages: Vec<(Page, Vec<Value>)> =
            all.iter().flat_map(|m| thread.append(std::slice::from_ref(m), usize::MAX).written).collect();
        let page = |wanted: &Page| {
            let at = pages.iter().position(|(page, _)| page == wanted)?;
            assert!(at >= 3, "page {at} is not needed");
            Some(pages[at].1.clone())
        };
        assert_eq!(newest(&thread, Newest::first(4), usize::MAX, page).messages, all[8..]);
        assert_eq!(turns(&thread, 0, 100 << 10, page).messages, all[9..]);
        let lost = turns(&thread, 0, usize::MAX, |_| None);
        assert_eq!((lost.messages.len(), lost.omitted), (2, 10));
    }

    #[test]
    fn the_newest_messages_are_counted_and_bounded() {
        let all = vec![user("a"), assistant("b"), user("c")];
        assert_eq!(newest(&thread(all.clone()), Newest::first(2), 4096, |_| None).messages, all[1..]);
        assert_eq!(
            newest(&thread(all.clone()), Newest::first(0), 4096, |_| None),
            History { omitted: 3, ..History::default() }
        );
        let one = newest(&thread(vec![user("a"), user(&"u".repeat(9000))]), Newest::first(9), 4096, |_| None);
        assert_eq!((one.messages.len(), one.omitted, one.shortened), (1, 1, 1));
    }

    #[test]
    fn older_messages_are_gone_on_to() {
        let all = vec![user("a"), assistant("b"), user("c"), assistant("d")];
        let part = |skipped, limit| {
            let found = newest(&thread(all.clone()), Newest { skipped, limit }, 4096, |_| None);
            (found.messages, found.omitted)
        };
        assert_eq!(part(1, 2), (all[1..3].to_vec(), 1));
        assert_eq!(part(3, usize::MAX), (all[..1].to_vec(), 0));
        assert_eq!(part(usize::MAX, 5), (vec![], 0));
    }
}
