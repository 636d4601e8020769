//! A profile of a few spans on a few threads. One test: a process records one profile in its life.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

use seed_run::{Profile, ProfileOptions, RunError};
use serde_json::Value;
use tracing::{debug_span, info_span, trace_span};

/// A module of the workspace, as far as a profile can tell.
const TARGET: &str = "seed_test";

fn iteration(number: u64) {
    let _iteration = info_span!(target: TARGET, "iteration", number).entered();
    std::thread::scope(|scope| {
        for helper in 0..2_usize {
            let work = move || {
                let _step =
                    debug_span!(target: TARGET, "step", sequences = helper + 10, rows = 7_u32).entered();
                for columns in [3_usize, 4] {
                    let _operation = trace_span!(target: TARGET, "matmul", rows = 7_u64, columns).entered();
                    let _within = trace_span!(target: TARGET, "help").entered();
                }
            };
            std::thread::Builder::new()
                .name(format!("helper \"{helper}\""))
                .spawn_scoped(scope, work)
                .unwrap();
        }
    });
    let _update = info_span!(target: TARGET, "update").entered();
    let _operation = trace_span!(target: TARGET, "adamw_step", values = u64::MAX).entered();
    // Neither an event nor a span of another crate belongs in.
    tracing::info!("said");
    let _foreign = info_span!(target: "rayon::pool", "foreign").entered();
}

#[test]
fn spans_are_written_with_their_threads_sizes_and_order() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("nowhere/profile.json");
    let error = Profile::start(&absent, ProfileOptions::default()).unwrap_err();
    assert!(
        matches!(&error, RunError::Io { operation: "create the profile", path, .. } if *path == absent),
        "{error}"
    );

    let path = folder.path().join("profile.json");
    fs_err::write(
        &path,
        "an older profile, longer than what is flushed first".repeat(1000),
    )
    .unwrap();
    let options = ProfileOptions {
        detailed_iterations: Some(2),
        ..ProfileOptions::default()
    };
    iteration(99);
    let profile = Profile::start(&path, options).unwrap();
    for number in 1..=3 {
        iteration(number);
    }
    let open = info_span!(target: TARGET, "never ended").entered();
    let report = profile.finish().unwrap();
    drop(open);
    iteration(4);
    let text = fs_err::read_to_string(&path).unwrap();
    assert_eq!(report.bytes, text.len() as u64);
    assert!(!report.limited);

    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let spans: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(report.spans, spans.len() as u64);
    let count = |name: &str| spans.iter().filter(|span| span["name"] == name).count();
    assert_eq!((count("iteration"), count("update")), (3, 3), "phases to the end");
    assert_eq!(
        (count("step"), count("matmul"), count("help"), count("adamw_step")),
        (4, 8, 8, 2),
        "details for two iterations"
    );
    assert_eq!((count("foreign"), count("never ended")), (0, 0));
    assert!(!text.contains("said"));
    let numbers: Vec<&Value> = spans
        .iter()
        .filter(|span| span["name"] == "iteration")
        .map(|span| &span["args"]["number"])
        .collect();
    assert_eq!(numbers, [1, 2, 3], "neither before the start nor after the end");
    let find = |name: &str| *spans.iter().find(|span| span["name"] == name).unwrap();
    assert_eq!(find("adamw_step")["args"]["values"], u64::MAX);
    assert_eq!(
        ["iteration", "step", "matmul"].map(|name| find(name)["cat"].as_str().unwrap()),
        ["phase", "step", "operation"]
    );

    let thread_of = |span: &Value| span["tid"].as_u64().unwrap();
    let name_of = |thread: u64| {
        let named = |event: &&Value| event["name"] == "thread_name" && event["tid"] == thread;
        events.iter().find(named).unwrap()["args"]["name"]
            .as_str()
            .unwrap()
    };
    for span in spans.iter().filter(|span| span["name"] == "step") {
        let helper = span["args"]["sequences"].as_u64().unwrap() - 10;
        assert_eq!(name_of(thread_of(span)), format!("helper \"{helper}\""));
        assert_eq!(span["args"]["rows"], 7);
    }
    // Whatever begins within a span of its thread ends within it.
    let interval = |span: &Value| {
        let start = span["ts"].as_f64().unwrap();
        (start, start + span["dur"].as_f64().unwrap())
    };
    for (index, first) in spans.iter().enumerate() {
        for second in spans
            .iter()
            .skip(index + 1)
            .filter(|second| second["tid"] == first["tid"])
        {
            let ((a, b), (c, d)) = (interval(first), interval(second));
            let tiny = 1e-3;
            assert!(
                b <= c + tiny
                    || d <= a + tiny
                    || (a <= c + tiny && d <= b + tiny)
                    || (c <= a + tiny && b <= d + tiny),
                "{first} and {second}"
            );
        }
    }

    let again = Profile::start(&folder.path().join("second.json"), options).unwrap_err();
    assert!(matches!(again, RunError::SecondProfile { .. }), "{again}");
}
