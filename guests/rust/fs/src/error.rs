//! What went wrong, in words that a model can act on.

use std::fmt;

use astrid_sdk::SysError;
use astrid_sdk::prelude::env;

#[derive(Debug)]
pub struct FsError(String);

impl FsError {
    /// `kind` is what the path was to be: "file" or "folder".
    pub(crate) fn reading(kind: &str, path: &str, error: &SysError) -> Self {
        let text = error.to_string();
        Self(match case(&text) {
            "NotFound" => format!("There is no {kind} {path:?} in the workspace."),
            "CapabilityDenied" if is_absolute(path) => outside(path, &workspace()),
            "CapabilityDenied" => format!("{path:?} may not be read: only the workspace may."),
            "Access" => format!("The {kind} {path:?} cannot be read: the operating system refuses it."),
            "TooLarge" if kind == "folder" => {
                format!("The folder {path:?} has more entries than are listed at once: 65,536, or 4 MiB of names.")
            }
            "TooLarge" => format!("The file {path:?} is larger than 10 MiB, and files are read as a whole."),
            case => of_both(case, path).unwrap_or_else(|| format!("The {kind} {path:?} cannot be read: {text}")),
        })
    }

    /// `done` is what was to be done: "write", "create", "delete" or "move".
    pub(crate) fn changing(done: &str, path: &str, error: &SysError) -> Self {
        let text = error.to_string();
        Self(match case(&text) {
            "NotFound" if done == "delete" => format!("There is no file {path:?} in the workspace."),
            "NotFound" => {
                format!("The folder of {path:?} is not there, or not any more: make it with create_directory.")
            }
            "CapabilityDenied" if is_absolute(path) => outside(path, &workspace()),
            "CapabilityDenied" => format!("{path:?} may not be changed: only the workspace may."),
            "Access" => format!("The operating system refuses to {done} {path:?}."),
            "AlreadyExists" => format!("{path:?} is there already."),
            "CrossVfs" => format!("{path:?} is outside of the workspace."),
            "TooLarge" => format!("That is more than the 10 MiB that {path:?} may have."),
            "Quota" => format!("There is no room left to {done} {path:?}."),
            case => of_both(case, path).unwrap_or_else(|| format!("It is not possible to {done} {path:?}: {text}")),
        })
    }

    /// It can be read, but not be returned at once.
    pub(crate) fn too_much(path: &str, lines: usize) -> Self {
        Self(format!(
            "That is more of {path:?} than fits into one result: it has {lines} lines; ask for fewer of them, with \
             start_line and end_line."
        ))
    }

    pub(crate) fn not_text(path: &str) -> Self {
        Self(format!("The file {path:?} is not text in UTF-8."))
    }

    pub(crate) fn no_pattern() -> Self {
        Self("The pattern is empty: name the text to search for.".into())
    }

    pub(crate) fn no_old_string() -> Self {
        Self("old_string is empty: name the text to replace, or use write_file.".into())
    }

    pub(crate) fn not_once(path: &str, occurrences: usize) -> Self {
        Self(match occurrences {
            0 => format!("old_string is not in {path:?}: read the file, and copy the text exactly."),
            _ => format!(
                "old_string is {occurrences} times in {path:?}: add text before or after it until it is there once."
            ),
        })
    }

    pub(crate) fn is_there(path: &str) -> Self {
        Self(format!("{path:?} is there already: delete it first, or choose another destination_path."))
    }

    pub(crate) fn not_a_file(path: &str) -> Self {
        Self(format!("{path:?} is a folder, and only files are moved."))
    }
}

/// The name of the host's error, such as `NotFound`.
pub(crate) fn case(text: &str) -> &str {
    text.rsplit_once("ErrorCode::").map_or("", |(_, case)| case)
}

fn of_both(case: &str, path: &str) -> Option<String> {
    Some(match case {
        "IsDirectory" => format!("{path:?} is a folder: use list_directory."),
        "NotDirectory" => format!("{path:?} is not a folder, or a part of it is not: use read_file for files."),
        "BoundaryEscape" if is_absolute(path) => outside(path, &workspace()),
        "BoundaryEscape" => format!("{path:?} leads out of the workspace: name a place in it, without \"..\"."),
        "InvalidPath" => format!("{path:?} is not a path."),
        _ => return None,
    })
}

fn is_absolute(path: &str) -> bool {
    path.starts_with('/')
        || path == "~"
        || path.starts_with("~/")
        || path.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case("file:/"))
}

/// Where the workspace is, as the host says.
fn workspace() -> String {
    env::var("workspace_root").map(|root| root.trim_matches('"').to_owned()).unwrap_or_default()
}

fn outside(path: &str, workspace: &str) -> String {
    let place = if workspace.is_empty() { String::new() } else { format!(", which is {workspace}") };
    format!(
        "{path:?} leads out of the workspace{place}: name a place in it, relative to it and without \"..\", such as \
         \"src/main.py\"; \".\" is the workspace itself."
    )
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> SysError {
        SysError::HostError(text.into())
    }

    fn told(kind: &str, text: &str) -> String {
        FsError::reading(kind, "a/b", &error(text)).to_string()
    }

    #[test]
    fn the_hosts_errors_name_the_path_and_what_to_do() {
        assert_eq!(told("file", "ErrorCode::NotFound"), r#"There is no file "a/b" in the workspace."#);
        assert_eq!(told("file", "ErrorCode::IsDirectory"), r#""a/b" is a folder: use list_directory."#);
        assert!(told("folder", "ErrorCode::TooLarge").contains("more entries than"));
        let changing = |done, text| FsError::changing(done, "a/b", &error(text)).to_string();
        assert_eq!(changing("delete", "ErrorCode::NotFound"), r#"There is no file "a/b" in the workspace."#);
        assert!(changing("write", "ErrorCode::NotFound").contains("create_directory"));
        assert_eq!(changing("write", "ErrorCode::Access"), r#"The operating system refuses to write "a/b"."#);
    }

    #[test]
    fn an_error_of_another_kind_is_told_as_it_is() {
        let text = r#"ErrorCode::Unknown("disk on fire")"#;
        let expected = r#" "a/b" cannot be read: Host function call failed: ErrorCode::Unknown("disk on fire")"#;
        assert_eq!(told("file", text), format!("The file{expected}"));
        assert!(FsError::changing("move", "a/b", &error(text)).to_string().ends_with(text));
    }

    #[test]
    fn a_path_elsewhere_is_told_where_the_workspace_is() {
        assert!(is_absolute("/etc/passwd") && is_absolute("FILE:///etc") && !is_absolute("é/file:/x"));
        let told = outside("/etc/passwd", "/home/me/project");
        assert!(told.starts_with(r#""/etc/passwd" leads out of the workspace, which is /home/me/project: "#), "{told}");
        assert!(outside("/etc", "").starts_with(r#""/etc" leads out of the workspace: "#));
    }

    #[test]
    fn a_text_that_is_not_there_once_says_what_to_do() {
        assert!(FsError::not_once("a", 0).to_string().contains("copy the text exactly"));
        assert!(FsError::not_once("a", 3).to_string().contains("3 times"));
    }
}
