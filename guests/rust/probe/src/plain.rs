//! sys, kv and ipc, and a text given to several packages.

use crate::Said;
use crate::bindings::astrid::elicit::host as elicit;
use crate::bindings::astrid::fs::host as fs;
use crate::bindings::astrid::identity::host as identity;
use crate::bindings::astrid::ipc::host as ipc;
use crate::bindings::astrid::kv::host as kv;
use crate::bindings::astrid::sys::host::{self as sys, CapabilityCheckRequest, LogLevel};

pub fn sys(said: &mut Said, own_source: &str) {
    said.tell("get-config", sys::get_config("greeting"));
    said.tell("get-config", sys::get_config("not declared"));
    said.tell("get-caller", sys::get_caller());
    for level in [LogLevel::Trace, LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error] {
        sys::log(level, "a line\nand more ä😀");
        said.tell("log", ());
    }
    sys::signal_ready();
    said.tell("signal-ready", ());
    said.tell("clock-ms", sys::clock_ms());
    said.tell("clock-monotonic-ns", sys::clock_monotonic_ns());
    said.tell("sleep-ns", sys::sleep_ns(1000));
    said.tell("sleep-ns", sys::sleep_ns(u64::MAX));
    said.tell("random-bytes", sys::random_bytes(16));
    said.tell("random-bytes", sys::random_bytes(4097));
    for source_uuid in [own_source.to_string(), "no uuid".into()] {
        let request = CapabilityCheckRequest { source_uuid, capability: "fs_read".into() };
        said.tell("check-capsule-capability", sys::check_capsule_capability(&request));
    }
    said.tell("enumerate-capabilities", sys::enumerate_capabilities());
}

pub fn kv(said: &mut Said) {
    said.tell("kv-get", kv::kv_get("a"));
    said.tell("kv-set", kv::kv_set("a", b"\x00one\xff"));
    said.tell("kv-set", kv::kv_set("b/ä", b""));
    said.tell("kv-get", kv::kv_get("a"));
    said.tell("kv-get", kv::kv_get("b/ä"));
    said.tell("kv-get", kv::kv_get(""));
    said.tell("kv-list-keys", kv::kv_list_keys(""));
    said.tell("kv-list-keys-page", kv::kv_list_keys_page("", None, 1));
    said.tell("kv-list-keys-page", kv::kv_list_keys_page("", Some("a"), 10));
    said.tell("kv-cas", kv::kv_cas("a", Some(b"another"), b"two"));
    said.tell("kv-cas", kv::kv_cas("a", Some(b"\x00one\xff"), b"two"));
    said.tell("kv-cas", kv::kv_cas("c", None, b"new"));
    said.tell("kv-delete", kv::kv_delete("a"));
    said.tell("kv-delete", kv::kv_delete("a"));
    said.tell("kv-clear-prefix", kv::kv_clear_prefix("b/"));
    said.tell("kv-list-keys", kv::kv_list_keys(""));
}

/// Functions of several packages, with a text that the host makes up.
pub fn text(said: &mut Said, text: &str) {
    said.tell("kv-get", kv::kv_get(text));
    said.tell("kv-set", kv::kv_set(text, text.as_bytes()));
    said.tell("kv-get", kv::kv_get(text));
    said.tell("kv-list-keys", kv::kv_list_keys(text));
    said.tell("kv-cas", kv::kv_cas(text, Some(text.as_bytes()), b""));
    said.tell("kv-list-keys-page", kv::kv_list_keys_page("", Some(text), 3));
    said.tell("get-config", sys::get_config(text));
    said.tell("write-file", fs::write_file(text, text.as_bytes()));
    said.tell("read-file", fs::read_file(text));
    said.tell("fs-exists", fs::fs_exists(text));
    said.tell("fs-canonicalize", fs::fs_canonicalize(text));
    said.tell("identity-list-links", identity::identity_list_links(text));
    said.tell("has-secret", elicit::has_secret(text));
}

pub fn ipc(said: &mut Said) {
    said.tell("get-interceptor-bindings", ipc::get_interceptor_bindings());
    said.tell("subscribe", ipc::subscribe("not.declared"));
    let Ok(heard) = said.note("subscribe", ipc::subscribe("probe.heard")) else {
        return;
    };
    let arrived = said.note("[method]subscription.subscribe-readiness", heard.subscribe_readiness());
    said.tell("[method]subscription.poll", heard.poll());
    said.tell("[method]subscription.recv", heard.recv(1));
    said.tell("publish", ipc::publish("probe.heard", "{\"n\":1}"));
    said.tell("publish", ipc::publish("not.declared", "{}"));
    said.tell("publish", ipc::publish("probe.heard", "no JSON {"));
    said.tell("publish-as", ipc::publish_as("probe.heard", "[2]", "bob"));
    said.tell("[method]pollable.block", arrived.block());
    said.tell("[method]subscription.recv", heard.recv(1000));
    said.tell("[method]subscription.poll", heard.poll());
}
