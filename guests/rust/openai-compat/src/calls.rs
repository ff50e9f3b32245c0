//! Tool calls, put together from the deltas that servers send. What begins a call: another index, another id, or a name
//! after its arguments have begun. Servers leave out or repeat any of these, and two calls never become one.
//!
//! Towards the bus each call has an id that nobody can guess, as whoever knows it could answer for the tool. It has the
//! server's own within it, which goes back to the server: see `ids`.

use serde_json::{Map, Value};

use crate::chunk::CallDelta;
use crate::loose::Halves;

/// How many calls one answer may make.
const CALLS: usize = 128;

/// A call, as far as it has come.
#[derive(Default)]
pub(crate) struct Call {
    index: Option<u64>,
    /// As the server gave it; empty if it did not.
    pub(crate) given: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    halves: Halves,
    /// The list of deltas that named it last.
    list: usize,
    pub(crate) kept: Map<String, Value>,
    pub(crate) kept_of_function: Map<String, Value>,
}

/// The calls of one answer.
#[derive(Default)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    lists: usize,
}

impl Calls {
    /// Take deltas that came together; says in words when there are too many calls.
    pub(crate) fn take(&mut self, deltas: Vec<CallDelta>, loose: bool) -> Result<(), String> {
        self.lists += 1;
        deltas.into_iter().try_for_each(|delta| self.take_one(delta, loose))
    }

    /// All deltas have come: the calls, in the order in which they began.
    pub(crate) fn end(&mut self) -> Vec<Call> {
        let mut calls = std::mem::take(&mut self.calls);
        for call in &mut calls {
            let rest = call.halves.rest();
            call.arguments.push_str(rest);
        }
        calls
    }

    fn take_one(&mut self, delta: CallDelta, loose: bool) -> Result<(), String> {
        let at = match self.place(&delta) {
            Some(at) if self.calls[at].is_repeated_by(&delta) => return Ok(()),
            Some(at) => at,
            None => self.begin(&delta)?,
        };
        let lists = self.lists;
        let call = &mut self.calls[at];
        if !delta.name.is_empty() {
            call.list = lists;
            call.name = delta.name;
        }
        if call.given.is_empty() {
            call.given = delta.id;
        }
        let more = call.halves.join(&delta.arguments, loose);
        call.arguments.push_str(&more);
        call.kept.extend(delta.kept);
        call.kept_of_function.extend(delta.kept_of_function);
        Ok(())
    }

    /// The call that a delta goes on with; None: it begins one.
    fn place(&self, delta: &CallDelta) -> Option<usize> {
        let last = self.calls.len().checked_sub(1)?;
        let of_id = || self.calls.iter().rposition(|call| !delta.id.is_empty() && call.given == delta.id);
        let of_index = || self.calls.iter().rposition(|call| call.index == delta.index);
        let at = match (delta.index, delta.name.is_empty()) {
            (Some(_), false) => of_index()?,
            // Without a name it is rather a part of a call that began than another one.
            (Some(_), true) => of_index().or_else(of_id)?,
            (None, false) if delta.id.is_empty() => last,
            (None, false) => of_id().or_else(|| self.calls[last].waits_for_its_name().then_some(last))?,
            (None, true) => of_id().unwrap_or(last),
        };
        (!self.begins(delta, &self.calls[at])).then_some(at)
    }

    /// Whether a delta begins a call, though it has the place of one.
    fn begins(&self, delta: &CallDelta, call: &Call) -> bool {
        let other_id = !delta.id.is_empty() && !call.given.is_empty() && delta.id != call.given;
        if delta.name.is_empty() || call.waits_for_its_name() {
            return other_id && !call.waits_for_its_name() && call.is_whole();
        }
        let together = call.list == self.lists; // no server sends two parts of a call at once
        other_id || delta.name != call.name || !call.is_repeated_by(delta) && (together || call.is_whole())
    }

    fn begin(&mut self, delta: &CallDelta) -> Result<usize, String> {
        if self.calls.len() == CALLS {
            return Err(format!("The model provider makes more than {CALLS} tool calls at once."));
        }
        self.calls.push(Call { index: delta.index, given: delta.id.clone(), ..Call::default() });
        Ok(self.calls.len() - 1)
    }
}

impl Call {
    fn waits_for_its_name(&self) -> bool {
        self.name.is_empty()
    }

    /// Whether its arguments are a JSON object: then nothing more can follow.
    pub(crate) fn is_whole(&self) -> bool {
        let text = self.arguments.trim();
        text.starts_with('{') && text.ends_with('}') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    }

    /// Whether a delta only says again what is known: some servers send a call once more when it is whole.
    fn is_repeated_by(&self, delta: &CallDelta) -> bool {
        let known = !delta.id.is_empty() && delta.id == self.given && delta.name == self.name && self.is_whole();
        known && (delta.arguments.trim().is_empty() || delta.arguments.trim() == self.arguments.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Chunk;
    use serde_json::json;

    /// The calls that come of lists of deltas: id, name, arguments.
    fn put_together(lists: Value) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for list in lists.as_array().unwrap() {
            let chunk = json!({"choices": [{"delta": {"tool_calls": list}}]});
            let deltas = Chunk::new(&chunk, false).deltas().next().unwrap().calls;
            calls.take(deltas, false).unwrap();
        }
        calls.end().into_iter().map(|call| (call.given, call.name, call.arguments)).collect()
    }

    fn calls(list: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        list.iter().map(|(id, name, arguments)| (id.to_string(), name.to_string(), arguments.to_string())).collect()
    }

    fn delta(index: Value, id: Value, name: &str, arguments: &str) -> Value {
        json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn deltas_are_put_together_by_index() {
        let lists = json!([
            [{"index": 0, "id": "a", "function": {"name": "one", "arguments": ""}}],
            [{"index": 1, "id": "b", "function": {"name": "two", "arguments": "{\"y\""}}],
            [{"index": 0, "function": {"arguments": "{\"x\":"}}, {"index": 1, "function": {"arguments": ":2}"}}],
            [{"index": 0, "function": {"arguments": "1}"}}],
        ]);
        assert_eq!(put_together(lists), calls(&[("a", "one", "{\"x\":1}"), ("b", "two", "{\"y\":2}")]));
    }

    #[test]
    fn id_and_name_may_come_with_every_delta_and_a_call_once_more_at_its_end() {
        for (id, index) in [(json!("a"), json!(0)), (json!("a"), json!(null)), (json!(""), json!(0))] {
            let part = |arguments| json!([delta(index.clone(), id.clone(), "one", arguments)]);
            let mut lists = vec![part(""), part("{\"x\""), part(":1}")];
            if id == "a" {
                lists.extend([part(""), part("{\"x\":1}")]);
            }
            let id = id.as_str().unwrap();
            assert_eq!(put_together(lists.into()), calls(&[(id, "one", "{\"x\":1}")]));
        }
    }

    #[test]
    fn calls_that_share_index_or_id_or_have_none_stay_apart() {
        let (first, second) = ("{\"x\":1}", "{\"x\":2}");
        for (index, one, other) in [
            (json!(0), "", ""),
            (json!(0), "c", "c"),
            (json!(0), "a", "b"),
            (json!(null), "", ""),
            (json!(null), "c", "c"),
            (json!(-1), "", ""),
            (json!("0"), "c", "c"),
        ] {
            for name in ["one", "two"] {
                let deltas =
                    [delta(index.clone(), one.into(), "one", first), delta(index.clone(), other.into(), name, second)];
                let expected = calls(&[(one, "one", first), (other, name, second)]);
                assert_eq!(put_together(json!([deltas])), expected, "together: {deltas:?}");
                assert_eq!(put_together(json!([[deltas[0]], [deltas[1]]])), expected, "apart: {deltas:?}");
            }
        }
    }

    #[test]
    fn a_call_without_arguments_is_one() {
        let deltas = [delta(json!(0), "".into(), "one", ""), delta(json!(0), "".into(), "two", "{}")];
        assert_eq!(put_together(json!([[deltas[0]], [deltas[1]]])), calls(&[("", "one", ""), ("", "two", "{}")]));
        let same = delta(json!(0), "".into(), "one", "");
        assert_eq!(put_together(json!([[same, same]])), calls(&[("", "one", ""), ("", "one", "")]));
    }

    #[test]
    fn a_call_that_was_cut_does_not_take_the_next_ones_arguments() {
        let deltas = [delta(json!(0), "c".into(), "one", "{\"x\":"), delta(json!(0), "c".into(), "two", "{}")];
        let expected = calls(&[("c", "one", "{\"x\":"), ("c", "two", "{}")]);
        assert_eq!(put_together(json!([[deltas[0]], [deltas[1]]])), expected);
    }

    #[test]
    fn an_id_that_is_new_with_every_part_begins_no_call_without_a_name() {
        for index in [json!(0), json!(null)] {
            let lists = json!([
                [delta(index.clone(), "a".into(), "one", "")],
                [{"index": index, "id": "b", "function": {"arguments": "{\"x\""}}],
                [{"index": index, "id": 7, "function": {"arguments": ":1}"}}],
            ]);
            assert_eq!(put_together(lists), calls(&[("a", "one", "{\"x\":1}")]));
        }
    }

    #[test]
    fn arguments_may_come_before_the_name_or_as_an_object_or_not_at_all() {
        let lists = json!([
            [{"index": 0, "id": "a", "function": {"arguments": "{\"x\""}}],
            [{"index": 0, "function": {"name": "one", "arguments": ":1}"}}],
            [{"index": 1, "id": 7, "function": {"name": "two", "arguments": {"y": 2}}}],
            [{"index": 2, "id": "c", "name": "three", "arguments": null}],
        ]);
        let expected = calls(&[("a", "one", "{\"x\":1}"), ("7", "two", "{\"y\":2}"), ("c", "three", "")]);
        assert_eq!(put_together(lists), expected);
    }

    #[test]
    fn what_goes_back_is_kept_with_its_call() {
        let chunk = json!({"choices": [{"delta": {"tool_calls": [
            {"index": 0, "id": "a", "function": {"name": "one"}, "extra_content": {"google": {"thought_signature": "s"}}},
            {"index": 1, "id": "b", "function": {"name": "two", "thought_signature": "t"}, "other": 1},
        ]}}]});
        let mut calls = Calls::default();
        calls.take(Chunk::new(&chunk, false).deltas().next().unwrap().calls, false).unwrap();
        let ended = calls.end();
        assert_eq!(
            Value::Object(ended[0].kept.clone()),
            json!({"extra_content": {"google": {"thought_signature": "s"}}})
        );
        assert_eq!(Value::Object(ended[1].kept_of_function.clone()), json!({"thought_signature": "t"}));
        assert!(ended[1].kept.is_empty());
    }

    #[test]
    fn there_is_an_end_to_how_many_calls_an_answer_makes() {
        let mut calls = Calls::default();
        let delta = |index| vec![CallDelta { index: Some(index), ..CallDelta::default() }];
        assert!((0..128).all(|index| calls.take(delta(index), false).is_ok()));
        assert!(calls.take(delta(128), false).is_err());
    }
}
