//! Tools that read, search and change the workspace. Paths are relative to it, or its own place is their begin; the host lets
//! none lead out.

mod content;
mod decode;
mod edit;
mod error;
mod lines;
mod listing;
mod scan;
mod search;

use astrid_sdk::prelude::*;
use error::FsError;
use lines::{lines, sent_bytes};
use schemars::JsonSchema;
use search::{DEPTH, Found, MATCHES, MOST_MATCHES, Wanted, inside};
use serde::Deserialize;

/// The room for a text in a result: a message has at most 1 MiB, and the text is not all that is in it.
const SENT_BYTES: usize = (1 << 20) - (16 << 10);

#[derive(Default)]
pub struct Fs;

#[derive(Deserialize, JsonSchema)]
pub struct ListDirectory {
    /// The folder, relative to the workspace; "." is the workspace itself.
    dir_path: String,
    /// How many names to return at most; 4096 by default.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    limit: Option<usize>,
    /// How many names to leave out before them, to go on with a list that was cut.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    offset: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
pub struct ReadFile {
    /// The file, relative to the workspace.
    file_path: String,
    /// The first line to return, counted from 1. The first of the file by default.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    start_line: Option<usize>,
    /// The last line to return, itself included. The last of the file by default.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    end_line: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
pub struct WriteFile {
    /// The file, relative to the workspace. Its folder has to be there.
    file_path: String,
    /// All that is to be in the file, written as it is: also its line ends, whatever they were before.
    content: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct ReplaceInFile {
    /// The file, relative to the workspace.
    file_path: String,
    /// The text to replace, exactly as it is in the file, where it has to be once. Only its line ends may be others.
    old_string: String,
    /// The text to put in its place; may be empty. Its line ends become those of the file.
    new_string: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct GrepSearch {
    /// The folder to search in, with all below it, or a file. The workspace by default.
    dir_path: Option<String>,
    /// The text to search for, within one line and as it is: no wildcards, no regular expressions.
    pattern: String,
    /// How many matches to return at most; 500 by default, 5000 at most.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    limit: Option<usize>,
    /// How many matches to leave out before them, to go on with a search that was cut.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    offset: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
pub struct CreateDirectory {
    /// The folder, relative to the workspace. Folders that it lies in are made as well.
    dir_path: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct DeleteFile {
    /// The file, relative to the workspace.
    file_path: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct MoveFile {
    /// The file, relative to the workspace.
    source_path: String,
    /// Where it is to be, its name included. Nothing may be there yet, but its folder has to be.
    destination_path: String,
}

/// Reads, searches and changes files of the workspace.
#[capsule]
impl Fs {
    /// Lists the names in a folder of the workspace, sorted, as a JSON array. Folders are not marked: list them in turn. A long
    /// list is cut; a line after the array says how to go on, with offset.
    #[astrid::tool("list_directory")]
    fn list_directory(&self, args: ListDirectory) -> Result<String, FsError> {
        let names = names(&args.dir_path)?;
        Ok(listing::page(&names, args.offset.unwrap_or(0), args.limit.unwrap_or(listing::NAMES), SENT_BYTES))
    }

    /// Reads a text file of the workspace: all of it, or the lines from start_line to end_line (none beyond its end).
    #[astrid::tool("read_file")]
    fn read_file(&self, args: ReadFile) -> Result<String, FsError> {
        let path = &args.file_path;
        let text = text(path)?;
        let wanted = match (args.start_line, args.end_line) {
            (None, None) => &text,
            (first, last) => lines(&text, first.unwrap_or(1), last.unwrap_or(usize::MAX)),
        };
        if sent_bytes(wanted) > SENT_BYTES {
            return Err(FsError::too_much(path, text.lines().count()));
        }
        Ok(wanted.to_owned())
    }

    /// Searches files for lines that have a text in them: "path:line:text" for each, or "No matches found.". Folders named .git
    /// and links are left out. A last line says what else was not searched, and how to go on when there are more matches.
    #[astrid::tool("grep_search")]
    fn grep_search(&self, args: GrepSearch) -> Result<String, FsError> {
        if args.pattern.is_empty() {
            return Err(FsError::no_pattern());
        }
        let root = args.dir_path.as_deref().unwrap_or(".");
        let limit = args.limit.unwrap_or(MATCHES).clamp(1, MOST_MATCHES);
        let wanted = Wanted { limit, offset: args.offset.unwrap_or(0), room: SENT_BYTES - (32 << 10) };
        let mut found = Found::new(&args.pattern, wanted);
        let kind = fs::metadata(root).map_err(|error| FsError::reading("folder", root, &error))?;
        if kind.is_dir() {
            search_folder(root, &names(root)?, &mut found, 0);
        } else {
            found
                .file(root, content::pieces(root, kind.len()))
                .map_err(|error| FsError::reading("file", root, &error))?;
        }
        Ok(found.told())
    }

    /// Writes a file of the workspace: all that was in it is replaced. To change a part, use replace_in_file.
    #[astrid::tool("write_file", mutable)]
    fn write_file(&self, args: WriteFile) -> Result<String, FsError> {
        let how = content::write(&args.file_path, &args.content)?;
        Ok(format!("Wrote {} bytes to {:?}{how}.", args.content.len(), args.file_path))
    }

    /// Replaces a text in a file of the workspace. The text has to be there exactly once. The line ends of the file stay.
    #[astrid::tool("replace_in_file", mutable)]
    fn replace_in_file(&self, args: ReplaceInFile) -> Result<String, FsError> {
        let path = &args.file_path;
        if args.old_string.is_empty() {
            return Err(FsError::no_old_string());
        }
        let replaced = edit::replace_once(&text(path)?, &args.old_string, &args.new_string)
            .map_err(|occurrences| FsError::not_once(path, occurrences))?;
        let how = content::write(path, &replaced)?;
        Ok(format!("Replaced the text in {path:?}{how}."))
    }

    /// Makes a folder in the workspace, and those that it lies in. One that is there already is fine.
    #[astrid::tool("create_directory", mutable)]
    fn create_directory(&self, args: CreateDirectory) -> Result<String, FsError> {
        let path = &args.dir_path;
        fs::create_dir_all(path).map_err(|error| FsError::changing("create", path, &error))?;
        Ok(format!("The folder {path:?} is there."))
    }

    /// Deletes a file of the workspace. Folders are not deleted.
    #[astrid::tool("delete_file", mutable)]
    fn delete_file(&self, args: DeleteFile) -> Result<String, FsError> {
        let path = &args.file_path;
        fs::remove_file(path).map_err(|error| FsError::changing("delete", path, &error))?;
        Ok(format!("Deleted {path:?}."))
    }

    /// Moves a file within the workspace, or gives it another name. Nothing is overwritten, and folders are not moved.
    #[astrid::tool("move_file", mutable)]
    fn move_file(&self, args: MoveFile) -> Result<String, FsError> {
        let (from, to) = (&args.source_path, &args.destination_path);
        let source = fs::symlink_metadata(from).map_err(|error| FsError::reading("file", from, &error))?;
        if source.is_dir() {
            return Err(FsError::not_a_file(from));
        }
        if fs::symlink_metadata(to).is_ok() {
            return Err(FsError::is_there(to));
        }
        fs::rename(from, to).map_err(|error| FsError::changing("move", to, &error))?;
        Ok(format!("Moved {from:?} to {to:?}."))
    }
}

/// The names in a folder, sorted.
fn names(folder: &str) -> Result<Vec<String>, FsError> {
    let entries = fs::read_dir(folder).map_err(|error| FsError::reading("folder", folder, &error))?;
    Ok(sorted(entries))
}

fn sorted(entries: fs::ReadDir) -> Vec<String> {
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_owned()).collect();
    names.sort_unstable();
    names
}

fn text(path: &str) -> Result<String, FsError> {
    let bytes = fs::read(path).map_err(|error| FsError::reading("file", path, &error))?;
    String::from_utf8(bytes).map_err(|_| FsError::not_text(path))
}

/// What is gone by now, and what the host keeps for itself, is no part of the search; what else cannot be read is told.
fn search_folder(folder: &str, names: &[String], found: &mut Found, depth: usize) {
    for name in names {
        if found.enough() {
            return;
        }
        let path = inside(folder, name);
        match fs::symlink_metadata(&path) {
            Ok(entry) if entry.is_dir() && name == ".git" => {}
            Ok(entry) if entry.is_dir() && depth == DEPTH => found.leave("too deep", &path),
            Ok(entry) if entry.is_dir() => match fs::read_dir(&path) {
                Ok(entries) => search_folder(&path, &sorted(entries), found, depth + 1),
                Err(error) => leave(found, "that cannot be listed", &path, &error),
            },
            Ok(entry) if entry.is_file() => {
                if let Err(error) = found.file(&path, content::pieces(&path, entry.len())) {
                    leave(found, "unreadable", &path, &error);
                }
            }
            Ok(entry) if entry.is_symlink() => {}
            Ok(_) => found.leave("neither file nor folder", &path),
            Err(error) => leave(found, "unreadable", &path, &error),
        }
    }
}

fn leave(found: &mut Found, why: &'static str, path: &str, error: &SysError) {
    match error::case(&error.to_string()) {
        "BoundaryEscape" => {}
        "NotFound" if path.contains(char::REPLACEMENT_CHARACTER) => found.leave("with a name that is not UTF-8", path),
        "NotFound" => {}
        _ => found.leave(why, path),
    }
}
