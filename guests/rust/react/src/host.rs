//! Which host it is: those who worked for a turn are gone with the host under which it began.

use serde_json::Value;

use crate::ending;
use crate::store::{remember, remembered};

const KEY: &str = "react.host";

/// The capsules are loaded. A host that says which one it is says so anew each time that it starts; with one that does
/// not, such turns end with their time.
pub(crate) fn loaded(payload: &Value) {
    let Some(host) = payload.get("host").and_then(Value::as_str) else { return };
    let before = remembered(KEY);
    if before == host {
        return;
    }
    remember(KEY, host);
    if !before.is_empty() {
        ending::end_what_the_host_left();
    }
}
