//! An adapter: what it is, and whether it stands beside the weights it was trained beside.

use std::path::Path;

use seed_model::{Adapter, Target};

use crate::Finding;

const AREA: &str = "adapter";

/// What there is to say about an adapter that was read with the base found at `base`. `names_base` is whether its folder
/// says which weights it was trained beside; an adapter of other weights than the base's cannot be read.
pub fn examine_adapter(adapter: &Adapter, base: &Path, names_base: bool) -> Vec<Finding> {
    let options = adapter.options();
    let targets: Vec<&str> = options.targets.iter().copied().map(Target::name).collect();
    let about = format!(
        "rank {}, alpha {}, beside {} of every layer: {} parameters",
        options.rank,
        options.alpha,
        targets.join(", "),
        adapter.parameters().total()
    );
    let place = base.display();
    let beside = if names_base {
        Finding::fine(
            AREA,
            format!("its base is `{place}`, which has the digest of the weights it was trained beside"),
        )
    } else {
        Finding::warning(
            AREA,
            format!("its base is `{place}`; it does not say which weights it was trained beside"),
            "make sure that these are the ones; adapters written here name them",
        )
    };
    let mut findings = vec![Finding::fine(AREA, about), beside];
    if adapter.is_neutral() {
        findings.push(Finding::warning(
            AREA,
            "it changes nothing: every second matrix of its pairs is zero, as in one that was never trained",
            "name the adapter that training has written",
        ));
    }
    findings
}
