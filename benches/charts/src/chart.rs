//! Bars to the left and the right of equality, on a logarithmic axis that reaches the worst.

use std::fmt::Write as _;

use crate::table::Ratio;

/// One comparison.
pub struct Bar {
    pub label: &'static str,
    pub peer: &'static str,
    pub ratio: Ratio,
}

/// Groups of bars, each with its subject.
pub struct Chart<'a> {
    pub title: &'a str,
    pub about: &'a str,
    pub groups: Vec<(Option<&'a str>, Vec<Bar>)>,
}

const WIDTH: f64 = 900.0;
/// Where the axis begins and ends.
const AXIS: [f64; 2] = [430.0, 850.0];
const HEAD: f64 = 92.0;
const LINE: f64 = 26.0;

const TICKS: [(f64, &str); 9] = [
    (0.01, "1/100"),
    (0.02, "1/50"),
    (0.05, "1/20"),
    (0.1, "1/10"),
    (0.2, "1/5"),
    (0.5, "1/2"),
    (1.0, "equal"),
    (2.0, "2 x"),
    (5.0, "5 x"),
];

/// The colours differ for colour-blind readers too: blue and vermilion, by Okabe and Ito.
const STYLE: &str = "\
.c{--page:#fff;--ink:#24292f;--soft:#57606a;--line:#d0d7de;--better:#0072b2;--worse:#d55e00;--even:#8c959f;font-family:system-ui,-apple-system,\"Segoe UI\",Helvetica,Arial,sans-serif;font-size:14px}
@media (prefers-color-scheme:dark){.c{--page:#0d1117;--ink:#e6edf3;--soft:#9da7b3;--line:#30363d;--better:#58a6ff;--worse:#ff9a4d;--even:#6e7681}}
.c text{fill:var(--ink)}.c .s{fill:var(--soft);font-size:12px}.c .h{font-weight:600}.c .m{text-anchor:middle}.c .e{text-anchor:end}
.page{fill:var(--page)}.line{stroke:var(--line)}.one{stroke:var(--ink)}.better{fill:var(--better)}.worse{fill:var(--worse)}.even{fill:var(--even)}.range{stroke:var(--ink);stroke-width:1.5}";

impl Chart<'_> {
    pub fn svg(&self) -> String {
        let lines = (self.groups.iter())
            .map(|(subject, bars)| bars.len() + usize::from(subject.is_some()))
            .sum::<usize>();
        let lines = u16::try_from(lines).expect("there are few bars");
        let height = HEAD + f64::from(lines) * LINE + 14.0;
        let scale = Scale::around(self.groups.iter().flat_map(|(_, bars)| bars));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" class=\"c\" role=\"img\">\n\
             <style>\n{STYLE}\n</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
        );
        text(&mut svg, (16.0, 24.0), "h", self.title);
        text(&mut svg, (16.0, 44.0), "s", self.about);
        for (ratio, label) in TICKS {
            let Some(x) = scale.place_within(ratio) else {
                continue;
            };
            let class = if label == "equal" { "one" } else { "line" };
            let (top, bottom) = (HEAD - 12.0, height - 10.0);
            let _ = writeln!(
                svg,
                "<path class=\"{class}\" d=\"M{x:.1} {top}V{bottom}\"/>"
            );
            text(&mut svg, (x, HEAD - 18.0), "s m", label);
        }
        let mut y = HEAD;
        for (subject, bars) in &self.groups {
            if let Some(subject) = subject {
                text(&mut svg, (16.0, y + 18.0), "h", subject);
                y += LINE;
            }
            for bar in bars {
                draw(&mut svg, scale, bar, y);
                y += LINE;
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn draw(svg: &mut String, scale: Scale, bar: &Bar, y: f64) {
    let Ratio {
        median,
        least,
        most,
    } = bar.ratio;
    let (one, end) = (scale.place(1.0), scale.place(median));
    let class = match () {
        () if most < 1.0 => "better",
        () if least > 1.0 => "worse",
        () => "even",
    };
    let label = format!("{} <tspan class=\"s\">/ {}</tspan>", bar.label, bar.peer);
    text(svg, (AXIS[0] - 14.0, y + 18.0), "e", &label);
    let (left, width) = (one.min(end), (one - end).abs().max(2.0));
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" rx=\"2\"/>",
        y + 5.0,
        LINE - 9.0
    );
    let (from, to) = (scale.place(least), scale.place(most));
    let _ = writeln!(
        svg,
        "<path class=\"range\" d=\"M{from:.1} {}H{to:.1}\"/>",
        y + 13.5
    );
    // Beside the bar, on the side where nothing is drawn.
    let beside = one.max(to).max(end) + 7.0;
    text(svg, (beside, y + 18.0), "", &format!("{median:.2}"));
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, what: &str) {
    let class = if class.is_empty() {
        String::new()
    } else {
        format!(" class=\"{class}\"")
    };
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\"{class}>{what}</text>");
}

/// From the least ratio to the greatest, with some room.
#[derive(Clone, Copy)]
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    fn around<'a>(bars: impl Iterator<Item = &'a Bar>) -> Self {
        let (mut least, mut most) = (1.0_f64, 1.0_f64);
        for bar in bars {
            least = least.min(bar.ratio.least);
            most = most.max(bar.ratio.most);
        }
        Scale {
            least: (least * 0.8).ln(),
            most: (most * 1.25).ln(),
        }
    }

    fn place(self, ratio: f64) -> f64 {
        let share = (ratio.ln() - self.least) / (self.most - self.least);
        AXIS[0] + share * (AXIS[1] - AXIS[0])
    }

    fn place_within(self, ratio: f64) -> Option<f64> {
        let x = self.place(ratio);
        (AXIS[0]..=AXIS[1]).contains(&x).then_some(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_reaches_the_worst() {
        let ratio = Ratio {
            median: 6.9,
            least: 4.3,
            most: 9.2,
        };
        let bar = Bar {
            label: "many sets",
            peer: "one set",
            ratio,
        };
        let scale = Scale::around([&bar].into_iter());
        assert!(scale.place(9.2) < AXIS[1], "{}", scale.place(9.2));
        assert!(scale.place(1.0) > AXIS[0]);
    }
}
