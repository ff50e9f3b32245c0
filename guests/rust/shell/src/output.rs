//! What a command wrote and how it ended, as one text that fits into a result.

use std::borrow::Cow;

use astrid_sdk::process::ExitInfo;

/// The room for a text in a result: a message has at most 1 MiB, and the text is not all that is in it.
const SENT_BYTES: usize = (1 << 20) - (16 << 10);

/// How a command ended, unless it ended well.
pub(crate) fn ended(exit: &ExitInfo) -> Option<String> {
    match (exit.exit_code, exit.signal) {
        (Some(0), None) => None,
        (_, Some(signal)) => Some(format!("signal {signal}")),
        (Some(code), None) => Some(format!("exit code {code}")),
        (None, None) => Some("no exit code".to_owned()),
    }
}

/// What a command wrote: its output, then its errors.
pub(crate) fn told(stdout: &str, stderr: &str) -> String {
    match (stdout, stderr) {
        (out, "") => last(out, SENT_BYTES),
        ("", err) => last(err, SENT_BYTES),
        (out, err) => {
            let break_between = if out.ends_with('\n') { "" } else { "\n" };
            format!("{}{break_between}[stderr]\n{}", last(out, SENT_BYTES / 2), last(err, SENT_BYTES / 2))
        }
    }
}

/// The same of a command that did not end well.
pub(crate) fn failed(how: &str, stdout: &str, stderr: &str) -> String {
    match (stdout, stderr) {
        ("", "") => format!("Command failed ({how})."),
        (out, "") => format!("Command failed ({how}). Its output:\n{}", last(out, SENT_BYTES)),
        ("", err) => format!("Command failed ({how}): {}", last(err, SENT_BYTES)),
        (out, err) => format!(
            "Command failed ({how}): {}\nIts output:\n{}",
            last(err, SENT_BYTES / 2).trim_end_matches('\n'),
            last(out, SENT_BYTES / 2)
        ),
    }
}

/// The last `most` lines of a text; how many are left out is said.
pub(crate) fn newest_lines(text: &str, most: usize) -> Cow<'_, str> {
    let all = text.lines().count();
    match all.checked_sub(most) {
        None | Some(0) => text.into(),
        Some(left_out) => {
            let kept: String = text.split_inclusive('\n').skip(left_out).collect();
            format!("[{left_out} lines were left out]\n{kept}").into()
        }
    }
}

/// The end of a text, as much as fits; what is left out is said.
fn last(text: &str, room: usize) -> String {
    let mut left = room;
    for (at, character) in text.char_indices().rev() {
        let Some(rest) = left.checked_sub(sent_bytes(character)) else {
            let start = at + character.len_utf8();
            return format!("[{start} bytes were left out]\n{}", &text[start..]);
        };
        left = rest;
    }
    text.to_owned()
}

/// The bytes of a character in a result, where it is in a JSON string within a JSON string.
fn sent_bytes(character: char) -> usize {
    match character {
        '"' | '\\' => 4,
        '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 3,
        '\0'..' ' => 7,
        _ => character.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(exit_code: Option<i32>, signal: Option<i32>) -> ExitInfo {
        ExitInfo { exit_code, signal }
    }

    #[test]
    fn only_exit_code_zero_ends_well() {
        assert_eq!(ended(&exit(Some(0), None)), None);
        assert_eq!(ended(&exit(Some(3), None)).unwrap(), "exit code 3");
        assert_eq!(ended(&exit(None, Some(9))).unwrap(), "signal 9");
        assert_eq!(ended(&exit(None, None)).unwrap(), "no exit code");
    }

    #[test]
    fn output_and_errors_are_told_apart_when_there_are_both() {
        assert_eq!(told("out\n", ""), "out\n");
        assert_eq!(told("", "err\n"), "err\n");
        assert_eq!(told("out", "err\n"), "out\n[stderr]\nerr\n");
    }

    #[test]
    fn a_failure_says_how_and_what_was_written() {
        assert_eq!(failed("exit code 1", "", ""), "Command failed (exit code 1).");
        assert_eq!(failed("exit code 1", "", "no such file\n"), "Command failed (exit code 1): no such file\n");
        assert_eq!(failed("signal 9", "half\n", "oh\n"), "Command failed (signal 9): oh\nIts output:\nhalf\n");
    }

    #[test]
    fn of_many_lines_the_newest_are_kept() {
        assert_eq!(newest_lines("a\nb\nc\n", 2), "[1 lines were left out]\nb\nc\n");
        assert_eq!(newest_lines("a\nb", 1), "[1 lines were left out]\nb");
        assert_eq!(newest_lines("a\nb\n", 0), "[2 lines were left out]\n");
        for (text, most) in [("a\nb\n", 2), ("", 0), ("a", usize::MAX)] {
            assert_eq!(newest_lines(text, most), text);
        }
    }

    #[test]
    fn of_a_text_without_end_the_end_is_kept() {
        assert_eq!(last("abc", 3), "abc");
        assert_eq!(last("abcd", 3), "[1 bytes were left out]\nbcd");
        assert_eq!(last("a\n\n", 5), "[2 bytes were left out]\n\n");
        assert_eq!(last("é", 1), "[2 bytes were left out]\n");
    }

    #[test]
    fn a_character_takes_up_what_quoting_it_twice_makes_of_it() {
        for character in (0..=0x7f_u8).map(char::from).chain("é🙂".chars()) {
            let quoted = serde_json::to_string(&serde_json::to_string(&character.to_string()).unwrap()).unwrap();
            assert_eq!(sent_bytes(character) + 6, quoted.len(), "{character:?}");
        }
    }
}
