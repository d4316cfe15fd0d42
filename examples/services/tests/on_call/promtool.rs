//! What was scraped, as a test of rules that `promtool` runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::not_run::not_run;
use crate::program::{FIRED, HEALTHY, INTERVAL};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/on-call");

/// The values of each series, scrape by scrape.
#[derive(Debug, Default)]
pub(crate) struct Scrapes {
    series: BTreeMap<String, Vec<String>>,
    count: usize,
}

impl Scrapes {
    /// Adds a page in the text format.
    pub(crate) fn add(&mut self, page: &str) {
        let lines = page.lines().map(str::trim);
        for line in lines.filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            // The labels that Prometheus adds.
            let target = r#"job="shop",instance="shop-1:9000""#;
            let series = match series.split_once('{') {
                Some((name, labels)) => format!("{name}{{{target},{labels}"),
                None => format!("{series}{{{target}}}"),
            };
            let values = self.series.entry(series).or_default();
            values.resize(self.count, "_".to_owned());
            values.push(value.to_owned());
        }
        self.count += 1;
    }

    /// No alert fires at the end of any part.
    pub(crate) fn assert_quiet(&self) {
        self.check(&[(HEALTHY, None), (HEALTHY + FIRED, None), (self.count, None)]);
    }

    /// The alert fires while its cause is there, none does before that, and none after it.
    pub(crate) fn assert_fires(&self, alert: &str) {
        let mut expected = vec![(HEALTHY, None), (HEALTHY + FIRED, Some(alert))];
        if self.count > HEALTHY + FIRED {
            expected.push((self.count, None));
        }
        self.check(&expected);
    }

    /// After that many scrapes, that alert fires.
    fn check(&self, expected: &[(usize, Option<&str>)]) {
        let interval = INTERVAL.as_secs();
        let mut test = format!(
            "rule_files: ['{FOLDER}/alerts.yml']\nevaluation_interval: {interval}s\n\
             tests:\n  - interval: {interval}s\n    input_series:\n"
        );
        for (series, values) in &self.series {
            let values = values.join(" ");
            let _ = writeln!(
                test,
                "      - series: '{series}'\n        values: '{values}'"
            );
        }
        test += "    promql_expr_test:\n";
        for (scrapes, alert) in expected {
            let at = (*scrapes as u64 - 1) * interval;
            let samples = alert.map_or("[]".to_owned(), |alert| {
                format!("[{{labels: '{{alertname=\"{alert}\"}}', value: 1}}]")
            });
            let _ = writeln!(
                test,
                "      - expr: max by (alertname) (ALERTS{{alertstate=\"firing\"}})\n        \
                 eval_time: {at}s\n        exp_samples: {samples}"
            );
        }
        promtool(&["test", "rules"], &test);
    }

    pub(crate) fn assert_answers_dashboard(&self) {
        let dashboard = std::fs::read_to_string(format!("{FOLDER}/dashboard.json"));
        let dashboard: Value =
            serde_json::from_str(&dashboard.expect("it is there")).expect("it is JSON");
        let panels = dashboard["panels"].as_array().expect("it has panels");
        let targets = panels
            .iter()
            .filter_map(|panel| panel["targets"].as_array());
        let questions: Vec<&str> = targets
            .flatten()
            .map(|target| target["expr"].as_str().expect("it asks"))
            .collect();
        assert!(questions.len() > 10, "{questions:?}");
        let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
        for (number, question) in questions.iter().enumerate() {
            for name in names(question) {
                let is_there = |series: &String| series.starts_with(&format!("{name}{{"));
                assert!(self.series.keys().any(is_there), "there is no {name}");
            }
            let question = question.replace("$__rate_interval", "1m");
            let _ = writeln!(
                rules,
                "      - record: r{number}\n        expr: '{question}'"
            );
        }
        promtool(&["check", "rules"], &rules);
    }
}

/// The metrics that a question names.
fn names(question: &str) -> impl Iterator<Item = &str> {
    let words = question.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tickwheel_"))
}

/// Runs `promtool` on a file with that text.
fn promtool(arguments: &[&str], text: &str) {
    let folder = std::env::temp_dir();
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let file: PathBuf = folder.join(format!("tickwheel_{}_{name}.yml", std::process::id()));
    std::fs::write(&file, text).expect("it can be written");
    let run = Command::new("promtool").args(arguments).arg(&file).output();
    let Ok(run) = run else {
        remove(&file);
        return not_run("no promtool is installed");
    };
    let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}: {said}", file.display());
    remove(&file);
}

fn remove(file: &Path) {
    std::fs::remove_file(file).expect("it is there");
}
