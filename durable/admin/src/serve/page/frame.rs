//! The frame of each page, and the pages that say or ask one thing.

use maud::{DOCTYPE, Markup, html};
use tickwheel_durable::store::StoredNamespace;

use crate::actions::Action;

/// The parts of every page.
pub(in crate::serve) struct Frame<'a> {
    pub(in crate::serve) namespaces: &'a [StoredNamespace],
    /// The name of the namespace that is shown, if it is one.
    pub(in crate::serve) current: &'a str,
    pub(in crate::serve) csrf: &'a str,
    pub(in crate::serve) allow_changes: bool,
    pub(in crate::serve) has_login: bool,
    pub(in crate::serve) notice: Option<String>,
    /// Whether it has parts that are replaced by newer ones.
    pub(in crate::serve) is_live: bool,
}

const EMPTY: Frame<'static> = Frame {
    namespaces: &[],
    current: "",
    csrf: "",
    allow_changes: false,
    has_login: false,
    notice: None,
    is_live: false,
};

pub(super) fn page(title: &str, frame: &Frame<'_>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " - tickwheel" }
                link rel="stylesheet" href="/static/style.css";
                script src="/static/page.js" defer {}
                @if frame.is_live { noscript { meta http-equiv="refresh" content="5"; } }
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href="/" { "tickwheel" }
                    nav aria-label="namespaces" {
                        @for found in frame.namespaces {
                            @let name = found.name.as_str();
                            a href={ "/n/" (name) } aria-current=[(name == frame.current).then_some("page")] { (name) }
                        }
                    }
                    @if frame.is_live { span #live-state role="status" {} }
                    @if frame.has_login {
                        form method="post" action="/logout" { button.plain { "Log out" } }
                    }
                }
                @if let Some(notice) = &frame.notice { p.notice role="status" { (notice) } }
                main #main { (content) }
            }
        }
    }
}

fn texts(title: &str, texts: &[String], back: &str) -> Markup {
    html! {
        h1 { (title) }
        @for text in texts { p { bdi { (text) } } }
        p { a href=(back) { "Back" } }
    }
}

/// A page that says something, and knows no namespace.
pub(in crate::serve) fn message(title: &str, lines: &[String], back: &str) -> Markup {
    page(title, &EMPTY, &texts(title, lines, back))
}

/// A page that says what has become of a change.
pub(in crate::serve) fn told(
    frame: &Frame<'_>,
    title: &str,
    lines: &[String],
    back: &str,
) -> Markup {
    page(title, frame, &texts(title, lines, back))
}

pub(in crate::serve) fn login() -> Markup {
    let form = html! {
        h1 { "Log in" }
        form.line method="post" action="/login" {
            label { "Token "
                input type="password" name="token" autocomplete="current-password" required autofocus;
            }
            button { "Log in" }
        }
    };
    page("Log in", &EMPTY, &form)
}

/// Asks before something that cannot be undone. The button sends the form again, confirmed.
pub(in crate::serve) fn confirm(
    frame: &Frame<'_>,
    action: Action,
    what: &str,
    which: &str,
    fields: &[(String, String)],
    back: &str,
) -> Markup {
    let mut verb = action.verb().to_owned();
    verb[..1].make_ascii_uppercase();
    let title = format!("{verb} {what}?");
    let content = html! {
        h1 { (title) }
        p { "In the namespace " strong { (frame.current) } ": " bdi { (which) } "." }
        p { "This cannot be undone." }
        form.line method="post" action={ "/n/" (frame.current) "/change" } {
            @for (name, value) in fields {
                input type="hidden" name=(name) value=(value);
            }
            input type="hidden" name="confirmed" value="1";
            button.danger { (verb) " " (what) }
            a href=(back) { "Cancel" }
        }
    };
    page(&title, frame, &content)
}
