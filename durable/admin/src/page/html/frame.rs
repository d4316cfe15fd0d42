//! The frame of each page, and the pages that say or ask one thing.

use std::sync::atomic::Ordering;

use maud::{DOCTYPE, Markup, html};

use crate::operator::Operator;
use crate::page::jobs::Job;
use crate::shown::separated;

/// The parts of every page.
#[derive(Default)]
pub(in crate::page) struct Frame<'a> {
    /// The path at which the pages are, without a slash at its end.
    pub(in crate::page) root: &'a str,
    pub(in crate::page) namespaces: &'a [Operator],
    /// The name of the namespace that is shown, if it is one.
    pub(in crate::page) current: &'a str,
    pub(in crate::page) allow_changes: bool,
    pub(in crate::page) log_out: bool,
    pub(in crate::page) notice: Option<String>,
    /// Whether it has parts that are replaced by newer ones.
    pub(in crate::page) is_live: bool,
}

impl Frame<'_> {
    /// The address of a page of this namespace.
    pub(in crate::page) fn here(&self, rest: &str) -> String {
        format!("{}{rest}", self.address(self.current))
    }

    /// The address of the page of a namespace. The name of a part, such as `orders/1`, is one
    /// segment of it.
    pub(super) fn address(&self, name: &str) -> String {
        format!("{}/n/{}", self.root, name.replace('/', "%2F"))
    }

    /// The address of the page of all namespaces.
    fn home(&self) -> &str {
        if self.root.is_empty() { "/" } else { self.root }
    }
}

pub(super) fn page(title: &str, frame: &Frame<'_>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " - tickwheel" }
                link rel="stylesheet" href={ (frame.root) "/static/style.css" };
                script src={ (frame.root) "/static/page.js" } defer {}
                @if frame.is_live { noscript { meta http-equiv="refresh" content="5"; } }
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href=(frame.home()) { "tickwheel" }
                    nav aria-label="namespaces" {
                        @for found in frame.namespaces {
                            @let name = found.namespace.as_str();
                            a href=(frame.address(name)) aria-current=[(name == frame.current).then_some("page")] { (name) }
                        }
                    }
                    @if frame.is_live { span #live-state role="status" {} }
                    @if frame.log_out {
                        form method="post" action="/logout" { button.plain { "Log out" } }
                    }
                }
                @if let Some(notice) = &frame.notice { p.notice role="status" { (notice) } }
                main #main { (content) }
            }
        }
    }
}

/// A page that says something, and knows no namespace.
pub(in crate::page) fn message(root: &str, title: &str, lines: &[String]) -> Markup {
    let frame = Frame {
        root,
        ..Frame::default()
    };
    let content = html! {
        h1 { (title) }
        @for line in lines { p { bdi { (line) } } }
        p { a href=(frame.home()) { "Back" } }
    };
    page(title, &frame, &content)
}

/// What a change is doing, or what has become of it.
pub(in crate::page) fn job(frame: &Frame<'_>, job: &Job) -> Markup {
    let changed = job.changed.load(Ordering::Relaxed);
    let content = html! {
        section #work data-live="" {
            @if let Some((title, lines)) = job.result.get() {
                h1 { (title) }
                p { (job.title) "." }
                @for line in lines { p { bdi { (line) } } }
            } @else {
                h1 { (job.title) }
                p { progress max=(job.total.max(changed)) value=(changed) { (changed) } }
                p { (separated(changed)) " so far. The change goes on if you leave this page." }
            }
        }
        p { a href=(job.back) { "Back" } }
    };
    page(&job.title, frame, &content)
}

#[cfg(feature = "program")]
pub(crate) fn login() -> Markup {
    let form = html! {
        h1 { "Log in" }
        form.line method="post" action="/login" {
            label { "Token "
                input type="password" name="token" autocomplete="current-password" required autofocus;
            }
            button { "Log in" }
        }
    };
    page("Log in", &Frame::default(), &form)
}

/// The text with a capital at its start.
pub(in crate::page) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Asks before something that cannot be undone. The button sends the form again, confirmed.
pub(in crate::page) fn confirm(
    frame: &Frame<'_>,
    what: &str,
    which: &str,
    fields: &[(String, String)],
    back: &str,
) -> Markup {
    let content = html! {
        h1 { (what) "?" }
        p { "In the namespace " strong { (frame.current) } ": " bdi { (which) } "." }
        p { "This cannot be undone." }
        form.line method="post" action=(frame.here("/change")) {
            @for (name, value) in fields {
                input type="hidden" name=(name) value=(value);
            }
            input type="hidden" name="confirmed" value="1";
            button.danger { (what) }
            a href=(back) { "Cancel" }
        }
    };
    page(what, frame, &content)
}
