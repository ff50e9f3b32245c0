//! Tools that read the workspace. Paths are relative to it; the host lets none lead out.

mod error;
mod lines;

use astrid_sdk::prelude::*;
use error::FsError;
use lines::{lines, sent_bytes};
use schemars::JsonSchema;
use serde::Deserialize;

/// The room for a text in a result: a message has at most 1 MiB, and the text is not all that is in it.
const SENT_BYTES: usize = (1 << 20) - (16 << 10);

#[derive(Default)]
pub struct Fs;

#[derive(Deserialize, JsonSchema)]
pub struct ListDirectory {
    /// The folder, relative to the workspace; "." is the workspace itself.
    dir_path: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct ReadFile {
    /// The file, relative to the workspace.
    file_path: String,
    /// The first line to return, counted from 1. The first of the file by default.
    start_line: Option<usize>,
    /// The last line to return, itself included. The last of the file by default.
    end_line: Option<usize>,
}

/// Reads files and lists folders of the workspace.
#[capsule]
impl Fs {
    /// Lists the names in a folder of the workspace, sorted, as a JSON array. Folders are not marked: list them in turn.
    #[astrid::tool("list_directory")]
    fn list_directory(&self, args: ListDirectory) -> Result<String, FsError> {
        let failed = |error| FsError::new("folder", &args.dir_path, error);
        let entries = fs::read_dir(&args.dir_path).map_err(failed)?;
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_owned()).collect();
        names.sort_unstable();
        serde_json::to_string(&names).map_err(|error| failed(error.into()))
    }

    /// Reads a text file of the workspace: all of it, or the lines from start_line to end_line (none beyond its end).
    #[astrid::tool("read_file")]
    fn read_file(&self, args: ReadFile) -> Result<String, FsError> {
        let path = &args.file_path;
        let bytes = fs::read(path).map_err(|error| FsError::new("file", path, error))?;
        let text = String::from_utf8(bytes).map_err(|_| FsError::not_text(path))?;
        let wanted = match (args.start_line, args.end_line) {
            (None, None) => &text,
            (first, last) => lines(&text, first.unwrap_or(1), last.unwrap_or(usize::MAX)),
        };
        if sent_bytes(wanted) > SENT_BYTES {
            return Err(FsError::too_much(path, text.lines().count()));
        }
        Ok(wanted.to_owned())
    }
}
