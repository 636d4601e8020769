//! Signals, in processes of their own.
#![cfg(unix)]

use std::process::Command;

use seed_run::{ExitCode, StopFlag};

const CHILD: &str = "SEED_SIGNAL_CHILD";

/// Runs this test binary's test `name` as a child that acts.
fn child(name: &str) -> std::io::Result<std::process::ExitStatus> {
    Command::new(std::env::current_exe()?)
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .status()
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn the_first_signal_of_each_kind_sets_the_flag() {
    if !is_child() {
        assert!(
            child("the_first_signal_of_each_kind_sets_the_flag")
                .unwrap()
                .success()
        );
        return;
    }
    for signal in [
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGUSR1,
        signal_hook::consts::SIGINT,
    ] {
        let stop = StopFlag::on_signals().unwrap();
        assert!(!stop.is_set());
        signal_hook::low_level::raise(signal).unwrap();
        assert!(stop.is_set(), "signal {signal}");
    }
}

#[test]
fn a_second_interrupt_ends_the_process() {
    if !is_child() {
        let status = child("a_second_interrupt_ends_the_process").unwrap();
        assert_eq!(status.code(), Some(i32::from(ExitCode::Interrupted as u8)));
        return;
    }
    let stop = StopFlag::on_signals().unwrap();
    signal_hook::low_level::raise(signal_hook::consts::SIGINT).unwrap();
    assert!(stop.is_set());
    signal_hook::low_level::raise(signal_hook::consts::SIGINT).unwrap();
    println!("still running after the second interrupt");
}

#[test]
fn repeated_terminations_are_one_request() {
    if !is_child() {
        assert!(child("repeated_terminations_are_one_request").unwrap().success());
        return;
    }
    let stop = StopFlag::on_signals().unwrap();
    for _ in 0..3 {
        signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
    }
    assert!(stop.is_set());
}
