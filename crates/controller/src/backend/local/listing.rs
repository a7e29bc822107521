//! What the folders of the executors say, read anew at every list.

use std::io;
use std::path::Path;
use std::sync::Arc;

use domain::id::{Backend as BackendKind, assignment_of_name, executor_name};
use domain::metadata::{ExecutorRecord, Unreadable};

use super::super::Observed;
use super::folder::Folder;
use crate::telemetry::events::Subject;

pub(super) fn observe_all(executors: &Path) -> io::Result<Vec<Observed>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(executors)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // With a leading dot: half made or half removed, and nothing runs in it.
        if !name.starts_with('.') {
            let folder = Folder::new(entry.path());
            let state = folder.state();
            let record = read_record(&folder, &name);
            // A folder may have gone between the two, which is not a quarantine.
            if folder.exists() {
                all.push(Observed { name, record: record.map(Arc::new), state });
            }
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

fn read_record(folder: &Folder, name: &str) -> Result<ExecutorRecord, Unreadable> {
    let unreadable = |key: &str, problem: String| Unreadable { key: key.to_owned(), problem };
    let meta = folder.read_meta().map_err(|error| unreadable("meta.json", error.to_string()))?;
    let record = ExecutorRecord::parse(&meta.labels, &meta.annotations)?;
    if name_of(&record) != name {
        return Err(unreadable("name", format!("the folder {name} holds executor {}", name_of(&record))));
    }
    Ok(record)
}

/// Whose end it is, as far as the object or its name says.
pub(super) fn subject_of(observed: &Observed) -> Option<Subject> {
    let backend = Some(BackendKind::Local);
    match &observed.record {
        Ok(record) => Some(Subject { backend, assignment: record.id, epoch: Some(record.epoch) }),
        Err(_) => assignment_of_name(&observed.name).map(|id| Subject::waiting(backend, id)),
    }
}

pub(super) fn name_of(record: &ExecutorRecord) -> String {
    executor_name(record.id, &record.instance, record.epoch)
}
