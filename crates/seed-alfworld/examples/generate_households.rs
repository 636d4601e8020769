//! Writes household games as files of the original engine: `generate_households TEMPLATE OUT SIZE SPLIT COUNT`.
//!
//! TEMPLATE is any `game.tw-pddl` of ALFWorld, from which domain and grammar are taken; SIZE is `studio` or `full`.
//! The families alternate, so a multiple of six holds equally many of each. Prints the folder of every game written.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use seed_alfworld::household::{EngineTemplate, HouseholdGenerator, HouseholdSize};
use seed_env::Split;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [template, out, size, split, count] = arguments.as_slice() else {
        return Err("usage: generate_households TEMPLATE OUT SIZE SPLIT COUNT".into());
    };
    let size = [HouseholdSize::Studio, HouseholdSize::Full]
        .into_iter()
        .find(|candidate| candidate.name() == size)
        .ok_or("SIZE is `studio` or `full`")?;
    let split = [Split::Train, Split::Development, Split::Seen, Split::Unseen]
        .into_iter()
        .find(|candidate| candidate.name() == split)
        .ok_or("SPLIT is `train`, `development`, `seen` or `unseen`")?;
    let template = EngineTemplate::read(Path::new(template))?;
    let generator = HouseholdGenerator::new(size, 0)?;
    let mut output = std::io::stdout().lock();
    for index in 0..count.parse()? {
        let folder = template.write(Path::new(out), &generator, split, index)?;
        writeln!(output, "{}", folder.display())?;
    }
    Ok(())
}
