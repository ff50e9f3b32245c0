//! Has the server answer a request, and hands its answer on as it comes.

use std::time::Duration;

use astrid_sdk::prelude::*;
use astrid_sdk::types::StreamEvent;
use serde_json::Value;

use crate::answer::{Answer, Broken, End};
use crate::cancelling::Cancelling;
use crate::exchange::{self, More, Response};
use crate::failure::{Again, Failure};
use crate::names::Names;
use crate::publishing::Events;
use crate::request::Request;
use crate::room;
use crate::settings::Settings;
use crate::{ids, kept};

/// How much of an error's body is read, and of an answer that is not streamed.
const ERROR_BYTES: usize = 64 << 10;
const WHOLE_BYTES: usize = 4 << 20;
/// So often whoever listens is told that the server lives, where it sends nothing that could be handed on.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Answer a request with events, of which exactly one is terminal, and the last. An error: not even that could be
/// published, or there is no `request_id`.
pub(crate) fn generate(payload: Value, settings: &Settings) -> Result<(), SysError> {
    let Some(request_id) = payload["request_id"].as_str().map(str::to_owned) else {
        return Err(SysError::ApiError("a request to a model has to have a request_id".into()));
    };
    let events = Events { request_id: &request_id, patience: settings.backpressure };
    let terminal = match answer(payload, settings, &events) {
        Ok(()) => StreamEvent::Done,
        Err(failure) => {
            log::warn(format!("request {request_id}: {}", failure.text));
            StreamEvent::Error(settings.without_key(&failure.text))
        }
    };
    events.publish(&terminal)
}

fn answer(payload: Value, settings: &Settings, events: &Events<'_>) -> Result<(), Failure> {
    let request = Request::read(payload).map_err(Failure::last)?;
    if !settings.has_provider() {
        return Err(Failure::last(
            "No model provider is configured: set a key with `astrid-host config set openai-compat.api_key`, or another \
             server with `astrid-host config set openai-compat.base_url`.",
        ));
    }
    let model = request.model(settings).ok_or_else(|| {
        Failure::last("No model is selected: name one with `--model`, or `astrid-host config set openai-compat.model`.")
    })?;
    let origin = settings.origin(model);
    let (mut body, names) = request.body(settings, model, &|id| kept::of(id, &origin));
    room::keep_to(&mut body, settings, model);
    let asking = Asking {
        settings,
        events,
        origin,
        names: &names,
        body: body.to_string().into_bytes(),
        cancelling: Cancelling::of(events.request_id),
        begun: time::monotonic(),
    };
    asking.until_answered().inspect_err(|failure| room::refused(model, &failure.text))
}

struct Asking<'a> {
    settings: &'a Settings,
    events: &'a Events<'a>,
    /// Which model at which server it is.
    origin: String,
    names: &'a Names,
    body: Vec<u8>,
    cancelling: Option<Cancelling>,
    begun: Duration,
}

impl Asking<'_> {
    /// Ask, and again for what may pass, as long as nothing was said yet. All tries share the time until the first event.
    fn until_answered(&self) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            let failure = match self.once() {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let wait = match failure.again {
                Again::No => return Err(failure),
                Again::Soon => self.settings.retry_wait.saturating_mul(1 << tries.min(10)),
                Again::After(wait) => wait,
            };
            if tries == self.settings.retries || wait >= self.left() {
                return Err(failure);
            }
            tries += 1;
            log::info(format!("request {}: try {tries} after {wait:?}: {}", self.events.request_id, failure.text));
            self.wait(wait)?;
        }
    }

    fn once(&self) -> Result<(), Failure> {
        let settings = self.settings;
        let response = exchange::ask(settings, &self.body, self.left(), settings.silence, settings.total)
            .map_err(|error| Failure::of_http(&error, settings, false))?;
        if response.status != 200 {
            let body = self.whole(&response, ERROR_BYTES)?;
            return Err(Failure::of_status(response.status, &body, response.retry_after(), settings));
        }
        let mut answer = Answer::new(self.names, &new_id);
        if !response.is_stream() {
            let body = self.whole(&response, WHOLE_BYTES)?;
            self.publish(&answer.take_whole(&body).map_err(broken)?)?;
            return self.end(answer.end().map_err(broken)?);
        }
        self.stream(&response, &mut answer)
    }

    /// Hand the end of an answer on. What goes back with its calls is kept before anybody can ask with them.
    fn end(&self, end: End) -> Result<(), Failure> {
        for (id, kept) in end.kept {
            kept::keep(&id, &self.origin, kept);
        }
        self.publish(&end.events)?;
        if let Some(cut) = &end.cut {
            self.events.publish_cut(cut);
        }
        Ok(())
    }

    /// Hand a streamed answer on. Nothing is tried again once something of it was published. A server that sends anything
    /// at all is alive, be it a comment: whoever listens is told so now and then.
    fn stream(&self, response: &Response, answer: &mut Answer<'_>) -> Result<(), Failure> {
        let mut bytes_left = self.settings.answer_bytes;
        let (mut spoke, mut published) = (self.begun, self.begun);
        let mut silent = true;
        while !answer.is_done() {
            let more = response.more(self.cancelling.as_ref()).map_err(|error| {
                let failure = Failure::of_http(&error, self.settings, true);
                if silent { failure } else { Failure::last(failure.text) }
            })?;
            match more {
                More::Cancelled => return Err(Failure::cancelled()),
                More::End => break,
                More::Nothing => {}
                More::Bytes(bytes) => {
                    bytes_left = bytes_left.checked_sub(bytes.len() as u64).ok_or_else(|| self.too_long())?;
                    let mut events = answer.take(&bytes).map_err(broken)?;
                    spoke = time::monotonic();
                    silent &= events.is_empty();
                    if events.is_empty() && spoke.saturating_sub(published) >= SIGN_OF_LIFE {
                        events.push(StreamEvent::ReasoningDelta(String::new()));
                    }
                    if !events.is_empty() {
                        self.publish(&events)?;
                        published = spoke;
                    }
                }
            }
            self.look_at_the_clock(spoke)?;
        }
        self.end(answer.end().map_err(broken)?)
    }

    /// All of a body, or the first `most` bytes of it.
    fn whole(&self, response: &Response, most: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while body.len() < most {
            match response.more(self.cancelling.as_ref()) {
                Ok(More::Bytes(bytes)) => body.extend(bytes),
                Ok(More::Cancelled) => return Err(Failure::cancelled()),
                Ok(More::Nothing) => self.look_at_the_clock(self.begun)?,
                Ok(More::End) | Err(_) => break,
            }
        }
        body.truncate(most);
        Ok(body)
    }

    fn publish(&self, events: &[StreamEvent]) -> Result<(), Failure> {
        for event in events {
            self.events
                .publish(event)
                .map_err(|error| Failure::last(format!("What the model says cannot be handed on: {error}")))?;
        }
        Ok(())
    }

    fn look_at_the_clock(&self, spoke: Duration) -> Result<(), Failure> {
        let (now, settings) = (time::monotonic(), self.settings);
        if now.saturating_sub(spoke) > settings.silence {
            let text = format!("The model provider said nothing for {} s.", settings.silence.as_secs());
            return Err(Failure::last(text));
        }
        if now.saturating_sub(self.begun) > settings.total {
            let text = format!("The model's answer took more than {} s and was cut off.", settings.total.as_secs());
            return Err(Failure::last(text));
        }
        Ok(())
    }

    fn too_long(&self) -> Failure {
        let text = format!("The model's answer has more than {} bytes and was cut off.", self.settings.answer_bytes);
        Failure::last(text)
    }

    /// What is left of the time until the first event.
    fn left(&self) -> Duration {
        self.settings.silence.saturating_sub(time::monotonic().saturating_sub(self.begun))
    }

    fn wait(&self, wait: Duration) -> Result<(), Failure> {
        match &self.cancelling {
            Some(cancelling) if cancelling.asked_within(wait) => Err(Failure::cancelled()),
            Some(_) => Ok(()),
            None => time::sleep(wait).map_err(|error| Failure::last(error.to_string())),
        }
    }
}

fn broken(broken: Broken) -> Failure {
    Failure::last(broken.0)
}

/// An id for a tool call; `given` is the server's. None: there are no random numbers.
fn new_id(given: &str, keeps: bool) -> Option<String> {
    let random =
        runtime::random_bytes(16).inspect_err(|error| log::error(format!("no random numbers: {error}"))).ok()?;
    let since = time::now().ok().and_then(|now| now.duration_since(std::time::UNIX_EPOCH).ok());
    ids::new(since.unwrap_or_default().as_secs(), &random, given, keeps)
}
