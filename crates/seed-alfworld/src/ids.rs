//! Small integer ids of the things of one game.
//!
//! Not for: use across games. An id means something only together with the [`Game`](crate::Game) it came from.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u16);

        impl $name {
            /// The id at an index below the number of such things in the game, which is at most 65,535.
            pub(crate) fn at(index: usize) -> Self {
                debug_assert!(index < usize::from(u16::MAX), "ids fit 16 bits");
                Self(index as u16)
            }

            /// The position in the game's list of such things.
            pub fn index(self) -> usize {
                usize::from(self.0)
            }
        }
    };
}

id!(
    /// An object such as `mug 1`. Ids run in the order in which observations list objects.
    ObjectId
);
id!(
    /// A receptacle such as `cabinet 3`. Ids run in the order in which observations list receptacles.
    ReceptacleId
);
id!(
    /// A class of objects or receptacles, such as `mug`.
    ClassId
);
id!(
    /// A place where one or more receptacles are reached from. The place where the agent starts is none of them.
    LocationId
);
id!(
    /// A command of a game's table. Ids run in the byte order of the commands' texts.
    CommandId
);
