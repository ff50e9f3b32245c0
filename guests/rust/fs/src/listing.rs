//! A part of a list of names.

use crate::lines::sent_bytes;

/// So many names are returned when nobody says how many.
pub(crate) const NAMES: usize = 4096;

/// The names from `offset` on, as a JSON array; `limit` at most, and no more than fit into `room` bytes of a result. When
/// there are more, a line after it says so.
pub(crate) fn page(names: &[String], offset: usize, limit: usize, room: usize) -> String {
    let mut room = room.saturating_sub(1024);
    let mut shown: Vec<String> = Vec::new();
    for name in names.iter().skip(offset).take(limit.max(1)) {
        let quoted = serde_json::Value::from(name.as_str()).to_string();
        let bytes = sent_bytes(&quoted);
        if bytes > room {
            break;
        }
        room -= bytes;
        shown.push(quoted);
    }
    let next = offset.saturating_add(shown.len());
    let array = format!("[{}]", shown.join(","));
    match names.len().checked_sub(next) {
        None | Some(0) => array,
        Some(more) => format!("{array}\n({more} of {} names follow: go on with offset = {next}.)", names.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["a", "b\"", "é"].map(String::from).to_vec()
    }

    #[test]
    fn a_list_that_fits_is_an_array() {
        assert_eq!(page(&names(), 0, NAMES, 1 << 20), r#"["a","b\"","é"]"#);
        assert_eq!(page(&names(), 1, 2, 1 << 20), r#"["b\"","é"]"#);
        assert_eq!(page(&[], 0, NAMES, 1 << 20), "[]");
        assert_eq!(page(&names(), usize::MAX, usize::MAX, 1 << 20), "[]");
    }

    #[test]
    fn a_list_that_is_cut_says_how_to_go_on() {
        assert_eq!(page(&names(), 0, 2, 1 << 20), "[\"a\",\"b\\\"\"]\n(1 of 3 names follow: go on with offset = 2.)");
        assert!(page(&names(), 0, 9, 1024 + 20).ends_with("(2 of 3 names follow: go on with offset = 1.)"));
    }
}
