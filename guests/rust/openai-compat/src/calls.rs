//! Tool calls, put together from the deltas that servers send: an index says which call a delta belongs to, the first
//! one has id and name. Servers leave out or repeat any of these, and every call still gets one id that no other has.

use std::collections::HashSet;

use astrid_sdk::types::StreamEvent;
use serde_json::Value;

use crate::chunk::CallDelta;
use crate::events::Events;
use crate::names::Names;

/// How many calls one answer may make.
const CALLS: usize = 128;

struct Call {
    index: Option<u64>,
    /// As the server gave it; empty if it did not.
    given: String,
    /// As it goes on.
    id: String,
    named: bool,
    /// What came before the name.
    early: String,
    has_arguments: bool,
}

/// The calls of one answer.
pub(crate) struct Calls<'a> {
    calls: Vec<Call>,
    names: &'a Names,
    taken: HashSet<String>,
    fresh: &'a dyn Fn() -> String,
}

impl<'a> Calls<'a> {
    /// `taken`: ids that this conversation has already. `fresh`: a new id each time.
    pub(crate) fn new(names: &'a Names, taken: HashSet<String>, fresh: &'a dyn Fn() -> String) -> Self {
        Self { calls: Vec::new(), names, taken, fresh }
    }

    /// Take a delta; says in words when there are too many calls.
    pub(crate) fn take(&mut self, delta: CallDelta, events: &mut Events) -> Result<(), String> {
        let given = delta.id.unwrap_or_default();
        let function = delta.function.unwrap_or_default();
        let name = function.name.unwrap_or_default();
        let at = match self.place(delta.index, &given, !name.is_empty()) {
            Some(at) => at,
            None => self.begin(delta.index, given)?,
        };
        let call = &mut self.calls[at];
        if !call.named && !name.is_empty() {
            call.named = true;
            events.push(StreamEvent::ToolCallStart { id: call.id.clone(), name: self.names.meant(&name).to_owned() });
            events.arguments(&call.id, &std::mem::take(&mut call.early));
        }
        let arguments = match function.arguments {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(text)) => text,
            Some(whole) => whole.to_string(),
        };
        call.has_arguments |= !arguments.is_empty();
        if call.named {
            events.arguments(&call.id, &arguments);
        } else {
            call.early.push_str(&arguments);
        }
        Ok(())
    }

    /// All deltas have come. A call without arguments gets `{}`. Says so in words when one has no name.
    pub(crate) fn end(&mut self, events: &mut Events) -> Result<(), String> {
        for call in self.calls.drain(..) {
            if !call.named {
                return Err("The model provider began a tool call without naming a tool.".into());
            }
            if !call.has_arguments {
                events.arguments(&call.id, "{}");
            }
            events.push(StreamEvent::ToolCallEnd { id: call.id });
        }
        Ok(())
    }

    /// The call that a delta goes on with; None: it begins one. An index that comes again with another id and a name is
    /// another call, as some servers give every call the index 0.
    fn place(&self, index: Option<u64>, given: &str, has_name: bool) -> Option<usize> {
        let known = |call: &Call| given.is_empty() || call.given.is_empty() || call.given == given;
        if index.is_some() {
            let at = self.calls.iter().rposition(|call| call.index == index)?;
            return (known(&self.calls[at]) || !has_name).then_some(at);
        }
        if given.is_empty() {
            let last = self.calls.len().checked_sub(1)?;
            return (!has_name || !self.calls[last].named).then_some(last);
        }
        self.calls.iter().rposition(|call| call.given == given)
    }

    fn begin(&mut self, index: Option<u64>, given: String) -> Result<usize, String> {
        if self.calls.len() == CALLS {
            return Err(format!("The model provider makes more than {CALLS} tool calls at once."));
        }
        let mut id = given.clone();
        while id.is_empty() || !self.taken.insert(id.clone()) {
            id = (self.fresh)();
        }
        self.calls.push(Call { index, given, id, named: false, early: String::new(), has_arguments: false });
        Ok(self.calls.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use serde_json::json;

    /// The calls that come of deltas: id, name, arguments.
    fn put_together(deltas: Value, taken: &[&str]) -> Vec<(String, String, String)> {
        let names = Names::default();
        let count = Cell::new(0);
        let fresh = || {
            count.set(count.get() + 1);
            format!("new{}", count.get())
        };
        let taken = taken.iter().map(|id| (*id).to_owned()).collect();
        let mut calls = Calls::new(&names, taken, &fresh);
        let mut events = Events::default();
        for delta in serde_json::from_value::<Vec<CallDelta>>(deltas).unwrap() {
            calls.take(delta, &mut events).unwrap();
        }
        calls.end(&mut events).unwrap();
        let mut found: Vec<(String, String, String)> = Vec::new();
        let mut ended = 0;
        for event in events.take() {
            match event {
                StreamEvent::ToolCallStart { id, name } => found.push((id, name, String::new())),
                StreamEvent::ToolCallDelta { id, args_delta } => {
                    found.iter_mut().find(|call| call.0 == id).unwrap().2.push_str(&args_delta);
                }
                StreamEvent::ToolCallEnd { .. } => ended += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ended, found.len());
        found
    }

    fn calls(list: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        list.iter().map(|(id, name, arguments)| (id.to_string(), name.to_string(), arguments.to_string())).collect()
    }

    #[test]
    fn deltas_are_put_together_by_index() {
        let deltas = json!([
            {"index": 0, "id": "a", "function": {"name": "one", "arguments": ""}},
            {"index": 1, "id": "b", "function": {"name": "two", "arguments": "{\"y\""}},
            {"index": 0, "function": {"arguments": "{\"x\":"}},
            {"index": 1, "function": {"arguments": ":2}"}},
            {"index": 0, "function": {"arguments": "1}"}},
        ]);
        assert_eq!(put_together(deltas, &[]), calls(&[("a", "one", "{\"x\":1}"), ("b", "two", "{\"y\":2}")]));
    }

    #[test]
    fn id_and_name_may_come_with_every_delta() {
        let deltas = json!([
            {"index": 0, "id": "a", "function": {"name": "one", "arguments": "{"}},
            {"index": 0, "id": "a", "function": {"name": "one", "arguments": "}"}},
        ]);
        assert_eq!(put_together(deltas, &[]), calls(&[("a", "one", "{}")]));
    }

    #[test]
    fn missing_ids_are_made_up() {
        let deltas = json!([
            {"index": 0, "function": {"name": "one", "arguments": "{}"}},
            {"index": 1, "id": "", "function": {"name": "two", "arguments": "{}"}},
        ]);
        assert_eq!(put_together(deltas, &[]), calls(&[("new1", "one", "{}"), ("new2", "two", "{}")]));
    }

    #[test]
    fn ids_that_there_are_already_are_replaced() {
        let deltas = json!([
            {"index": 0, "id": "call_0", "function": {"name": "one", "arguments": "{}"}},
            {"index": 1, "id": "call_0", "function": {"name": "two", "arguments": "{}"}},
        ]);
        assert_eq!(put_together(deltas, &["call_0"]), calls(&[("new1", "one", "{}"), ("new2", "two", "{}")]));
    }

    #[test]
    fn calls_that_all_have_one_index_are_told_apart_by_id_and_name() {
        let deltas = json!([
            {"index": 0, "id": "a", "function": {"name": "one", "arguments": "{\"x\":1}"}},
            {"index": 0, "id": "b", "function": {"name": "one", "arguments": "{\"x\":2}"}},
        ]);
        assert_eq!(put_together(deltas, &[]), calls(&[("a", "one", "{\"x\":1}"), ("b", "one", "{\"x\":2}")]));
    }

    #[test]
    fn calls_without_any_index_are_told_apart_by_id_or_name() {
        let deltas = json!([
            {"id": "a", "function": {"name": "one", "arguments": "{"}},
            {"function": {"arguments": "}"}},
            {"function": {"name": "two", "arguments": {"y": 2}}},
        ]);
        assert_eq!(put_together(deltas, &[]), calls(&[("a", "one", "{}"), ("new1", "two", "{\"y\":2}")]));
    }

    #[test]
    fn arguments_may_come_before_the_name_and_may_be_none() {
        let deltas = json!([
            {"index": 0, "id": "a", "function": {"arguments": "{\"x\""}},
            {"index": 0, "function": {"name": "one", "arguments": ":1}"}},
            {"index": 1, "id": "b", "function": {"name": "two", "arguments": null}},
        ]);
        assert_eq!(put_together(deltas, &[]), calls(&[("a", "one", "{\"x\":1}"), ("b", "two", "{}")]));
    }

    #[test]
    fn a_call_without_a_name_is_an_error() {
        let names = Names::default();
        let fresh = || "n".to_owned();
        let mut calls = Calls::new(&names, HashSet::new(), &fresh);
        let mut events = Events::default();
        calls.take(CallDelta::default(), &mut events).unwrap();
        assert!(calls.end(&mut events).is_err());
    }

    #[test]
    fn there_is_an_end_to_how_many_calls_an_answer_makes() {
        let names = Names::default();
        let count = Cell::new(0);
        let fresh = || {
            count.set(count.get() + 1);
            count.get().to_string()
        };
        let mut calls = Calls::new(&names, HashSet::new(), &fresh);
        let mut events = Events::default();
        let delta = |index| CallDelta { index: Some(index), ..CallDelta::default() };
        assert!((0..128).all(|index| calls.take(delta(index), &mut events).is_ok()));
        assert!(calls.take(delta(128), &mut events).is_err());
    }
}
