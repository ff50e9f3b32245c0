//! What went wrong, in words that a model can act on.

use std::fmt;

use astrid_sdk::SysError;

#[derive(Debug)]
pub struct ShellError(String);

impl ShellError {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The host did not start the command.
    pub(crate) fn not_run(error: SysError) -> Self {
        let text = error.to_string();
        Self(match case(&text) {
            "Quota" => "Too many processes run in the background: end one with kill_process first.".to_owned(),
            "RegistryFull" => {
                "Too many processes are kept: end those that are not needed with kill_process.".to_owned()
            }
            "CapabilityDenied" => "The host does not let this capsule run bash.".to_owned(),
            "TooLarge" => "The command is too long.".to_owned(),
            "InvalidInput" => "The command cannot be run: it contains a NUL character.".to_owned(),
            "Cancelled" => "The command was cancelled.".to_owned(),
            _ => format!("The command could not be run: {text}"),
        })
    }

    /// Something failed with a process that there was.
    pub(crate) fn of(id: u64, error: SysError) -> Self {
        let text = error.to_string();
        match case(&text) {
            "NoSuchProcess" => Self::unknown(id),
            _ => Self(format!("Process {id}: {text}")),
        }
    }

    pub(crate) fn unknown(id: u64) -> Self {
        Self(format!("There is no process {id}: it was ended, or it ended long ago."))
    }
}

fn case(text: &str) -> &str {
    text.rsplit_once("ErrorCode::").map_or("", |(_, case)| case)
}

impl fmt::Display for ShellError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_errors_say_what_to_do() {
        let told = |text: &str| ShellError::not_run(SysError::HostError(text.into())).to_string();
        assert!(told("ErrorCode::Quota").contains("kill_process"));
        assert!(told(r#"ErrorCode::Unknown("disk on fire")"#).ends_with(r#"ErrorCode::Unknown("disk on fire")"#));
    }

    #[test]
    fn a_process_that_is_gone_is_named() {
        let error = ShellError::of(7, SysError::HostError("ErrorCode::NoSuchProcess".into()));
        assert_eq!(error.to_string(), "There is no process 7: it was ended, or it ended long ago.");
    }
}
