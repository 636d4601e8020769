//! The table of all commands that can ever be admissible in a game.
//!
//! Commands are numbered in the byte order of their texts, so a sorted list of ids is a sorted list of texts. Not
//! for: whether a command is admissible now, which the engine tells.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::game::Treatment;
use crate::problem::property;
use crate::{CommandId, Game, ObjectId, ProblemError, ReceptacleId};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `look`
    Look,
    /// `inventory`
    Inventory,
    /// `help`
    Help,
    /// `go to R`
    GoTo(ReceptacleId),
    /// `examine R`
    ExamineReceptacle(ReceptacleId),
    /// `examine O`, possible only while holding it
    ExamineObject(ObjectId),
    /// `open R`
    Open(ReceptacleId),
    /// `close R`
    Close(ReceptacleId),
    /// `take O from R`
    Take {
        /// What is taken.
        object: ObjectId,
        /// Where it is taken from.
        receptacle: ReceptacleId,
    },
    /// `move O to R`
    Move {
        /// What is put down.
        object: ObjectId,
        /// Where it is put.
        receptacle: ReceptacleId,
    },
    /// `clean O with R`, `heat O with R`, `cool O with R`: which of them, the receptacle tells
    Treat {
        /// What is treated.
        object: ObjectId,
        /// A sink basin, a microwave or a fridge.
        receptacle: ReceptacleId,
    },
    /// `use O`
    Use(ObjectId),
    /// `slice C with K`
    Slice {
        /// What is sliced.
        object: ObjectId,
        /// The knife.
        knife: ObjectId,
    },
}

/// Command ids by two things, such as an object and a receptacle.
#[derive(Debug, Default)]
struct Pairs {
    columns: usize,
    cells: Box<[Option<CommandId>]>,
}

impl Pairs {
    fn new(rows: usize, columns: usize) -> Self {
        Self {
            columns,
            cells: vec![None; rows * columns].into_boxed_slice(),
        }
    }

    fn get(&self, row: usize, column: usize) -> Option<CommandId> {
        self.cells[row * self.columns + column]
    }

    fn set(&mut self, row: usize, column: usize, command: CommandId) {
        self.cells[row * self.columns + column] = Some(command);
    }
}

/// Command ids by one receptacle.
#[derive(Clone, Copy, Debug, Default)]
struct ReceptacleCommands {
    go_to: Option<CommandId>,
    examine: Option<CommandId>,
    open: Option<CommandId>,
    close: Option<CommandId>,
}

/// Command ids by one object.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectCommands {
    examine: Option<CommandId>,
    turn_on: Option<CommandId>,
}

/// All commands of a game, sorted by text.
#[derive(Debug, Default)]
pub(crate) struct CommandTable {
    /// All texts, one after the other.
    text: Box<str>,
    /// Where each text ends.
    ends: Box<[u32]>,
    actions: Box<[Action]>,
    /// Open addressing from a text's hash to its id; a power of two, at most half full.
    slots: Box<[Option<CommandId>]>,
    by_receptacle: Box<[ReceptacleCommands]>,
    by_object: Box<[ObjectCommands]>,
    take: Pairs,
    put: Pairs,
    treat: Pairs,
    /// Rows are objects to slice, columns all objects; empty when the game has no knife.
    slice: Pairs,
    /// `help`, `inventory` and `look`, neighbours in the table.
    always: Option<[CommandId; 3]>,
    /// `go to` commands admissible from each location, sorted; the last row is for the starting place.
    go_to: Box<[Box<[CommandId]>]>,
}

/// Most commands a game may have, so that ids fit 16 bits. ALFWorld's games have about 900, at most 2,800.
const MAX_COMMANDS: usize = 65_534;

/// Collects texts and actions in order.
#[derive(Default)]
struct Builder {
    text: String,
    ends: Vec<u32>,
    actions: Vec<Action>,
}

impl Builder {
    fn add(&mut self, pieces: &[&str], action: Action) {
        for piece in pieces {
            self.text.push_str(piece);
        }
        self.ends.push(self.text.len() as u32);
        self.actions.push(action);
    }
}

impl CommandTable {
    /// Builds the table.
    ///
    /// Texts are made in their byte order, without sorting them: verbs in alphabetical order and, within a verb, names
    /// in byte order. That is the order of the whole texts because a name is followed by nothing or a space, and a
    /// name that continues another (`mug 1`, `mug 10`) continues it with a digit, which sorts after both.
    pub(crate) fn build(game: &Game) -> Result<Self, ProblemError> {
        let mut objects: Vec<ObjectId> = game.objects().collect();
        objects.sort_unstable_by_key(|&object| game.object_name(object));
        let mut receptacles: Vec<ReceptacleId> = game.receptacles().collect();
        receptacles.sort_unstable_by_key(|&receptacle| game.receptacle_name(receptacle));

        let mut builder = Builder::default();
        builder.treatments(game, &objects, &receptacles, Treatment::Clean);
        builder.receptacles(game, &receptacles, "close ", Action::Close, |receptacle| {
            game.is_openable(receptacle)
        });
        builder.treatments(game, &objects, &receptacles, Treatment::Cool);
        builder.examinations(game, &objects, &receptacles);
        builder.receptacles(game, &receptacles, "go to ", Action::GoTo, |_| true);
        builder.treatments(game, &objects, &receptacles, Treatment::Heat);
        builder.add(&["help"], Action::Help);
        builder.add(&["inventory"], Action::Inventory);
        builder.add(&["look"], Action::Look);
        builder.transfers(
            game,
            &objects,
            &receptacles,
            ["move ", " to "],
            |object, receptacle| {
                game.can_contain(receptacle, object)
                    .then_some(Action::Move { object, receptacle })
            },
        );
        builder.receptacles(game, &receptacles, "open ", Action::Open, |receptacle| {
            game.is_openable(receptacle)
        });
        builder.slicings(game, &objects);
        builder.transfers(
            game,
            &objects,
            &receptacles,
            ["take ", " from "],
            |object, receptacle| {
                (game.can_contain(receptacle, object) || game.initial.is_in(game, object, receptacle))
                    .then_some(Action::Take { object, receptacle })
            },
        );
        for &object in objects.iter().filter(|&&object| game.is_toggleable(object)) {
            builder.add(&["use ", game.object_name(object)], Action::Use(object));
        }
        Self::index(game, builder)
    }

    /// Adds the ways to find commands.
    fn index(game: &Game, builder: Builder) -> Result<Self, ProblemError> {
        let count = builder.actions.len();
        if count > MAX_COMMANDS {
            return Err(ProblemError::TooMany {
                what: "commands",
                found: count,
                limit: MAX_COMMANDS,
            });
        }
        let (objects, receptacles) = (game.objects.len(), game.receptacles.len());
        let has_knife = game.objects.iter().any(|object| object.slices);
        let mut table = Self {
            text: builder.text.into_boxed_str(),
            ends: builder.ends.into_boxed_slice(),
            actions: builder.actions.into_boxed_slice(),
            slots: vec![None; (count * 2).next_power_of_two()].into_boxed_slice(),
            by_receptacle: vec![ReceptacleCommands::default(); receptacles].into_boxed_slice(),
            by_object: vec![ObjectCommands::default(); objects].into_boxed_slice(),
            take: Pairs::new(objects, receptacles),
            put: Pairs::new(objects, receptacles),
            treat: Pairs::new(objects, receptacles),
            slice: Pairs::new(if has_knife { objects } else { 0 }, objects),
            always: None,
            go_to: Box::default(),
        };
        debug_assert!(
            (1..count).all(|index| table.text(CommandId::at(index - 1)) < table.text(CommandId::at(index))),
            "commands are sorted and distinct"
        );
        let mut always = [None; 3];
        for index in 0..count {
            let id = CommandId::at(index);
            let mut slot = table.first_slot(table.text(id));
            while table.slots[slot].is_some() {
                slot = (slot + 1) & (table.slots.len() - 1);
            }
            table.slots[slot] = Some(id);
            match table.actions[index] {
                Action::Help => always[0] = Some(id),
                Action::Inventory => always[1] = Some(id),
                Action::Look => always[2] = Some(id),
                Action::GoTo(receptacle) => table.by_receptacle[receptacle.index()].go_to = Some(id),
                Action::ExamineReceptacle(receptacle) => {
                    table.by_receptacle[receptacle.index()].examine = Some(id);
                }
                Action::ExamineObject(object) => table.by_object[object.index()].examine = Some(id),
                Action::Open(receptacle) => table.by_receptacle[receptacle.index()].open = Some(id),
                Action::Close(receptacle) => table.by_receptacle[receptacle.index()].close = Some(id),
                Action::Take { object, receptacle } => table.take.set(object.index(), receptacle.index(), id),
                Action::Move { object, receptacle } => table.put.set(object.index(), receptacle.index(), id),
                Action::Treat { object, receptacle } => {
                    table.treat.set(object.index(), receptacle.index(), id);
                }
                Action::Use(object) => table.by_object[object.index()].turn_on = Some(id),
                Action::Slice { object, knife } => table.slice.set(object.index(), knife.index(), id),
            }
        }
        if let [Some(help), Some(inventory), Some(look)] = always {
            table.always = Some([help, inventory, look]);
        }
        let from = |here: Option<crate::LocationId>| {
            let mut commands: Vec<CommandId> = game
                .receptacles()
                .filter(|&receptacle| Some(game.receptacle_location(receptacle)) != here)
                .filter_map(|receptacle| table.by_receptacle[receptacle.index()].go_to)
                .collect();
            commands.sort_unstable();
            commands.into_boxed_slice()
        };
        table.go_to = game.locations().map(Some).chain([None]).map(from).collect();
        Ok(table)
    }

    pub(crate) fn len(&self) -> usize {
        self.actions.len()
    }

    pub(crate) fn text(&self, command: CommandId) -> &str {
        let index = command.index();
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start as usize..self.ends[index] as usize]
    }

    pub(crate) fn action(&self, command: CommandId) -> Action {
        self.actions[command.index()]
    }

    fn first_slot(&self, text: &str) -> usize {
        let mut hasher = FxHasher::default();
        hasher.write(text.as_bytes());
        hasher.finish() as usize & (self.slots.len() - 1)
    }

    pub(crate) fn find(&self, text: &str) -> Option<CommandId> {
        let mut slot = self.first_slot(text);
        // Ends because at least half of the slots are empty.
        while let Some(id) = self.slots[slot] {
            if self.text(id) == text {
                return Some(id);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        None
    }

    /// The command for an action, if it can ever be admissible.
    pub(crate) fn command(&self, action: Action) -> Option<CommandId> {
        match action {
            Action::Help => self.always.map(|always| always[0]),
            Action::Inventory => self.always.map(|always| always[1]),
            Action::Look => self.always.map(|always| always[2]),
            Action::GoTo(receptacle) => self.by_receptacle[receptacle.index()].go_to,
            Action::ExamineReceptacle(receptacle) => self.by_receptacle[receptacle.index()].examine,
            Action::ExamineObject(object) => self.by_object[object.index()].examine,
            Action::Open(receptacle) => self.by_receptacle[receptacle.index()].open,
            Action::Close(receptacle) => self.by_receptacle[receptacle.index()].close,
            Action::Take { object, receptacle } => self.take.get(object.index(), receptacle.index()),
            Action::Move { object, receptacle } => self.put.get(object.index(), receptacle.index()),
            Action::Treat { object, receptacle } => self.treat.get(object.index(), receptacle.index()),
            Action::Use(object) => self.by_object[object.index()].turn_on,
            Action::Slice { object, knife } => {
                if self.slice.cells.is_empty() {
                    None
                } else {
                    self.slice.get(object.index(), knife.index())
                }
            }
        }
    }

    /// `help`, `inventory` and `look`.
    pub(crate) fn always(&self) -> &[CommandId] {
        self.always.as_ref().map_or(&[], |always| always.as_slice())
    }

    /// The `go to` commands admissible at a location, sorted.
    pub(crate) fn go_to_from(&self, location: Option<crate::LocationId>) -> &[CommandId] {
        let row = location.map_or(self.go_to.len().saturating_sub(1), crate::LocationId::index);
        &self.go_to[row]
    }
}

impl Builder {
    fn receptacles(
        &mut self,
        game: &Game,
        receptacles: &[ReceptacleId],
        verb: &str,
        action: fn(ReceptacleId) -> Action,
        keep: impl Fn(ReceptacleId) -> bool,
    ) {
        for &receptacle in receptacles.iter().filter(|&&receptacle| keep(receptacle)) {
            self.add(&[verb, game.receptacle_name(receptacle)], action(receptacle));
        }
    }

    fn examinations(&mut self, game: &Game, objects: &[ObjectId], receptacles: &[ReceptacleId]) {
        let mut things: Vec<(&str, Action)> = receptacles
            .iter()
            .map(|&receptacle| {
                (
                    game.receptacle_name(receptacle),
                    Action::ExamineReceptacle(receptacle),
                )
            })
            .chain(
                objects
                    .iter()
                    .filter(|&&object| game.is_pickupable(object))
                    .map(|&object| (game.object_name(object), Action::ExamineObject(object))),
            )
            .collect();
        things.sort_unstable_by_key(|&(name, _)| name);
        for (name, action) in things {
            self.add(&["examine ", name], action);
        }
    }

    fn treatments(
        &mut self,
        game: &Game,
        objects: &[ObjectId],
        receptacles: &[ReceptacleId],
        treatment: Treatment,
    ) {
        let verb = match treatment {
            Treatment::Clean => "clean ",
            Treatment::Heat => "heat ",
            Treatment::Cool => "cool ",
        };
        self.transfers(
            game,
            objects,
            receptacles,
            [verb, " with "],
            |object, receptacle| {
                (game.treatment(receptacle) == Some(treatment) && game.is_treatable(object, treatment))
                    .then_some(Action::Treat { object, receptacle })
            },
        );
    }

    /// Commands about one pickupable object and one receptacle.
    fn transfers(
        &mut self,
        game: &Game,
        objects: &[ObjectId],
        receptacles: &[ReceptacleId],
        [verb, preposition]: [&str; 2],
        action: impl Fn(ObjectId, ReceptacleId) -> Option<Action>,
    ) {
        for &object in objects.iter().filter(|&&object| game.is_pickupable(object)) {
            for &receptacle in receptacles {
                if let Some(action) = action(object, receptacle) {
                    let names = (game.object_name(object), game.receptacle_name(receptacle));
                    self.add(&[verb, names.0, preposition, names.1], action);
                }
            }
        }
    }

    fn slicings(&mut self, game: &Game, objects: &[ObjectId]) {
        let knives = objects
            .iter()
            .copied()
            .filter(|&knife| game.slices(knife) && game.has(knife, property::PICKUPABLE));
        for &object in objects.iter().filter(|&&object| game.is_sliceable(object)) {
            for knife in knives.clone() {
                self.add(
                    &[
                        "slice ",
                        game.object_name(object),
                        " with ",
                        game.object_name(knife),
                    ],
                    Action::Slice { object, knife },
                );
            }
        }
    }
}
