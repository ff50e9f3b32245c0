//! What went wrong, in words that a model can act on.

use std::fmt;

use astrid_sdk::SysError;

#[derive(Debug)]
pub struct HttpError(String);

impl HttpError {
    pub(crate) fn new(url: &str, error: &SysError) -> Self {
        let text = error.to_string();
        Self(match text.rsplit_once("ErrorCode::").map_or("", |(_, case)| case) {
            "CapabilityDenied" => format!("{url:?} may not be fetched: this host is not among those that may be."),
            "AirlockRejected" => format!("{url:?} leads to a private address, and only public ones may be fetched."),
            "InvalidRequest" => {
                format!("{url:?} cannot be asked like that: give a http or https URL, a method and plain headers.")
            }
            "DnsError" => format!("The host of {url:?} is not known."),
            "TlsError" => format!("{url:?} has no certificate that can be trusted."),
            "Timeout" => format!("{url:?} did not answer completely within 30 seconds."),
            "ConnectionError" => format!("The host of {url:?} cannot be reached, or hung up."),
            "BodyTooLarge" => format!("More than 10 MiB were sent to {url:?}, or came from it."),
            _ => format!("{url:?} cannot be fetched: {text}"),
        })
    }
}

impl From<serde_json::Error> for HttpError {
    fn from(error: serde_json::Error) -> Self {
        Self(format!("What came cannot be told: {error}"))
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        HttpError::new("http://a/", &SysError::HostError(text.into())).to_string()
    }

    #[test]
    fn the_hosts_errors_name_the_url_and_what_to_do() {
        assert_eq!(told("ErrorCode::DnsError"), r#"The host of "http://a/" is not known."#);
        assert!(told("ErrorCode::AirlockRejected").contains("only public ones"));
        assert!(told("ErrorCode::InvalidRequest").contains("http or https"));
    }

    #[test]
    fn an_error_of_another_kind_is_told_as_it_is() {
        assert_eq!(
            told(r#"ErrorCode::Protocol("too many redirects")"#),
            r#""http://a/" cannot be fetched: Host function call failed: ErrorCode::Protocol("too many redirects")"#
        );
    }
}
