//! The event files are read by TensorBoard itself. Runs when `SEED_PYTHON` names a Python that has `tensorboard`.

use std::process::Command;

use seed_run::metrics::MetricNaming;
use seed_run::{Metrics, MetricsOptions, MetricsWriter};

/// Prints `step value` of one tag, as TensorBoard's own reader sees the folder.
const READER: &str = "
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
accumulator = EventAccumulator(sys.argv[1])
accumulator.Reload()
for event in accumulator.Scalars(sys.argv[2]):
    print(event.step, event.value)
";

#[test]
fn tensorboard_reads_a_resumed_run() {
    let Some(python) = std::env::var_os("SEED_PYTHON") else {
        println!("skipped: SEED_PYTHON does not name a Python with tensorboard");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let write = |resume_after, steps: std::ops::RangeInclusive<u64>, offset: f64| {
        let options = MetricsOptions {
            tensorboard: Some(MetricNaming::Verl),
            resume_after,
        };
        let mut writer = MetricsWriter::open(folder.path(), options).unwrap();
        for step in steps {
            let mut metrics = Metrics::new();
            metrics.set("policy/loss", step as f64 / 4.0 + offset);
            writer.record(step, &metrics).unwrap();
        }
    };
    write(None, 1..=4, 0.0);
    // Resumed from step 2: what was said of steps 3 and 4 no longer holds.
    write(Some(2), 3..=5, 100.0);
    let output = Command::new(python)
        .args(["-c", READER])
        .arg(folder.path().join("tensorboard"))
        .arg("actor/pg_loss")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text,
        "1 0.25\n2 0.5\n3 100.75\n4 101.0\n5 101.25\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
