//! What a household is made of: object and receptacle classes, their properties, what fits where, and how likely an
//! object is to lie there at the start.
//!
//! Class names, properties and the containment relation are those of ALFWorld's games (ALFRED's object types); the
//! placement weights are our own coarse rounding of how its scenes look. Not for: drawing anything.

use serde::{Deserialize, Serialize};

/// Declares a fieldless enum whose variants are class names, in ALFWorld's spelling.
macro_rules! classes {
    ($(#[$meta:meta])* $name:ident: $($variant:ident)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "a variant is the class it is named after")]
        pub enum $name { $($variant),* }

        impl $name {
            /// Every class, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The class name as ids spell it, such as `CounterTop`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),* }
            }

            /// The class of a printed name's first word (lower case), `None` when there is no such class.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|class| class.name().eq_ignore_ascii_case(word))
            }

            /// The class name as observations print it: lower case.
            pub fn word(self) -> String {
                self.name().to_ascii_lowercase()
            }
        }
    };
}

classes! {
    /// Receptacle classes.
    ReceptacleClass:
    ArmChair BathtubBasin Bed Cabinet Cart CoffeeMachine CoffeeTable CounterTop Desk DiningTable Drawer Dresser
    Fridge GarbageCan HandTowelHolder LaundryHamper Microwave Ottoman PaintingHanger Safe Shelf SideTable SinkBasin
    Sofa StoveBurner TVStand Toaster Toilet ToiletPaperHanger TowelHolder
}

classes! {
    /// Object classes.
    ObjectClass:
    AlarmClock Apple BaseballBat BasketBall Bathtub Blinds Book Boots Bowl Box Bread ButterKnife CD Candle CellPhone
    Chair Cloth CreditCard Cup Curtains DeskLamp DishSponge Egg Faucet FloorLamp Footstool Fork Glassbottle HandTowel
    HousePlant Kettle KeyChain Knife Ladle Laptop LaundryHamperLid Lettuce LightSwitch Mirror Mug Newspaper Painting
    Pan PaperTowel PaperTowelRoll Pen Pencil PepperShaker Pillow Plate Plunger Poster Pot Potato RemoteControl
    SaltShaker ScrubBrush ShowerDoor ShowerGlass Sink SoapBar SoapBottle Spatula Spoon SprayBottle Statue StoveKnob
    TeddyBear Television TennisRacket TissueBox ToiletPaper ToiletPaperRoll Tomato Towel Vase Watch WateringCan
    Window WineBottle
}

use ObjectClass as O;
use ReceptacleClass as R;

impl ReceptacleClass {
    /// Whether it starts closed and must be opened.
    pub fn openable(self) -> bool {
        matches!(self, R::Cabinet | R::Drawer | R::Fridge | R::Microwave | R::Safe)
    }

    /// Whether games name it as the place to put something.
    pub fn is_target(self) -> bool {
        !matches!(
            self,
            R::SinkBasin
                | R::BathtubBasin
                | R::Toaster
                | R::TowelHolder
                | R::HandTowelHolder
                | R::LaundryHamper
                | R::TVStand
                | R::PaintingHanger
        )
    }

    /// Height of its surface in centimetres, for coordinates in ids.
    pub(super) fn height(self) -> i32 {
        match self {
            R::Bed | R::ArmChair | R::Sofa | R::Ottoman | R::BathtubBasin | R::CoffeeTable => 45,
            R::Fridge | R::GarbageCan | R::LaundryHamper => 0,
            R::Cabinet | R::Microwave | R::TowelHolder | R::HandTowelHolder | R::PaintingHanger => 150,
            R::Shelf | R::ToiletPaperHanger => 110,
            R::Drawer | R::Safe | R::TVStand => 60,
            _ => 90,
        }
    }

    /// The object classes that may be put into it (ALFWorld's `canContain`).
    #[rustfmt::skip]
    pub fn contains(self) -> &'static [ObjectClass] {
        match self {
            R::ArmChair => {
                &[O::Book, O::Box, O::CellPhone, O::Cloth, O::CreditCard, O::KeyChain, O::Laptop, O::Newspaper, O::Pillow, O::RemoteControl]
            }
            R::BathtubBasin => &[O::Cloth, O::DishSponge, O::HandTowel, O::SoapBar],
            R::Bed => &[O::BaseballBat, O::BasketBall, O::Book, O::CellPhone, O::Laptop, O::Pillow, O::TennisRacket],
            R::Cabinet => &[
                O::Book, O::Bowl, O::Box, O::CD, O::Candle, O::Cloth, O::Cup, O::DishSponge, O::Glassbottle, O::HandTowel,
                O::Kettle, O::Ladle, O::Mug, O::Newspaper, O::Pan, O::PepperShaker, O::Plate, O::Plunger, O::Pot,
                O::SaltShaker, O::SoapBar, O::SoapBottle, O::SprayBottle, O::TissueBox, O::ToiletPaper, O::Vase,
                O::WateringCan, O::WineBottle,
            ],
            R::Cart => &[
                O::Candle, O::Cloth, O::DishSponge, O::HandTowel, O::Plunger, O::SoapBar, O::SoapBottle, O::SprayBottle,
                O::TissueBox, O::ToiletPaper,
            ],
            R::CoffeeMachine => &[O::Mug],
            R::CoffeeTable => &[
                O::Book, O::Bowl, O::Box, O::Candle, O::CellPhone, O::CreditCard, O::KeyChain, O::Laptop, O::Newspaper,
                O::Pen, O::Pencil, O::Plate, O::RemoteControl, O::Statue, O::TissueBox, O::Vase, O::Watch, O::WateringCan,
            ],
            R::CounterTop => &[
                O::AlarmClock, O::Apple, O::Book, O::Bowl, O::Bread, O::ButterKnife, O::CD, O::Candle, O::CellPhone,
                O::Cloth, O::CreditCard, O::Cup, O::DishSponge, O::Egg, O::Fork, O::Glassbottle, O::HandTowel, O::Kettle,
                O::KeyChain, O::Knife, O::Ladle, O::Laptop, O::Lettuce, O::Mug, O::Pan, O::Pen, O::Pencil,
                O::PepperShaker, O::Plate, O::Pot, O::Potato, O::RemoteControl, O::SaltShaker, O::SoapBar, O::SoapBottle,
                O::Spatula, O::Spoon, O::SprayBottle, O::Statue, O::TissueBox, O::ToiletPaper, O::Tomato, O::Vase,
                O::WineBottle,
            ],
            R::Desk => &[
                O::AlarmClock, O::BasketBall, O::Book, O::Bowl, O::Box, O::CD, O::CellPhone, O::Cloth, O::CreditCard,
                O::KeyChain, O::Laptop, O::Mug, O::Pen, O::Pencil, O::RemoteControl, O::Statue, O::TennisRacket,
                O::TissueBox, O::Vase, O::Watch, O::WateringCan,
            ],
            R::DiningTable => &[
                O::AlarmClock, O::Apple, O::BaseballBat, O::BasketBall, O::Book, O::Bowl, O::Box, O::Bread,
                O::ButterKnife, O::CD, O::Candle, O::CellPhone, O::Cloth, O::CreditCard, O::Cup, O::DishSponge, O::Egg,
                O::Fork, O::Glassbottle, O::Kettle, O::KeyChain, O::Knife, O::Ladle, O::Laptop, O::Lettuce, O::Mug,
                O::Newspaper, O::Pan, O::Pen, O::Pencil, O::PepperShaker, O::Plate, O::Pot, O::Potato, O::RemoteControl,
                O::SaltShaker, O::SoapBottle, O::Spatula, O::Spoon, O::SprayBottle, O::Statue, O::TennisRacket,
                O::TissueBox, O::Tomato, O::Vase, O::Watch, O::WateringCan, O::WineBottle,
            ],
            R::Drawer => &[
                O::Book, O::ButterKnife, O::CD, O::Candle, O::CellPhone, O::Cloth, O::CreditCard, O::DishSponge, O::Fork,
                O::HandTowel, O::KeyChain, O::Knife, O::Ladle, O::Newspaper, O::Pen, O::Pencil, O::PepperShaker,
                O::RemoteControl, O::SaltShaker, O::SoapBar, O::SoapBottle, O::Spatula, O::Spoon, O::SprayBottle,
                O::TissueBox, O::ToiletPaper, O::Watch, O::WateringCan,
            ],
            R::Dresser => &[
                O::AlarmClock, O::BasketBall, O::Book, O::Bowl, O::Box, O::CD, O::Candle, O::CellPhone, O::Cloth,
                O::CreditCard, O::KeyChain, O::Laptop, O::Mug, O::Newspaper, O::Pen, O::Pencil, O::Plate,
                O::RemoteControl, O::SprayBottle, O::Statue, O::TennisRacket, O::TissueBox, O::ToiletPaper, O::Vase,
                O::Watch, O::WateringCan,
            ],
            R::Fridge => &[
                O::Apple, O::Bowl, O::Bread, O::Cup, O::Egg, O::Glassbottle, O::Lettuce, O::Mug, O::Pan, O::Plate, O::Pot,
                O::Potato, O::Tomato, O::WineBottle,
            ],
            R::GarbageCan => &[
                O::Apple, O::Bread, O::CD, O::Cloth, O::DishSponge, O::Egg, O::HandTowel, O::Lettuce, O::Newspaper, O::Pen,
                O::Pencil, O::Potato, O::SoapBar, O::SoapBottle, O::SprayBottle, O::TissueBox, O::ToiletPaper, O::Tomato,
                O::WineBottle,
            ],
            R::HandTowelHolder => &[O::HandTowel],
            R::LaundryHamper => &[O::Cloth],
            R::Microwave => {
                &[O::Apple, O::Bowl, O::Bread, O::Cup, O::Egg, O::Glassbottle, O::Mug, O::Plate, O::Potato, O::Tomato]
            }
            R::Ottoman | R::Sofa => &[
                O::Book, O::Box, O::CellPhone, O::CreditCard, O::KeyChain, O::Laptop, O::Newspaper, O::Pillow,
                O::RemoteControl,
            ],
            R::PaintingHanger | R::Toaster => &[],
            R::Safe => &[O::CD, O::CellPhone, O::CreditCard, O::KeyChain, O::Statue, O::Vase, O::Watch],
            R::Shelf => &[
                O::AlarmClock, O::Book, O::Bowl, O::Box, O::CD, O::Candle, O::CellPhone, O::Cloth, O::CreditCard, O::Cup,
                O::DishSponge, O::Glassbottle, O::HandTowel, O::Kettle, O::KeyChain, O::Mug, O::Newspaper, O::Pen,
                O::Pencil, O::PepperShaker, O::Plate, O::Pot, O::RemoteControl, O::SaltShaker, O::SoapBar, O::SoapBottle,
                O::SprayBottle, O::Statue, O::TissueBox, O::ToiletPaper, O::Vase, O::Watch, O::WateringCan, O::WineBottle,
            ],
            R::SideTable => &[
                O::AlarmClock, O::Apple, O::BaseballBat, O::BasketBall, O::Book, O::Bowl, O::Box, O::Bread,
                O::ButterKnife, O::CD, O::Candle, O::CellPhone, O::Cloth, O::CreditCard, O::Cup, O::DishSponge, O::Egg,
                O::Fork, O::HandTowel, O::Kettle, O::KeyChain, O::Knife, O::Laptop, O::Lettuce, O::Mug, O::Newspaper,
                O::Pan, O::Pen, O::Pencil, O::PepperShaker, O::Plate, O::Pot, O::Potato, O::RemoteControl, O::SaltShaker,
                O::SoapBar, O::SoapBottle, O::Spatula, O::Spoon, O::SprayBottle, O::Statue, O::TennisRacket,
                O::TissueBox, O::ToiletPaper, O::Tomato, O::Vase, O::Watch, O::WateringCan, O::WineBottle,
            ],
            R::SinkBasin => &[
                O::Apple, O::Bowl, O::ButterKnife, O::Cloth, O::Cup, O::DishSponge, O::Egg, O::Fork, O::Glassbottle,
                O::HandTowel, O::Kettle, O::Knife, O::Ladle, O::Lettuce, O::Mug, O::Pan, O::Plate, O::Pot, O::Potato,
                O::SoapBar, O::Spatula, O::Spoon, O::Tomato,
            ],
            R::StoveBurner => &[O::Kettle, O::Pan, O::Pot],
            R::TVStand => &[O::TissueBox],
            R::Toilet => &[
                O::Candle, O::Cloth, O::DishSponge, O::HandTowel, O::SoapBar, O::SoapBottle, O::SprayBottle, O::TissueBox,
                O::ToiletPaper,
            ],
            R::ToiletPaperHanger => &[O::ToiletPaper],
            R::TowelHolder => &[O::Towel],
        }
    }
}

impl ObjectClass {
    /// Whether the agent can take it.
    pub fn pickupable(self) -> bool {
        !self.places().is_empty() && !matches!(self, O::DeskLamp | O::HousePlant | O::Television)
    }

    /// Whether a sink basin cleans it.
    pub fn cleanable(self) -> bool {
        matches!(
            self,
            O::Apple
                | O::Bowl
                | O::ButterKnife
                | O::Cloth
                | O::Cup
                | O::DishSponge
                | O::Egg
                | O::Fork
                | O::Kettle
                | O::Knife
                | O::Ladle
                | O::Lettuce
                | O::Mug
                | O::Pan
                | O::Plate
                | O::Pot
                | O::Potato
                | O::SoapBar
                | O::Spatula
                | O::Spoon
                | O::Tomato
        )
    }

    /// Whether a microwave heats it.
    pub fn heatable(self) -> bool {
        matches!(
            self,
            O::Apple | O::Bread | O::Cup | O::Egg | O::Mug | O::Plate | O::Potato | O::Tomato
        )
    }

    /// Whether a fridge cools it.
    pub fn coolable(self) -> bool {
        self.heatable() || matches!(self, O::Bowl | O::Lettuce | O::Pan | O::Pot | O::WineBottle)
    }

    /// Whether it can be switched on.
    pub fn toggleable(self) -> bool {
        matches!(self, O::DeskLamp | O::FloorLamp)
    }

    /// Whether a held knife slices it.
    pub fn sliceable(self) -> bool {
        matches!(
            self,
            O::Apple | O::Bread | O::Egg | O::Lettuce | O::Potato | O::Tomato
        )
    }

    /// Whether it can itself hold things.
    pub fn is_receptacle(self) -> bool {
        matches!(
            self,
            O::Bowl | O::Box | O::Cup | O::Mug | O::Pan | O::Plate | O::Pot
        )
    }

    /// Where it lies at the start of a game: receptacle classes with relative weights. Empty for fixtures that stand in
    /// no receptacle.
    #[rustfmt::skip]
    pub fn places(self) -> &'static [(ReceptacleClass, u32)] {
        match self {
            O::AlarmClock => &[(R::Desk, 6), (R::Shelf, 4), (R::SideTable, 3), (R::Dresser, 2), (R::DiningTable, 1)],
            O::Apple => &[
                (R::Fridge, 5), (R::CounterTop, 5), (R::DiningTable, 3), (R::GarbageCan, 3), (R::Microwave, 2),
                (R::SinkBasin, 2), (R::SideTable, 1),
            ],
            O::Book => &[
                (R::Bed, 6), (R::Desk, 4), (R::CoffeeTable, 3), (R::Drawer, 2), (R::Dresser, 2), (R::Sofa, 2),
                (R::CounterTop, 2), (R::SideTable, 1), (R::DiningTable, 1), (R::Cabinet, 1), (R::Shelf, 1),
            ],
            O::Bowl => &[
                (R::Cabinet, 6), (R::Fridge, 4), (R::CounterTop, 4), (R::DiningTable, 3), (R::Desk, 2), (R::Shelf, 2),
                (R::SinkBasin, 1),
            ],
            O::Box => &[
                (R::Sofa, 4), (R::CoffeeTable, 4), (R::DiningTable, 3), (R::Cabinet, 2), (R::SideTable, 2), (R::Shelf, 1),
                (R::Desk, 1), (R::Dresser, 1),
            ],
            O::Bread => &[(R::CounterTop, 8), (R::DiningTable, 4), (R::Fridge, 3), (R::SideTable, 1)],
            O::ButterKnife => &[(R::CounterTop, 8), (R::DiningTable, 4), (R::Drawer, 2), (R::SinkBasin, 1), (R::SideTable, 1)],
            O::CD => &[
                (R::Drawer, 4), (R::Desk, 4), (R::Dresser, 2), (R::SideTable, 2), (R::GarbageCan, 2), (R::Shelf, 1),
                (R::DiningTable, 1),
            ],
            O::Candle => &[
                (R::CounterTop, 4), (R::Toilet, 4), (R::Cabinet, 3), (R::Drawer, 2), (R::CoffeeTable, 2), (R::Shelf, 1),
                (R::DiningTable, 1), (R::SideTable, 1), (R::Cart, 1),
            ],
            O::CellPhone => &[
                (R::Bed, 5), (R::Drawer, 4), (R::Desk, 4), (R::CounterTop, 4), (R::SideTable, 2), (R::Dresser, 2),
                (R::Sofa, 2), (R::Shelf, 1), (R::Safe, 1), (R::CoffeeTable, 1), (R::ArmChair, 1),
            ],
            O::Cloth => &[
                (R::BathtubBasin, 5), (R::Cabinet, 4), (R::CounterTop, 3), (R::Drawer, 2), (R::SinkBasin, 1),
                (R::Shelf, 1), (R::Toilet, 1), (R::Cart, 1),
            ],
            O::CreditCard => &[
                (R::Drawer, 5), (R::Sofa, 4), (R::Shelf, 3), (R::Desk, 3), (R::SideTable, 3), (R::CoffeeTable, 3),
                (R::CounterTop, 3), (R::Dresser, 2), (R::ArmChair, 2), (R::DiningTable, 1),
            ],
            O::Cup => &[
                (R::Cabinet, 5), (R::Fridge, 4), (R::CounterTop, 4), (R::DiningTable, 2), (R::SinkBasin, 2),
                (R::Microwave, 2), (R::Shelf, 1), (R::SideTable, 1),
            ],
            O::DeskLamp => &[(R::Desk, 4), (R::SideTable, 3), (R::Shelf, 2), (R::Dresser, 2)],
            O::DishSponge => &[
                (R::CounterTop, 5), (R::Cabinet, 5), (R::Drawer, 4), (R::DiningTable, 2), (R::SinkBasin, 2),
                (R::GarbageCan, 1), (R::Shelf, 1), (R::BathtubBasin, 1), (R::Cart, 1),
            ],
            O::Egg => &[
                (R::Fridge, 5), (R::CounterTop, 5), (R::SinkBasin, 3), (R::GarbageCan, 3), (R::Microwave, 2),
                (R::DiningTable, 2), (R::SideTable, 1),
            ],
            O::Fork | O::Spoon | O::Spatula => {
                &[(R::CounterTop, 6), (R::Drawer, 4), (R::DiningTable, 3), (R::SinkBasin, 2), (R::SideTable, 1)]
            }
            O::Glassbottle => &[
                (R::Cabinet, 5), (R::CounterTop, 4), (R::SinkBasin, 1), (R::GarbageCan, 1), (R::DiningTable, 1),
                (R::Fridge, 1), (R::Shelf, 1),
            ],
            O::HandTowel => &[(R::HandTowelHolder, 12), (R::CounterTop, 1)],
            O::HousePlant => &[(R::CounterTop, 4), (R::SideTable, 2), (R::CoffeeTable, 1), (R::Shelf, 1), (R::Desk, 1)],
            O::Kettle => &[(R::StoveBurner, 5), (R::Cabinet, 3), (R::CounterTop, 3), (R::DiningTable, 1)],
            O::KeyChain => &[
                (R::Drawer, 5), (R::SideTable, 4), (R::Desk, 3), (R::Shelf, 3), (R::CoffeeTable, 3), (R::Sofa, 3),
                (R::Dresser, 2), (R::Safe, 1), (R::DiningTable, 1), (R::ArmChair, 1),
            ],
            O::Knife => &[(R::CounterTop, 7), (R::DiningTable, 3), (R::Drawer, 3), (R::SinkBasin, 1), (R::SideTable, 1)],
            O::Ladle => &[(R::CounterTop, 4), (R::Cabinet, 3), (R::Drawer, 2), (R::DiningTable, 2), (R::SinkBasin, 1)],
            O::Laptop => &[
                (R::Bed, 7), (R::Desk, 3), (R::Sofa, 4), (R::CoffeeTable, 3), (R::DiningTable, 2), (R::Dresser, 1),
                (R::SideTable, 1), (R::ArmChair, 1),
            ],
            O::Lettuce => &[(R::CounterTop, 6), (R::DiningTable, 4), (R::Fridge, 4), (R::SinkBasin, 1), (R::SideTable, 1)],
            O::Mug => &[
                (R::CounterTop, 5), (R::Cabinet, 4), (R::CoffeeMachine, 3), (R::Fridge, 3), (R::Desk, 2),
                (R::DiningTable, 2), (R::Microwave, 1), (R::SinkBasin, 1), (R::Shelf, 1), (R::SideTable, 1),
            ],
            O::Newspaper => &[
                (R::DiningTable, 4), (R::Sofa, 4), (R::SideTable, 3), (R::CoffeeTable, 3), (R::Shelf, 2), (R::Dresser, 2),
                (R::ArmChair, 2), (R::Drawer, 1), (R::Cabinet, 1),
            ],
            O::Pan => &[(R::StoveBurner, 6), (R::CounterTop, 4), (R::Cabinet, 1), (R::Fridge, 1), (R::DiningTable, 1)],
            O::PaperTowelRoll => &[(R::CounterTop, 4), (R::GarbageCan, 2), (R::Shelf, 1), (R::DiningTable, 1), (R::Toilet, 1)],
            O::Pen | O::Pencil => &[
                (R::Desk, 5), (R::Drawer, 4), (R::Shelf, 3), (R::SideTable, 2), (R::Dresser, 2), (R::CoffeeTable, 2),
                (R::DiningTable, 1), (R::GarbageCan, 1), (R::CounterTop, 1),
            ],
            O::PepperShaker | O::SaltShaker => {
                &[(R::CounterTop, 5), (R::Cabinet, 5), (R::Drawer, 3), (R::DiningTable, 3), (R::Shelf, 1), (R::SideTable, 1)]
            }
            O::Pillow => &[(R::Bed, 8), (R::Sofa, 5), (R::ArmChair, 2)],
            O::Plate => &[
                (R::Cabinet, 6), (R::CounterTop, 5), (R::DiningTable, 3), (R::Fridge, 2), (R::Shelf, 1),
                (R::CoffeeTable, 1), (R::SinkBasin, 1),
            ],
            O::Pot => &[(R::StoveBurner, 8), (R::CounterTop, 3), (R::DiningTable, 1), (R::Fridge, 1), (R::Cabinet, 1)],
            O::Potato => &[
                (R::Fridge, 5), (R::CounterTop, 5), (R::DiningTable, 3), (R::SinkBasin, 2), (R::Microwave, 2),
                (R::GarbageCan, 1), (R::SideTable, 1),
            ],
            O::RemoteControl => &[
                (R::Sofa, 5), (R::CoffeeTable, 5), (R::Dresser, 3), (R::SideTable, 2), (R::ArmChair, 2),
                (R::DiningTable, 2), (R::Drawer, 1), (R::Desk, 1), (R::Shelf, 1),
            ],
            O::SoapBar => &[
                (R::CounterTop, 4), (R::Toilet, 3), (R::SinkBasin, 3), (R::Cabinet, 2), (R::BathtubBasin, 2),
                (R::Drawer, 2), (R::GarbageCan, 1), (R::Shelf, 1),
            ],
            O::SoapBottle => &[
                (R::Cabinet, 5), (R::CounterTop, 5), (R::Toilet, 3), (R::DiningTable, 2), (R::GarbageCan, 2),
                (R::Shelf, 1), (R::Drawer, 1), (R::SideTable, 1),
            ],
            O::SprayBottle => &[
                (R::CounterTop, 4), (R::Toilet, 3), (R::Cabinet, 3), (R::GarbageCan, 1), (R::Shelf, 1), (R::Cart, 1),
            ],
            O::Statue => &[
                (R::CoffeeTable, 4), (R::Shelf, 4), (R::SideTable, 3), (R::DiningTable, 2), (R::Dresser, 2),
                (R::CounterTop, 2), (R::Desk, 1),
            ],
            O::TeddyBear => &[(R::Bed, 1)],
            O::Television => &[(R::TVStand, 4), (R::Dresser, 4), (R::CoffeeTable, 1)],
            O::TissueBox => &[
                (R::CoffeeTable, 3), (R::Shelf, 3), (R::CounterTop, 2), (R::SideTable, 2), (R::Desk, 2), (R::Drawer, 2),
                (R::DiningTable, 1), (R::Cabinet, 1), (R::TVStand, 1), (R::Dresser, 1),
            ],
            O::ToiletPaper => &[
                (R::Toilet, 4), (R::CounterTop, 3), (R::Cabinet, 2), (R::ToiletPaperHanger, 2), (R::GarbageCan, 2),
                (R::Drawer, 1), (R::Shelf, 1), (R::Cart, 1),
            ],
            O::Tomato => &[
                (R::Fridge, 6), (R::CounterTop, 5), (R::DiningTable, 3), (R::GarbageCan, 2), (R::SinkBasin, 1),
                (R::SideTable, 1),
            ],
            O::Towel => &[(R::TowelHolder, 1)],
            O::Vase => &[
                (R::Shelf, 4), (R::CounterTop, 3), (R::Cabinet, 3), (R::CoffeeTable, 2), (R::DiningTable, 2),
                (R::SideTable, 2), (R::Dresser, 1), (R::Safe, 1), (R::Desk, 1),
            ],
            O::Watch => &[
                (R::SideTable, 3), (R::Drawer, 3), (R::CoffeeTable, 2), (R::Dresser, 2), (R::DiningTable, 1), (R::Shelf, 1),
                (R::Desk, 1), (R::Safe, 1),
            ],
            O::WateringCan => &[(R::CoffeeTable, 3), (R::Shelf, 2), (R::SideTable, 1)],
            O::WineBottle => &[
                (R::CounterTop, 4), (R::DiningTable, 3), (R::Cabinet, 3), (R::GarbageCan, 1), (R::Shelf, 1),
            ],
            _ => &[],
        }
    }

    /// Whether a receptacle of `class` may hold it.
    pub fn fits(self, class: ReceptacleClass) -> bool {
        class.contains().contains(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_are_in_byte_order() {
        for &class in ObjectClass::ALL {
            assert_eq!(ObjectClass::parse(&class.word()), Some(class));
        }
        for &class in ReceptacleClass::ALL {
            assert_eq!(ReceptacleClass::parse(&class.word()), Some(class));
        }
        assert_eq!(ObjectClass::parse("unicorn"), None);
    }

    #[test]
    fn goal_objects_can_be_put_where_they_lie() {
        // As in ALFWorld, a few things lie where nothing may be put back: decorative classes, and bottles in the bin.
        let decorative = [O::TeddyBear, O::PaperTowelRoll];
        for &object in O::ALL {
            if !object.pickupable() || decorative.contains(&object) {
                continue;
            }
            for &(place, weight) in object.places() {
                assert!(weight > 0);
                let binned = (object, place) == (O::Glassbottle, R::GarbageCan);
                assert!(
                    object.fits(place) || binned,
                    "{object:?} lies in {place:?} but does not fit there"
                );
            }
        }
    }

    #[test]
    fn treatable_classes_are_pickupable() {
        for &object in O::ALL {
            if object.cleanable() || object.heatable() || object.coolable() || object.sliceable() {
                assert!(object.pickupable(), "{object:?}");
            }
        }
    }
}
