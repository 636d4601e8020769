//! Data that several test files share.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use std::path::PathBuf;

/// The recorded games and episodes, or `None` (and a line that says so) on machines that do not have them.
pub(crate) fn shared_data() -> Option<PathBuf> {
    let root = std::env::var_os("SEED_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let path = root.join("data").join("alfworld");
    if path.is_dir() {
        Some(path)
    } else {
        println!("skipped: shared data not found at {}", path.display());
        None
    }
}

/// A hand-made kitchen: two counters at one place, eleven cabinets (for the order of `cabinet 10` and `cabinet 2`),
/// a lamp, a pot on two counters, a box with something inside.
pub(crate) fn kitchen(goal: &str) -> String {
    let cabinets = (0..11)
        .map(|number| {
            format!(
                "(receptacleType Cabinet_bar_{number:02} CabinetType) (openable Cabinet_bar_{number:02})\n\
                 (receptacleAtLocation Cabinet_bar_{number:02} loc_bar_c{number:02})\n"
            )
        })
        .collect::<Vec<String>>()
        .concat();
    format!(
        "(define (problem kitchen) ; a comment\n(:domain alfred)\n\
         (:objects agent1 - agent Mug - object MugType - otype loc_bar_start - location)\n\
         (:init\n{cabinets}\
         (receptacleType CounterTop_bar_a CounterTopType) (receptacleAtLocation CounterTop_bar_a loc_bar_k)\n\
         (receptacleType CounterTop_bar_b CounterTopType) (receptacleAtLocation CounterTop_bar_b loc_bar_k)\n\
         (receptacleType Fridge_bar_a FridgeType) (receptacleAtLocation Fridge_bar_a loc_bar_f)\n\
         (openable Fridge_bar_a)\n\
         (receptacleType Microwave_bar_a MicrowaveType) (receptacleAtLocation Microwave_bar_a loc_bar_m)\n\
         (openable Microwave_bar_a)\n\
         (receptacleType Sink_bar_a_bar_SinkBasin SinkBasinType)\n\
         (receptacleAtLocation Sink_bar_a_bar_SinkBasin loc_bar_s)\n\
         (objectType Mug_bar_a MugType) (pickupable Mug_bar_a) (cleanable Mug_bar_a) (heatable Mug_bar_a)\n\
         (coolable Mug_bar_a) (inReceptacle Mug_bar_a CounterTop_bar_a) (objectAtLocation Mug_bar_a loc_bar_k)\n\
         (objectType Mug_bar_b MugType) (pickupable Mug_bar_b) (cleanable Mug_bar_b) (heatable Mug_bar_b)\n\
         (coolable Mug_bar_b) (inReceptacle Mug_bar_b Cabinet_bar_00) (objectAtLocation Mug_bar_b loc_bar_c00)\n\
         (isCool Mug_bar_b)\n\
         (objectType Pot_bar_a PotType) (pickupable Pot_bar_a)\n\
         (inReceptacle Pot_bar_a CounterTop_bar_a) (inReceptacle Pot_bar_a CounterTop_bar_b)\n\
         (objectAtLocation Pot_bar_a loc_bar_k)\n\
         (objectType Apple_bar_a AppleType) (pickupable Apple_bar_a) (sliceable Apple_bar_a)\n\
         (cleanable Apple_bar_a) (heatable Apple_bar_a) (coolable Apple_bar_a)\n\
         (inReceptacle Apple_bar_a CounterTop_bar_b) (objectAtLocation Apple_bar_a loc_bar_k)\n\
         (objectType Knife_bar_a KnifeType) (pickupable Knife_bar_a) (cleanable Knife_bar_a)\n\
         (inReceptacle Knife_bar_a CounterTop_bar_b) (objectAtLocation Knife_bar_a loc_bar_k)\n\
         (objectType Box_bar_a BoxType) (pickupable Box_bar_a) (isReceptacleObject Box_bar_a)\n\
         (inReceptacle Box_bar_a CounterTop_bar_a) (objectAtLocation Box_bar_a loc_bar_k)\n\
         (objectType Pen_bar_a PenType) (pickupable Pen_bar_a) (inReceptacleObject Pen_bar_a Box_bar_a)\n\
         (inReceptacle Pen_bar_a CounterTop_bar_a) (objectAtLocation Pen_bar_a loc_bar_k)\n\
         (objectType DeskLamp_bar_a DeskLampType) (toggleable DeskLamp_bar_a)\n\
         (inReceptacle DeskLamp_bar_a CounterTop_bar_a) (inReceptacle DeskLamp_bar_a CounterTop_bar_b)\n\
         (objectAtLocation DeskLamp_bar_a loc_bar_k)\n\
         (canContain CabinetType MugType) (canContain CounterTopType MugType) (canContain FridgeType MugType)\n\
         (canContain MicrowaveType MugType) (canContain SinkBasinType MugType)\n\
         (canContain CounterTopType PotType) (canContain CounterTopType AppleType)\n\
         (canContain FridgeType AppleType) (canContain MicrowaveType AppleType)\n\
         (canContain SinkBasinType AppleType) (canContain CounterTopType KnifeType)\n\
         (canContain CounterTopType BoxType)\n\
         (atLocation agent1 loc_bar_start)\n)\n(:goal {goal}))\n"
    )
}

/// The goal of placing an object of one class into a receptacle of another, with further conditions on `?o`.
pub(crate) fn place(object: &str, receptacle: &str, extra: &str) -> String {
    format!(
        "(and (exists (?r - receptacle) (exists (?o - object) (and (objectType ?o {object}Type) \
         (receptacleType ?r {receptacle}Type) (inReceptacle ?o ?r) {extra}))))"
    )
}

/// The goal of placing two objects of one class into the same receptacle.
pub(crate) fn place_two(object: &str, receptacle: &str) -> String {
    format!(
        "(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 {object}Type) \
         (receptacleType ?r {receptacle}Type) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and \
         (not (= ?o1 ?o2)) (objectType ?o2 {object}Type) (receptacleType ?r {receptacle}Type) \
         (inReceptacle ?o2 ?r)))))))"
    )
}

/// The goal of holding an object of a class at a lit desk lamp.
pub(crate) fn light(object: &str) -> String {
    format!(
        "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType) \
         (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) \
         (exists (?o - object ?a - agent) (and (objectType ?o {object}Type) (holds ?a ?o))))"
    )
}
