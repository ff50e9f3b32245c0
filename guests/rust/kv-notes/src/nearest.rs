//! Which keys were probably meant.

/// At most `most` of the keys that are like the given one, the likest first: those that contain it or are contained in
/// it, and those that differ by few letters. Capitals do not count.
pub(crate) fn nearest<'a>(key: &str, keys: &'a [String], most: usize) -> Vec<&'a str> {
    let wanted = key.to_lowercase();
    let mut found: Vec<(usize, &str)> = keys
        .iter()
        .filter_map(|candidate| {
            let other = candidate.to_lowercase();
            let edits = distance(&wanted, &other);
            let alike = edits <= 1 + wanted.chars().count() / 4;
            (alike || other.contains(&wanted) || wanted.contains(&other)).then_some((edits, candidate.as_str()))
        })
        .collect();
    found.sort();
    found.truncate(most);
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

/// How many letters must be inserted, left out or replaced to make one text the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_distance_is_the_number_of_letters_that_change() {
        for (from, to, edits) in [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("ä", "a", 1)] {
            assert_eq!(distance(from, to), edits, "{from} {to}");
        }
    }

    #[test]
    fn a_slip_finds_the_key_and_the_likest_comes_first() {
        let keys = keys(&["groceries", "todo", "todo-home", "Mod"]);
        assert_eq!(nearest("tod", &keys, 5), ["Mod", "todo", "todo-home"]);
        assert_eq!(nearest("tod", &keys, 1), ["Mod"]);
    }

    #[test]
    fn nothing_is_found_where_nothing_is_like_it() {
        assert!(nearest("zzz", &keys(&["groceries", "todo"]), 5).is_empty());
        assert!(nearest("a", &[], 5).is_empty());
    }
}
