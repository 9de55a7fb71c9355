//! A strict reader of the Prometheus text format: what it takes, every scraper takes.

use std::collections::{BTreeMap, BTreeSet};

/// Labels of a series, by name.
pub type Labels = BTreeMap<String, String>;

/// What was read: families by name, each with its type, and series by name and labels.
#[derive(Debug, Default)]
pub struct Scrape {
    pub types: BTreeMap<String, String>,
    pub help: BTreeMap<String, String>,
    pub series: BTreeMap<(String, Labels), f64>,
}

impl Scrape {
    /// Reads a page, or panics with what is wrong with it.
    pub fn read(text: &str) -> Self {
        assert!(
            text.is_empty() || text.ends_with('\n'),
            "the last line ends"
        );
        let mut scrape = Self::default();
        let mut family = String::new();
        let mut helped = None;
        for line in text.lines() {
            if let Some(of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = of.split_once(' ').expect("a name and a type");
                assert!(is_name(name, true), "{name}");
                assert!(helped.take().is_none_or(|helped| helped == name), "{name}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
                let before = scrape.types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "one group for each family: {name}");
                name.clone_into(&mut family);
                continue;
            }
            if let Some(of) = line.strip_prefix("# HELP ") {
                let (name, text) = of.split_once(' ').expect("a name and its help");
                assert!(is_name(name, true) && !text.is_empty(), "{line}");
                let before = scrape.help.insert(name.to_owned(), text.to_owned());
                assert_eq!(before, None, "help once for each family: {name}");
                assert!(!scrape.types.contains_key(name), "help comes first: {name}");
                helped = Some(name);
                continue;
            }
            assert!(!line.starts_with('#') && !line.is_empty(), "{line}");
            assert_eq!(helped, None, "a type follows help: {line}");
            let (name, labels, value) = series(line);
            let of = match scrape.types.get(&family).map(String::as_str) {
                Some("histogram") => ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|part| name.strip_suffix(part))
                    .expect("a part of a histogram"),
                _ => name.as_str(),
            };
            assert_eq!(of, family, "a series stands in its family's group");
            let before = scrape.series.insert((name.clone(), labels), value);
            assert_eq!(before, None, "each series once: {line}");
        }
        for (name, kind) in &scrape.types {
            if kind == "histogram" {
                scrape.check_histogram(name);
            }
        }
        scrape
    }

    /// The value of one series.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        self.series.get(&(name.to_owned(), labels)).copied()
    }

    fn check_histogram(&self, family: &str) {
        let mut of_labels: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        let bucket = format!("{family}_bucket");
        for ((name, labels), value) in &self.series {
            if *name == bucket {
                let mut labels = labels.clone();
                let bound = labels.remove("le").expect("a bucket's bound");
                let bound = if bound == "+Inf" {
                    f64::INFINITY
                } else {
                    bound.parse().unwrap()
                };
                of_labels.entry(labels).or_default().push((bound, *value));
            }
        }
        assert!(!of_labels.is_empty(), "{family} has buckets");
        for (labels, mut buckets) in of_labels {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by_key(|(_, n)| *n), "buckets only grow");
            let (last, all) = *buckets.last().unwrap();
            assert!(last.is_infinite(), "the last bucket holds all");
            let part = |part: &str| {
                self.series
                    .get(&(format!("{family}{part}"), labels.clone()))
            };
            assert_eq!(part("_count"), Some(&all));
            assert!(part("_sum").is_some());
        }
    }
}

fn series(line: &str) -> (String, Labels, f64) {
    let (name, rest) = line.split_once('{').expect("labels in braces");
    assert!(is_name(name, true), "{name}");
    let mut labels = Labels::new();
    let mut seen = BTreeSet::new();
    let mut rest = rest;
    while !rest.starts_with('}') {
        let (label, after) = rest.split_once("=\"").expect("a label");
        assert!(is_name(label, false), "{label}");
        let (value, after) = quoted(after);
        assert!(seen.insert(label), "each label once: {line}");
        labels.insert(label.to_owned(), value);
        rest = match after.strip_prefix(',') {
            Some(next) => {
                assert!(!next.starts_with('}'), "no comma after the last label");
                next
            }
            None => after,
        };
    }
    let value = rest.strip_prefix("} ").expect("a value");
    (name.to_owned(), labels, value.parse().expect("a number"))
}

/// Reads up to the closing quote; gives what follows it, too.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                other => panic!("no such escape: {other:?}"),
            },
            c => value.push(c),
        }
    }
    panic!("a label value ends");
}

fn is_name(name: &str, colons: bool) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    !name.is_empty() && name.chars().all(allowed) && !name.starts_with(|c: char| c.is_ascii_digit())
}
