//! What each metric is.

use super::table::METRICS;

/// One metric, or a family of metrics whose names differ in a part written `{part}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDefinition {
    /// Name; parts are separated by `/`.
    pub name: &'static str,
    /// Unit, such as `nats` or `tokens`; `share` is a number from 0 to 1.
    pub unit: &'static str,
    /// What is summed or taken.
    pub numerator: &'static str,
    /// What it is divided by; empty when it is not a mean.
    pub denominator: &'static str,
    /// Which episodes, rows or tokens take part.
    pub mask: &'static str,
    /// What it tells.
    pub meaning: &'static str,
    /// Whether it depends on the machine's speed or load, and so differs between equal runs.
    pub is_wall_clock: bool,
    /// verl's name for it, empty when it has none.
    pub verl: &'static str,
    /// TRL's name for it, empty when it has none.
    pub trl: &'static str,
}

/// Whose names a dashboard shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MetricNaming {
    /// Our own.
    #[default]
    Native,
    /// verl's where it has the metric, ours elsewhere.
    Verl,
    /// TRL's where it has the metric, ours elsewhere.
    Trl,
}

/// Every metric, grouped by the first part of the name.
pub fn registry() -> &'static [MetricDefinition] {
    METRICS
}

/// The definition of a metric's name; `None` when it is not registered.
pub fn definition(name: &str) -> Option<&'static MetricDefinition> {
    METRICS.iter().find(|metric| matches(metric.name, name))
}

/// The registered name most like an unregistered one.
pub(crate) fn nearest(name: &str) -> Option<String> {
    METRICS
        .iter()
        .map(|metric| (strsim::jaro_winkler(metric.name, name), metric.name))
        .filter(|scored| scored.0 > 0.8)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|scored| scored.1.to_owned())
}

/// The name under which a metric appears with `naming`; parts in braces are carried over.
pub(crate) fn displayed(metric: &MetricDefinition, name: &str, naming: MetricNaming) -> String {
    let other = match naming {
        MetricNaming::Native => "",
        MetricNaming::Verl => metric.verl,
        MetricNaming::Trl => metric.trl,
    };
    if other.is_empty() {
        return name.to_owned();
    }
    let parts = metric.name.split('/').zip(name.split('/'));
    parts
        .filter(|(pattern, _)| pattern.starts_with('{'))
        .fold(other.to_owned(), |text, (pattern, part)| {
            text.replace(pattern, part)
        })
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = name.split('/');
    pattern.split('/').all(|expected| {
        parts
            .next()
            .is_some_and(|part| part == expected || (expected.starts_with('{') && !part.is_empty()))
    }) && parts.next().is_none()
}

/// The reference of all metrics, as Markdown.
pub fn reference_markdown() -> String {
    let mut lines = vec![
        "# Metrics".to_owned(),
        String::new(),
        "Every number a run reports. A part in braces stands for a name, such as a split or a task family. Means over \
         nothing are 0. Metrics marked with a clock depend on the machine and are kept in `timings.jsonl`; all others are \
         in `metrics.jsonl` and equal between equal runs."
            .to_owned(),
    ];
    let mut group = "";
    for metric in METRICS {
        let first = metric.name.split('/').next().unwrap_or_default();
        if first != group {
            group = first;
            lines.push(format!(
                "\n## {group}\n\n| Name | Unit | Is | Over | Meaning | verl | TRL |\n|---|---|---|---|---|---|---|"
            ));
        }
        let clock = if metric.is_wall_clock { " ⏱" } else { "" };
        let is = match metric.denominator {
            "" => metric.numerator.to_owned(),
            denominator => format!("{} / {denominator}", metric.numerator),
        };
        let quoted = |name: &str| {
            if name.is_empty() {
                String::new()
            } else {
                format!("`{name}`")
            }
        };
        lines.push(format!(
            "| `{}`{clock} | {} | {is} | {} | {} | {} | {} |",
            metric.name,
            metric.unit,
            metric.mask,
            metric.meaning,
            quoted(metric.verl),
            quoted(metric.trl)
        ));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_grouped_and_complete() {
        let mut seen = BTreeSet::new();
        let mut groups = BTreeSet::new();
        let mut group = "";
        for metric in METRICS {
            assert!(seen.insert(metric.name), "{} twice", metric.name);
            for text in [metric.unit, metric.numerator, metric.mask, metric.meaning] {
                assert!(!text.is_empty(), "{}", metric.name);
                assert!(!text.contains('|'), "{} would break its table", metric.name);
            }
            assert!(
                metric.name.bytes().all(|byte| byte.is_ascii_lowercase()
                    || byte.is_ascii_digit()
                    || b"/_{}".contains(&byte)),
                "{}",
                metric.name
            );
            let first = metric.name.split('/').next().unwrap();
            if first != group {
                group = first;
                assert!(groups.insert(group), "{group} is not in one place");
            }
        }
    }

    #[test]
    fn other_systems_names_are_unique() {
        for naming in [MetricNaming::Verl, MetricNaming::Trl] {
            let mut seen = BTreeSet::new();
            for metric in METRICS {
                assert!(
                    seen.insert(displayed(metric, metric.name, naming)),
                    "{naming:?} {}",
                    metric.name
                );
            }
        }
    }

    #[test]
    fn patterns_match_one_part_each() {
        assert_eq!(
            definition("evaluation/seen/success_rate").unwrap().name,
            "evaluation/{split}/success_rate"
        );
        assert_eq!(
            definition("evaluation/seen/family/heat/success_rate")
                .unwrap()
                .name,
            "evaluation/{split}/family/{family}/success_rate"
        );
        for wrong in [
            "evaluation//success_rate",
            "evaluation/seen",
            "reward",
            "reward/mean/x",
            "",
        ] {
            assert!(definition(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn names_are_translated_where_the_other_system_has_one() {
        let shown = |name, naming| displayed(definition(name).unwrap(), name, naming);
        assert_eq!(shown("policy/loss", MetricNaming::Verl), "actor/pg_loss");
        assert_eq!(shown("policy/loss", MetricNaming::Native), "policy/loss");
        assert_eq!(shown("seed/gap_mean", MetricNaming::Trl), "seed/gap_mean");
        assert_eq!(
            shown("evaluation/unseen/success_rate", MetricNaming::Verl),
            "val-core/unseen/success/mean@1"
        );
    }
}
