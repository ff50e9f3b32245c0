//! Searching files for a text: what is a match, how it is shown, and when a search has enough.

use crate::lines::sent_bytes;

/// Bounds of one search. What lies beyond them is left out, and the result says so.
pub(crate) const MATCHES: usize = 500;
pub(crate) const FILES: usize = 20_000;
pub(crate) const DEPTH: usize = 64;
/// More of one line is not shown: it may be a program that somebody has made small.
const SHOWN_CHARS: usize = 400;

/// The lines that were found, as `path:line:text`.
pub(crate) struct Found {
    pattern: String,
    room: usize,
    text: String,
    matches: usize,
    files: usize,
    cut: Option<&'static str>,
}

impl Found {
    /// `room` is how many bytes the lines may take up in a result.
    pub(crate) fn new(pattern: String, room: usize) -> Self {
        Self { pattern, room, text: String::new(), matches: 0, files: 0, cut: None }
    }

    /// Whether there is to be no more searching.
    pub(crate) fn enough(&self) -> bool {
        self.cut.is_some()
    }

    /// There are folders below the deepest one that is searched.
    pub(crate) fn too_deep(&mut self) {
        self.cut.get_or_insert("some folders lie too deep to be searched");
    }

    /// Search a file. What is not text has no lines.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.files += 1;
        if self.files > FILES {
            self.cut.get_or_insert("there are more files than one search reads");
            return;
        }
        let Ok(text) = std::str::from_utf8(content) else { return };
        if !text.contains(&self.pattern) {
            return;
        }
        for (number, line) in text.lines().enumerate() {
            if line.contains(&self.pattern) {
                self.line(path, number + 1, line);
            }
            if self.enough() {
                return;
            }
        }
    }

    fn line(&mut self, path: &str, number: usize, line: &str) {
        let shown = match line.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => format!("{path}:{number}:{}…\n", &line[..end]),
            None => format!("{path}:{number}:{line}\n"),
        };
        let bytes = sent_bytes(&shown);
        if self.matches == MATCHES || bytes > self.room {
            self.cut.get_or_insert("there are more matches than fit into one result");
            return;
        }
        self.room -= bytes;
        self.matches += 1;
        self.text += &shown;
    }

    /// The result for the model.
    pub(crate) fn told(mut self) -> String {
        if let Some(cut) = self.cut {
            self.text += &format!("({cut}: search in a folder below, with dir_path, or for a longer text.)");
        }
        match self.text.trim_end_matches('\n') {
            "" => "No matches found.".into(),
            text => text.into(),
        }
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
        let mut found = Found::new(pattern.into(), 1 << 20);
        for (path, content) in files {
            found.file(path, content.as_bytes());
        }
        found.told()
    }

    #[test]
    fn matches_are_told_with_path_and_line() {
        let files = [("a", "one\ntwo\none more"), ("b/c", "none\r\n"), ("d", "two")];
        assert_eq!(search("one", &files), "a:1:one\na:3:one more\nb/c:1:none");
        assert_eq!(search(".", &files), "No matches found.");
    }

    #[test]
    fn what_is_not_text_is_left_out() {
        let mut found = Found::new("a".into(), 1 << 20);
        found.file("binary", b"a\xff");
        assert_eq!(found.told(), "No matches found.");
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
        let mut found = Found::new("\\".into(), 100);
        found.file("a", "\\\\\\\\\\\\\\\\\n".repeat(9).as_bytes());
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
