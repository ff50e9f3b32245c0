//! Searching files for a text: what is a match, how it is shown, when a search has enough, and what it left out.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::decode::{Decoder, Encoding};
use crate::lines::sent_bytes;
use crate::scan::{Lines, Pattern};

/// Bounds of one search. What lies beyond them is left out, and the result says so.
pub(crate) const MATCHES: usize = 500;
pub(crate) const MOST_MATCHES: usize = 5000;
pub(crate) const FILES: usize = 20_000;
pub(crate) const DEPTH: usize = 64;
pub(crate) const BYTES: u64 = 512 << 20;
/// More of one line is not shown: it may be a program that somebody has made small.
const SHOWN_CHARS: usize = 400;
/// So many names are told of each kind of what was not searched, and so much of each.
const NAMES: usize = 5;
const NAME_CHARS: usize = 120;
/// A file with a NUL in its begin is no text.
const BEGIN_BYTES: usize = 8192;

/// Which of the matches are wanted.
pub(crate) struct Wanted {
    /// How many at most.
    pub(crate) limit: usize,
    /// How many are left out before them.
    pub(crate) offset: usize,
    /// How many bytes the lines may take up in a result.
    pub(crate) room: usize,
}

/// The lines that were found, as `path:line:text`, and what was not searched.
pub(crate) struct Found {
    pattern: Rc<Pattern>,
    in_binary: Rc<Pattern>,
    wanted: Wanted,
    text: String,
    matches: usize,
    files: usize,
    bytes: u64,
    cut: Option<&'static str>,
    left: BTreeMap<&'static str, (usize, Vec<String>)>,
}

impl Found {
    pub(crate) fn new(pattern: &str, wanted: Wanted) -> Self {
        Self {
            pattern: Rc::new(Pattern::new(pattern)),
            in_binary: Rc::new(Pattern::in_binary(pattern)),
            wanted,
            text: String::new(),
            matches: 0,
            files: 0,
            bytes: 0,
            cut: None,
            left: BTreeMap::new(),
        }
    }

    /// Whether there is to be no more searching.
    pub(crate) fn enough(&self) -> bool {
        self.cut.is_some()
    }

    /// Something is not searched. `why` is its kind, such as "unreadable".
    pub(crate) fn leave(&mut self, why: &'static str, path: &str) {
        let (count, names) = self.left.entry(why).or_default();
        *count += 1;
        if names.len() < NAMES {
            names.push(shortened(path, NAME_CHARS));
        }
    }

    /// Search a file. `read` returns the next piece of it, and nothing at its end.
    pub(crate) fn file<E>(&mut self, path: &str, mut read: impl FnMut() -> Result<Vec<u8>, E>) -> Result<(), E> {
        self.files += 1;
        if self.files > FILES {
            self.cut.get_or_insert("there are more files than one search reads");
            return Ok(());
        }
        let mut piece = read()?;
        let (encoding, mark) = Encoding::of(&piece);
        let binary = encoding == Encoding::Utf8 && piece[..piece.len().min(BEGIN_BYTES)].contains(&0);
        piece.drain(..mark);
        let mut decoder = Decoder::new(encoding);
        let pattern = Rc::clone(if binary { &self.in_binary } else { &self.pattern });
        let mut lines = Lines::default();
        loop {
            let last = piece.is_empty();
            self.bytes += piece.len() as u64;
            let mut found = false;
            lines.read(decoder.decode(piece, last), last, &pattern, |number, line| {
                found = true;
                if !binary {
                    self.line(path, number, &String::from_utf8_lossy(line));
                }
                !binary && !self.enough()
            });
            if binary && found {
                self.leave("binary, with the text in it", path);
                return Ok(());
            }
            if self.bytes > BYTES {
                self.cut.get_or_insert("there is more than the 512 MiB that one search reads");
            }
            if last || self.enough() {
                return Ok(());
            }
            piece = read()?;
        }
    }

    fn line(&mut self, path: &str, number: usize, line: &str) {
        self.matches += 1;
        if self.matches <= self.wanted.offset {
            return;
        }
        let shown = format!("{path}:{number}:{}\n", shortened(line, SHOWN_CHARS));
        let bytes = sent_bytes(&shown);
        if self.matches > self.wanted.offset + self.wanted.limit || bytes > self.wanted.room {
            self.matches -= 1;
            self.cut.get_or_insert("there are more matches");
            return;
        }
        self.wanted.room -= bytes;
        self.text += &shown;
    }

    /// The result for the model.
    pub(crate) fn told(self) -> String {
        let mut parts: Vec<String> = Vec::new();
        if !self.text.is_empty() {
            parts.push(self.text.trim_end_matches('\n').to_owned());
        } else if self.cut.is_none() && self.left.is_empty() {
            parts.push(if self.matches == 0 { "No matches found.".into() } else { self.beyond() });
        } else if self.matches == 0 {
            parts.push("No matches found in what was searched.".into());
        }
        if let Some(cut) = self.cut {
            let next = self.matches;
            parts.push(format!(
                "({cut}: go on with offset = {next}, search in a folder below, with dir_path, or for a longer text.)"
            ));
        }
        if !self.left.is_empty() {
            parts.push(format!("(Not searched, or not shown: {}.)", self.left_out()));
        }
        parts.join("\n")
    }

    fn beyond(&self) -> String {
        format!("No more matches: there are {}.", self.matches)
    }

    fn left_out(&self) -> String {
        let kinds = self.left.iter().map(|(why, (count, names))| {
            let more = if *count > names.len() { ", …" } else { "" };
            format!("{count} {why} ({}{more})", names.join(", "))
        });
        kinds.collect::<Vec<String>>().join("; ")
    }
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// A name in a folder, as a path below the workspace.
pub(crate) fn inside(folder: &str, name: &str) -> String {
    match folder.trim_end_matches('/') {
        "." => name.into(),
        "" if folder.is_empty() => name.into(),
        folder => format!("{folder}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(pattern: &str, files: &[(&str, &str)]) -> String {
        let mut found = all(pattern, 1 << 20);
        for (path, content) in files {
            file(&mut found, path, content.as_bytes());
        }
        found.told()
    }

    fn all(pattern: &str, room: usize) -> Found {
        Found::new(pattern, Wanted { limit: MATCHES, offset: 0, room })
    }

    fn file(found: &mut Found, path: &str, content: &[u8]) {
        let mut pieces = content.chunks(1000);
        found.file(path, || Ok::<_, ()>(pieces.next().unwrap_or_default().to_vec())).unwrap();
    }

    #[test]
    fn matches_are_told_with_path_and_line() {
        let files = [("a", "one\ntwo\none more"), ("b/c", "none\r\n"), ("d", "two")];
        assert_eq!(search("one", &files), "a:1:one\na:3:one more\nb/c:1:none");
        assert_eq!(search(".", &files), "No matches found.");
    }

    #[test]
    fn what_is_not_searched_or_shown_is_told() {
        let mut found = all("a", 1 << 20);
        file(&mut found, "latin1", b"a\xff");
        file(&mut found, "program", b"\0\0a");
        file(&mut found, "picture", b"\0\0b");
        for name in ["1", "2", "3", "4", "5", "6"] {
            found.leave("unreadable", name);
        }
        let told = "latin1:1:a\u{fffd}\n(Not searched, or not shown: 1 binary, with the text in it (program); \
                    6 unreadable (1, 2, 3, 4, 5, …).)";
        assert_eq!(found.told(), told);
        let mut found = all("a", 1 << 20);
        found.leave("unreadable", "x");
        let told = "No matches found in what was searched.\n(Not searched, or not shown: 1 unreadable (x).)";
        assert_eq!(found.told(), told);
    }

    #[test]
    fn matches_are_paged() {
        let page = |limit, offset| {
            let mut found = Found::new("x", Wanted { limit, offset, room: 1 << 20 });
            file(&mut found, "a", b"x1\nx2\n");
            if !found.enough() {
                file(&mut found, "b", b"x3\n");
            }
            found.told()
        };
        assert!(page(1, 0).starts_with("a:1:x1\n(there are more matches: go on with offset = 1,"));
        assert!(page(1, 1).starts_with("a:2:x2\n(there are more matches: go on with offset = 2,"));
        assert_eq!(page(2, 2), "b:1:x3");
        assert_eq!(page(9, 3), "No more matches: there are 3.");
    }

    #[test]
    fn too_many_matches_are_cut_and_the_result_says_so() {
        let many = "x\n".repeat(MATCHES + 1);
        let told = search("x", &[("a", &many)]);
        assert_eq!(told.lines().count(), MATCHES + 1);
        assert!(told.lines().last().unwrap().starts_with("(there are more matches"));
        assert_eq!(search("x", &[("a", &"x\n".repeat(MATCHES))]).lines().count(), MATCHES);
    }

    #[test]
    fn a_result_never_outgrows_its_room() {
        let mut found = all("\\", 100);
        file(&mut found, "a", "\\\\\\\\\\\\\\\\\n".repeat(9).as_bytes());
        assert!(found.enough());
        let told = found.told();
        assert!(told.lines().count() < 5, "{told}");
    }

    #[test]
    fn long_lines_are_shortened() {
        let told = search("é", &[("a", &"é".repeat(1000))]);
        assert_eq!(told, format!("a:1:{}…", "é".repeat(SHOWN_CHARS)));
    }

    #[test]
    fn paths_are_told_as_read_file_takes_them() {
        assert_eq!(inside(".", "a"), "a");
        assert_eq!(inside("./", "a"), "a");
        assert_eq!(inside("", "a"), "a");
        assert_eq!(inside("src/", "a"), "src/a");
        assert_eq!(inside("src", "a"), "src/a");
        assert_eq!(inside("/", "a"), "/a");
    }
}
