//! Slips of the pen in the names of settings.

use super::table::ROWS;

/// Whether an unknown variable looks like one of ours, so that a slip of the pen is told about. What Kubernetes puts
/// into every container for a Service (`NATS_PORT_4222_TCP`, `GITEA_SERVICE_HOST`) is not.
pub(super) fn ours(name: &str) -> bool {
    const PREFIXES: [&str; 16] = [
        "GITEA_INSTANCE",
        "GITEA_RUNNER_",
        "GITEA_ENDLESS",
        "GITEA_ZOMBIE",
        "RUNNER_FACADE_",
        "NATS_",
        "POD_EXECUTOR_",
        "SPIRE_",
        "VM_",
        "OPENSANDBOX_",
        "ENVELOPE_",
        "IDENTITY_",
        "LOCAL_",
        "OPS_",
        "TRUSTED_",
        "UNTRUSTED_",
    ];
    let of_a_service = name.contains("_SERVICE_") || name.ends_with("_PORT") || name.contains("_PORT_");
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !of_a_service
}

/// The setting whose name is at most two letters away.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_uppercase();
    ROWS.iter().map(|row| (distance(&name, row.name), row.name)).filter(|(d, _)| *d <= 2).min().map(|(_, near)| near)
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<u8> = b.bytes().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let swap = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = swap.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen() {
        assert_eq!(nearest("local_capactiy"), Some("LOCAL_CAPACITY"));
        assert_eq!(nearest("PATH"), None);
        assert!(ours("GITEA_RUNNER_TOKEN_FLIE") && ours("VM_CAPACTIY"));
        assert!(!ours("NATS_PORT_4222_TCP") && !ours("GITEA_SERVICE_HOST") && !ours("HOME"));
    }
}
