//! Calls every function of the host and tells what it answered.
//!
//! Each action calls the functions of one package, in an order in which each has what it needs; it goes on when one is
//! refused, as far as there are handles to go on with. What was answered is published on `probe.said` as a list of pairs:
//! the function's name and Rust's `Debug` of its result.

#[allow(clippy::all, unsafe_code, unused)]
mod bindings;
mod files;
mod people;
mod plain;
mod processes;
mod sockets;
mod streams;
mod web;

use std::fmt::{Debug, Write};

use bindings::CapsuleResult;
use bindings::astrid::ipc::host as ipc;

/// What the functions answered, in the order in which they were called.
#[derive(Default)]
struct Said(Vec<(&'static str, String)>);

impl Said {
    /// Notes an answer and gives it back.
    fn note<T: Debug>(&mut self, name: &'static str, answer: T) -> T {
        self.0.push((name, format!("{answer:?}")));
        answer
    }

    /// Notes an answer; a handle in it is dropped.
    fn tell<T: Debug>(&mut self, name: &'static str, answer: T) {
        self.note(name, answer);
    }

    fn publish(&self) {
        let pairs = self.0.iter().map(|(name, answer)| format!("[{},{}]", json(name), json(answer)));
        let list = format!("[{}]", pairs.collect::<Vec<_>>().join(","));
        ipc::publish("probe.said", &list).expect("the host takes what it said");
    }
}

fn json(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => write!(quoted, "\\u{:04x}", c as u32).expect("memory takes it"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn port(given: &str) -> u16 {
    given.parse().expect("the payload is a port")
}

struct Probe;

impl bindings::Guest for Probe {
    fn astrid_hook_trigger(action: String, payload: Vec<u8>) -> CapsuleResult {
        let given = str::from_utf8(&payload).expect("payloads are JSON");
        let given = given.trim_matches('"');
        let said = &mut Said::default();
        match action.as_str() {
            "sys" => plain::sys(said, given),
            "kv" => plain::kv(said),
            "ipc" => plain::ipc(said),
            "text" => plain::text(said, given),
            "fs" => files::fs(said),
            "io" => streams::io(said, port(given)),
            "net" => sockets::net(said, port(given)),
            "http10" => web::http10(said, given),
            "http11" => web::http11(said, given),
            "process10" => processes::process10(said),
            "process11" => processes::process11(said),
            "approval" => people::approval(said),
            "elicit" => people::elicit(said),
            "identity" => people::identity(said),
            "uplink" => people::uplink(said),
            other => panic!("there is no action {other}"),
        }
        said.publish();
        CapsuleResult { action: "continue".into(), data: None }
    }

    fn astrid_install() {
        let said = &mut Said::default();
        people::elicit(said);
        said.publish();
    }
}
