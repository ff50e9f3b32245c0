//! Tools that run commands of a shell in the workspace. Each command is approved first, as it stands.
//!
//! Processes in the background are persistent ones of the host: they outlive the call and this instance. Their labels are the
//! numbers by which the model knows them.

mod action;
mod error;
mod output;

use std::time::Duration;

use action::action;
use astrid_sdk::prelude::*;
use astrid_sdk::process::{self, Command, PersistentProcess};
use error::ShellError;
use output::{ended, failed, newest_lines, told};
use schemars::JsonSchema;
use serde::Deserialize;

const SHELL: &str = "bash";
/// What is kept of each stream: more of it would not fit into a result.
const RING_BYTES: u32 = 256 << 10;
/// How long a process stays that nobody asks for: as long as any may.
const IDLE: Duration = Duration::from_secs(6 * 3600);
const RETENTION: Duration = Duration::from_secs(3600);
const GRACE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Shell;

#[derive(Deserialize, JsonSchema)]
pub struct RunShellCommand {
    /// The command, as bash reads it. It starts in the workspace.
    command: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct SpawnBackgroundProcess {
    /// The command, as bash reads it. It starts in the workspace.
    command: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct ReadProcessLogs {
    /// The number that spawn_background_process returned.
    #[serde(deserialize_with = "whole_numbers::required")]
    id: u64,
    /// How many lines at most of its output, and of its errors: the newest ones. What is left out of them is told, and not
    /// returned again. As many as fit by default.
    #[serde(default, deserialize_with = "whole_numbers::optional")]
    limit: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
pub struct KillProcess {
    /// The number that spawn_background_process returned.
    #[serde(deserialize_with = "whole_numbers::required")]
    id: u64,
}

/// Runs commands in the workspace, once they are approved.
#[capsule]
impl Shell {
    /// Runs a command in bash, waits for its end, and returns what it wrote. What it leaves running ends with it: for
    /// servers and watchers, use spawn_background_process.
    #[astrid::tool("run_shell_command", mutable)]
    fn run_shell_command(&self, args: RunShellCommand) -> Result<String, ShellError> {
        let command = approved(&args.command)?;
        let result = bash(command).spawn().map_err(ShellError::not_run)?;
        match ended(&result.exit) {
            None => Ok(told(&result.stdout, &result.stderr)),
            Some(how) => Err(ShellError::new(failed(&how, &result.stdout, &result.stderr))),
        }
    }

    /// Starts a command in bash that goes on in the background, and returns its id as a number.
    #[astrid::tool("spawn_background_process", mutable)]
    fn spawn_background_process(&self, args: SpawnBackgroundProcess) -> Result<u64, ShellError> {
        let command = approved(&args.command)?;
        let known = process::list(None).map_err(ShellError::not_run)?;
        let last = known.iter().filter_map(|process| process.label.parse().ok()).max();
        let id = last.unwrap_or(0u64) + 1;
        let started =
            bash(command).label(id.to_string()).idle_timeout(IDLE).exit_retention(RETENTION).spawn_persistent();
        started.map_err(ShellError::not_run)?;
        Ok(id)
    }

    /// Returns what a process in the background wrote since this was asked last, and whether it still runs.
    #[astrid::tool("read_process_logs")]
    fn read_process_logs(&self, args: ReadProcessLogs) -> Result<String, ShellError> {
        let logs = find(args.id)?.read_logs().map_err(|error| ShellError::of(args.id, error))?;
        let state = match logs.exit {
            _ if logs.running => "It is running.".to_owned(),
            Some(exit) => format!("It has ended: {}.", ended(&exit).unwrap_or_else(|| "exit code 0".to_owned())),
            None => "It has ended.".to_owned(),
        };
        let most = args.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(match told(&newest_lines(&logs.stdout, most), &newest_lines(&logs.stderr, most)) {
            text if text.is_empty() => format!("It wrote nothing more. {state}"),
            text => format!("{}\n{state}", text.trim_end_matches('\n')),
        })
    }

    /// Ends a process in the background and all that it started.
    #[astrid::tool("kill_process", mutable)]
    fn kill_process(&self, args: KillProcess) -> Result<String, ShellError> {
        let exit = find(args.id)?.stop(Some(GRACE)).map_err(|error| ShellError::of(args.id, error))?;
        Ok(format!("Process {} has ended: {}.", args.id, ended(&exit).unwrap_or_else(|| "exit code 0".to_owned())))
    }
}

/// The command that will run, once somebody has approved exactly that.
fn approved(command: &str) -> Result<&str, ShellError> {
    let command = command.trim();
    if command.is_empty() {
        return Err(ShellError::new("The command is empty.".to_owned()));
    }
    match approval::request(&action(command), command) {
        Ok(true) => Ok(command),
        Ok(false) => Err(ShellError::new(format!("It was not approved to run: {command}"))),
        Err(error) => Err(ShellError::new(format!("It could not be asked whether to run {command:?}: {error}"))),
    }
}

fn bash(command: &str) -> Command {
    Command::new(SHELL).args(["-c", command]).log_ring_bytes(RING_BYTES)
}

fn find(id: u64) -> Result<PersistentProcess, ShellError> {
    let label = id.to_string();
    let known = process::list(Some(&label)).map_err(|error| ShellError::of(id, error))?;
    let found = known.into_iter().find(|process| process.label == label).ok_or_else(|| ShellError::unknown(id))?;
    Ok(process::attach(found.id))
}
