//! Bars of counts, as inline SVG.

use maud::{Markup, html};

/// A bar: how many, and the text that says of what.
pub(super) struct Bar {
    pub(super) count: u64,
    pub(super) label: String,
}

/// The size of a picture, in its own units.
const WIDTH: u64 = 960;
const HEIGHT: u64 = 120;

/// Bars side by side, the highest as high as the picture, and texts below them from left to right.
pub(super) fn bars(bars: &[Bar], below: &[String]) -> Markup {
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
    let pitch = WIDTH / (bars.len() as u64).max(1);
    // One timer among thousands shows, too.
    let height = |count: u64| {
        if count == 0 {
            0
        } else {
            (count * HEIGHT / most).max(2)
        }
    };
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT + 20) } role="img" {
            @for (number, bar) in (0..).zip(bars) {
                rect x=(number * pitch + 1) y=(HEIGHT - height(bar.count)) width=(pitch.saturating_sub(2))
                    height=(height(bar.count)) {
                    title { (bar.label) ": " (bar.count) }
                }
            }
            line x1="0" y1=(HEIGHT) x2=(WIDTH) y2=(HEIGHT) {}
            @for (number, text) in (0..).zip(below) {
                text x=(number * WIDTH / (below.len() as u64).max(1)) y=(HEIGHT + 16) { (text) }
            }
        }
        p.note { "highest: " (bars.iter().map(|bar| bar.count).max().unwrap_or(0)) }
    }
}
