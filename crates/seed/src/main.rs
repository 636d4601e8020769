//! `seed`: the command line.
fn main() {}
