//! The events of one piece of an answer. Text that came together goes on together, in the order in which it came: whoever
//! listens is asked once, not once a token. Nothing is kept from one piece to the next.

use astrid_sdk::types::StreamEvent;

/// The longest text of one event.
pub(crate) const TEXT_BYTES: usize = 8 << 10;

#[derive(Default)]
pub(crate) struct Events(Vec<StreamEvent>);

impl Events {
    pub(crate) fn text(&mut self, text: &str) {
        self.add(text, StreamEvent::TextDelta, |event| match event {
            StreamEvent::TextDelta(said) => Some(said),
            _ => None,
        });
    }

    pub(crate) fn reasoning(&mut self, text: &str) {
        self.add(text, StreamEvent::ReasoningDelta, |event| match event {
            StreamEvent::ReasoningDelta(said) => Some(said),
            _ => None,
        });
    }

    pub(crate) fn arguments(&mut self, id: &str, text: &str) {
        let new = |args_delta| StreamEvent::ToolCallDelta { id: id.to_owned(), args_delta };
        self.add(text, new, |event| match event {
            StreamEvent::ToolCallDelta { id: of, args_delta } if of == id => Some(args_delta),
            _ => None,
        });
    }

    pub(crate) fn push(&mut self, event: StreamEvent) {
        self.0.push(event);
    }

    pub(crate) fn take(&mut self) -> Vec<StreamEvent> {
        std::mem::take(&mut self.0)
    }

    /// Add text to the last event if that is of the same kind and has room, else in events of its own.
    fn add(
        &mut self,
        mut text: &str,
        new: impl Fn(String) -> StreamEvent,
        same: impl Fn(&mut StreamEvent) -> Option<&mut String>,
    ) {
        while !text.is_empty() {
            let last = self.0.last_mut().and_then(&same);
            let room = TEXT_BYTES.saturating_sub(last.as_ref().map_or(0, |said| said.len()));
            let (now, later) = text.split_at(text.floor_char_boundary(room));
            match last {
                Some(said) if !now.is_empty() => said.push_str(now),
                _ => {
                    let (now, later) = text.split_at(text.floor_char_boundary(TEXT_BYTES));
                    self.0.push(new(now.to_owned()));
                    text = later;
                    continue;
                }
            }
            text = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_came_together_is_one_event() {
        let mut events = Events::default();
        events.text("a");
        events.text("");
        events.text("b");
        events.reasoning("r");
        events.text("c");
        let expected = [
            StreamEvent::TextDelta("ab".into()),
            StreamEvent::ReasoningDelta("r".into()),
            StreamEvent::TextDelta("c".into()),
        ];
        assert_eq!(events.take(), expected);
        assert!(events.take().is_empty());
    }

    #[test]
    fn arguments_of_two_calls_stay_apart() {
        let mut events = Events::default();
        events.arguments("a", "{");
        events.arguments("a", "}");
        events.arguments("b", "{}");
        let told: Vec<_> = events.take();
        assert_eq!(told.len(), 2);
        assert_eq!(told[0], StreamEvent::ToolCallDelta { id: "a".into(), args_delta: "{}".into() });
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_loses_none() {
        let mut events = Events::default();
        let text = "🙂é".repeat(TEXT_BYTES);
        events.text("x");
        events.text(&text);
        let mut all = String::new();
        for event in events.take() {
            let StreamEvent::TextDelta(said) = event else { panic!("only text was added") };
            assert!(!said.is_empty() && said.len() <= TEXT_BYTES);
            all.push_str(&said);
        }
        assert_eq!(all, format!("x{text}"));
    }
}
