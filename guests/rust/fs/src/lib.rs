//! Tools that read the workspace. Paths are relative to it; the host lets none lead out.

mod error;
mod lines;

use astrid_sdk::prelude::*;
use error::FsError;
use lines::lines;
use schemars::JsonSchema;
use serde::Deserialize;

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

    /// Reads a text file of the workspace: all of it, or the lines from start_line to end_line. A range beyond the end
    /// of the file is empty.
    #[astrid::tool("read_file")]
    fn read_file(&self, args: ReadFile) -> Result<String, FsError> {
        let failed = |error| FsError::new("file", &args.file_path, error);
        let bytes = fs::read(&args.file_path).map_err(failed)?;
        let text = String::from_utf8(bytes).map_err(|_| FsError::not_text(&args.file_path))?;
        Ok(match (args.start_line, args.end_line) {
            (None, None) => text,
            (first, last) => lines(&text, first.unwrap_or(1), last.unwrap_or(usize::MAX)).to_owned(),
        })
    }
}
