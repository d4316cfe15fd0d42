//! Bars of counts, as inline SVG. Texts are beside the pictures, which change their width with the
//! window.

use maud::{Markup, html};
use tickwheel_durable::store::MAX_DUE_COUNT;

use crate::shown::separated;

/// A bar: how many, and the text that says of what.
pub(super) struct Bar {
    pub(super) count: u64,
    pub(super) label: String,
}

/// The size of a picture, in its own units.
const LENGTH: u64 = 960;
const HEIGHT: u64 = 96;

fn most(bars: &[Bar]) -> u64 {
    bars.iter().map(|bar| bar.count).max().unwrap_or(0)
}

/// How long a bar is. One timer among thousands shows, too.
fn length(count: u64, most: u64, longest: u64) -> u64 {
    if count == 0 {
        return 0;
    }
    (count * longest / most.max(1)).max(2)
}

/// Bars side by side, the highest as high as the picture, and texts below them from left to right.
pub(super) fn columns(bars: &[Bar], below: &[String]) -> Markup {
    let most = most(bars);
    let pitch = LENGTH / (bars.len() as u64).max(1);
    html! {
        svg.columns viewBox={ "0 0 " (LENGTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label="timers by when they are due" {
            @for (number, bar) in (0..).zip(bars) {
                @let height = length(bar.count, most, HEIGHT);
                rect x=(number * pitch + 1) y=(HEIGHT - height) width=(pitch.saturating_sub(2)) height=(height) {
                    title { (bar.label) ": " (separated(bar.count)) }
                }
            }
        }
        div.axis { @for text in below { span { (text) } } }
        p.note { "highest: " (separated(most)) @if most >= MAX_DUE_COUNT as u64 { " or more" } }
    }
}

/// Bars below each other, with their texts and numbers.
pub(super) fn lines(bars: &[Bar]) -> Markup {
    let most = most(bars);
    html! {
        dl.lines { @for bar in bars {
            div {
                dt { (bar.label) }
                dd {
                    svg viewBox={ "0 0 " (LENGTH) " 12" } preserveAspectRatio="none" role="img" aria-hidden="true" {
                        rect x="0" y="0" width=(length(bar.count, most, LENGTH)) height="12" {}
                    }
                    span.number { (separated(bar.count)) @if bar.count >= MAX_DUE_COUNT as u64 { "+" } }
                }
            }
        } }
    }
}
