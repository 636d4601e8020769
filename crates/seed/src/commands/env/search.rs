//! Search worlds under `seed env`: their turns, and one who knows the answers.

use seed_env::{Task, World};
use seed_run::ExitCode;
use seed_search::{KnowledgeWorld, SearchDialect};

use crate::arguments::ScriptedPlayer;
use crate::display::output_line;
use crate::failure::{Failure, Outcome};

/// The key with verl-agent's usual turns in a search world; nothing for other worlds.
pub(super) fn usual_steps(world: &str) -> Option<String> {
    let steps = SearchDialect::VerlAgent.usual_turns();
    matches!(world, "search-qa" | "knowledge").then(|| format!("world.max_steps={steps}"))
}

/// Lets one who knows the world search and answer.
pub(super) fn watch(world: &KnowledgeWorld, task: &Task, player: ScriptedPlayer) -> Outcome {
    let (ScriptedPlayer::Optimal, Some(plan)) = (player, world.plan(&task.id)) else {
        return Err(Failure::usage(
            "only the optimal player searches: it knows the answers",
        ));
    };
    let mut environment = world.environment();
    output_line(&environment.reset(&task.id, 0)?.text);
    for (index, action) in plan.actions().iter().enumerate() {
        output_line(&format!(
            "\n{} {}",
            console::style(">").bold(),
            console::style(action).cyan()
        ));
        let transition = environment.step(action)?;
        if transition.won {
            output_line(&format!("\nwon in {} steps", index + 1));
            return Ok(ExitCode::Success);
        }
        output_line(&transition.observation.text);
    }
    output_line("\nnot won");
    Ok(ExitCode::CheckFailed)
}
