//! The six goal shapes of ALFWorld and their recognition in a problem's `:goal` section.
//!
//! Not for: goals in general. A goal that is none of the six is refused, because its texts and its meaning would be
//! guesses.

use serde::{Deserialize, Serialize};

use crate::lexer::{Lexer, Token, shorten};
use crate::{ClassId, ProblemError};

/// ALFWorld's six task families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Put an object into a receptacle.
    PickAndPlaceSimple,
    /// Hold an object at a lamp that was turned on.
    LookAtObjInLight,
    /// Put a cleaned object into a receptacle.
    PickCleanThenPlaceInRecep,
    /// Put a heated object into a receptacle.
    PickHeatThenPlaceInRecep,
    /// Put a cooled object into a receptacle.
    PickCoolThenPlaceInRecep,
    /// Put two objects of one class into the same receptacle.
    PickTwoObjAndPlace,
}

impl Family {
    /// All six, in ALFWorld's order of task type ids 1 to 6.
    pub const ALL: [Self; 6] = [
        Self::PickAndPlaceSimple,
        Self::LookAtObjInLight,
        Self::PickCleanThenPlaceInRecep,
        Self::PickHeatThenPlaceInRecep,
        Self::PickCoolThenPlaceInRecep,
        Self::PickTwoObjAndPlace,
    ];

    /// The `task_type` of ALFRED's `traj_data.json`, and the prefix of task folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::PickAndPlaceSimple => "pick_and_place_simple",
            Self::LookAtObjInLight => "look_at_obj_in_light",
            Self::PickCleanThenPlaceInRecep => "pick_clean_then_place_in_recep",
            Self::PickHeatThenPlaceInRecep => "pick_heat_then_place_in_recep",
            Self::PickCoolThenPlaceInRecep => "pick_cool_then_place_in_recep",
            Self::PickTwoObjAndPlace => "pick_two_obj_and_place",
        }
    }

    /// The family of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }
}

/// What must be reached. Classes may have no instance in the game, in which case the goal cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Goal {
    /// Some object of the class is in some receptacle of the class.
    Place {
        /// Class of the object.
        object: ClassId,
        /// Class of the receptacle.
        receptacle: ClassId,
    },
    /// An object of the class is held where a receptacle holds a lamp of the class that was turned on.
    Light {
        /// Class of the held object.
        object: ClassId,
        /// Class of the lamp.
        lamp: ClassId,
    },
    /// Like `Place` for an object that is clean.
    CleanPlace {
        /// Class of the object.
        object: ClassId,
        /// Class of the receptacle.
        receptacle: ClassId,
    },
    /// Like `Place` for an object that is hot.
    HeatPlace {
        /// Class of the object.
        object: ClassId,
        /// Class of the receptacle.
        receptacle: ClassId,
    },
    /// Like `Place` for an object that is cool. Objects that start cool qualify.
    CoolPlace {
        /// Class of the object.
        object: ClassId,
        /// Class of the receptacle.
        receptacle: ClassId,
    },
    /// Two different objects of the class are in the same receptacle of the class.
    PlaceTwo {
        /// Class of both objects.
        object: ClassId,
        /// Class of the receptacle.
        receptacle: ClassId,
    },
}

impl Goal {
    /// The task family of this goal.
    pub fn family(self) -> Family {
        match self {
            Self::Place { .. } => Family::PickAndPlaceSimple,
            Self::Light { .. } => Family::LookAtObjInLight,
            Self::CleanPlace { .. } => Family::PickCleanThenPlaceInRecep,
            Self::HeatPlace { .. } => Family::PickHeatThenPlaceInRecep,
            Self::CoolPlace { .. } => Family::PickCoolThenPlaceInRecep,
            Self::PlaceTwo { .. } => Family::PickTwoObjAndPlace,
        }
    }

    /// Class of the object to be placed, or held under the lamp.
    pub fn object_class(self) -> ClassId {
        match self {
            Self::Place { object, .. }
            | Self::Light { object, .. }
            | Self::CleanPlace { object, .. }
            | Self::HeatPlace { object, .. }
            | Self::CoolPlace { object, .. }
            | Self::PlaceTwo { object, .. } => object,
        }
    }

    /// Class of the receptacle to place into, or of the lamp.
    pub fn target_class(self) -> ClassId {
        match self {
            Self::Place { receptacle, .. }
            | Self::CleanPlace { receptacle, .. }
            | Self::HeatPlace { receptacle, .. }
            | Self::CoolPlace { receptacle, .. }
            | Self::PlaceTwo { receptacle, .. } => receptacle,
            Self::Light { lamp, .. } => lamp,
        }
    }
}

/// A goal whose classes are still names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedGoal<'a> {
    pub(crate) family: Family,
    pub(crate) object: &'a str,
    pub(crate) target: &'a str,
}

impl NamedGoal<'_> {
    /// The goal with interned classes.
    pub(crate) fn resolve(self, object: ClassId, target: ClassId) -> Goal {
        match self.family {
            Family::PickAndPlaceSimple => Goal::Place {
                object,
                receptacle: target,
            },
            Family::LookAtObjInLight => Goal::Light { object, lamp: target },
            Family::PickCleanThenPlaceInRecep => Goal::CleanPlace {
                object,
                receptacle: target,
            },
            Family::PickHeatThenPlaceInRecep => Goal::HeatPlace {
                object,
                receptacle: target,
            },
            Family::PickCoolThenPlaceInRecep => Goal::CoolPlace {
                object,
                receptacle: target,
            },
            Family::PickTwoObjAndPlace => Goal::PlaceTwo {
                object,
                receptacle: target,
            },
        }
    }
}

/// One literal: predicate and up to two arguments (the second empty for unary predicates).
type Literal<'a> = [&'a str; 3];

/// The predicate name given to `(not (= a b))`.
const DISTINCT: &str = "distinct";
/// Bound on nesting; real goals nest four deep.
const MAX_DEPTH: usize = 16;
/// Bound on literals; real goals have at most eight.
const MAX_LITERALS: usize = 64;

/// Parses the formula of a `:goal` section. Quantifiers and conjunctions are flattened: ALFWorld's goals are
/// conjunctions below existential quantifiers whose variables all differ, so nothing is lost.
pub(crate) fn parse_goal<'a>(lexer: &mut Lexer<'a>) -> Result<NamedGoal<'a>, ProblemError> {
    let mut literals = Vec::new();
    lexer.open("the goal's formula")?;
    parse_formula(lexer, 0, &mut literals)?;
    recognise(&literals).ok_or_else(|| {
        let text: Vec<String> = literals.iter().map(|literal| literal.join(" ")).collect();
        ProblemError::UnsupportedGoal {
            found: shorten(&text.join(", ")),
        }
    })
}

/// Parses a formula after its opening bracket, to its closing bracket.
fn parse_formula<'a>(
    lexer: &mut Lexer<'a>,
    depth: usize,
    literals: &mut Vec<Literal<'a>>,
) -> Result<(), ProblemError> {
    if depth > MAX_DEPTH || literals.len() > MAX_LITERALS {
        return Err(lexer.malformed("the goal is nested too deep or too long".to_owned()));
    }
    let head = lexer.name("a predicate or connective")?;
    match head {
        "and" => loop {
            match lexer.token("a condition or `)`")? {
                Token::Open => parse_formula(lexer, depth + 1, literals)?,
                Token::Close => return Ok(()),
                Token::Name(name) => {
                    return Err(lexer.malformed(format!("found `{}` inside `and`", shorten(name))));
                }
            }
        },
        "exists" => {
            lexer.open("the list of variables")?;
            while lexer.name_or_close("a variable, `-` or a type")?.is_some() {}
            lexer.open("the quantified condition")?;
            parse_formula(lexer, depth + 1, literals)?;
            lexer.close("the end of `exists`")
        }
        "not" => {
            lexer.open("an equality")?;
            let predicate = lexer.name("`=`")?;
            if predicate != "=" {
                return Err(lexer.malformed(format!("`not {}` is not supported", shorten(predicate))));
            }
            let (left, right) = (lexer.name("a variable")?, lexer.name("a variable")?);
            lexer.close("the end of the equality")?;
            literals.push([DISTINCT, left.min(right), left.max(right)]);
            lexer.close("the end of `not`")
        }
        predicate => {
            let first = lexer.name("an argument")?;
            let second = lexer.name_or_close("an argument or `)`")?;
            if second.is_some() {
                lexer.close("the end of the condition")?;
            }
            literals.push([predicate, first, second.unwrap_or("")]);
            Ok(())
        }
    }
}

/// Compares the literals, as a set, with each of the six shapes.
fn recognise<'a>(literals: &[Literal<'a>]) -> Option<NamedGoal<'a>> {
    let find = |predicate: &str, first: &str| {
        literals
            .iter()
            .find(|literal| literal[0] == predicate && literal[1] == first)
            .map(|literal| literal[2])
    };
    let all = |predicate: &str| {
        let mut found: Vec<Literal<'a>> = literals
            .iter()
            .filter(|literal| literal[0] == predicate)
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    let matches = |mut expected: Vec<Literal<'_>>| {
        let mut found = literals.to_vec();
        found.sort_unstable();
        found.dedup();
        expected.sort_unstable();
        found == expected
    };

    let inside = all("inreceptacle");
    match (all("holds").as_slice(), inside.as_slice()) {
        ([[_, agent, held]], [[_, lamp, receptacle]]) => {
            let lamp_class = find("objecttype", lamp)?;
            let object = find("objecttype", held)?;
            let location = find("receptacleatlocation", receptacle)?;
            let here = all("atlocation");
            let [[_, walker, _]] = here.as_slice() else {
                return None;
            };
            let expected = vec![
                ["objecttype", lamp, lamp_class],
                ["toggleable", lamp, ""],
                ["istoggled", lamp, ""],
                ["receptacleatlocation", receptacle, location],
                ["atlocation", walker, location],
                ["inreceptacle", lamp, receptacle],
                ["objecttype", held, object],
                ["holds", agent, held],
            ];
            (lamp != held && matches(expected)).then_some(NamedGoal {
                family: Family::LookAtObjInLight,
                object,
                target: lamp_class,
            })
        }
        ([], [[_, object_variable, receptacle]]) => {
            let object = find("objecttype", object_variable)?;
            let target = find("receptacletype", receptacle)?;
            let base = [
                ["objecttype", object_variable, object],
                ["receptacletype", receptacle, target],
                ["inreceptacle", object_variable, receptacle],
            ];
            let with = |extra: &[&'static str]| {
                let mut expected = base.to_vec();
                expected.extend(extra.iter().map(|predicate| [*predicate, object_variable, ""]));
                matches(expected)
            };
            let family = if with(&[]) {
                Family::PickAndPlaceSimple
            } else if with(&["cleanable", "isclean"]) {
                Family::PickCleanThenPlaceInRecep
            } else if with(&["heatable", "ishot"]) {
                Family::PickHeatThenPlaceInRecep
            } else if with(&["coolable", "iscool"]) {
                Family::PickCoolThenPlaceInRecep
            } else {
                return None;
            };
            Some(NamedGoal {
                family,
                object,
                target,
            })
        }
        ([], [[_, first, receptacle], [_, second, _]]) => {
            let object = find("objecttype", first)?;
            let target = find("receptacletype", receptacle)?;
            let expected = vec![
                ["objecttype", first, object],
                ["objecttype", second, object],
                ["receptacletype", receptacle, target],
                ["inreceptacle", first, receptacle],
                ["inreceptacle", second, receptacle],
                [DISTINCT, first, second],
            ];
            matches(expected).then_some(NamedGoal {
                family: Family::PickTwoObjAndPlace,
                object,
                target,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NamedGoal<'_>, ProblemError> {
        parse_goal(&mut Lexer::new(text))
    }

    #[test]
    fn all_six_shapes() {
        let simple = "(objecttype ?o mugtype) (receptacletype ?r desktype) (inreceptacle ?o ?r)";
        let cases = [
            (String::new(), Family::PickAndPlaceSimple),
            (
                "(cleanable ?o) (isclean ?o)".to_owned(),
                Family::PickCleanThenPlaceInRecep,
            ),
            (
                "(heatable ?o) (ishot ?o)".to_owned(),
                Family::PickHeatThenPlaceInRecep,
            ),
            (
                "(iscool ?o) (coolable ?o)".to_owned(),
                Family::PickCoolThenPlaceInRecep,
            ),
        ];
        for (extra, family) in cases {
            let text =
                format!("(and (exists (?r - receptacle) (exists (?o - object) (and {simple} {extra}))))");
            let goal = parse(&text).unwrap();
            assert_eq!(
                (goal.family, goal.object, goal.target),
                (family, "mugtype", "desktype")
            );
        }
        let two = "(and (exists (?r - receptacle) (exists (?a - object) (and (objecttype ?a cdtype) \
                   (receptacletype ?r safetype) (inreceptacle ?a ?r) (exists (?b - object) (and \
                   (not (= ?a ?b)) (objecttype ?b cdtype) (receptacletype ?r safetype) (inreceptacle ?b ?r)))))))";
        assert_eq!(parse(two).unwrap().family, Family::PickTwoObjAndPlace);
        let light = "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and \
                     (objecttype ?ot desklamptype) (toggleable ?ot) (istoggled ?ot) (receptacleatlocation ?r ?l) \
                     (atlocation ?a ?l) (inreceptacle ?ot ?r))) (exists (?o - object ?a - agent) (and \
                     (objecttype ?o cdtype) (holds ?a ?o))))";
        let goal = parse(light).unwrap();
        assert_eq!(
            (goal.family, goal.object, goal.target),
            (Family::LookAtObjInLight, "cdtype", "desklamptype")
        );
    }

    #[test]
    fn other_goals_are_refused() {
        for text in [
            "(and (inreceptacle ?o ?r))",
            "(and (objecttype ?o mugtype) (receptacletype ?r desktype) (inreceptacle ?o ?r) (ishot ?o))",
            "(and (objecttype ?o mugtype) (receptacletype ?r desktype) (inreceptacle ?o ?r) (issliced ?o))",
            "(and (objecttype ?a cdtype) (objecttype ?b cdtype) (receptacletype ?r safetype) \
              (inreceptacle ?a ?r) (inreceptacle ?b ?r))",
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                matches!(error, ProblemError::UnsupportedGoal { .. }),
                "{text}: {error}"
            );
        }
        let deep = "(and ".repeat(100);
        assert!(matches!(parse(&deep), Err(ProblemError::Malformed { .. })));
    }

    #[test]
    fn family_names_round_trip() {
        for family in Family::ALL {
            assert_eq!(Family::from_name(family.name()), Some(family));
        }
        assert_eq!(Family::from_name("pick_and_place_with_movable_recep"), None);
    }
}
