//! The chart of lateness. `benches/charts` draws those of the table.

use std::fmt::Display;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::coordinate::Figures;
use crate::measure::{LATENESS_BUCKETS, LATENESS_SHARE, bucket_start};

const INK: RGBColor = RGBColor(40, 44, 52);
const PALE: RGBColor = RGBColor(205, 210, 218);
// From the palette by Okabe and Ito, whose colours differ for colour-blind readers too.
const BETTER: RGBColor = RGBColor(0, 114, 178);
const WORSE: RGBColor = RGBColor(213, 94, 0);
const EQUAL: RGBColor = RGBColor(150, 150, 150);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn failed(error: impl Display) -> String {
    format!("the chart: {error}")
}

fn text(
    area: &Area<'_>,
    at: (i32, i32),
    size: i32,
    anchor: HPos,
    what: &str,
) -> Result<(), String> {
    let style = ("sans-serif", size)
        .into_font()
        .color(&INK)
        .pos(Pos::new(anchor, VPos::Center));
    area.draw(&Text::new(what.to_owned(), at, style))
        .map_err(failed)
}

const PEERS: [(&str, RGBColor); 6] = [
    ("tickwheel", BETTER),
    ("tokio::time", WORSE),
    ("pingora-timeout", EQUAL),
    ("futures-timer", RGBColor(0, 158, 115)),
    ("async-io", RGBColor(204, 121, 167)),
    ("tickwheel, precise", RGBColor(86, 180, 233)),
];

/// How late sleeps were, under light and under heavy load. False without any.
pub fn lateness(figures: &Figures, about: &str, path: &Path) -> Result<bool, String> {
    let panels: Vec<_> = [
        ("S12", "100 sleepers"),
        ("S3", "very many sleepers, 2 workers"),
    ]
    .into_iter()
    .map(|(group, title)| (title, curves(figures, group)))
    .filter(|(_, curves)| !curves.is_empty())
    .collect();
    if panels.is_empty() {
        return Ok(false);
    }
    let height = HEAD + 330 * u32::try_from(panels.len()).map_err(failed)?;
    let area = SVGBackend::new(path, (820, height)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let (head, area) = area.split_vertically(HEAD);
    text(
        &head,
        (12, 18),
        18,
        HPos::Left,
        "How late sleeps are: further left is better",
    )?;
    text(&head, (12, 40), 13, HPos::Left, about)?;
    let mut x = 12;
    for (name, color) in PEERS {
        if !(panels.iter()).any(|(_, curves)| curves.iter().any(|curve| curve.name == name)) {
            continue;
        }
        let line = PathElement::new([(x, 62), (x + 18, 62)], color.stroke_width(3));
        head.draw(&line).map_err(failed)?;
        text(&head, (x + 24, 62), 13, HPos::Left, name)?;
        x += 136;
    }
    for ((title, curves), area) in panels.iter().zip(area.split_evenly((panels.len(), 1))) {
        panel(&area, title, curves)?;
    }
    area.present().map_err(failed)?;
    Ok(true)
}

/// The height of title and legend.
const HEAD: u32 = 80;

/// A share of sleeps for each lateness in milliseconds.
struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

fn curves(figures: &Figures, group: &str) -> Vec<Curve> {
    let of = |name: &'static str, color| {
        let shares: Vec<f64> = (0..LATENESS_BUCKETS)
            .map(|bucket| {
                let shares = figures.get(group, name, &format!("{LATENESS_SHARE}{bucket}"));
                // A bucket that a repetition left empty was not reported by it.
                let runs = figures.get(group, name, "mean").len().max(1);
                shares.iter().sum::<f64>() / runs as f64
            })
            .collect();
        let points = shares
            .iter()
            .enumerate()
            .map(|(bucket, &share)| (bucket_start(bucket + 1), share))
            .collect();
        shares.iter().any(|&share| share > 0.0).then_some(Curve {
            name,
            color,
            points,
        })
    };
    (PEERS.into_iter())
        .filter_map(|(name, color)| of(name, color))
        .collect()
}

fn panel(area: &Area<'_>, title: &str, curves: &[Curve]) -> Result<(), String> {
    let filled = || {
        curves
            .iter()
            .flat_map(|curve| &curve.points)
            .filter(|point| point.1 > 0.0)
    };
    let highest = filled().map(|point| point.1).fold(0.0, f64::max);
    let latest = filled().map(|point| point.0).fold(0.1, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16).into_font().color(&INK))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d((0.01..latest * 1.5).log_scale(), 0.0..highest * 1.1)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(PALE)
        .x_desc("milliseconds after the deadline")
        .y_desc("share of the sleeps")
        .x_label_formatter(&|ms| format!("{ms}"))
        .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
        .draw()
        .map_err(failed)?;
    for curve in curves {
        let points = curve
            .points
            .iter()
            .copied()
            .filter(|point| point.0 >= 0.01 && point.0 <= latest * 1.5);
        let color = curve.color;
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))
            .map_err(failed)?;
    }
    Ok(())
}
