//! Cores, memory, vector instructions, graphics processors.

use std::path::Path;

use fs_err as fs;
use seed_kernels::InstructionSet;

use crate::Finding;

const AREA: &str = "machine";

/// What a machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Threads that run at once.
    pub cores: usize,
    /// Memory in bytes, and how much of it is free; `None` where the system does not tell (anything but Linux).
    pub memory: Option<(u64, u64)>,
    /// The vector instructions that the kernels use.
    pub instructions: InstructionSet,
    /// Whether the system shows an NVIDIA graphics processor.
    pub has_gpu: bool,
}

impl Machine {
    /// Looks at this machine.
    pub fn this() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory(),
            instructions: InstructionSet::current(),
            has_gpu: Path::new("/dev/nvidia0").exists(),
        }
    }
}

/// Total and available bytes; a limit of the control group counts where it is lower.
fn memory() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let (total, available) = read_memory(&text)?;
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    match number("/sys/fs/cgroup/memory.max") {
        Some(limit) if limit < total => {
            let used = number("/sys/fs/cgroup/memory.current").unwrap_or(0);
            Some((limit, available.min(limit.saturating_sub(used))))
        }
        _ => Some((total, available)),
    }
}

fn read_memory(text: &str) -> Option<(u64, u64)> {
    let bytes = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    Some((bytes("MemTotal:")?, bytes("MemAvailable:")?))
}

/// Bytes in the largest fitting unit.
pub(crate) fn shown(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, bits)| bytes >> bits > 0);
    match unit {
        Some((name, bits)) => format!("{:.1} {name}", bytes as f64 / (1u64 << bits) as f64),
        None => format!("{bytes} bytes"),
    }
}

/// What there is to say about a machine.
pub fn examine_machine(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(match machine.cores {
        1 => Finding::warning(
            AREA,
            "1 core",
            "everything works; training is about as many times faster as there are cores",
        ),
        cores => Finding::fine(AREA, format!("{cores} cores")),
    });
    findings.push(match machine.memory {
        Some((total, available)) => Finding::fine(
            AREA,
            format!("{} of memory, {} available", shown(total), shown(available)),
        ),
        None => Finding::warning(
            AREA,
            "the system does not say how much memory there is",
            "compare the estimate of `seed train CONFIG --dry-run` with the machine yourself",
        ),
    });
    let instructions = match machine.instructions {
        InstructionSet::Avx512 => "AVX-512",
        InstructionSet::Avx2 => "AVX2 with fused multiply-add",
        InstructionSet::Portable => "portable code",
    };
    findings.push(
        if machine.instructions == InstructionSet::Portable && cfg!(target_arch = "x86_64") {
            Finding::warning(
                AREA,
                "the kernels run on portable code: this processor has no AVX2 with fused multiply-add",
                "results are the same; use a processor with AVX2 or AVX-512 for several times the speed",
            )
        } else {
            Finding::fine(AREA, format!("the kernels run on {instructions}"))
        },
    );
    if machine.has_gpu {
        findings.push(Finding::warning(
            AREA,
            "there is an NVIDIA graphics processor, which is not used",
            "nothing: the programs compute on the CPU",
        ));
    }
    findings
}

/// Whether `bytes`, needed for `what`, are there.
pub fn examine_memory(machine: &Machine, what: &str, bytes: u64, remedy: &str) -> Finding {
    let needs = format!("{what} needs about {} of memory", shown(bytes));
    match machine.memory {
        Some((total, _)) if bytes > total => {
            Finding::wrong(AREA, format!("{needs}; the machine has {}", shown(total)), remedy)
        }
        Some((_, available)) if bytes > available => Finding::warning(
            AREA,
            format!("{needs}; {} are available now", shown(available)),
            format!("end other programs, or {remedy}"),
        ),
        _ => Finding::fine(AREA, needs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    const GIB: u64 = 1 << 30;

    fn machine() -> Machine {
        Machine {
            cores: 8,
            memory: Some((16 * GIB, 10 * GIB)),
            instructions: InstructionSet::Avx2,
            has_gpu: false,
        }
    }

    fn levels(machine: &Machine) -> Vec<Level> {
        let findings = examine_machine(machine);
        for finding in &findings {
            assert_eq!(
                finding.remedy.is_none(),
                finding.level == Level::Fine,
                "{finding:?}"
            );
        }
        findings.iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn what_is_slow_or_unused_is_worth_knowing() {
        assert_eq!(levels(&machine()), [Level::Fine; 3]);
        let poor = Machine {
            cores: 1,
            memory: None,
            has_gpu: true,
            ..machine()
        };
        assert_eq!(
            levels(&poor),
            [Level::Warning, Level::Warning, Level::Fine, Level::Warning]
        );
    }

    #[test]
    fn more_memory_than_there_is_is_wrong() {
        let level = |bytes| examine_memory(&machine(), "the run", bytes, "use a smaller model").level;
        assert_eq!(
            [5 * GIB, 11 * GIB, 17 * GIB].map(level),
            [Level::Fine, Level::Warning, Level::Wrong]
        );
        let finding = examine_memory(&machine(), "the run", 17 * GIB, "use a smaller model");
        assert_eq!(
            finding.text,
            "the run needs about 17.0 GiB of memory; the machine has 16.0 GiB"
        );
    }

    #[test]
    fn memory_is_read_as_linux_writes_it() {
        let text = "MemTotal:       24560000 kB\nMemFree: 1 kB\nMemAvailable:   12280000 kB\n";
        assert_eq!(read_memory(text), Some((24_560_000 * 1024, 12_280_000 * 1024)));
        assert_eq!(read_memory("MemTotal: x kB\nMemAvailable: 1 kB"), None);
        assert_eq!(shown(1536), "1.5 KiB");
        assert_eq!(shown(12), "12 bytes");
    }
}
