//! A page as models read it: as text, or as Markdown.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Deserialize;

/// How a page is told.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// As it came.
    #[default]
    Raw,
    /// What a reader sees, without the addresses of links.
    Text,
    /// With headings, lists, tables and links.
    Markdown,
}

/// Lines are not wrapped.
const WIDTH: usize = 100_000;
/// What no reader sees.
const UNSEEN: &[&str] = &["script", "style", "noscript", "template", "svg", "head"];

/// How deep a page may nest. Its readers go down with the stack, and a page that has more is no page for reading.
const DEPTH: usize = 300;
/// Elements that end by themselves: those that have nothing in them, and those whose end may be left out.
const NOT_COUNTED: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "p", "li",
    "td", "th", "tr", "dt", "dd", "option", "optgroup", "tbody", "thead", "tfoot", "html", "head", "body", "colgroup",
    "caption", "rp", "rt",
];

/// A page in a format. One that cannot be read as that stays as it came, and false tells so.
pub(crate) fn told(html: &str, format: Format) -> (Cow<'_, str>, bool) {
    if format != Format::Raw && depth(html) > DEPTH {
        return (html.into(), false);
    }
    match format {
        Format::Raw => (html.into(), true),
        Format::Markdown => match htmd::HtmlToMarkdown::builder().skip_tags(UNSEEN.to_vec()).build().convert(html) {
            Ok(text) => (text.into(), true),
            Err(_) => (html.into(), false),
        },
        Format::Text => match html2text::config::plain_no_decorate().string_from_read(html.as_bytes(), WIDTH) {
            Ok(text) => (text.into(), true),
            Err(_) => (html.into(), false),
        },
    }
}

/// How deep a page nests at most: what opens and is not closed.
fn depth(html: &str) -> usize {
    let (mut deep, mut most) = (0usize, 0usize);
    for tag in html.split('<').skip(1) {
        let (closes, name) = tag.strip_prefix('/').map_or((false, tag), |name| (true, name));
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
        let name = name[..end].to_ascii_lowercase();
        if name.is_empty() || NOT_COUNTED.contains(&&*name) {
            continue;
        }
        deep = if closes { deep.saturating_sub(1) } else { deep + 1 };
        most = most.max(deep);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<html><head><title>t</title><style>p{}</style></head><body><h1>Big</h1><p>One <b>two</b> \
                        <a href='https://a.example/'>link</a>.</p><script>alert(1)</script><ul><li>a<li>b</ul>";

    #[test]
    fn markdown_has_headings_lists_and_links() {
        let (text, is_told) = told(PAGE, Format::Markdown);
        assert!(is_told);
        for part in ["# Big", "One **two** [link](https://a.example/).", "a\n"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("alert") && !text.contains("p{}"), "{text}");
    }

    #[test]
    fn text_is_what_a_reader_sees() {
        let (text, is_told) = told(PAGE, Format::Text);
        assert!(is_told);
        for part in ["# Big", "One two [link]."] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("alert") && !text.contains("https://") && !text.contains("p{}"), "{text}");
    }

    #[test]
    fn whatever_comes_there_is_a_text() {
        let deep = format!("{}x", "<div>".repeat(20_000));
        assert_eq!(told(&deep, Format::Text), (deep.as_str().into(), false));
        let well = format!("{}x{}", "<div>".repeat(250), "</div>".repeat(250));
        assert_eq!(told(&well, Format::Markdown), ("x".into(), true));
        for page in ["", "<", "<p", "a & b &lt; &nosuch; &#0;", "<table><tr><td>1<td>2</table>", &deep] {
            for format in [Format::Raw, Format::Text, Format::Markdown] {
                told(page, format);
            }
        }
    }
}
