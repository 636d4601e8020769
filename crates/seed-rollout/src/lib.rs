//! The turn loop: many episodes against one policy, recorded as trajectories.
