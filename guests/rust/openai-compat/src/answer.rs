//! A model's answer, as it comes.

use std::collections::HashSet;

use astrid_sdk::types::StreamEvent;
use serde_json::Value;

use crate::calls::Calls;
use crate::chunk::{Chunk, Delta, Usage, error_in};
use crate::events::Events;
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

/// An answer under way: bytes go in, events come out.
pub(crate) struct Answer<'a> {
    lines: Lines,
    stream: Stream<'a>,
}

struct Stream<'a> {
    events: Events,
    calls: Calls<'a>,
    usage: Option<Usage>,
    /// Lines of data that are not yet JSON: an event may have several.
    data: String,
    /// Whether a piece of an answer came, and whether something that is none.
    begun: bool,
    strange: bool,
    finished: bool,
    done: bool,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(names: &'a Names, taken: HashSet<String>, fresh: &'a dyn Fn() -> String) -> Self {
        let calls = Calls::new(names, taken, fresh);
        let data = String::new();
        let (begun, strange, finished, done) = (false, false, false, false);
        let stream = Stream { events: Events::default(), calls, usage: None, data, begun, strange, finished, done };
        Self { lines: Lines::default(), stream }
    }

    /// Take what came. After `[DONE]` nothing is read any more.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Vec<StreamEvent>, Broken> {
        let stream = &mut self.stream;
        self.lines.take::<Broken>(bytes, |line| stream.line(line))?;
        Ok(stream.events.take())
    }

    /// Take an answer that came whole, from a server that does not stream, or does not say that it does.
    pub(crate) fn take_whole(&mut self, body: &[u8]) -> Result<Vec<StreamEvent>, Broken> {
        if self.stream.json(&String::from_utf8_lossy(body))? { Ok(self.stream.events.take()) } else { self.take(body) }
    }

    /// Whether the server said that this was all.
    pub(crate) fn is_done(&self) -> bool {
        self.stream.done
    }

    /// No more comes: the last events, without the terminal one.
    pub(crate) fn end(&mut self) -> Result<Vec<StreamEvent>, Broken> {
        if let Some(line) = self.lines.end() {
            self.stream.line(&line)?;
        }
        self.stream.end()?;
        Ok(self.stream.events.take())
    }
}

impl Stream<'_> {
    fn line(&mut self, line: &str) -> Result<(), Broken> {
        if self.done {
            return Ok(());
        }
        let Some(data) = data_in(line) else {
            self.strange |= is_strange(line);
            return if line.is_empty() { self.dispatch() } else { Ok(()) };
        };
        if self.data.is_empty() {
            return if data.trim().is_empty() || self.json(data)? { Ok(()) } else { self.keep(data) };
        }
        self.keep(data)?;
        let data = std::mem::take(&mut self.data);
        if !self.json(&data)? {
            self.data = data;
        }
        Ok(())
    }

    /// An event is over: what it had should have been JSON.
    fn dispatch(&mut self) -> Result<(), Broken> {
        if self.data.is_empty() {
            return Ok(());
        }
        let begin: String = self.data.chars().take(80).collect();
        Err(Broken(format!("The model provider sent what is not JSON: {begin}")))
    }

    fn keep(&mut self, data: &str) -> Result<(), Broken> {
        if self.data.len() + data.len() > LINE_BYTES {
            return Err(TooLong.into());
        }
        if !self.data.is_empty() {
            self.data.push('\n');
        }
        self.data.push_str(data);
        Ok(())
    }

    /// Take a piece of the answer; false when the text is not (yet) JSON.
    fn json(&mut self, text: &str) -> Result<bool, Broken> {
        if text.trim() == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            return Ok(false);
        };
        if let Some(error) = error_in(&value) {
            return Err(Broken(format!("The model provider says: {error}")));
        }
        let chunk = serde_json::from_value(value)
            .map_err(|error| Broken(format!("The model provider sent a piece that cannot be read: {error}")))?;
        self.chunk(chunk)?;
        Ok(true)
    }

    fn chunk(&mut self, chunk: Chunk) -> Result<(), Broken> {
        let is_piece = chunk.choices.is_some() || chunk.usage.is_some();
        self.begun |= is_piece;
        self.strange |= !is_piece;
        self.usage = chunk.usage.or(self.usage);
        for choice in chunk.choices.into_iter().flatten() {
            if choice.index.unwrap_or(0) != 0 {
                continue; // one answer was asked for
            }
            self.delta(choice.delta.unwrap_or_default())?;
            self.finished |= choice.finish_reason.is_some_and(|reason| !reason.is_empty());
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta) -> Result<(), Broken> {
        if let Some(text) = delta.reasoning_content {
            self.events.reasoning(&text.into_text());
        }
        if let Some(text) = delta.content {
            self.events.text(&text.into_text());
        }
        self.events.text(&delta.refusal.unwrap_or_default());
        for call in delta.tool_calls.into_iter().flatten() {
            self.calls.take(call, &mut self.events)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Broken> {
        self.dispatch()?;
        if !self.done && !self.finished {
            if self.strange && !self.begun {
                return Err(Broken(NO_STREAM.into()));
            }
            return Err(Broken("The model provider's answer broke off.".into()));
        }
        self.calls.end(&mut self.events)?;
        if let Some(usage) = self.usage {
            let (input_tokens, output_tokens) = (usage.prompt_tokens, usage.completion_tokens);
            self.events.push(StreamEvent::Usage { input_tokens, output_tokens });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events_of(chunks: &[&str]) -> Result<Vec<StreamEvent>, Broken> {
        let names = Names::default();
        let fresh = || "fresh".to_owned();
        let mut answer = Answer::new(&names, HashSet::new(), &fresh);
        let mut events = Vec::new();
        for chunk in chunks {
            events.extend(answer.take(chunk.as_bytes())?);
        }
        events.extend(answer.end()?);
        Ok(events)
    }

    fn text(said: &str) -> StreamEvent {
        StreamEvent::TextDelta(said.into())
    }

    const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";

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
        let names = Names::default();
        let fresh = || "fresh".to_owned();
        let mut answer = Answer::new(&names, HashSet::new(), &fresh);
        assert_eq!(answer.take_whole(br#"{"models":[]}"#).unwrap(), []);
        assert_eq!(answer.end(), Err(Broken(NO_STREAM.into())));
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
        assert!(events_of(&["data: {\"choices\":7}\n\n"]).unwrap_err().0.contains("cannot be read"));
    }

    #[test]
    fn reasoning_is_told_apart_from_text() {
        let reason = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\",\"content\":null}}]}\n\n";
        let events = events_of(&[reason, HI, "data: [DONE]\n"]).unwrap();
        assert_eq!(events, [StreamEvent::ReasoningDelta("hm".into()), text("hi")]);
    }

    #[test]
    fn an_answer_that_is_not_streamed_is_taken_whole() {
        let names = Names::default();
        let fresh = || "fresh".to_owned();
        let mut answer = Answer::new(&names, HashSet::new(), &fresh);
        let body = r#"{"choices":[{"message":{"role":"assistant","content":"all"},"finish_reason":"stop"}]}"#;
        assert_eq!(answer.take_whole(body.as_bytes()).unwrap(), [text("all")]);
        assert_eq!(answer.end().unwrap(), []);
        assert_eq!(answer.take_whole(HI.as_bytes()).unwrap(), [text("hi")]);
    }
}
