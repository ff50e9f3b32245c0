//! Which messages of a conversation go to the model when not all of them fit: first old results of tools are shortened,
//! then what is oldest is cut off. Calls of tools are never parted from their results, and what the user wants of the turn
//! that runs always stays.

use super::message::{Kind, Message};

/// So much is left of an old result.
const OLD_RESULT_BYTES: usize = 600;
/// So little is left of anything when nothing else helps.
const LEAST_BYTES: usize = 200;
/// The newest groups that are left as they are as long as that is possible.
const RECENT_GROUPS: usize = 2;

/// The tokens of all messages.
pub(crate) fn total(messages: &[Message]) -> u64 {
    messages.iter().map(|message| message.tokens).sum()
}

/// Where the turn that runs begins: at what the user said last.
pub(crate) fn running(messages: &[Message]) -> usize {
    messages.iter().rposition(|message| message.kind == Kind::User).unwrap_or(0)
}

/// Where groups begin: calls and their results are one, each other message is one by itself.
fn groups(messages: &[Message]) -> Vec<usize> {
    (0..messages.len()).filter(|at| messages[*at].kind != Kind::Result || *at == 0).collect()
}

/// Shorten old results, the oldest first, until everything has at most three quarters of that room. Nothing is done to what
/// has room as it is.
pub(crate) fn shorten_old_results(messages: &mut [Message], room: u64) {
    let mut sum = total(messages);
    if sum <= room {
        return;
    }
    let groups = groups(messages);
    let old = groups[groups.len().saturating_sub(RECENT_GROUPS)..].first().copied().unwrap_or(0);
    for message in messages[..old].iter_mut().filter(|message| message.kind == Kind::Result) {
        if sum <= room / 4 * 3 {
            return;
        }
        let before = message.tokens;
        message.shorten(OLD_RESULT_BYTES);
        sum = sum - before.max(message.tokens) + message.tokens.min(before);
    }
}

/// Where to cut, so that what is after it, and what the user wants, has at most that room: at the beginning of an exchange,
/// or between groups of the turn that runs. 0: nowhere.
pub(crate) fn cut(messages: &[Message], room: u64) -> usize {
    let (groups, running) = (groups(messages), running(messages));
    let mut sum = messages.get(running).map_or(0, |message| message.tokens);
    let mut end = messages.len();
    let mut cut = groups.last().copied().unwrap_or(0);
    for &begin in groups.iter().rev() {
        let more = total(&messages[begin..end]);
        if begin != running {
            sum += more;
        }
        if sum > room && end != messages.len() {
            break;
        }
        (cut, end) = (begin, begin);
    }
    if cut > running {
        // Nothing is gained by a cut that only leaves out what the user wants, which stays.
        return if cut == running + 1 { running } else { cut };
    }
    (cut..=running).find(|at| messages.get(*at).is_some_and(|message| message.kind == Kind::User)).unwrap_or(cut)
}

/// What is after a cut, with what the user wants.
pub(crate) fn after(messages: &[Message], cut: usize) -> Vec<Message> {
    let running = running(messages);
    let wish = messages.get(running).filter(|_| cut > running).cloned();
    wish.into_iter().chain(messages[cut.min(messages.len())..].iter().cloned()).collect()
}

/// Shorten whatever can be: results and what the model said and called, all alike. What the user wants stays whole.
pub(crate) fn squeeze(messages: &mut [Message], room: u64) {
    let running = running(messages);
    for bytes in [64 << 10, 16 << 10, 4 << 10, 1 << 10, LEAST_BYTES] {
        if total(messages) <= room {
            return;
        }
        let others = messages.iter_mut().enumerate().filter(|(at, _)| *at != running);
        others.for_each(|(_, message)| message.shorten(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::{call, result, said, user};
    use super::*;

    fn exchange(n: usize) -> Vec<Message> {
        vec![user(&format!("question {n}")), call(n), result(n, &"word ".repeat(400)), said("done")]
    }

    fn conversation(turns: usize) -> Vec<Message> {
        (0..turns).flat_map(exchange).chain([user("now")]).collect()
    }

    fn kinds(messages: &[Message]) -> Vec<Kind> {
        messages.iter().map(|message| message.kind).collect()
    }

    #[test]
    fn what_fits_is_left_alone() {
        let mut messages = conversation(3);
        let before = total(&messages);
        shorten_old_results(&mut messages, before);
        assert_eq!(total(&messages), before);
    }

    #[test]
    fn old_results_are_shortened_first_and_only_as_far_as_needed() {
        let mut messages = conversation(8);
        let room = total(&messages) - 10;
        shorten_old_results(&mut messages, room);
        let lengths: Vec<_> = messages.iter().filter(|m| m.kind == Kind::Result).map(|m| m.raw.get().len()).collect();
        assert!(lengths[0] < 900 && lengths[7] > 2000, "{lengths:?}");
        assert!(total(&messages) <= room / 4 * 3 && messages.len() == 33);
    }

    #[test]
    fn a_cut_is_at_the_beginning_of_an_exchange() {
        let messages = conversation(10);
        for room in [0, 100, 700, 2000, 4000] {
            let at = cut(&messages, room);
            assert_eq!(messages[at].kind, Kind::User, "{room}");
            assert!(total(&messages[at..]) <= room.max(messages[40].tokens), "{room}");
        }
        assert_eq!(cut(&messages, u64::MAX), 0);
        assert_eq!(cut(&messages, 0), 40);
    }

    #[test]
    fn a_long_turn_is_cut_between_groups_and_keeps_its_wish() {
        let mut messages = vec![user("old"), said("yes"), user("the task")];
        (0..20).for_each(|n| messages.extend([call(n), result(n, &"word ".repeat(200))]));
        let at = cut(&messages, 1500);
        assert!(at > 3 && messages[at].kind == Kind::Calls);
        let kept = after(&messages, at);
        assert!(total(&kept) <= 1500);
        assert_eq!(kinds(&kept)[..3], [Kind::User, Kind::Calls, Kind::Result]);
        assert!(kept[0].raw.get().contains("the task"));
        let last = after(&messages, cut(&messages, 0));
        assert_eq!(kinds(&last), [Kind::User, Kind::Calls, Kind::Result]);
    }

    #[test]
    fn one_exchange_alone_is_not_cut() {
        assert_eq!(cut(&[user("a")], 0), 0);
        assert_eq!(cut(&[user("a"), call(1), result(1, "r")], 0), 0);
        assert_eq!(cut(&[], 0), 0);
    }

    #[test]
    fn what_still_does_not_fit_is_shortened_but_not_the_wish() {
        let wish = "wish ".repeat(100);
        let mut messages = vec![user(&wish), call(1), result(1, &"word ".repeat(50_000))];
        squeeze(&mut messages, 1000);
        assert!(total(&messages) <= 1000 && messages[0].raw.get().contains(&wish));
        assert_eq!(kinds(&messages), [Kind::User, Kind::Calls, Kind::Result]);
    }
}
