//! How this capsule is configured.

use std::str::FromStr;
use std::time::Duration;

/// The provider's name in ids of models (`openai-compat:gpt-5`) and in topics.
pub(crate) const PROVIDER: &str = "openai-compat";

/// Of a model that nobody says anything of.
pub(crate) const CONTEXT_WINDOW: u64 = 128_000;

#[derive(Debug)]
pub(crate) struct Settings {
    /// Empty: none is sent.
    pub(crate) api_key: String,
    pub(crate) base_url: String,
    /// Of requests that name none; empty: there is none.
    pub(crate) model: String,
    /// None: what the server's list says, else `CONTEXT_WINDOW`.
    pub(crate) context_window: Option<u64>,
    /// 0: the server decides.
    pub(crate) max_output_tokens: u64,
    pub(crate) temperature: Option<f64>,
    pub(crate) include_usage: bool,
    /// From the request, and from each event, to the next event.
    pub(crate) silence: Duration,
    /// Of a whole answer.
    pub(crate) total: Duration,
    pub(crate) answer_bytes: u64,
    pub(crate) retries: u32,
    /// Before the first retry; twice as long before each further one.
    pub(crate) retry_wait: Duration,
    /// The longest wait that a server may ask for.
    pub(crate) retry_after: Duration,
    pub(crate) discovery: Duration,
    pub(crate) backpressure: Duration,
}

impl Settings {
    /// `value` gives what a key is set to, empty for nothing. What cannot be read is told to `complain`, and the default
    /// holds.
    pub(crate) fn read(value: impl Fn(&str) -> String, complain: impl Fn(String)) -> Self {
        let number = |key: &str, default: u64| parsed(key, &value(key), &complain).unwrap_or(default);
        let seconds = |key: &str, default: u64| Duration::from_secs(number(key, default));
        let milliseconds = |key: &str, default: u64| Duration::from_millis(number(key, default));
        let base_url = value("base_url").trim().to_owned();
        Self {
            api_key: value("api_key").trim().to_owned(),
            base_url: if base_url.is_empty() { "https://api.openai.com".into() } else { base_url },
            model: own(value("model").trim()).to_owned(),
            context_window: Some(number("context_window", 0)).filter(|tokens| *tokens > 0),
            max_output_tokens: number("max_output_tokens", 0),
            temperature: parsed("temperature", &value("temperature"), &complain),
            include_usage: parsed("include_usage", &value("include_usage"), &complain).unwrap_or(true),
            silence: seconds("silence_timeout_secs", 100),
            total: seconds("total_timeout_secs", 600),
            answer_bytes: number("max_answer_bytes", 16 << 20),
            retries: u32::try_from(number("max_retries", 2)).unwrap_or(u32::MAX),
            retry_wait: milliseconds("retry_wait_ms", 500),
            retry_after: seconds("retry_after_secs", 10),
            discovery: milliseconds("discovery_timeout_ms", 2_500),
            backpressure: seconds("backpressure_secs", 30),
        }
    }

    /// The URL of an endpoint. The base may have a path, which stays as it is, also with the endpoint of completions at
    /// its end, and a query, which goes with every request. A host alone has the version that OpenAI has.
    pub(crate) fn url(&self, endpoint: &str) -> String {
        let base = self.base_url.split('#').next().unwrap_or_default();
        let (base, query) = base.split_once('?').unwrap_or((base, ""));
        let base = base.trim_end_matches('/');
        let whole = base.strip_suffix("/chat/completions").map(|base| base.trim_end_matches('/'));
        let authority = base.split_once("://").map_or(base, |(_, rest)| rest);
        let version = if whole.is_none() && !authority.contains('/') { "/v1" } else { "" };
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        format!("{}{version}/{endpoint}{query}", whole.unwrap_or(base))
    }

    /// Which model at which server it is: what one of them sends is given back to no other.
    pub(crate) fn origin(&self, model: &str) -> String {
        format!("{model} at {}", self.shown_base().trim_end_matches('/').trim_end_matches("/chat/completions"))
    }

    /// Whether the server takes no other ids of tool calls than those of its own kind.
    pub(crate) fn has_strict_ids(&self) -> bool {
        self.host().ends_with("mistral.ai")
    }

    /// Whether the server tells how many tokens were used by itself, and refuses the question.
    pub(crate) fn tells_usage_unasked(&self) -> bool {
        self.has_strict_ids()
    }

    /// Whether the server wants its key in a header of its own.
    pub(crate) fn is_azure(&self) -> bool {
        [".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"]
            .iter()
            .any(|domain| self.host().ends_with(domain))
    }

    /// The host of the base URL, in lower case and without a port.
    fn host(&self) -> String {
        let base = self.shown_base().to_ascii_lowercase();
        let rest = base.split_once("://").map_or(base.as_str(), |(_, rest)| rest);
        rest.split(['/', ':']).next().unwrap_or_default().to_owned()
    }

    /// The base URL without what nobody should see.
    pub(crate) fn shown_base(&self) -> String {
        let base = self.base_url.split(['?', '#']).next().unwrap_or_default();
        match base.split_once("://") {
            Some((scheme, rest)) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                format!("{scheme}://{}{path}", authority.rsplit('@').next().unwrap_or_default())
            }
            None => base.to_owned(),
        }
    }

    /// The `HOST:PORT` of the base URL, as the host's options name it.
    pub(crate) fn place(&self) -> String {
        let base = self.shown_base();
        let (scheme, rest) = base.split_once("://").unwrap_or(("", &base));
        let authority = rest.split('/').next().unwrap_or_default();
        let has_port =
            authority.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        match (has_port, scheme.eq_ignore_ascii_case("https")) {
            (true, _) => authority.to_owned(),
            (false, true) => format!("{authority}:443"),
            (false, false) => format!("{authority}:80"),
        }
    }

    /// A text without the key, which servers like to repeat.
    pub(crate) fn without_key(&self, text: &str) -> String {
        if self.api_key.len() < 4 { text.to_owned() } else { text.replace(&self.api_key, "[key]") }
    }

    /// The model that a request means, for the server; None: it names none and none is configured.
    pub(crate) fn model_for<'a>(&'a self, asked: &'a str) -> Option<&'a str> {
        let asked = own(asked.trim());
        let model = if asked.is_empty() { &self.model } else { asked };
        (!model.is_empty()).then_some(model)
    }

    /// Whether there is somebody to ask. OpenAI, which is the default, is not told anything before there is a key for it.
    pub(crate) fn has_provider(&self) -> bool {
        !self.api_key.is_empty() || !self.is_openai()
    }

    /// The field for the most tokens of an answer: OpenAI's newer models refuse the one that all other servers know.
    pub(crate) fn max_tokens_field(&self) -> &'static str {
        if self.is_openai() { "max_completion_tokens" } else { "max_tokens" }
    }

    /// Whether a server's list has nothing to add.
    pub(crate) fn is_all_set(&self) -> bool {
        self.context_window.is_some() && self.max_output_tokens > 0
    }

    fn is_openai(&self) -> bool {
        self.base_url.split_once("://").is_some_and(|(_, host)| host.starts_with("api.openai.com"))
    }
}

/// A model's name without this provider's. What follows may have colons of its own.
fn own(model: &str) -> &str {
    model.strip_prefix(PROVIDER).and_then(|rest| rest.strip_prefix(':')).unwrap_or(model)
}

fn parsed<T: FromStr>(key: &str, text: &str, complain: impl Fn(String)) -> Option<T> {
    let text = text.trim().trim_matches('"');
    if text.is_empty() {
        return None;
    }
    let read = text.parse().ok();
    if read.is_none() {
        complain(format!("{key} is set to {text:?}, which cannot be read; the default holds"));
    }
    read
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn settings(given: &[(&str, &str)]) -> Settings {
        let value = |key: &str| given.iter().find(|(name, _)| *name == key).map_or("", |(_, text)| text).to_owned();
        Settings::read(value, |text| panic!("{text}"))
    }

    #[test]
    fn only_a_bare_host_gets_a_version_and_whatever_was_given_stays() {
        for (base, expected) in [
            ("http://a:1", "http://a:1/v1/*"),
            ("http://a:1//", "http://a:1/v1/*"),
            ("http://a:1/v1", "http://a:1/v1/*"),
            ("http://a:1/v1//", "http://a:1/v1/*"),
            ("http://a:1/v1/chat/completions", "http://a:1/v1/*"),
            ("http://a:1/chat/completions/", "http://a:1/*"),
            ("http://a:1?k=1", "http://a:1/v1/*?k=1"),
            ("http://a:1/?k=1#x", "http://a:1/v1/*?k=1"),
            ("https://g/v1beta/openai/", "https://g/v1beta/openai/*"),
            ("https://z/api/paas/v4", "https://z/api/paas/v4/*"),
            ("https://v/api/v3", "https://v/api/v3/*"),
            ("https://az/openai/deployments/d?api-version=2024", "https://az/openai/deployments/d/*?api-version=2024"),
            ("https://az/openai/chat/completions?api-version=2024", "https://az/openai/*?api-version=2024"),
            ("", "https://api.openai.com/v1/*"),
        ] {
            let settings = settings(&[("base_url", base)]);
            for endpoint in ["chat/completions", "models"] {
                assert_eq!(settings.url(endpoint), expected.replace('*', endpoint), "{base}");
            }
        }
    }

    #[test]
    fn a_few_servers_are_known_by_their_host() {
        let of = |base| settings(&[("base_url", base)]);
        assert!(of("https://api.mistral.ai/v1").has_strict_ids() && !of("https://x/mistral.ai").has_strict_ids());
        assert!(of("https://me.openai.azure.com:443/openai/v1").is_azure() && !of("http://localhost:1/v1").is_azure());
    }

    #[test]
    fn only_this_providers_name_is_taken_off_a_model() {
        let settings = settings(&[("model", " openai-compat:llama3.3:70b ")]);
        assert_eq!(settings.model_for(""), Some("llama3.3:70b"));
        assert_eq!(settings.model_for("openai-compat:gpt-5"), Some("gpt-5"));
        assert_eq!(settings.model_for("other:gpt-5"), Some("other:gpt-5"));
        assert_eq!(super::tests::settings(&[]).model_for("openai-compat:"), None);
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_default_holds() {
        let told = RefCell::new(Vec::new());
        let value = |key: &str| if key == "max_retries" { "many".to_owned() } else { String::new() };
        let settings = Settings::read(value, |text| told.borrow_mut().push(text));
        assert_eq!(settings.retries, 2);
        assert_eq!(*told.borrow(), [r#"max_retries is set to "many", which cannot be read; the default holds"#]);
    }

    #[test]
    fn numbers_may_be_quoted() {
        let settings = settings(&[("context_window", "\"4096\""), ("temperature", "0.5"), ("include_usage", "false")]);
        assert_eq!((settings.context_window, settings.temperature), (Some(4096), Some(0.5)));
        assert!(!settings.include_usage);
    }

    #[test]
    fn neither_the_key_nor_a_password_in_the_url_is_shown() {
        let settings = settings(&[("api_key", " sk-123\n"), ("base_url", "https://me:pw@a.b:1/x?key=1")]);
        assert_eq!(settings.without_key("bad key sk-123!"), "bad key [key]!");
        assert_eq!(settings.shown_base(), "https://a.b:1/x");
    }

    #[test]
    fn the_place_of_a_url_has_a_port() {
        for (base, place) in [
            ("http://127.0.0.1:11434/v1", "127.0.0.1:11434"),
            ("http://me:pw@192.168.0.7/x", "192.168.0.7:80"),
            ("HTTPS://box", "box:443"),
            ("http://[::1]/v1", "[::1]:80"),
            ("http://[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(settings(&[("base_url", base)]).place(), place);
        }
    }

    #[test]
    fn only_openai_needs_a_key() {
        assert!(!settings(&[]).has_provider());
        assert!(settings(&[("api_key", "k")]).has_provider());
        assert!(settings(&[("base_url", "http://localhost:1")]).has_provider());
    }

    #[test]
    fn only_openai_itself_is_told_of_completion_tokens() {
        assert_eq!(settings(&[]).max_tokens_field(), "max_completion_tokens");
        assert_eq!(settings(&[("base_url", "http://localhost:1")]).max_tokens_field(), "max_tokens");
    }
}
