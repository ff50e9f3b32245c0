//! What went wrong, in words that a model can act on.

use std::fmt;

use astrid_sdk::SysError;

#[derive(Debug)]
pub struct FsError(String);

impl FsError {
    /// `kind` is what the path was to be: "file" or "folder".
    pub(crate) fn new(kind: &str, path: &str, error: SysError) -> Self {
        let text = error.to_string();
        let case = text.rsplit_once("ErrorCode::").map_or("", |(_, case)| case);
        Self(match case {
            "NotFound" => format!("There is no {kind} {path:?} in the workspace."),
            "IsDirectory" => format!("{path:?} is a folder: use list_directory."),
            "NotDirectory" => format!("{path:?} is not a folder, or a part of it is not: use read_file for files."),
            "BoundaryEscape" => format!("{path:?} leads out of the workspace: name a place in it, without \"..\"."),
            "CapabilityDenied" => format!("{path:?} may not be read: only the workspace may."),
            "Access" => format!("The {kind} {path:?} cannot be read: the operating system refuses it."),
            "InvalidPath" => format!("{path:?} is not a path."),
            "TooLarge" if kind == "folder" => format!("The folder {path:?} has too many entries to be listed."),
            "TooLarge" => format!("The file {path:?} is larger than 10 MiB, and files are read as a whole."),
            _ => format!("The {kind} {path:?} cannot be read: {text}"),
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
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: &str, text: &str) -> String {
        FsError::new(kind, "a/b", SysError::HostError(text.into())).to_string()
    }

    #[test]
    fn the_hosts_errors_name_the_path_and_what_to_do() {
        assert_eq!(told("file", "ErrorCode::NotFound"), r#"There is no file "a/b" in the workspace."#);
        assert_eq!(told("file", "ErrorCode::IsDirectory"), r#""a/b" is a folder: use list_directory."#);
        assert!(told("folder", "ErrorCode::TooLarge").contains("too many entries"));
    }

    #[test]
    fn an_error_of_another_kind_is_told_as_it_is() {
        let text = told("file", r#"ErrorCode::Unknown("disk on fire")"#);
        assert_eq!(
            text,
            r#"The file "a/b" cannot be read: Host function call failed: ErrorCode::Unknown("disk on fire")"#
        );
    }
}
