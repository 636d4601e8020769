//! How much memory the process holds, as the system counts it.
//!
//! Not for: estimates before a run; those follow from a configuration.

/// Resident memory of this process in bytes: now, and at its highest. `None` where the system does not tell (anything
/// but Linux).
pub fn process_memory() -> Option<(u64, u64)> {
    let status = fs_err::read_to_string("/proc/self/status").ok()?;
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024)
    };
    Some((bytes("VmRSS:")?, bytes("VmHWM:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_large_buffer_shows() {
        let (before, _) = process_memory().unwrap();
        let buffer = vec![1_u8; 64 << 20];
        let (now, highest) = process_memory().unwrap();
        assert!(now >= before + (60 << 20), "{before} {now}");
        assert!(highest >= now);
        assert!(buffer.iter().all(|&byte| byte == 1));
    }
}
