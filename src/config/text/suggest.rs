//! Names that were probably meant, and the two ways to spell one.

/// `alt_port` as `altPort`.
pub(super) fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                camel.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => camel.push(c),
        }
    }
    camel
}

/// The candidate nearest to `name`, if one is near enough to have been meant. Letter case, `-` and
/// `_` do not count.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    const LONGEST: usize = 64;
    let wanted = folded(name);
    if wanted.is_empty() || wanted.len() > LONGEST {
        return None;
    }
    let near_enough = (wanted.len() / 4).clamp(1, 3);
    candidates
        .map(|candidate| (distance(&wanted, &folded(candidate)), candidate))
        .min_by_key(|&(distance, _)| distance)
        .filter(|&(distance, _)| distance <= near_enough)
        .map(|(_, candidate)| candidate)
}

fn folded(name: &str) -> Vec<char> {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// How many letters must be put in, left out, replaced or swapped with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(x != y)).min(last[j + 1] + 1);
            best = best.min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_seen_through_and_another_word_is_not() {
        let fields = ["timeout", "interval", "alt_port", "healthy_threshold"];
        let nearest = |name| nearest(name, fields.into_iter());
        assert_eq!(nearest("Timeout"), Some("timeout"));
        assert_eq!(nearest("tiemout"), Some("timeout"));
        assert_eq!(nearest("alt-Port"), Some("alt_port"));
        assert_eq!(nearest("healthy_treshhold"), Some("healthy_threshold"));
        assert_eq!(nearest("retries"), None);
        assert_eq!(nearest(""), None);
        assert_eq!(nearest(&"x".repeat(10_000)), None);
    }

    #[test]
    fn names_in_camel_case() {
        assert_eq!(camel_case("no_traffic_interval"), "noTrafficInterval");
        assert_eq!(camel_case("name"), "name");
    }
}
