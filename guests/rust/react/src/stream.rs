//! What a model says, token by token. It is kept as it comes, in pieces: those at the end in one small value that each
//! token rewrites, those before under keys that are written once. So a token costs the same at any length.

use serde::{Deserialize, Serialize};

/// So many bytes are rewritten by each token, at most.
const TAIL_BYTES: usize = 2048;

/// An event of a provider.
#[derive(Debug, Deserialize)]
pub(crate) enum StreamEvent {
    TextDelta(String),
    ToolCallStart { id: String, name: String },
    ToolCallDelta { id: String, args_delta: String },
    ToolCallEnd { id: String },
    ReasoningDelta(serde::de::IgnoredAny),
    Usage(serde_json::Value),
    Done,
    Error(String),
}

/// A piece of what a model said.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Piece {
    #[serde(rename = "t")]
    Text(String),
    #[serde(rename = "s")]
    Start(String, String),
    #[serde(rename = "a")]
    Arguments(String, String),
    #[serde(rename = "e")]
    End(String),
}

/// What is kept of an answer that is under way.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Stream {
    pub(crate) session_id: String,
    /// What is said is not for the user.
    #[serde(default)]
    pub(crate) quiet: bool,
    /// How many tokens the server counted in what it was asked.
    #[serde(default)]
    pub(crate) input_tokens: Option<u64>,
    /// When the last event came, and until when the answer must be complete.
    pub(crate) last_ms: u64,
    pub(crate) until_ms: u64,
    /// How much there is, and how much there may be.
    pub(crate) bytes: u64,
    pub(crate) max_bytes: u64,
    /// How many values hold the pieces before `tail`.
    pub(crate) sealed: u32,
    pub(crate) tail: Vec<Piece>,
    tail_bytes: usize,
    #[serde(default)]
    pub(crate) cut: Option<Cut>,
}

/// How an answer was cut off: the provider's word for it, such as `length`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Cut {
    pub(crate) reason: String,
    /// Whether the model only thought aloud until then.
    #[serde(default)]
    pub(crate) only_reasoning: bool,
}

impl Cut {
    /// Whether nothing that was said holds: it was withheld, or is the beginning of something that failed.
    pub(crate) fn spoils_all(&self) -> bool {
        matches!(self.reason.as_str(), "content_filter" | "error")
    }

    /// What a person is told when nothing was said.
    pub(crate) fn told(&self) -> String {
        let reason = &self.reason;
        match reason.as_str() {
            "length" if self.only_reasoning => "The model spent all tokens that its answer may have on reasoning, and \
                said nothing (length). Allow more (openai-compat.max_output_tokens, or the server's own limit), or ask \
                for less."
                .into(),
            "length" => "The model's answer was cut off before it said anything (length): allow more tokens \
                (openai-compat.max_output_tokens, or the server's own limit)."
                .into(),
            "content_filter" => "The model provider withheld the answer (content_filter). Say it differently.".into(),
            _ => format!("The model's answer was cut off before it said anything ({reason}). Try again."),
        }
    }
}

impl Stream {
    pub(crate) fn new(session_id: &str, now: u64, until_ms: u64, max_bytes: u64) -> Self {
        let session_id = session_id.into();
        Self {
            session_id,
            quiet: false,
            input_tokens: None,
            last_ms: now,
            until_ms,
            bytes: 0,
            max_bytes,
            sealed: 0,
            tail: Vec::new(),
            tail_bytes: 0,
            cut: None,
        }
    }

    /// Keep a piece. What is returned has to be written under a key of its own, numbered `sealed`, before `sealed` is
    /// raised.
    pub(crate) fn push(&mut self, piece: Piece) -> Option<Vec<Piece>> {
        let length = piece.length();
        self.bytes = self.bytes.saturating_add(length as u64);
        self.tail_bytes = self.tail_bytes.saturating_add(length);
        match (self.tail.last_mut(), piece) {
            (Some(Piece::Text(text)), Piece::Text(more)) => text.push_str(&more),
            (Some(Piece::Arguments(id, text)), Piece::Arguments(of, more)) if *id == of => text.push_str(&more),
            (_, piece) => self.tail.push(piece),
        }
        (self.tail_bytes > TAIL_BYTES).then(|| {
            self.tail_bytes = 0;
            std::mem::take(&mut self.tail)
        })
    }
}

impl Piece {
    fn length(&self) -> usize {
        match self {
            Self::Text(text) | Self::End(text) => text.len(),
            Self::Start(id, text) | Self::Arguments(id, text) => id.len() + text.len(),
        }
    }
}

/// All that a model said.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) calls: Vec<Spoken>,
    pub(crate) cut: Option<Cut>,
}

/// A call of a tool as the model made it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Spoken {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) ended: bool,
}

impl Answer {
    /// Add what came next. What belongs to a call that was never begun is left out; when two calls have one id, to the
    /// later one.
    pub(crate) fn add(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.text.push_str(&text),
                Piece::Start(id, name) => self.calls.push(Spoken { id, name, ..Spoken::default() }),
                Piece::Arguments(id, text) => {
                    if let Some(call) = self.last(&id) {
                        call.arguments.push_str(&text);
                    }
                }
                Piece::End(id) => {
                    if let Some(call) = self.last(&id) {
                        call.ended = true;
                    }
                }
            }
        }
    }

    fn last(&mut self, id: &str) -> Option<&mut Spoken> {
        self.calls.iter_mut().rev().find(|call| call.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.into())
    }

    fn arguments(id: &str, text: &str) -> Piece {
        Piece::Arguments(id.into(), text.into())
    }

    fn start(id: &str, name: &str) -> Piece {
        Piece::Start(id.into(), name.into())
    }

    #[test]
    fn what_is_rewritten_stays_small_and_nothing_is_lost() {
        let mut stream = Stream::new("s", 0, 0, 0);
        let mut answer = Answer::default();
        let mut said = String::new();
        for n in 0..10_000 {
            let token = format!("{n} ");
            said.push_str(&token);
            if let Some(sealed) = stream.push(text(&token)) {
                answer.add(sealed);
            }
            assert!(serde_json::to_string(&stream).unwrap().len() < TAIL_BYTES + 300);
        }
        answer.add(stream.tail);
        assert_eq!(answer.text, said);
        assert_eq!(stream.bytes, said.len() as u64);
    }

    #[test]
    fn deltas_of_two_calls_may_come_in_turns() {
        let mut stream = Stream::new("s", 0, 0, 0);
        for piece in [
            text("I "),
            text("look"),
            start("a", "x"),
            start("b", "y"),
            arguments("a", "{\"n\""),
            arguments("b", "{}"),
            arguments("a", ":1}"),
            arguments("lost", "?"),
            Piece::End("a".into()),
            Piece::End("lost".into()),
        ] {
            assert_eq!(stream.push(piece), None);
        }
        let mut answer = Answer::default();
        answer.add(stream.tail);
        let call = |id: &str, name: &str, arguments: &str, ended| Spoken {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
            ended,
        };
        let calls = vec![call("a", "x", "{\"n\":1}", true), call("b", "y", "{}", false)];
        assert_eq!(answer, Answer { text: "I look".into(), calls, cut: None });
    }

    #[test]
    fn of_two_calls_with_one_id_the_later_one_is_meant() {
        let mut answer = Answer::default();
        answer.add(vec![start("", "x"), arguments("", "1"), start("", "y"), arguments("", "2")]);
        let said: Vec<_> = answer.calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
        assert_eq!(said, [("x", "1"), ("y", "2")]);
    }

    #[test]
    fn every_event_of_a_provider_can_be_read() {
        for event in [
            r#"{"TextDelta":"a"}"#,
            r#"{"ToolCallStart":{"id":"i","name":"n"}}"#,
            r#"{"ToolCallDelta":{"id":"i","args_delta":"{"}}"#,
            r#"{"ToolCallEnd":{"id":"i"}}"#,
            r#"{"ReasoningDelta":"hm"}"#,
            r#"{"Usage":{"input_tokens":1,"output_tokens":2}}"#,
            r#""Done""#,
            r#"{"Error":"e"}"#,
        ] {
            assert!(serde_json::from_str::<StreamEvent>(event).is_ok(), "{event}");
        }
    }
}
