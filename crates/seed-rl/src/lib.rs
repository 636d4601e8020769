//! Advantages, losses, gates and schedules as pure functions of slices.
