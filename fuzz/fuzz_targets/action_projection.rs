//! The projection from a response to an action.
#![no_main]

use libfuzzer_sys::fuzz_target;
use seed_env::project_tagged_action;

fuzz_target!(|input: (u8, &str)| {
    let (fallback, response) = input;
    let projection = project_tagged_action(response, usize::from(fallback));
    match projection.action_span {
        // The span lies on character boundaries of the response itself and holds the action.
        Some(span) => assert_eq!(response[span].to_lowercase(), projection.action),
        None if projection.valid => assert!(projection.action.is_empty()),
        None => assert!(projection.action.chars().count() <= usize::from(fallback)),
    }
});
