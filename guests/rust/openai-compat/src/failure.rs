//! What went wrong, in words that say what to do, and whether to try again.

use std::time::Duration;

use serde_json::Value;

use crate::bindings::astrid::http::host::ErrorCode;
use crate::chunk::error_in;
use crate::settings::Settings;

/// The longest part of a server's message that is told.
const MESSAGE_CHARS: usize = 600;

#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) again: Again,
}

/// Whether the same request may go well next time.
#[derive(Debug, PartialEq)]
pub(crate) enum Again {
    No,
    Soon,
    /// The server says when.
    After(Duration),
}

impl Failure {
    pub(crate) fn last(text: impl Into<String>) -> Self {
        Self { text: text.into(), again: Again::No }
    }

    pub(crate) fn cancelled() -> Self {
        Self::last("The request to the model was cancelled.")
    }

    /// A request that got no answer, or whose answer broke off.
    pub(crate) fn of_http(error: &ErrorCode, settings: &Settings, begun: bool) -> Self {
        let base = settings.shown_base();
        let text = match error {
            ErrorCode::CapabilityDenied => format!("{base} is not among the hosts that openai-compat may reach."),
            ErrorCode::AirlockRejected => format!(
                "{base} is a private address: if you mean it, give `astrid-host run` or `astrid-host chat` the option \
                 --allow-local {}.",
                settings.place()
            ),
            ErrorCode::InvalidRequest | ErrorCode::SchemeDenied => {
                format!(
                    "{base} cannot be asked: openai-compat.base_url has to be a http or https URL, and api_key plain."
                )
            }
            ErrorCode::DnsError => format!("The host of {base} is not known: check openai-compat.base_url."),
            ErrorCode::TlsError => format!("{base} has no certificate that can be trusted."),
            ErrorCode::Timeout => format!("The model provider at {base} did not answer in time."),
            _ if begun => {
                format!("The connection to the model provider at {base} broke off in the middle of its answer.")
            }
            ErrorCode::ConnectionError => {
                format!(
                    "The model provider at {base} cannot be reached, or hung up: is it running, and is base_url right?"
                )
            }
            other => format!("The model provider at {base} cannot be asked: {}.", in_words(other)),
        };
        let again = if matches!(error, ErrorCode::ConnectionError) { Again::Soon } else { Again::No };
        Self { text, again }
    }

    /// An answer with another status than 200.
    pub(crate) fn of_status(status: u16, body: &[u8], after: Option<Duration>, settings: &Settings) -> Self {
        let said = settings.without_key(&message(body));
        let colon = if said.is_empty() { "." } else { ": " };
        let text = format!("The model provider answered with status {status}{}{colon}{said}", meaning(status));
        let spent = said.contains("insufficient_quota") || said.contains("exceeded your current quota");
        let too_long = context_window::is_told_by(&said);
        let again = match after {
            _ if spent || too_long || !matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504 | 529) => Again::No,
            Some(after) if after > settings.retry_after => Again::No,
            Some(after) => Again::After(after),
            None => Again::Soon,
        };
        Self { text: format!("{text}{}", advice(status)), again }
    }
}

/// What has no advice of its own.
fn in_words(error: &ErrorCode) -> &str {
    match error {
        ErrorCode::BodyTooLarge => "what it answers is too large",
        ErrorCode::Quota => "too many requests are under way",
        ErrorCode::Closed => "the connection was closed",
        ErrorCode::Protocol(why) | ErrorCode::Unknown(why) => why,
        _ => "the request failed",
    }
}

fn meaning(status: u16) -> &'static str {
    match status {
        401 => " (not authorized)",
        403 => " (forbidden)",
        404 => " (not found)",
        429 => " (too many requests)",
        500..=599 => " (it has a problem of its own)",
        _ => "",
    }
}

fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 => " — check the key: `astrid-host config set openai-compat.api_key`.",
        404 => " — check openai-compat.base_url and the model's name.",
        429 => " — try again later.",
        _ => "",
    }
}

/// What a body says: the message in its JSON, else the beginning of its text. Of a web page its title says enough.
fn message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let said = serde_json::from_str::<Value>(&text).ok().as_ref().and_then(error_in);
    let said = said.or_else(|| page(&text)).unwrap_or_else(|| text.trim().to_owned());
    // What a server says may be long before it says that the conversation is.
    let code = if context_window::is_told_by(&said) { format!(" ({})", context_window::CODE) } else { String::new() };
    match said.char_indices().nth(MESSAGE_CHARS) {
        Some((at, _)) => format!("{}…{code}", &said[..at]),
        None if said.contains(context_window::CODE) => said,
        None => format!("{said}{code}"),
    }
}

/// What a web page says: its title, or all its text where it has none.
fn page(text: &str) -> Option<String> {
    let text = text.trim_start();
    if !text.starts_with('<') {
        return None;
    }
    let title = || {
        let lower = text.to_ascii_lowercase(); // as long as the text, byte for byte
        let begin = lower.find("<title>")? + "<title>".len();
        let end = begin + lower[begin..].find('<')?;
        Some(text[begin..end].trim()).filter(|title| !title.is_empty())
    };
    if let Some(title) = title() {
        return Some(format!("a web page, \"{title}\""));
    }
    let outside: String = text.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text).collect();
    Some(outside.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// How long a server asks to wait, from its headers; a date counts as none.
pub(crate) fn retry_after<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Duration> {
    let number = |name: &str| header(name)?.trim().parse::<f64>().ok().filter(|number| *number >= 0.0);
    let seconds =
        number("retry-after-ms").map(|milliseconds| milliseconds / 1000.0).or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let value = |key: &str| match key {
            "api_key" => "sk-secret".to_owned(),
            "base_url" => "http://127.0.0.1:1/v1".to_owned(),
            _ => String::new(),
        };
        Settings::read(value, |text| panic!("{text}"))
    }

    fn of(status: u16, body: &str, after: Option<u64>) -> Failure {
        Failure::of_status(status, body.as_bytes(), after.map(Duration::from_secs), &settings())
    }

    #[test]
    fn a_status_is_told_with_the_servers_message_and_never_the_key() {
        let failure = of(401, r#"{"error":{"message":"Incorrect API key: sk-secret"}}"#, None);
        assert!(failure.text.contains("status 401 (not authorized): Incorrect API key: [key]"), "{}", failure.text);
        assert_eq!(failure.again, Again::No);
        assert!(of(502, "bad\ngateway", None).text.ends_with("(it has a problem of its own): bad\ngateway"));
        assert!(of(400, "", None).text.ends_with("status 400."));
        assert!(of(400, &"x".repeat(9000), None).text.len() < 700);
    }

    #[test]
    fn that_a_conversation_is_too_long_is_told_by_its_code_whatever_the_words() {
        let long = format!("{} Please reduce the length of the messages.", "x".repeat(900));
        for body in
            ["prompt is too long: 9 tokens > 8 maximum", r#"{"error":{"code":"context_length_exceeded"}}"#, &long]
        {
            assert_eq!(of(400, body, None).text.matches(context_window::CODE).count(), 1, "{body}");
        }
        assert!(!of(400, "max_tokens is too large", None).text.contains(context_window::CODE));
    }

    #[test]
    fn of_a_web_page_only_what_a_person_can_read_is_told() {
        let page = "<!DOCTYPE html>\n<HTML><head><Title> Not fóund </Title><style>a {}</style></head><p>x</HTML>";
        assert!(of(400, page, None).text.ends_with("status 400: a web page, \"Not fóund\""));
        assert!(of(400, "<html>bad\n <b>gateway</b>", None).text.ends_with("status 400: bad gateway"));
        for nothing in ["<html>", "<title></title>", "<", "<title>"] {
            assert!(of(400, nothing, None).text.ends_with("status 400."), "{nothing}");
        }
    }

    #[test]
    fn what_may_pass_is_tried_again_when_the_server_says() {
        assert_eq!(of(500, "", None).again, Again::Soon);
        assert_eq!(of(429, "", Some(3)).again, Again::After(Duration::from_secs(3)));
        assert_eq!(of(429, "", Some(60)).again, Again::No);
        assert_eq!(of(429, r#"{"error":{"message":"You exceeded your current quota"}}"#, None).again, Again::No);
        assert_eq!(of(400, "", Some(1)).again, Again::No);
        assert_eq!(of(500, "the request exceeds the available context size", None).again, Again::No);
    }

    #[test]
    fn a_wait_is_a_number_of_seconds_or_milliseconds() {
        let header = |name: &str, value: &'static str| {
            let name = name.to_owned();
            retry_after(move |asked| (asked == name).then_some(value))
        };
        assert_eq!(header("retry-after", "2"), Some(Duration::from_secs(2)));
        assert_eq!(header("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        for value in ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "NaN", "inf", "1e300"] {
            assert_eq!(header("retry-after", value), None, "{value}");
        }
    }

    #[test]
    fn the_hosts_errors_say_what_to_do() {
        let told = |error| Failure::of_http(&error, &settings(), false).text;
        assert!(told(ErrorCode::AirlockRejected).contains("--allow-local 127.0.0.1:1."));
        let protocol = told(ErrorCode::Protocol("too many redirects".into()));
        assert!(protocol.ends_with("cannot be asked: too many redirects."), "{protocol}");
        assert!(told(ErrorCode::Quota).ends_with("under way."));
        assert!(told(ErrorCode::ConnectionError).contains("http://127.0.0.1:1/v1 cannot be reached"));
        let broke = Failure::of_http(&ErrorCode::ConnectionError, &settings(), true);
        assert!(broke.text.contains("in the middle"), "{}", broke.text);
    }
}
