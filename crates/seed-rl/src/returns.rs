//! Discounted step returns: logged, and the raw material of step-level advantages.
//!
//! Not for: the episode score of group-relative advantages, which is undiscounted.

/// `R_t = r_t + gamma * R_{t+1}` for every step of one trajectory, in step order, computed from the last step back.
pub fn discounted_returns(rewards: &[f32], gamma: f64) -> Vec<f64> {
    let mut returns: Vec<f64> = rewards.iter().map(|&reward| f64::from(reward)).collect();
    let mut following = 0.0;
    for value in returns.iter_mut().rev() {
        *value += gamma * following;
        following = *value;
    }
    returns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_reward_is_discounted_once_per_remaining_step() {
        let returns = discounted_returns(&[0.0, 0.0, 10.0], 0.95);
        for (value, expected) in returns.iter().zip([9.025, 9.5, 10.0]) {
            assert!((value - expected).abs() < 1e-12, "{value} against {expected}");
        }
    }

    #[test]
    fn without_discount_the_first_return_is_the_episode_return() {
        assert_eq!(discounted_returns(&[1.0, -2.0, 4.0], 1.0), [3.0, 2.0, 4.0]);
        assert!(discounted_returns(&[], 0.9).is_empty());
    }
}
