//! process, both versions.

use crate::Said;

macro_rules! process {
    ($function:ident, $version:ident $(, $field:ident: $value:expr)?) => {
        pub fn $function(said: &mut Said) {
            use crate::bindings::astrid::$version::host::{self as process, ProcessSignal, SpawnRequest};

            fn request(cmd: &str, args: &[&str]) -> SpawnRequest {
                SpawnRequest {
                    cmd: cmd.into(),
                    args: args.iter().map(ToString::to_string).collect(),
                    stdin: None,
                    env: vec![process::EnvVar { key: "PROBE".into(), value: "ä".into() }],
                    cwd: None,
                    limits: Some(process::ResourceLimits {
                        max_memory_bytes: None,
                        max_cpu_secs: Some(30),
                        max_pids: None,
                        max_open_files: Some(64),
                    }),
                    $($field: $value,)?
                    label: Some("probe".into()),
                    keep_stdin_open: Some(true),
                    overflow: Some(process::OverflowPolicy::DropOldest),
                    log_ring_bytes: None,
                    max_lifetime_ms: Some(20_000),
                    idle_timeout_ms: None,
                    exit_retention_ms: Some(10_000),
                }
            }

            fn handles(said: &mut Said) {
                let Ok(cat) = said.note("spawn-background", process::spawn_background(&request("cat", &[]))) else {
                    return;
                };
                said.tell("[method]process-handle.os-pid", cat.os_pid());
                let logs = said.note("[method]process-handle.subscribe-logs", cat.subscribe_logs());
                let exit = said.note("[method]process-handle.subscribe-exit", cat.subscribe_exit());
                said.tell("[method]process-handle.write-stdin", cat.write_stdin(b"meow"));
                said.tell("[method]pollable.block", logs.block());
                said.tell("[method]process-handle.read-logs", cat.read_logs());
                said.tell("[method]process-handle.signal", cat.signal(ProcessSignal::Cont));
                said.tell("[method]process-handle.close-stdin", cat.close_stdin());
                said.tell("[method]process-handle.wait", cat.wait(Some(10_000)));
                said.tell("[method]process-handle.wait-with-output", cat.wait_with_output(Some(10_000)));
                said.tell("[method]pollable.ready", exit.ready());
                said.tell("[method]process-handle.kill", cat.kill());
            }

            fn kept(said: &mut Said, id: &str) {
                let cursor = process::LogCursor { token: None };
                said.tell("attach", process::attach(id));
                said.tell("status", process::status(id));
                said.tell("status-many", process::status_many(&[id.to_string()]));
                said.tell("watch", process::watch(id, Some("probe")));
                said.tell("unwatch", process::unwatch(id));
                said.tell("write-stdin", process::write_stdin(id, b"purr"));
                said.tell("signal", process::signal(id, ProcessSignal::Cont));
                said.tell("close-stdin", process::close_stdin(id));
                said.tell("wait", process::wait(id, 10_000));
                said.tell("read-since", process::read_since(id, process::LogStream::Stdout, &cursor, 100));
                said.tell("read-logs", process::read_logs(id));
                said.tell("stop", process::stop(id, Some(100)));
                said.tell("release-process", process::release_process(id));
            }

            fn forgotten(said: &mut Said) {
                if let Ok(id) = said.note("spawn-persistent", process::spawn_persistent(&request("cat", &[]))) {
                    said.tell("release-process", process::release_process(&id));
                    said.tell("close-stdin", process::close_stdin(&id));
                    said.tell("wait", process::wait(&id, 10_000));
                    said.tell("release-process", process::release_process(&id));
                }
            }

            said.tell("spawn", process::spawn(&request("bash", &["-c", "echo $PROBE; echo no >&2; exit 3"])));
            said.tell("spawn", process::spawn(&request("not allowed", &[])));
            handles(said);
            said.tell("list-processes", process::list_processes(Some("nothing")));
            let kept_id = said.note("spawn-persistent", process::spawn_persistent(&request("cat", &[])));
            said.tell("list-processes", process::list_processes(None));
            kept(said, &kept_id.unwrap_or("none".into()));
            forgotten(said);
        }
    };
}

process!(process10, process1_0_0);
process!(process11, process1_1_0, file_injections: vec![]);
