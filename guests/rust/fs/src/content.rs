//! A file's bytes: in pieces, and written where the file is when it cannot be replaced.

use std::collections::VecDeque;

use astrid_sdk::SysError;
use astrid_sdk::fs::{self, File, OpenMode};

use crate::error::{FsError, case};

/// The host reads and writes so much at once.
const PIECE: usize = 1 << 20;

/// How a file was written, for the result: nothing to say, or that it is the same file as before.
const REPLACED: &str = "";
const IN_PLACE: &str = " in place, because the system does not let a new file take its place";

/// The next piece of a file at each call, and nothing at its end. `size` is what the file is known to have.
pub(crate) fn pieces(path: &str, size: u64) -> impl FnMut() -> Result<Vec<u8>, SysError> {
    let path = path.to_owned();
    let mut short = (size <= PIECE as u64).then(|| fs::read(&path));
    let mut ended = short.is_some();
    let mut file = None;
    let mut at = 0;
    move || {
        if ended {
            return short.take().unwrap_or_else(|| Ok(Vec::new()));
        }
        let file = match &mut file {
            Some(file) => file,
            none => none.insert(File::open(&path)?),
        };
        let piece = file.read_at(at, PIECE as u32)?;
        at += piece.len() as u64;
        ended = piece.is_empty();
        Ok(piece)
    }
}

/// Write a whole file, and say how that was done when it is worth a word.
pub(crate) fn write(path: &str, text: &str) -> Result<&'static str, FsError> {
    let Err(error) = fs::write(path, text.as_bytes()) else { return Ok(REPLACED) };
    if case(&error.to_string()) == "Access" && write_in_place(path, text.as_bytes()).is_ok() {
        return Ok(IN_PLACE);
    }
    Err(FsError::changing("write", path, &error))
}

/// Write over what is in a file. When that fails, what was in it is put back, as far as it can be read before.
fn write_in_place(path: &str, content: &[u8]) -> Result<(), SysError> {
    let before = fs::read(path);
    let file = File::open_mode(path, OpenMode::ReadWrite)?;
    fill(&file, content).inspect_err(|error| {
        if let Err(again) = before.and_then(|before| fill(&file, &before)) {
            astrid_sdk::log::error(format!("{path:?} is half written ({error}), and not as it was either ({again})"));
        }
    })
}

fn fill(file: &File, content: &[u8]) -> Result<(), SysError> {
    let mut at = 0;
    let mut left: VecDeque<&[u8]> = content.chunks(PIECE).collect();
    while let Some(piece) = left.pop_front() {
        let written = file.write_at(at, piece)? as usize;
        at += written as u64;
        if written == 0 {
            return Err(SysError::ApiError("nothing was written".into()));
        }
        if written < piece.len() {
            left.push_front(&piece[written..]);
        }
    }
    file.set_len(content.len() as u64)
}
