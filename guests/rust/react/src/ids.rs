//! Ids that are given out, and the time.

use std::sync::OnceLock;

use astrid_sdk::prelude::*;

/// A random UUID (version 4). It has no dot, so that it can be a part of a topic.
pub(crate) fn new_id() -> String {
    let bytes = runtime::random_bytes(16).unwrap_or_else(|error| {
        log::error(format!("no random numbers, ids are made of the time: {error}"));
        let mut bytes = time::monotonic().as_nanos().to_be_bytes().to_vec();
        bytes.rotate_left(8);
        bytes
    });
    uuid(bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

/// An id of a tool call, of 128 random bits: whoever could guess it could answer for the tool. None: there are no random
/// numbers.
pub(crate) fn new_call_id() -> Option<String> {
    let bytes =
        runtime::random_bytes(16).inspect_err(|error| log::error(format!("no random numbers: {error}"))).ok()?;
    Some(bytes.iter().fold("call_".to_owned(), |id, byte| format!("{id}{byte:02x}")))
}

/// The id of this instance of the capsule.
pub(crate) fn instance() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(new_id)
}

fn uuid(random: u128) -> String {
    let number = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{number:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = time::now().ok().and_then(|now| now.duration_since(std::time::UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_variant_stand_in_their_places() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
