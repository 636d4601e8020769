//! The facts of one game: what the PDDL problem says, reduced to what the rules need.
//!
//! A [`Problem`] is plain data that is stored in the cache; [`Game`](crate::Game) adds the derived tables. Not for:
//! PDDL in general. Predicates that ALFWorld's problems never hold initially are refused, not guessed at.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::goal::parse_goal;
use crate::lexer::{Lexer, Token, shorten};
use crate::{ClassId, Goal, ProblemError};

/// Objects a game may have; ALFWorld's games have at most 74.
pub(crate) const MAX_OBJECTS: usize = 2_048;
/// Receptacles a game may have; ALFWorld's games have at most 54.
pub(crate) const MAX_RECEPTACLES: usize = 512;
/// Distinct names a problem's facts may use; ALFWorld's problems use about 250.
const MAX_NAMES: usize = 16_384;
/// Facts a problem may hold; ALFWorld's problems hold about 800.
const MAX_FACTS: usize = 262_144;

/// Properties of an object that never change, except `COOL`, which is how the object starts.
pub(crate) mod property {
    pub(crate) const PICKUPABLE: u8 = 1;
    pub(crate) const HOLDER: u8 = 1 << 1;
    pub(crate) const CLEANABLE: u8 = 1 << 2;
    pub(crate) const HEATABLE: u8 = 1 << 3;
    pub(crate) const COOLABLE: u8 = 1 << 4;
    pub(crate) const TOGGLEABLE: u8 = 1 << 5;
    pub(crate) const SLICEABLE: u8 = 1 << 6;
    pub(crate) const COOL: u8 = 1 << 7;
}

/// One receptacle of a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReceptacleFacts {
    /// Printed name, such as `cabinet 3`.
    pub(crate) name: String,
    /// Index into [`Problem::classes`].
    pub(crate) class: ClassId,
    /// Whether it opens and closes.
    pub(crate) openable: bool,
    /// Index below [`Problem::locations`].
    pub(crate) location: u16,
}

/// One object of a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectFacts {
    /// Printed name, such as `mug 1`.
    pub(crate) name: String,
    /// Index into [`Problem::classes`]; a few real games hold an object without a class.
    pub(crate) class: Option<ClassId>,
    /// Bits of [`property`].
    pub(crate) properties: u8,
}

/// All facts of one game. Lists of pairs are sorted and distinct; receptacles and objects are in the byte order of
/// their lower-case PDDL ids, the order in which observations list them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// PDDL names of classes, such as `mugtype`, sorted.
    pub(crate) classes: Vec<String>,
    pub(crate) receptacles: Vec<ReceptacleFacts>,
    pub(crate) objects: Vec<ObjectFacts>,
    /// Number of distinct receptacle locations.
    pub(crate) locations: u16,
    /// (receptacle class, object class) pairs.
    pub(crate) can_contain: Vec<(ClassId, ClassId)>,
    /// (object, receptacle) pairs: an object may be in several receptacles.
    pub(crate) inside: Vec<(u16, u16)>,
    /// (inner object, outer object) pairs.
    pub(crate) nested: Vec<(u16, u16)>,
    /// (object, location) pairs; locations without a receptacle are left out, since nothing happens there.
    pub(crate) at: Vec<(u16, u16)>,
    pub(crate) goal: Goal,
}

/// What a name stands for, told by the first fact that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Agent,
    Class,
    Receptacle,
    Object,
    Location,
}

impl Role {
    fn noun(self) -> &'static str {
        match self {
            Self::Agent => "an agent",
            Self::Class => "a class",
            Self::Receptacle => "a receptacle",
            Self::Object => "an object",
            Self::Location => "a location",
        }
    }
}

/// The predicates that ALFWorld's problems hold, with the roles of their arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Predicate {
    ReceptacleType,
    ObjectType,
    CanContain,
    Openable,
    AtLocation,
    InReceptacle,
    InReceptacleObject,
    ReceptacleAtLocation,
    ObjectAtLocation,
    /// A property of objects: the bit it sets.
    Property(u8),
}

impl Predicate {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "receptacletype" => Self::ReceptacleType,
            "objecttype" => Self::ObjectType,
            "cancontain" => Self::CanContain,
            "openable" => Self::Openable,
            "atlocation" => Self::AtLocation,
            "inreceptacle" => Self::InReceptacle,
            "inreceptacleobject" => Self::InReceptacleObject,
            "receptacleatlocation" => Self::ReceptacleAtLocation,
            "objectatlocation" => Self::ObjectAtLocation,
            "pickupable" => Self::Property(property::PICKUPABLE),
            "isreceptacleobject" => Self::Property(property::HOLDER),
            "cleanable" => Self::Property(property::CLEANABLE),
            "heatable" => Self::Property(property::HEATABLE),
            "coolable" => Self::Property(property::COOLABLE),
            "toggleable" => Self::Property(property::TOGGLEABLE),
            "sliceable" => Self::Property(property::SLICEABLE),
            "iscool" => Self::Property(property::COOL),
            _ => return None,
        })
    }

    fn roles(self) -> (Role, Option<Role>) {
        match self {
            Self::ReceptacleType => (Role::Receptacle, Some(Role::Class)),
            Self::ObjectType => (Role::Object, Some(Role::Class)),
            Self::CanContain => (Role::Class, Some(Role::Class)),
            Self::Openable => (Role::Receptacle, None),
            Self::AtLocation => (Role::Agent, Some(Role::Location)),
            Self::InReceptacle => (Role::Object, Some(Role::Receptacle)),
            Self::InReceptacleObject => (Role::Object, Some(Role::Object)),
            Self::ReceptacleAtLocation => (Role::Receptacle, Some(Role::Location)),
            Self::ObjectAtLocation => (Role::Object, Some(Role::Location)),
            Self::Property(_) => (Role::Object, None),
        }
    }
}

/// A distinct name of the facts.
struct Entry<'a> {
    text: &'a str,
    role: Role,
}

/// A fact with its arguments as indices into the entries.
struct Fact {
    predicate: Predicate,
    first: usize,
    second: usize,
}

/// Names and facts of the `:init` section as read.
#[derive(Default)]
struct Facts<'a> {
    entries: Vec<Entry<'a>>,
    by_text: FxHashMap<&'a str, usize>,
    list: Vec<Fact>,
}

impl<'a> Facts<'a> {
    fn intern(&mut self, lexer: &Lexer<'a>, text: &'a str, role: Role) -> Result<usize, ProblemError> {
        let index = *self.by_text.entry(text).or_insert_with(|| {
            self.entries.push(Entry { text, role });
            self.entries.len() - 1
        });
        let known = self.entries[index].role;
        if known != role {
            return Err(lexer.malformed(format!(
                "`{}` is {} here and {} before",
                shorten(text),
                role.noun(),
                known.noun()
            )));
        }
        if self.entries.len() > MAX_NAMES {
            return Err(ProblemError::TooMany {
                what: "names",
                found: self.entries.len(),
                limit: MAX_NAMES,
            });
        }
        Ok(index)
    }

    /// Reads facts up to the bracket that closes the `:init` section.
    fn read(&mut self, lexer: &mut Lexer<'a>) -> Result<(), ProblemError> {
        loop {
            match lexer.token("a fact or `)`")? {
                Token::Close => return Ok(()),
                Token::Open => {}
                Token::Name(name) => {
                    return Err(lexer.malformed(format!("found `{}` between facts", shorten(name))));
                }
            }
            let name = lexer.name("a predicate")?;
            let Some(predicate) = Predicate::from_name(name) else {
                return Err(lexer.malformed(format!(
                    "`{}` is not a predicate that holds at the start of ALFWorld's games",
                    shorten(name)
                )));
            };
            let (first_role, second_role) = predicate.roles();
            let first = lexer.name("an argument")?;
            let first = self.intern(lexer, first, first_role)?;
            let second = match second_role {
                Some(role) => {
                    let second = lexer.name("a second argument")?;
                    self.intern(lexer, second, role)?
                }
                None => first,
            };
            lexer.close("the end of the fact")?;
            self.list.push(Fact {
                predicate,
                first,
                second,
            });
            if self.list.len() > MAX_FACTS {
                return Err(ProblemError::TooMany {
                    what: "facts",
                    found: self.list.len(),
                    limit: MAX_FACTS,
                });
            }
        }
    }
}

impl Problem {
    /// Parses a `pddl_problem`. Names are compared in lower case, as the original engine does.
    pub(crate) fn parse(text: &str) -> Result<Self, ProblemError> {
        let text = text.to_ascii_lowercase();
        let mut lexer = Lexer::new(&text);
        lexer.open("`(define`")?;
        expect_name(&mut lexer, "define")?;
        lexer.open("`(problem`")?;
        expect_name(&mut lexer, "problem")?;
        lexer.name("the problem's name")?;
        lexer.close("the end of the problem's name")?;

        let mut facts = Facts::default();
        let mut goal = None;
        let mut seen = Vec::new();
        loop {
            match lexer.token("a section or `)`")? {
                Token::Close => break,
                Token::Open => {}
                Token::Name(name) => {
                    return Err(lexer.malformed(format!("found `{}` between sections", shorten(name))));
                }
            }
            let section = lexer.name("a section's name")?;
            if seen.contains(&section) {
                return Err(lexer.malformed(format!("section `{}` appears twice", shorten(section))));
            }
            match section {
                ":domain" => {
                    expect_name(&mut lexer, "alfred")?;
                    lexer.close("the end of `:domain`")?;
                }
                ":objects" => read_objects(&mut lexer)?,
                ":init" => facts.read(&mut lexer)?,
                ":goal" => {
                    goal = Some(parse_goal(&mut lexer)?);
                    lexer.close("the end of `:goal`")?;
                }
                other => {
                    return Err(lexer.malformed(format!("section `{}` is not supported", shorten(other))));
                }
            }
            seen.push(section);
        }
        if lexer.next()?.is_some() {
            return Err(lexer.malformed("there is text after the problem".to_owned()));
        }
        for section in [":domain", ":init"] {
            if !seen.contains(&section) {
                return Err(lexer.malformed(format!("section `{section}` is missing")));
            }
        }
        let goal = goal.ok_or_else(|| lexer.malformed("section `:goal` is missing".to_owned()))?;
        assemble(&facts, goal)
    }
}

fn expect_name(lexer: &mut Lexer<'_>, expected: &str) -> Result<(), ProblemError> {
    let found = lexer.name(expected)?;
    if found == expected {
        Ok(())
    } else {
        Err(lexer.malformed(format!("found `{}`, not `{expected}`", shorten(found))))
    }
}

/// Checks the typed list of `:objects`. What the names are is told by the facts that use them; about a hundred
/// names of a real list occur in no fact and mean nothing.
fn read_objects(lexer: &mut Lexer<'_>) -> Result<(), ProblemError> {
    const TYPES: [&str; 6] = ["agent", "location", "receptacle", "object", "rtype", "otype"];
    while let Some(name) = lexer.name_or_close("a name, `-` or `)`")? {
        if name == "-" {
            let kind = lexer.name("a type")?;
            if !TYPES.contains(&kind) {
                return Err(lexer.malformed(format!("`{}` is not a type of the domain", shorten(kind))));
            }
        }
    }
    Ok(())
}

fn inconsistent(reason: String) -> ProblemError {
    ProblemError::Inconsistent { reason }
}

/// The printed class of a PDDL id: the part before the first `_bar_`, with `basin` added when the id holds that word.
fn printed_class(id: &str) -> Option<(&str, bool)> {
    let (class, rest) = id.split_once("_bar_")?;
    Some((class, class.contains("basin") || rest.contains("basin")))
}

/// Sorts and numbers the names, and turns facts into lists of small indices.
fn assemble(facts: &Facts<'_>, goal: crate::goal::NamedGoal<'_>) -> Result<Problem, ProblemError> {
    let entries = &facts.entries;
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_unstable_by_key(|&entry| entries[entry].text);

    // Numbers fall along the order of ids within each printed class: of n, the first gets n and the last gets 1.
    let mut remaining: FxHashMap<(&str, bool), usize> = FxHashMap::default();
    for entry in entries {
        if let Some(class) = printed_class(entry.text) {
            *remaining.entry(class).or_insert(0) += 1;
        }
    }

    // Only classes that something has or the goal names: `canContain` speaks of many others.
    let mut classes: Vec<&str> = facts
        .list
        .iter()
        .filter(|fact| matches!(fact.predicate, Predicate::ReceptacleType | Predicate::ObjectType))
        .map(|fact| entries[fact.second].text)
        .chain([goal.object, goal.target])
        .collect();
    classes.sort_unstable();
    classes.dedup();
    let class_of = |name: &str| classes.binary_search(&name).map(ClassId::at).ok();

    // Position of each entry among the sorted entries of its role.
    let mut position = vec![0usize; entries.len()];
    let mut receptacle_names = Vec::new();
    let mut object_names = Vec::new();
    for &entry in &order {
        let Entry { text, role } = entries[entry];
        let number = printed_class(text).and_then(|class| {
            let left = remaining.get_mut(&class)?;
            *left -= 1;
            Some((class, *left + 1))
        });
        let names = match role {
            Role::Receptacle => &mut receptacle_names,
            Role::Object => &mut object_names,
            Role::Agent | Role::Class | Role::Location => continue,
        };
        let Some(((class, basin), number)) = number else {
            return Err(inconsistent(format!(
                "the id `{}` holds no `_bar_`, so it has no printed name",
                shorten(text)
            )));
        };
        position[entry] = names.len();
        names.push(format!("{class}{} {number}", if basin { "basin" } else { "" }));
    }
    for (what, found, limit) in [
        ("objects", object_names.len(), MAX_OBJECTS),
        ("receptacles", receptacle_names.len(), MAX_RECEPTACLES),
    ] {
        if found > limit {
            return Err(ProblemError::TooMany { what, found, limit });
        }
    }

    let mut builder = Builder {
        entries,
        position,
        classes_of_receptacles: vec![None; receptacle_names.len()],
        locations_of_receptacles: vec![None; receptacle_names.len()],
        openable: vec![false; receptacle_names.len()],
        classes_of_objects: vec![None; object_names.len()],
        properties: vec![0; object_names.len()],
        start: None,
        can_contain: Vec::new(),
        inside: Vec::new(),
        nested: Vec::new(),
        at: Vec::new(),
    };
    for fact in &facts.list {
        builder.add(fact, &class_of)?;
    }
    let start = builder
        .start
        .ok_or_else(|| inconsistent("no `atLocation` fact says where the agent starts".to_owned()))?;

    // Dense locations, in the order of their ids.
    let mut location_ids: FxHashMap<usize, u16> = FxHashMap::default();
    let mut locations = 0;
    for &entry in &order {
        if builder.locations_of_receptacles.contains(&Some(entry)) {
            location_ids.insert(entry, locations);
            locations += 1;
        }
    }
    if location_ids.contains_key(&start) {
        return Err(inconsistent(
            "the agent starts where a receptacle is; ALFWorld's games never do".to_owned(),
        ));
    }

    let mut receptacles = Vec::with_capacity(receptacle_names.len());
    for (index, name) in receptacle_names.into_iter().enumerate() {
        let class = builder.classes_of_receptacles[index]
            .ok_or_else(|| inconsistent(format!("receptacle `{name}` has no `receptacleType`")))?;
        let location = builder.locations_of_receptacles[index]
            .and_then(|entry| location_ids.get(&entry).copied())
            .ok_or_else(|| inconsistent(format!("receptacle `{name}` has no `receptacleAtLocation`")))?;
        receptacles.push(ReceptacleFacts {
            name,
            class,
            openable: builder.openable[index],
            location,
        });
    }
    let objects = object_names
        .into_iter()
        .enumerate()
        .map(|(index, name)| ObjectFacts {
            name,
            class: builder.classes_of_objects[index],
            properties: builder.properties[index],
        })
        .collect();
    let at = builder
        .at
        .iter()
        .filter_map(|&(object, entry)| Some((object, *location_ids.get(&entry)?)))
        .collect();
    let (Some(goal_object), Some(goal_target)) = (class_of(goal.object), class_of(goal.target)) else {
        return Err(inconsistent("the goal names no classes".to_owned()));
    };
    Ok(Problem {
        receptacles,
        objects,
        locations,
        can_contain: sorted(builder.can_contain),
        inside: sorted(builder.inside),
        nested: sorted(builder.nested),
        at: sorted(at),
        goal: goal.resolve(goal_object, goal_target),
        classes: classes.into_iter().map(str::to_owned).collect(),
    })
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

/// Facts grouped by the thing they are about. Objects and receptacles are already small indices; locations are still
/// entries.
struct Builder<'a> {
    entries: &'a [Entry<'a>],
    position: Vec<usize>,
    classes_of_receptacles: Vec<Option<ClassId>>,
    locations_of_receptacles: Vec<Option<usize>>,
    openable: Vec<bool>,
    classes_of_objects: Vec<Option<ClassId>>,
    properties: Vec<u8>,
    start: Option<usize>,
    can_contain: Vec<(ClassId, ClassId)>,
    inside: Vec<(u16, u16)>,
    nested: Vec<(u16, u16)>,
    at: Vec<(u16, usize)>,
}

impl Builder<'_> {
    fn add(&mut self, fact: &Fact, class_of: &dyn Fn(&str) -> Option<ClassId>) -> Result<(), ProblemError> {
        let &Fact {
            predicate,
            first,
            second,
        } = fact;
        let (first_position, second_position) = (self.position[first], self.position[second]);
        let (first_text, second_text) = (self.entries[first].text, self.entries[second].text);
        // Both are below MAX_OBJECTS, checked before.
        let pair = (first_position as u16, second_position as u16);
        match predicate {
            Predicate::ReceptacleType => set_once(
                &mut self.classes_of_receptacles[first_position],
                class_of(second_text),
                "classes",
                first_text,
            )?,
            Predicate::ObjectType => set_once(
                &mut self.classes_of_objects[first_position],
                class_of(second_text),
                "classes",
                first_text,
            )?,
            Predicate::ReceptacleAtLocation => set_once(
                &mut self.locations_of_receptacles[first_position],
                Some(second),
                "locations",
                first_text,
            )?,
            Predicate::AtLocation => set_once(&mut self.start, Some(second), "locations", first_text)?,
            Predicate::Openable => self.openable[first_position] = true,
            Predicate::Property(bit) => self.properties[first_position] |= bit,
            Predicate::CanContain => self
                .can_contain
                .extend(class_of(first_text).zip(class_of(second_text))),
            Predicate::InReceptacle => self.inside.push(pair),
            Predicate::InReceptacleObject => self.nested.push(pair),
            Predicate::ObjectAtLocation => self.at.push((pair.0, second)),
        }
        Ok(())
    }
}

/// Sets a value that facts may repeat but not change.
fn set_once<T: PartialEq>(
    slot: &mut Option<T>,
    value: Option<T>,
    what: &str,
    id: &str,
) -> Result<(), ProblemError> {
    if slot.is_some() && *slot != value {
        return Err(inconsistent(format!("`{}` has two {what}", shorten(id))));
    }
    *slot = value;
    Ok(())
}
