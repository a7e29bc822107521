//! What runs and exists beside the controller of a world: executors and their processes.

use super::World;
use crate::real::{Process, Signal};

impl World {
    /// The names of the executors that exist.
    #[must_use]
    pub fn executors(&self) -> Vec<String> {
        self.executors.names()
    }

    /// The executors' own processes.
    #[must_use]
    pub fn executor_processes(&self) -> Vec<Process> {
        let found = self.those(|process| process.has_word("executor"));
        // An executor starts itself once more, and that becomes the runner.
        let of_another = |process: &Process| found.iter().any(|other| other.pid == process.parent);
        found.iter().filter(|process| !of_another(process)).cloned().collect()
    }

    /// The stand-in runners.
    #[must_use]
    pub fn runners(&self) -> Vec<Process> {
        self.those(|process| self.stand_in.iter().all(|word| process.has_word(word)))
    }

    /// Everything that runs beside the controller: supervisors, executors, runners.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        self.controller.processes().into_iter().chain(self.executors.processes()).collect()
    }

    fn those(&self, wanted: impl Fn(&Process) -> bool) -> Vec<Process> {
        self.processes().into_iter().filter(wanted).collect()
    }

    /// Sends a signal to the only process of a kind.
    ///
    /// # Panics
    /// There is not exactly one.
    pub fn signal_only(&self, processes: &[Process], signal: Signal) {
        let [process] = processes else { panic!("not exactly one process: {processes:?}") };
        process.signal(signal);
    }
}
