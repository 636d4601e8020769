//! Playing a game: which commands are admissible, what they do, whether the goal is reached.
//!
//! The rules are those that ALFWorld's PDDL domain has after translation; the texts (see the `text` module) those of
//! its grammar. Both were fixed once, by hash, so nothing is interpreted at run time. Not for: step limits, rewards
//! and prompts, which belong to the environment around the game.

use crate::commands::Action;
use crate::problem::property;
use crate::state::{assign, ones, test};
use crate::{CommandId, Game, Goal, ObjectId, ReceptacleId, State, Treatment};

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// Whether the command was admissible. If not, nothing changed and the text says `Nothing happens.`
    pub admissible: bool,
    /// Whether the goal is reached now. A won game is over.
    pub won: bool,
}

impl Game {
    /// The state at the start.
    pub fn initial_state(&self) -> State {
        self.initial.clone()
    }

    /// The first observation: the room, and the task.
    pub fn reset_text(&self) -> &str {
        &self.reset_text
    }

    /// Performs a command given as text and writes the observation, replacing what `observation` held. White space
    /// around the command is ignored; apart from that it must be an admissible command, letter by letter.
    pub fn step(&self, state: &mut State, command: &str, observation: &mut String) -> StepOutcome {
        match self.find_command(command) {
            Some(command) => self.perform(state, command, observation),
            None => self.refuse(state, observation),
        }
    }

    /// Performs a command of the table; otherwise like [`Game::step`].
    pub fn perform(&self, state: &mut State, command: CommandId, observation: &mut String) -> StepOutcome {
        let action = self.action(command);
        if !self.permits(state, action) {
            return self.refuse(state, observation);
        }
        self.apply(state, action);
        observation.clear();
        self.describe(state, action, observation);
        StepOutcome {
            admissible: true,
            won: self.is_won(state),
        }
    }

    fn refuse(&self, state: &State, observation: &mut String) -> StepOutcome {
        observation.clear();
        observation.push_str("Nothing happens.");
        StepOutcome {
            admissible: false,
            won: self.is_won(state),
        }
    }

    /// The number of commands that can ever be admissible in this game.
    pub fn command_count(&self) -> usize {
        self.commands.len()
    }

    /// A command's text.
    pub fn command_text(&self, command: CommandId) -> &str {
        self.commands.text(command)
    }

    /// What a command does.
    pub fn action(&self, command: CommandId) -> Action {
        self.commands.action(command)
    }

    /// The command of that text, white space around it ignored, if it can ever be admissible.
    pub fn find_command(&self, text: &str) -> Option<CommandId> {
        self.commands.find(strip(text))
    }

    /// The command for an action, if it can ever be admissible.
    pub fn command_for(&self, action: Action) -> Option<CommandId> {
        self.commands.command(action)
    }

    /// Writes all admissible commands, in the byte order of their texts, replacing what `commands` held.
    pub fn admissible_commands(&self, state: &State, commands: &mut Vec<CommandId>) {
        commands.clear();
        let table = &self.commands;
        let here: &[ReceptacleId] = match state.location() {
            Some(location) => self.receptacles_at(location),
            None => &[],
        };
        // One block a verb, verbs in alphabetical order. Within a block ids are sorted, which sorts texts.
        let held = state.held();
        if let Some(object) = held {
            self.push_treatments(commands, here, object, Treatment::Clean);
        }
        push_sorted(commands, here, |receptacle| {
            state
                .is_open(self, receptacle)
                .then(|| table.command(Action::Close(receptacle)))
                .flatten()
        });
        if let Some(object) = held {
            self.push_treatments(commands, here, object, Treatment::Cool);
        }
        let start = commands.len();
        commands.extend(
            here.iter()
                .filter_map(|&receptacle| table.command(Action::ExamineReceptacle(receptacle)))
                .chain(held.and_then(|object| table.command(Action::ExamineObject(object)))),
        );
        commands[start..].sort_unstable();
        commands.extend_from_slice(table.go_to_from(state.location()));
        if let Some(object) = held {
            self.push_treatments(commands, here, object, Treatment::Heat);
        }
        commands.extend_from_slice(table.always());
        if let Some(object) = held {
            push_sorted(commands, here, |receptacle| {
                state
                    .is_accessible(self, receptacle)
                    .then(|| table.command(Action::Move { object, receptacle }))
                    .flatten()
            });
        }
        push_sorted(commands, here, |receptacle| {
            if state.is_open(self, receptacle) {
                None
            } else {
                table.command(Action::Open(receptacle))
            }
        });
        match (held, state.location()) {
            (Some(knife), Some(location)) if self.slices(knife) => {
                let start = commands.len();
                commands.extend(
                    ones(state.row(self.layout.at(location)))
                        .map(ObjectId::at)
                        .filter_map(|object| table.command(Action::Slice { object, knife })),
                );
                commands[start..].sort_unstable();
            }
            (None, _) => {
                let start = commands.len();
                for &receptacle in here
                    .iter()
                    .filter(|&&receptacle| state.is_accessible(self, receptacle))
                {
                    commands.extend(
                        state
                            .contents(self, receptacle)
                            .filter_map(|object| table.command(Action::Take { object, receptacle })),
                    );
                }
                commands[start..].sort_unstable();
            }
            (Some(_), _) => {}
        }
        let start = commands.len();
        for &receptacle in here {
            commands.extend(
                state
                    .contents(self, receptacle)
                    .filter_map(|object| table.command(Action::Use(object))),
            );
        }
        commands[start..].sort_unstable();
        // A lamp in two receptacles here was listed twice; nothing else can be.
        commands.dedup();
    }

    fn push_treatments(
        &self,
        commands: &mut Vec<CommandId>,
        here: &[ReceptacleId],
        object: ObjectId,
        treatment: Treatment,
    ) {
        push_sorted(commands, here, |receptacle| {
            (self.treatment(receptacle) == Some(treatment))
                .then(|| self.commands.command(Action::Treat { object, receptacle }))
                .flatten()
        });
    }

    /// Whether a command is admissible now.
    pub fn is_admissible(&self, state: &State, command: CommandId) -> bool {
        self.permits(state, self.action(command))
    }

    /// Whether an action's conditions hold. Static conditions, such as that the object can be taken at all, were
    /// checked when the table was built.
    fn permits(&self, state: &State, action: Action) -> bool {
        let here = |receptacle: ReceptacleId| state.location() == Some(self.receptacle_location(receptacle));
        match action {
            Action::Look | Action::Inventory | Action::Help => true,
            Action::GoTo(receptacle) => !here(receptacle),
            Action::ExamineReceptacle(receptacle) => here(receptacle),
            Action::ExamineObject(object) => state.held() == Some(object),
            Action::Open(receptacle) => here(receptacle) && !state.is_open(self, receptacle),
            Action::Close(receptacle) => here(receptacle) && state.is_open(self, receptacle),
            Action::Take { object, receptacle } => {
                here(receptacle)
                    && state.held().is_none()
                    && state.is_accessible(self, receptacle)
                    && state.is_in(self, object, receptacle)
            }
            Action::Move { object, receptacle } => {
                here(receptacle) && state.held() == Some(object) && state.is_accessible(self, receptacle)
            }
            Action::Treat { object, receptacle } => here(receptacle) && state.held() == Some(object),
            Action::Use(object) => state.location().is_some_and(|location| {
                self.receptacles_at(location)
                    .iter()
                    .any(|&receptacle| state.is_in(self, object, receptacle))
            }),
            Action::Slice { object, knife } => {
                state.held() == Some(knife)
                    && state
                        .location()
                        .is_some_and(|location| test(state.row(self.layout.at(location)), object.index()))
            }
        }
    }

    /// Changes the state as an admissible action does.
    fn apply(&self, state: &mut State, action: Action) {
        let layout = self.layout;
        match action {
            Action::Look
            | Action::Inventory
            | Action::Help
            | Action::ExamineReceptacle(_)
            | Action::ExamineObject(_) => {}
            Action::GoTo(receptacle) => state.location = Some(self.receptacle_location(receptacle)),
            Action::Open(receptacle) => assign(state.row_mut(layout.opened()), receptacle.index(), true),
            Action::Close(receptacle) => assign(state.row_mut(layout.opened()), receptacle.index(), false),
            Action::Take { object, receptacle } => {
                assign(state.row_mut(layout.inside(receptacle)), object.index(), false);
                let location = self.receptacle_location(receptacle);
                assign(state.row_mut(layout.at(location)), object.index(), false);
                if let Err(index) = state.taken_from.binary_search(&(object, receptacle)) {
                    state.taken_from.insert(index, (object, receptacle));
                }
                state.held = Some(object);
            }
            Action::Move { object, receptacle } => {
                assign(state.row_mut(layout.inside(receptacle)), object.index(), true);
                let location = self.receptacle_location(receptacle);
                assign(state.row_mut(layout.at(location)), object.index(), true);
                if let Ok(index) = state.taken_from.binary_search(&(object, receptacle)) {
                    state.taken_from.remove(index);
                }
                state.held = None;
            }
            Action::Treat { object, receptacle } => match self.treatment(receptacle) {
                Some(Treatment::Clean) => assign(state.row_mut(layout.clean()), object.index(), true),
                Some(Treatment::Heat) => {
                    assign(state.row_mut(layout.hot()), object.index(), true);
                    assign(state.row_mut(layout.cool()), object.index(), false);
                }
                Some(Treatment::Cool) => {
                    assign(state.row_mut(layout.cool()), object.index(), true);
                    assign(state.row_mut(layout.hot()), object.index(), false);
                }
                None => {}
            },
            Action::Use(object) => assign(state.row_mut(layout.toggled()), object.index(), true),
            Action::Slice { object, .. } => assign(state.row_mut(layout.sliced()), object.index(), true),
        }
    }

    /// Whether the goal is reached.
    pub fn is_won(&self, state: &State) -> bool {
        let tables = &self.goal_tables;
        let layout = self.layout;
        let placed = |receptacle: ReceptacleId, filter: Option<&[u64]>| {
            let row = state.row(layout.inside(receptacle));
            row.iter()
                .zip(&tables.objects)
                .enumerate()
                .map(|(word, (inside, wanted))| {
                    (inside & wanted & filter.map_or(u64::MAX, |filter| filter[word])).count_ones()
                })
                .sum::<u32>()
        };
        let any_placed = |filter: Option<&[u64]>, count: u32| {
            tables
                .receptacles
                .iter()
                .any(|&receptacle| placed(receptacle, filter) >= count)
        };
        match self.goal() {
            Goal::Place { .. } => any_placed(None, 1),
            Goal::PlaceTwo { .. } => any_placed(None, 2),
            Goal::CleanPlace { .. } => any_placed(Some(state.row(layout.clean())), 1),
            Goal::HeatPlace { .. } => any_placed(Some(state.row(layout.hot())), 1),
            Goal::CoolPlace { .. } => any_placed(Some(state.row(layout.cool())), 1),
            Goal::Light { .. } => {
                let Some((held, location)) = state.held().zip(state.location()) else {
                    return false;
                };
                test(&tables.objects, held.index())
                    && self.receptacles_at(location).iter().any(|&receptacle| {
                        let inside = state.row(layout.inside(receptacle));
                        let toggled = state.row(layout.toggled());
                        inside
                            .iter()
                            .zip(toggled)
                            .zip(&tables.lamps)
                            .any(|((inside, toggled), lamp)| inside & toggled & lamp != 0)
                    })
            }
        }
    }

    pub(crate) fn is_holder(&self, object: ObjectId) -> bool {
        self.has(object, property::HOLDER)
    }
}

/// Appends, sorted, the commands that receptacles give.
fn push_sorted(
    commands: &mut Vec<CommandId>,
    here: &[ReceptacleId],
    command: impl Fn(ReceptacleId) -> Option<CommandId>,
) {
    let start = commands.len();
    commands.extend(here.iter().filter_map(|&receptacle| command(receptacle)));
    commands[start..].sort_unstable();
}

/// Strips what Python's `str.strip` strips: Unicode white space and the four ASCII separators.
fn strip(text: &str) -> &str {
    text.trim_matches(|character: char| {
        character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
    })
}
