//! The expert that knows the game: a shortest list of commands from any state to the goal.
//!
//! A winning tour has few forms: put down what is in the way, fetch an object, treat it, bring it. All of them are
//! built and the shortest is taken; no search over single commands is needed. Not for: playing without knowledge.

use crate::{Action, Game, Goal, LocationId, ObjectId, ReceptacleId, State, Treatment};

use super::{Decision, Player, View};

/// A shortest list of actions from `state` that wins `game`: empty when it is already won, `None` when it cannot be
/// won. Among equally short ones the choice is fixed.
pub fn shortest_plan(game: &Game, state: &State) -> Option<Vec<Action>> {
    if game.is_won(state) {
        return Some(Vec::new());
    }
    let start = Tour {
        game,
        state,
        location: state.location(),
        opened: Vec::new(),
        dropped: None,
        actions: Vec::new(),
    };
    let mut best = None;
    match state.held() {
        None => start.search(None, &mut best),
        Some(held) => {
            if game.object_class(held) == Some(game.goal().object_class()) {
                start.search(Some(held), &mut best);
            }
            for receptacle in game
                .receptacles()
                .filter(|&receptacle| game.can_contain(receptacle, held))
            {
                let mut tour = start.clone();
                tour.put(held, receptacle);
                tour.dropped = Some((held, receptacle));
                tour.search(None, &mut best);
            }
        }
    }
    best
}

/// The plan of [`shortest_plan`] as commands.
pub fn walkthrough(game: &Game, state: &State) -> Option<Vec<String>> {
    let commands = shortest_plan(game, state)?
        .into_iter()
        .filter_map(|action| game.command_for(action))
        .map(|command| game.command_text(command).to_owned())
        .collect();
    Some(commands)
}

/// A partial list of actions and what it has changed.
#[derive(Clone)]
struct Tour<'a> {
    game: &'a Game,
    state: &'a State,
    location: Option<LocationId>,
    opened: Vec<ReceptacleId>,
    /// What was held at first and put aside.
    dropped: Option<(ObjectId, ReceptacleId)>,
    actions: Vec<Action>,
}

impl Tour<'_> {
    fn reach(&mut self, receptacle: ReceptacleId) {
        let location = self.game.receptacle_location(receptacle);
        if self.location != Some(location) {
            self.actions.push(Action::GoTo(receptacle));
            self.location = Some(location);
        }
    }

    fn access(&mut self, receptacle: ReceptacleId) {
        self.reach(receptacle);
        if !self.state.is_accessible(self.game, receptacle) && !self.opened.contains(&receptacle) {
            self.actions.push(Action::Open(receptacle));
            self.opened.push(receptacle);
        }
    }

    fn take(&mut self, object: ObjectId, receptacle: ReceptacleId) {
        self.access(receptacle);
        self.actions.push(Action::Take { object, receptacle });
    }

    fn put(&mut self, object: ObjectId, receptacle: ReceptacleId) {
        self.access(receptacle);
        self.actions.push(Action::Move { object, receptacle });
    }

    fn treat(&mut self, object: ObjectId, receptacle: ReceptacleId) {
        self.reach(receptacle);
        self.actions.push(Action::Treat { object, receptacle });
    }

    fn is_in(&self, object: ObjectId, receptacle: ReceptacleId) -> bool {
        self.state.is_in(self.game, object, receptacle) || self.dropped == Some((object, receptacle))
    }

    /// All objects that the goal may be about.
    fn candidates(&self) -> impl Iterator<Item = ObjectId> {
        let class = self.game.goal().object_class();
        self.game.objects().filter(move |&object| {
            self.game.object_class(object) == Some(class) && self.game.is_pickupable(object)
        })
    }

    fn targets(&self) -> impl Iterator<Item = ReceptacleId> {
        let class = self.game.goal().target_class();
        self.game
            .receptacles()
            .filter(move |&receptacle| self.game.receptacle_class(receptacle) == class)
    }

    fn finish(self, best: &mut Option<Vec<Action>>) {
        if best.as_ref().is_none_or(|best| self.actions.len() < best.len()) {
            *best = Some(self.actions);
        }
    }

    /// Tries every way on, with `held` in the hand.
    fn search(&self, held: Option<ObjectId>, best: &mut Option<Vec<Action>>) {
        match self.game.goal() {
            Goal::Place { .. } => self.search_place(held, None, best),
            Goal::CleanPlace { .. } => self.search_place(held, Some(Treatment::Clean), best),
            Goal::HeatPlace { .. } => self.search_place(held, Some(Treatment::Heat), best),
            Goal::CoolPlace { .. } => self.search_place(held, Some(Treatment::Cool), best),
            Goal::PlaceTwo { .. } => self.search_two(held, best),
            Goal::Light { .. } => self.search_light(held, best),
        }
    }

    /// All tours after which a candidate is held, each with that candidate.
    fn fetched(&self, held: Option<ObjectId>, wanted: impl Fn(ObjectId) -> bool) -> Vec<(Self, ObjectId)> {
        if let Some(held) = held {
            return if wanted(held) {
                vec![(self.clone(), held)]
            } else {
                Vec::new()
            };
        }
        let mut tours = Vec::new();
        for object in self.candidates().filter(|&object| wanted(object)) {
            for receptacle in self
                .game
                .receptacles()
                .filter(|&receptacle| self.is_in(object, receptacle))
            {
                let mut tour = self.clone();
                tour.take(object, receptacle);
                tours.push((tour, object));
            }
        }
        tours
    }

    fn search_place(
        &self,
        held: Option<ObjectId>,
        treatment: Option<Treatment>,
        best: &mut Option<Vec<Action>>,
    ) {
        let game = self.game;
        let treatable = |object| treatment.is_none_or(|treatment| game.is_treatable(object, treatment));
        for (tour, object) in self.fetched(held, treatable) {
            let treated = match treatment {
                None => true,
                Some(Treatment::Clean) => self.state.is_clean(game, object),
                Some(Treatment::Heat) => self.state.is_hot(game, object),
                Some(Treatment::Cool) => self.state.is_cool(game, object),
            };
            if treated {
                tour.bring(object, best);
                continue;
            }
            for appliance in game
                .receptacles()
                .filter(|&receptacle| game.treatment(receptacle) == treatment)
            {
                let mut tour = tour.clone();
                tour.treat(object, appliance);
                tour.bring(object, best);
            }
        }
    }

    fn bring(&self, object: ObjectId, best: &mut Option<Vec<Action>>) {
        for receptacle in self
            .targets()
            .filter(|&receptacle| self.game.can_contain(receptacle, object))
        {
            let mut tour = self.clone();
            tour.put(object, receptacle);
            tour.finish(best);
        }
    }

    fn search_two(&self, held: Option<ObjectId>, best: &mut Option<Vec<Action>>) {
        for receptacle in self.targets() {
            let missing = |object: ObjectId| {
                !self.is_in(object, receptacle) && self.game.can_contain(receptacle, object)
            };
            let present = self
                .candidates()
                .filter(|&object| self.is_in(object, receptacle))
                .count();
            for (mut tour, first) in self.fetched(held, missing) {
                tour.put(first, receptacle);
                if present > 0 {
                    tour.finish(best);
                    continue;
                }
                for (mut tour, second) in tour.fetched(None, |object| object != first && missing(object)) {
                    tour.put(second, receptacle);
                    tour.finish(best);
                }
            }
        }
    }

    fn search_light(&self, held: Option<ObjectId>, best: &mut Option<Vec<Action>>) {
        let game = self.game;
        let lamp_class = game.goal().target_class();
        for (tour, _) in self.fetched(held, |_| true) {
            let lamps = game
                .objects()
                .filter(|&lamp| game.object_class(lamp) == Some(lamp_class) && game.is_toggleable(lamp));
            for lamp in lamps {
                for receptacle in self.state.receptacles_of(game, lamp) {
                    let mut tour = tour.clone();
                    tour.reach(receptacle);
                    if !self.state.is_toggled(game, lamp) {
                        tour.actions.push(Action::Use(lamp));
                    }
                    tour.finish(best);
                }
            }
        }
    }
}

/// Plays the shortest plan, planning anew at every step.
#[derive(Clone, Debug, Default)]
pub struct OptimalExpert;

impl Player for OptimalExpert {
    fn decide(&mut self, view: &View<'_>) -> Decision {
        let action = shortest_plan(view.game, view.state).and_then(|plan| plan.first().copied());
        let command = action.and_then(|action| view.game.command_for(action));
        Decision {
            command: command.map_or_else(
                || "look".to_owned(),
                |command| view.game.command_text(command).to_owned(),
            ),
            intention: "follow the shortest plan".to_owned(),
        }
    }
}
