//! The file that says who the agent is. It is read anew for each prompt: what people change in it holds at once.

use astrid_sdk::prelude::*;

use crate::spark::Spark;

pub(crate) const FILE: &str = "home://.config/spark.toml";
const FOLDER: &str = "home://.config";
const FILE_BYTES: u64 = 256 << 10;

/// What the file has; None where there is no file. Fails in words for a person.
pub(crate) fn text() -> Result<Option<String>, String> {
    let there = fs::exists(FILE).map_err(|error| format!("{FILE} cannot be looked for: {error}"))?;
    if !there {
        return Ok(None);
    }
    let size = fs::metadata(FILE).map_err(|error| format!("{FILE} cannot be read: {error}"))?.len();
    if size > FILE_BYTES {
        return Err(format!("{FILE} has {size} bytes; {FILE_BYTES} are allowed"));
    }
    match String::from_utf8(fs::read(FILE).map_err(|error| format!("{FILE} cannot be read: {error}"))?) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(format!("{FILE} is not text in UTF-8")),
    }
}

/// What the file says; None where there is no file. Fails in words for a person.
pub(crate) fn spark() -> Result<Option<Spark>, String> {
    match text()? {
        None => Ok(None),
        Some(text) => Spark::parse(&text).map(Some).map_err(|why| format!("{FILE} cannot be used: {why}")),
    }
}

/// Write the file. Fails in words for a person.
pub(crate) fn write(toml: &str) -> Result<(), String> {
    fs::create_dir_all(FOLDER).map_err(|error| format!("{FOLDER} cannot be made: {error}"))?;
    fs::write(FILE, toml.as_bytes()).map_err(|error| format!("{FILE} cannot be written: {error}"))
}
