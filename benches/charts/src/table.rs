//! The table of recorded figures, in Markdown.

/// A ratio, and the least and the greatest of one repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// The rows with a ratio: workload, peer, ratio.
pub struct Table {
    rows: Vec<(String, String, Ratio)>,
    /// When and where they were measured.
    pub about: String,
}

impl Table {
    /// Reads the table below the heading `The table`, and the sentence that says which machine it
    /// was.
    pub fn parse(readme: &str) -> Result<Self, String> {
        let (_, text) = (readme.split_once("\n## The table\n")).ok_or("there is no table")?;
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let about = words.split_once("The machine: ").and_then(|(_, rest)| {
            // The versions have dots, which no space follows.
            rest.split_once(". ").map(|(sentence, _)| sentence)
        });
        let about = about.or_else(|| {
            let (_, rest) = words.split_once("The machine: ")?;
            rest.split_once(". |").map(|(sentence, _)| sentence)
        });
        let about = about.ok_or("no machine is named")?.to_owned();
        let mut rows: Vec<(String, String, Ratio)> = Vec::new();
        for line in text.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [workload, _, peer, _, ratio, ..] = cells[..] else {
                continue;
            };
            let Some(ratio) = parse_ratio(ratio) else {
                continue;
            };
            // Another peer of the same workload.
            let workload = match (workload, rows.last()) {
                ("", Some((last, ..))) => last.clone(),
                (workload, _) => workload.to_owned(),
            };
            rows.push((workload, peer.trim_matches('`').to_owned(), ratio));
        }
        Ok(Table { rows, about })
    }

    pub fn ratio(&self, workload: &str, peer: &str) -> Result<Ratio, String> {
        let row = |(what, whose, _): &&(String, String, Ratio)| what == workload && whose == peer;
        let found = self.rows.iter().find(row).map(|(_, _, ratio)| *ratio);
        found.ok_or_else(|| format!("the table has no row: {workload}, {peer}"))
    }
}

/// `0.56 (0.53 - 0.57)`, or the first number alone.
fn parse_ratio(cell: &str) -> Option<Ratio> {
    let (median, range) = match cell.split_once(" (") {
        Some((median, range)) => (median, Some(range.strip_suffix(')')?)),
        None => (cell, None),
    };
    let median = median.parse().ok()?;
    let (least, most) = match range {
        Some(range) => {
            let (least, most) = range.split_once(" - ")?;
            (least.parse().ok()?, most.parse().ok()?)
        }
        None => (median, median),
    };
    Some(Ratio {
        median,
        least,
        most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_medians_and_ranges() {
        let readme = "\n## The table\nThe machine: two cores, rustc 1.95.\n\n\
            | workload | tickwheel | peer | peer's | ratio | `--only` |\n|---|---|---|---|---|---|\n\
            | a sleep | 1 ns | `tokio::time` | 2 ns | 0.50 (0.40 - 0.60) | S1 |\n| | | `other` | 1 ns | 0.93 | |\n";
        let table = Table::parse(readme).expect("it is a table");
        assert_eq!(table.about, "two cores, rustc 1.95");
        let ratio = |median, least, most| Ratio {
            median,
            least,
            most,
        };
        assert_eq!(
            table.ratio("a sleep", "tokio::time"),
            Ok(ratio(0.5, 0.4, 0.6))
        );
        assert_eq!(table.ratio("a sleep", "other"), Ok(ratio(0.93, 0.93, 0.93)));
        assert!(table.ratio("a timeout", "other").is_err());
    }
}
