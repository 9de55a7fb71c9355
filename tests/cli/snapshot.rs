//! Answers as they were when somebody last looked at them: `tests/data/cli/`. After a change that is meant,
//! `UPDATE_SNAPSHOTS=1 cargo test --test cli` writes them anew; look at the difference.

use std::path::Path;

/// `text` is what the file `name` holds.
#[track_caller]
pub fn same(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli");
    let path = path.join(name).with_extension("txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        before == text,
        "{} holds:\n{before}\nbut now it is:\n{text}",
        path.display()
    );
}

/// What differs from run to run is replaced: measured times by `T`, and each of `names` by the word beside it.
/// Columns are then two spaces apart.
pub fn steady(text: &str, names: &[(String, &str)]) -> String {
    let mut text = text.to_owned();
    for (name, word) in names {
        text = text.replace(name, word);
    }
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let end = word.len() - word.trim_end().len();
        let (word, end) = word.split_at(word.len() - end);
        let time = ["ms", "s"].iter().find_map(|unit| word.strip_suffix(unit));
        match time.is_some_and(|number| number.parse::<f64>().is_ok()) {
            true => format!("T{end}"),
            false => format!("{word}{end}"),
        }
    });
    let words: String = words.collect();
    let apart = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let columns = line.split("  ").map(str::trim).filter(|c| !c.is_empty());
        let columns: Vec<_> = columns.collect();
        format!("{}{}\n", " ".repeat(indent), columns.join("  "))
    };
    words.lines().map(apart).collect()
}
