//! One parsed game with everything that never changes while it is played.
//!
//! A [`Game`] is built once and shared (`Arc<Game>`) by all episodes that play it. Its command table holds every
//! command that can ever be admissible, sorted by text, so that admissible lists come out in byte order without
//! comparing strings. Not for: reading files (see [`read_game_file`](crate::read_game_file) and
//! [`Library`](crate::Library)) or playing (see the engine's methods).

use std::ops::Range;

use crate::commands::CommandTable;
use crate::problem::{Problem, property};
use crate::state::assign;
use crate::{ClassId, Family, Goal, LocationId, ObjectId, ProblemError, ReceptacleId, State};

/// Where each bit row lies in a state's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    receptacles: usize,
    locations: usize,
    /// Words of one row over all objects.
    object_words: usize,
    /// Words of one row over all receptacles.
    receptacle_words: usize,
}

impl Layout {
    fn object_row(self, row: usize) -> Range<usize> {
        row * self.object_words..(row + 1) * self.object_words
    }

    /// Objects in a receptacle.
    pub(crate) fn inside(self, receptacle: ReceptacleId) -> Range<usize> {
        self.object_row(receptacle.index())
    }

    /// Objects at a location.
    pub(crate) fn at(self, location: LocationId) -> Range<usize> {
        self.object_row(self.receptacles + location.index())
    }

    fn flag(self, flag: usize) -> Range<usize> {
        self.object_row(self.receptacles + self.locations + flag)
    }

    pub(crate) fn clean(self) -> Range<usize> {
        self.flag(0)
    }

    pub(crate) fn hot(self) -> Range<usize> {
        self.flag(1)
    }

    pub(crate) fn cool(self) -> Range<usize> {
        self.flag(2)
    }

    pub(crate) fn toggled(self) -> Range<usize> {
        self.flag(3)
    }

    pub(crate) fn sliced(self) -> Range<usize> {
        self.flag(4)
    }

    /// Receptacles that stand open.
    pub(crate) fn opened(self) -> Range<usize> {
        let start = self.flag(5).start;
        start..start + self.receptacle_words
    }

    pub(crate) fn words(self) -> usize {
        self.opened().end
    }
}

/// What a receptacle can do to an object held in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Treatment {
    /// Sink basins clean.
    Clean,
    /// Microwaves heat.
    Heat,
    /// Fridges cool.
    Cool,
}

#[derive(Debug)]
pub(crate) struct Receptacle {
    pub(crate) name: Box<str>,
    class: ClassId,
    pub(crate) openable: bool,
    location: LocationId,
    pub(crate) treatment: Option<Treatment>,
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) name: Box<str>,
    class: Option<ClassId>,
    pub(crate) properties: u8,
    /// Whether it is a knife that slices.
    pub(crate) slices: bool,
    /// What it holds inside, which never changes.
    pub(crate) nested: Box<[ObjectId]>,
}

/// The receptacles reached from one location.
#[derive(Debug, Default)]
pub(crate) struct Location {
    /// In id order.
    pub(crate) receptacles: Vec<ReceptacleId>,
}

/// What the goal test needs, as bit rows over objects and lists of receptacles.
#[derive(Debug)]
pub(crate) struct GoalTables {
    /// Objects that may fulfil the goal: of the class, and with the property that the goal names.
    pub(crate) objects: Box<[u64]>,
    /// Receptacles of the target class; empty for lamps.
    pub(crate) receptacles: Box<[ReceptacleId]>,
    /// Lamps of the target class that can be turned on; empty for receptacles.
    pub(crate) lamps: Box<[u64]>,
}

/// One game, ready to be played.
#[derive(Debug)]
pub struct Game {
    id: Box<str>,
    pub(crate) layout: Layout,
    classes: Box<[Box<str>]>,
    pub(crate) receptacles: Box<[Receptacle]>,
    pub(crate) objects: Box<[Object]>,
    pub(crate) locations: Box<[Location]>,
    can_contain: Box<[(ClassId, ClassId)]>,
    goal: Goal,
    pub(crate) goal_tables: GoalTables,
    goal_sentence: Box<str>,
    pub(crate) reset_text: Box<str>,
    walkthrough: Box<[Box<str>]>,
    pub(crate) initial: State,
    pub(crate) commands: CommandTable,
}

impl Game {
    /// Builds a game from the text of a PDDL problem.
    ///
    /// `goal_sentence` is the task as the player is told it, with its period, such as `put a mug in desk.`;
    /// `walkthrough` is a list of commands that win (may be empty); `id` is free.
    ///
    /// # Errors
    /// [`ProblemError`] when the text is no problem of ALFWorld's kind.
    pub fn from_problem(
        pddl_problem: &str,
        goal_sentence: &str,
        walkthrough: &[String],
        id: &str,
    ) -> Result<Self, ProblemError> {
        Self::new(&Problem::parse(pddl_problem)?, goal_sentence, walkthrough, id)
    }

    /// Builds the tables of a problem.
    pub(crate) fn new(
        problem: &Problem,
        goal_sentence: &str,
        walkthrough: &[String],
        id: &str,
    ) -> Result<Self, ProblemError> {
        check_indices(problem)?;
        let class_named = |name: &str| {
            problem
                .classes
                .iter()
                .position(|class| class == name)
                .map(ClassId::at)
        };
        let treatments = [
            (class_named("sinktype"), Treatment::Clean),
            (class_named("sinkbasintype"), Treatment::Clean),
            (class_named("microwavetype"), Treatment::Heat),
            (class_named("fridgetype"), Treatment::Cool),
        ];
        let knives = [class_named("knifetype"), class_named("butterknifetype")];

        let mut locations: Vec<Location> = Vec::new();
        locations.resize_with(usize::from(problem.locations), Location::default);
        let mut receptacles = Vec::with_capacity(problem.receptacles.len());
        for (index, facts) in problem.receptacles.iter().enumerate() {
            locations[usize::from(facts.location)]
                .receptacles
                .push(ReceptacleId::at(index));
            receptacles.push(Receptacle {
                name: facts.name.as_str().into(),
                class: facts.class,
                openable: facts.openable,
                location: LocationId::at(usize::from(facts.location)),
                treatment: treatments
                    .iter()
                    .find(|(class, _)| *class == Some(facts.class))
                    .map(|&(_, treatment)| treatment),
            });
        }
        let objects: Box<[Object]> = problem
            .objects
            .iter()
            .enumerate()
            .map(|(index, facts)| Object {
                name: facts.name.as_str().into(),
                class: facts.class,
                properties: facts.properties,
                slices: facts.class.is_some_and(|class| knives.contains(&Some(class))),
                nested: problem
                    .nested
                    .iter()
                    .filter(|&&(_, outer)| usize::from(outer) == index)
                    .map(|&(inner, _)| ObjectId::at(usize::from(inner)))
                    .collect(),
            })
            .collect();

        let layout = Layout {
            receptacles: receptacles.len(),
            locations: locations.len(),
            object_words: objects.len().div_ceil(64).max(1),
            receptacle_words: receptacles.len().div_ceil(64).max(1),
        };
        let mut initial = State::empty(layout);
        for &(object, receptacle) in &problem.inside {
            let row = layout.inside(ReceptacleId::at(usize::from(receptacle)));
            assign(initial.row_mut(row), usize::from(object), true);
        }
        for &(object, location) in &problem.at {
            let row = layout.at(LocationId::at(usize::from(location)));
            assign(initial.row_mut(row), usize::from(object), true);
        }
        for (index, object) in objects.iter().enumerate() {
            if object.properties & property::COOL != 0 {
                assign(initial.row_mut(layout.cool()), index, true);
            }
        }

        let mut game = Self {
            id: id.into(),
            layout,
            classes: problem
                .classes
                .iter()
                .map(|class| class.as_str().into())
                .collect(),
            goal_tables: goal_tables(problem.goal, layout, &receptacles, &objects),
            receptacles: receptacles.into_boxed_slice(),
            objects,
            locations: locations.into_boxed_slice(),
            can_contain: problem.can_contain.as_slice().into(),
            goal: problem.goal,
            goal_sentence: goal_sentence.into(),
            reset_text: Box::default(),
            walkthrough: walkthrough
                .iter()
                .map(|command| command.as_str().into())
                .collect(),
            initial,
            commands: CommandTable::default(),
        };
        game.commands = CommandTable::build(&game)?;
        game.reset_text = game.compose_reset_text().into_boxed_str();
        Ok(game)
    }

    /// The id given when the game was built.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The goal.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// The goal's task family.
    pub fn family(&self) -> Family {
        self.goal.family()
    }

    /// The task as the player is told it, with its period.
    pub fn goal_sentence(&self) -> &str {
        &self.goal_sentence
    }

    /// A list of commands that wins, as stored with the game.
    pub fn walkthrough(&self) -> impl ExactSizeIterator<Item = &str> {
        self.walkthrough.iter().map(AsRef::as_ref)
    }

    /// Sets the list of commands that wins, for a game whose solution is found only once it is built.
    pub(crate) fn set_walkthrough(&mut self, commands: &[String]) {
        self.walkthrough = commands.iter().map(|command| command.as_str().into()).collect();
    }

    /// All receptacles, in the order of observations.
    pub fn receptacles(&self) -> impl ExactSizeIterator<Item = ReceptacleId> + use<> {
        (0..self.receptacles.len()).map(ReceptacleId::at)
    }

    /// All objects, in the order of observations.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = ObjectId> + use<> {
        (0..self.objects.len()).map(ObjectId::at)
    }

    /// All locations that receptacles are reached from.
    pub fn locations(&self) -> impl ExactSizeIterator<Item = LocationId> + use<> {
        (0..self.locations.len()).map(LocationId::at)
    }

    /// The receptacles reached from a location, in the order of observations.
    pub fn receptacles_at(&self, location: LocationId) -> &[ReceptacleId] {
        &self.locations[location.index()].receptacles
    }

    /// Printed name of a receptacle, such as `cabinet 3`.
    pub fn receptacle_name(&self, receptacle: ReceptacleId) -> &str {
        &self.receptacles[receptacle.index()].name
    }

    /// Class of a receptacle.
    pub fn receptacle_class(&self, receptacle: ReceptacleId) -> ClassId {
        self.receptacles[receptacle.index()].class
    }

    /// Where a receptacle is reached from.
    pub fn receptacle_location(&self, receptacle: ReceptacleId) -> LocationId {
        self.receptacles[receptacle.index()].location
    }

    /// Whether a receptacle opens and closes.
    pub fn is_openable(&self, receptacle: ReceptacleId) -> bool {
        self.receptacles[receptacle.index()].openable
    }

    /// What a receptacle does to objects, if anything.
    pub fn treatment(&self, receptacle: ReceptacleId) -> Option<Treatment> {
        self.receptacles[receptacle.index()].treatment
    }

    /// Printed name of an object, such as `mug 1`.
    pub fn object_name(&self, object: ObjectId) -> &str {
        &self.objects[object.index()].name
    }

    /// Class of an object. A few real games hold an object without one; it can be in no goal and nothing can hold it.
    pub fn object_class(&self, object: ObjectId) -> Option<ClassId> {
        self.objects[object.index()].class
    }

    /// Whether an object can be taken.
    pub fn is_pickupable(&self, object: ObjectId) -> bool {
        self.has(object, property::PICKUPABLE)
    }

    /// Whether an object can be turned on.
    pub fn is_toggleable(&self, object: ObjectId) -> bool {
        self.has(object, property::TOGGLEABLE)
    }

    /// Whether an object can be sliced.
    pub fn is_sliceable(&self, object: ObjectId) -> bool {
        self.has(object, property::SLICEABLE)
    }

    /// Whether an object is a knife, with which others are sliced.
    pub fn slices(&self, object: ObjectId) -> bool {
        self.objects[object.index()].slices
    }

    /// Whether a treatment works on an object.
    pub fn is_treatable(&self, object: ObjectId, treatment: Treatment) -> bool {
        self.has(
            object,
            match treatment {
                Treatment::Clean => property::CLEANABLE,
                Treatment::Heat => property::HEATABLE,
                Treatment::Cool => property::COOLABLE,
            },
        )
    }

    /// Whether a receptacle takes an object.
    pub fn can_contain(&self, receptacle: ReceptacleId, object: ObjectId) -> bool {
        self.object_class(object).is_some_and(|object_class| {
            self.can_contain
                .binary_search(&(self.receptacle_class(receptacle), object_class))
                .is_ok()
        })
    }

    /// Name of a class as observations print it, such as `mug`.
    pub fn class_name(&self, class: ClassId) -> &str {
        let name = &self.classes[class.index()];
        name.strip_suffix("type").unwrap_or(name)
    }

    /// The receptacle of that printed name.
    pub fn find_receptacle(&self, name: &str) -> Option<ReceptacleId> {
        self.receptacles()
            .find(|&receptacle| self.receptacle_name(receptacle) == name)
    }

    /// The object of that printed name.
    pub fn find_object(&self, name: &str) -> Option<ObjectId> {
        self.objects().find(|&object| self.object_name(object) == name)
    }

    pub(crate) fn has(&self, object: ObjectId, bit: u8) -> bool {
        self.objects[object.index()].properties & bit != 0
    }
}

/// The bound checks that let the tables index without further care; a problem from a cache may hold anything.
fn check_indices(problem: &Problem) -> Result<(), ProblemError> {
    let (objects, receptacles, classes) = (
        problem.objects.len(),
        problem.receptacles.len(),
        problem.classes.len(),
    );
    let class = |class: ClassId| class.index() < classes;
    let below = |value: u16, limit: usize| usize::from(value) < limit;
    let good = objects <= crate::problem::MAX_OBJECTS
        && receptacles <= crate::problem::MAX_RECEPTACLES
        && usize::from(problem.locations) <= receptacles
        && problem
            .receptacles
            .iter()
            .all(|facts| class(facts.class) && facts.location < problem.locations)
        && problem.objects.iter().all(|facts| facts.class.is_none_or(class))
        && problem
            .inside
            .iter()
            .all(|&(object, receptacle)| below(object, objects) && below(receptacle, receptacles))
        && problem
            .nested
            .iter()
            .all(|&(inner, outer)| below(inner, objects) && below(outer, objects))
        && problem
            .at
            .iter()
            .all(|&(object, location)| below(object, objects) && location < problem.locations)
        && class(problem.goal.object_class())
        && class(problem.goal.target_class());
    if good {
        Ok(())
    } else {
        Err(ProblemError::Inconsistent {
            reason: "an index is out of range".to_owned(),
        })
    }
}

fn goal_tables(goal: Goal, layout: Layout, receptacles: &[Receptacle], objects: &[Object]) -> GoalTables {
    let row = |class: ClassId, bits: u8| {
        let mut row = vec![0u64; layout.object_words].into_boxed_slice();
        for (index, object) in objects.iter().enumerate() {
            if object.class == Some(class) && object.properties & bits == bits {
                assign(&mut row, index, true);
            }
        }
        row
    };
    let required = match goal {
        Goal::CleanPlace { .. } => property::CLEANABLE,
        Goal::HeatPlace { .. } => property::HEATABLE,
        Goal::CoolPlace { .. } => property::COOLABLE,
        Goal::Place { .. } | Goal::Light { .. } | Goal::PlaceTwo { .. } => 0,
    };
    let target = goal.target_class();
    let light = matches!(goal, Goal::Light { .. });
    GoalTables {
        objects: row(goal.object_class(), required),
        receptacles: receptacles
            .iter()
            .enumerate()
            .filter(|(_, receptacle)| !light && receptacle.class == target)
            .map(|(index, _)| ReceptacleId::at(index))
            .collect(),
        lamps: if light {
            row(target, property::TOGGLEABLE)
        } else {
            Box::default()
        },
    }
}
