//! A model's answer, as it comes.

use std::collections::BTreeMap;

use astrid_sdk::types::StreamEvent;
use serde_json::{Map, Value};

use crate::calls::{Call, Calls};
use crate::chunk::{Chunk, Delta, Usage, error_in};
use crate::events::Events;
use crate::finish::Finish;
use crate::kept::Kept;
use crate::loose::{self, Halves, whole};
use crate::names::Names;
use crate::sse::{LINE_BYTES, Lines, TooLong, data_in, is_strange};

/// What the server says instead of an answer, or what is wrong with it, in words.
#[derive(Debug, PartialEq)]
pub(crate) struct Broken(pub(crate) String);

const NO_STREAM: &str =
    "The model provider's answer is no chat completion stream: check the URL (openai-compat.base_url).";

impl From<TooLong> for Broken {
    fn from(_: TooLong) -> Self {
        Self("The model provider sent a line of more than 1 MiB.".into())
    }
}

impl From<String> for Broken {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// How calls get their ids for the bus: of the server's id, and whether something is kept with it. None: there is none.
pub(crate) type NewId<'a> = &'a dyn Fn(&str, bool) -> Option<String>;

/// An answer under way: bytes go in, events come out.
pub(crate) struct Answer<'a> {
    lines: Lines,
    stream: Stream,
    names: &'a Names,
    new_id: NewId<'a>,
    /// What ends it, once that has come and what was said before it was handed out.
    broken: Option<Broken>,
}

/// The end of an answer: its last events, without the terminal one, and what goes back with its calls.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct End {
    pub(crate) events: Vec<StreamEvent>,
    pub(crate) kept: Vec<(String, Kept)>,
    /// How it was cut off, if it was.
    pub(crate) cut: Option<Finish>,
}

#[derive(Default)]
struct Stream {
    events: Events,
    calls: Calls,
    usage: Option<Usage>,
    /// Lines of data that are not yet JSON: an event may have several.
    data: String,
    /// Lines of a body that is JSON, and no stream of events.
    body: String,
    text: Halves,
    reasoning: Halves,
    kept: BTreeMap<&'static str, (Value, Halves)>,
    finish: Finish,
    /// Whether a piece of an answer came, and whether something that is none.
    begun: bool,
    strange: bool,
    done: bool,
    /// Whether anything was said in deltas.
    said: bool,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(names: &'a Names, new_id: NewId<'a>) -> Self {
        Self { lines: Lines::default(), stream: Stream::default(), names, new_id, broken: None }
    }

    /// Take what came. After `[DONE]` nothing is read any more. An error that came together with what was said before it is told
    /// by `end`, so that nothing of the answer is lost.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Vec<StreamEvent>, Broken> {
        let stream = &mut self.stream;
        let taken = self.lines.take::<Broken>(bytes, |line| stream.line(line));
        let events = stream.events.take();
        match taken {
            Err(broken) if events.is_empty() => Err(broken),
            taken => {
                self.broken = taken.err();
                Ok(events)
            }
        }
    }

    /// Take an answer that came whole, from a server that does not stream, or does not say that it does.
    pub(crate) fn take_whole(&mut self, body: &[u8]) -> Result<Vec<StreamEvent>, Broken> {
        let text = String::from_utf8_lossy(body);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        if self.stream.json(text)? { Ok(self.stream.events.take()) } else { self.take(body) }
    }

    /// Whether the server said that this was all, or something that ends it.
    pub(crate) fn is_done(&self) -> bool {
        self.stream.done || self.broken.is_some()
    }

    /// No more comes.
    pub(crate) fn end(&mut self) -> Result<End, Broken> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        if let Some(line) = self.lines.end() {
            self.stream.line(&line)?;
        }
        self.stream.end()?;
        let cut = self.stream.finish.cut();
        let mut end = End::default();
        let message = std::mem::take(&mut self.stream.kept);
        let mut message: Map<String, Value> = message
            .into_iter()
            .map(|(key, (value, mut halves))| (key.to_owned(), with_rest(value, &mut halves)))
            .collect();
        for call in self.stream.calls.end() {
            let kept = Kept { message: std::mem::take(&mut message), ..kept_of(&call) };
            let id = (self.new_id)(&call.given, !kept.is_empty())
                .ok_or_else(|| Broken("There are no random numbers for the id of a tool call.".into()))?;
            if !kept.is_empty() {
                end.kept.push((id.clone(), kept));
            }
            self.say(id, &call, cut.is_some());
        }
        if let Some(Usage { prompt_tokens, completion_tokens }) = self.stream.usage {
            let usage = StreamEvent::Usage { input_tokens: prompt_tokens, output_tokens: completion_tokens };
            self.stream.events.push(usage);
        }
        end.events = self.stream.events.take();
        end.cut = cut;
        Ok(end)
    }

    /// Tell of a call. One without arguments has `{}`, unless it may have been cut off before them: then it has no end.
    fn say(&mut self, id: String, call: &Call, cut: bool) {
        let events = &mut self.stream.events;
        let name = self.names.meant(&call.name).to_owned();
        events.push(StreamEvent::ToolCallStart { id: id.clone(), name });
        let nothing = call.arguments.trim().is_empty();
        events.arguments(&id, if nothing && !cut { "{}" } else { &call.arguments });
        if !cut || call.is_whole() {
            events.push(StreamEvent::ToolCallEnd { id });
        }
    }
}

fn kept_of(call: &Call) -> Kept {
    Kept { call: call.kept.clone(), function: call.kept_of_function.clone(), ..Kept::default() }
}

fn with_rest(value: Value, halves: &mut Halves) -> Value {
    match value {
        Value::String(text) => Value::String(text + halves.rest()),
        other => other,
    }
}

impl Stream {
    fn line(&mut self, line: &str) -> Result<(), Broken> {
        if self.done {
            return Ok(());
        }
        let Some(data) = data_in(line) else {
            return self.line_without_data(line);
        };
        if self.data.is_empty() {
            return if data.trim().is_empty() || self.json(data)? { Ok(()) } else { keep(&mut self.data, data) };
        }
        keep(&mut self.data, data)?;
        let data = std::mem::take(&mut self.data);
        if !self.json(&data)? {
            self.data = data;
        }
        Ok(())
    }

    /// A comment, another field, the end of an event; or a part of JSON that is no event.
    fn line_without_data(&mut self, line: &str) -> Result<(), Broken> {
        // llama.cpp has errors in a field of their own.
        if let Some((error, loose)) = line.strip_prefix("error:").and_then(loose::read) {
            let said = error_in(&serde_json::json!({ "error": error })).unwrap_or_else(|| error.to_string());
            return Err(Broken(format!("The model provider says: {}", whole(&said, loose))));
        }
        if !self.body.is_empty() || line.trim_start().starts_with(['{', '[']) {
            keep(&mut self.body, line)?;
            if line.trim_end().ends_with(['}', ']']) {
                let body = std::mem::take(&mut self.body);
                if !self.json(&body)? {
                    self.body = body;
                }
            }
            return Ok(());
        }
        self.strange |= is_strange(line);
        if line.is_empty() { self.dispatch() } else { Ok(()) }
    }

    /// An event is over: what it had should have been JSON. What does not even begin like it is no part of the answer.
    fn dispatch(&mut self) -> Result<(), Broken> {
        let data = std::mem::take(&mut self.data);
        if data.is_empty() {
            return Ok(());
        }
        if data.trim_start().starts_with(['{', '[']) || (!self.begun && data.trim_start().starts_with('<')) {
            let begin: String = data.chars().take(80).collect();
            return Err(Broken(format!("The model provider sent what is not JSON: {begin}")));
        }
        self.strange = true;
        Ok(())
    }

    /// Take a piece of the answer; false when the text is not (yet) JSON.
    fn json(&mut self, text: &str) -> Result<bool, Broken> {
        if text.trim() == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        let Some((value, loose)) = loose::read(text) else {
            return Ok(false);
        };
        if let Some(error) = error_in(&value) {
            return Err(Broken(format!("The model provider says: {}", whole(&error, loose))));
        }
        let pieces = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
        pieces.iter().try_for_each(|piece| self.chunk(&Chunk::new(piece, loose)))?;
        Ok(true)
    }

    fn chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), Broken> {
        self.begun |= chunk.is_piece();
        self.strange |= !chunk.is_piece();
        self.usage = chunk.usage().or(self.usage);
        for delta in chunk.deltas() {
            self.finish.hear(delta.finish_reason);
            if !(delta.whole && self.said) {
                self.delta(delta, chunk.loose)?;
            }
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta<'_>, loose: bool) -> Result<(), Broken> {
        let (text, reasoning) = (self.text.join(&delta.text, loose), self.reasoning.join(&delta.reasoning, loose));
        self.said |= !delta.text.is_empty() || !delta.reasoning.is_empty() || !delta.calls.is_empty();
        self.finish.reasoned |= !reasoning.trim().is_empty();
        self.finish.spoke |= !text.trim().is_empty() || !delta.calls.is_empty();
        self.events.reasoning(&reasoning);
        self.events.text(&text);
        for (key, value) in delta.kept {
            let (kept, halves) = self.kept.entry(key).or_default();
            go_on(kept, value, halves, loose);
        }
        Ok(self.calls.take(delta.calls, loose)?)
    }

    fn end(&mut self) -> Result<(), Broken> {
        if !self.data.is_empty() && !self.done && !self.finish.is_told() {
            self.dispatch()?;
        }
        let (text, reasoning) = (self.text.rest(), self.reasoning.rest());
        self.events.reasoning(reasoning);
        self.events.text(text);
        if self.done || self.finish.is_told() {
            return Ok(());
        }
        if (self.strange || !self.body.is_empty()) && !self.begun {
            return Err(Broken(NO_STREAM.into()));
        }
        Err(Broken("The model provider's answer broke off.".into()))
    }
}

fn keep(kept: &mut String, line: &str) -> Result<(), Broken> {
    if kept.len() + line.len() > LINE_BYTES {
        return Err(TooLong.into());
    }
    if !kept.is_empty() {
        kept.push('\n');
    }
    kept.push_str(line);
    Ok(())
}

/// What goes back goes on from piece to piece: texts and lists grow, anything else is replaced.
fn go_on(kept: &mut Value, more: Value, halves: &mut Halves, loose: bool) {
    match (kept, more) {
        (Value::String(text), Value::String(more)) => text.push_str(&halves.join(&more, loose)),
        (kept, Value::String(more)) => *kept = Value::String(halves.join(&more, loose)),
        (Value::Array(list), Value::Array(more)) => list.extend(more),
        (kept, more) => *kept = more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(chunks: &[&str]) -> Result<End, Broken> {
        let names = Names::default();
        let new_id = |given: &str, keeps: bool| Some(format!("{given}{}", if keeps { "!" } else { "" }));
        let mut answer = Answer::new(&names, &new_id);
        let mut events = Vec::new();
        for chunk in chunks {
            events.extend(answer.take(chunk.as_bytes())?);
        }
        let mut end = answer.end()?;
        events.append(&mut end.events);
        Ok(End { events, ..end })
    }

    fn events_of(chunks: &[&str]) -> Result<Vec<StreamEvent>, Broken> {
        end_of(chunks).map(|end| end.events)
    }

    fn text(said: &str) -> StreamEvent {
        StreamEvent::TextDelta(said.into())
    }

    const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    fn finish(reason: &str) -> String {
        format!("data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\n")
    }

    #[test]
    fn text_comes_as_it_is_sent_and_together_what_came_together() {
        let events = events_of(&[HI, &format!(": ping\n\n{HI}{HI}"), "data: [DONE]\n\n", "rubbish\n\n"]).unwrap();
        assert_eq!(events, [text("hi"), text("hihi")]);
    }

    #[test]
    fn usage_is_told_once_at_the_end() {
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\r\n\r\n";
        let events = events_of(&[usage, HI, usage, "data: [DONE]"]).unwrap();
        assert_eq!(events, [text("hi"), StreamEvent::Usage { input_tokens: 3, output_tokens: 4 }]);
    }

    #[test]
    fn an_answer_may_end_without_being_said_to_be_done() {
        let last = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n";
        assert_eq!(events_of(&[HI, last]).unwrap(), [text("hi")]);
        assert_eq!(events_of(&[HI]), Err(Broken("The model provider's answer broke off.".into())));
    }

    #[test]
    fn what_is_no_stream_at_all_is_told_as_that() {
        for page in ["<!doctype html>\n<html>\n", "<html>", "Ollama is running", "event: x\n<html>"] {
            assert_eq!(events_of(&[page]), Err(Broken(NO_STREAM.into())), "{page}");
        }
        for nothing in ["", "\n", ": ping\n\n", "event: x\nid: 1\nretry: 5\n\n"] {
            assert_eq!(
                events_of(&[nothing]),
                Err(Broken("The model provider's answer broke off.".into())),
                "{nothing}"
            );
        }
        assert_eq!(events_of(&[HI, "<html>"]), Err(Broken("The model provider's answer broke off.".into())));
        assert_eq!(events_of(&["{\"models\":[]}"]), Err(Broken(NO_STREAM.into())));
    }

    #[test]
    fn an_event_may_have_several_lines() {
        let events = events_of(&["data: {\"choices\":\ndata: [{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n"]);
        assert_eq!(events.unwrap(), [text("x")]);
    }

    #[test]
    fn errors_within_a_stream_and_what_is_not_json_end_it() {
        let error = events_of(&[HI, "data: {\"error\":{\"message\":\"overloaded\"}}\n\n"]).unwrap_err();
        assert_eq!(error.0, "The model provider says: overloaded");
        let error = events_of(&["data: <html>\n\n"]).unwrap_err();
        assert_eq!(error.0, "The model provider sent what is not JSON: <html>");
        let cut = events_of(&[HI, "data: {\"choices\":[{\"delta\":{\"content\":\"x\n\n", DONE]).unwrap_err();
        assert!(cut.0.contains("what is not JSON"), "{}", cut.0);
    }

    #[test]
    fn what_came_together_with_an_error_is_told_before_it() {
        let names = Names::default();
        let new_id = |_: &str, _: bool| None;
        let mut answer = Answer::new(&names, &new_id);
        let together = format!("{HI}data: {{\"error\":{{\"message\":\"overloaded\"}}}}\n\n");
        assert_eq!(answer.take(together.as_bytes()).unwrap(), [text("hi")]);
        assert!(answer.is_done());
        assert_eq!(answer.end(), Err(Broken("The model provider says: overloaded".into())));
    }

    #[test]
    fn reasoning_is_told_apart_from_text() {
        let reason = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\",\"content\":null}}]}\n\n";
        let events = events_of(&[reason, HI, "data: [DONE]\n"]).unwrap();
        assert_eq!(events, [StreamEvent::ReasoningDelta("hm".into()), text("hi")]);
    }

    #[test]
    fn an_answer_that_is_not_streamed_is_taken_whole() {
        let body = "{\n \"choices\": [\n  {\"message\": {\"role\": \"assistant\", \"content\": \"all\"},\n  \"finish_reason\": \"stop\"}\n ]\n}\n";
        assert_eq!(events_of(&[body]).unwrap(), [text("all")]);
        let names = Names::default();
        let new_id = |_: &str, _: bool| None;
        let mut answer = Answer::new(&names, &new_id);
        assert_eq!(answer.take_whole(format!("\u{feff}{body}").as_bytes()).unwrap(), [text("all")]);
        assert_eq!(answer.end().unwrap(), End::default());
        assert_eq!(answer.take_whole(HI.as_bytes()).unwrap(), [text("hi")]);
    }

    #[test]
    fn what_is_said_twice_is_told_once() {
        let both = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"message\":{\"content\":\"hi\"}}]}\n\n";
        let whole =
            "data: {\"choices\":[{\"delta\":{},\"message\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n";
        assert_eq!(events_of(&[both, whole]).unwrap(), [text("hi")]);
        assert_eq!(events_of(&[whole]).unwrap(), [text("hi")]);
        let reasons = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\",\"reasoning_content\":\"hm\"}}]}\n\n";
        assert_eq!(events_of(&[reasons, DONE]).unwrap(), [StreamEvent::ReasoningDelta("hm".into())]);
    }

    #[test]
    fn what_is_no_part_of_an_answer_does_not_end_it() {
        let events =
            events_of(&["data: ping\n\n", HI, "data: <keepalive>\n\ndata: [PING]x\n", ": c\n", &finish("stop"), DONE]);
        assert_eq!(events.map_err(|broken| assert!(broken.0.contains("[PING]"))), Err(()));
        let events =
            events_of(&["data: ping\n\n", HI, "data: <keepalive>\n\nretry: 1\n\n", ": c\n", &finish("stop"), DONE]);
        assert_eq!(events.unwrap(), [text("hi")]);
    }

    #[test]
    fn an_answer_that_was_cut_says_how() {
        for (reason, cut) in [("length", Some("length")), ("stop", None), ("", None), ("weird", Some("weird"))] {
            let end = end_of(&[HI, &finish(reason), &finish("stop"), DONE]).unwrap();
            assert_eq!(end.cut.map(|finish| finish.reason), cut.map(str::to_owned), "{reason}");
            assert_eq!(end.events, [text("hi")]);
        }
    }

    #[test]
    fn a_call_that_may_have_been_cut_has_no_end() {
        let call = |arguments: &str| {
            format!(
                "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"c\",\"function\":{{\"name\":\"n\",\"arguments\":\"{arguments}\"}}}}]}}}}]}}\n\n"
            )
        };
        let ends = |arguments: &str, reason: &str| {
            let events = events_of(&[&call(arguments), &finish(reason)]).unwrap();
            events.iter().any(|event| matches!(event, StreamEvent::ToolCallEnd { .. }))
        };
        assert!(ends("", "tool_calls") && ends("{}", "length") && ends("{", "stop"));
        assert!(!ends("", "length") && !ends("{", "length") && !ends("", "content_filter"));
    }

    #[test]
    fn what_goes_back_with_a_message_is_kept_with_its_first_call() {
        let reason = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"h\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"reasoning_content\":\"m\"}}]}\n\n";
        let calls = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"n\"}},{\"index\":1,\"id\":\"b\",\"function\":{\"name\":\"n\"}}]}}]}\n\n";
        let end = end_of(&[reason, calls, DONE]).unwrap();
        assert_eq!(end.kept.len(), 1);
        assert_eq!((end.kept[0].0.as_str(), &end.kept[0].1.message["reasoning_content"]), ("a!", &"hm".into()));
    }
}
