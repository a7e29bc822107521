//! The environment of an executor: set by the controller, read by the executor (requirements §2.2, BST-1, EXE-1).

/// Placeholder for the domain rules.
pub struct LaunchEnv;
