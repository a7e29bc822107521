//! Which boundaries of a recorded scene become points, and how many there must be.

use testkit::crash::{Boundary, Kind, Point, Scene};

use crate::backend_kind::BackendKind;
use crate::queue_kind::QueueKind;
use crate::sides::Sides;

/// The least number of points of each scene: it may grow, and does not fall unnoticed. Two recordings of one scene
/// differ by a few boundaries, each worth up to three points, so a floor lies some way below what is usually met.
const EMBEDDED: [(Scene, usize); 5] =
    [(Scene::Jobs, 240), (Scene::Cancels, 190), (Scene::Deaths, 210), (Scene::Stop, 96), (Scene::Crash, 100)];

/// The same with tasks in JetStream.
const JETSTREAM: [(Scene, usize); 5] =
    [(Scene::Jobs, 260), (Scene::Cancels, 170), (Scene::Deaths, 240), (Scene::Stop, 150), (Scene::Crash, 160)];

/// The same with Pods, which leave no folders: with tasks in the file,
const PODS: [(Scene, usize); 5] =
    [(Scene::Jobs, 190), (Scene::Cancels, 180), (Scene::Deaths, 145), (Scene::Stop, 130), (Scene::Crash, 125)];

/// and in JetStream.
const PODS_JETSTREAM: [(Scene, usize); 5] =
    [(Scene::Jobs, 235), (Scene::Cancels, 195), (Scene::Deaths, 155), (Scene::Stop, 200), (Scene::Crash, 215)];

/// How often the same is done by the clock: fetching without work, saying that a task is alive, reporting what was
/// reported, prolonging the lease. The first times stand for all.
const BY_THE_CLOCK: u32 = 2;

/// The points of a scene.
pub(super) fn points(scene: Scene, met: Vec<Boundary>) -> Vec<Point> {
    let of = |boundary: Boundary| {
        let moments = boundary.kind().moments().iter();
        moments.map(move |moment| Point { scene, boundary: boundary.clone(), moment: *moment })
    };
    let counts = |boundary: &Boundary| !by_the_clock(boundary) && !is_elsewhere(scene, boundary);
    met.into_iter().filter(counts).flat_map(of).collect()
}

fn by_the_clock(boundary: &Boundary) -> bool {
    let name = boundary.name.as_str();
    let repeats = ["FetchTask, idle", ", empty", " stopped", "write lock", ", by the clock"]
        .iter()
        .any(|end| name.ends_with(end));
    repeats && boundary.nth > BY_THE_CLOCK
}

/// Jobs after the first of a scene, whose executors' folders are made and removed as that of the first.
const FOLLOWERS: [&str; 6] =
    ["second-e", "third-e", "vanishing-e1", ".new-vanishing", ".gone-vanishing", ".gone-replaced-e2"];

/// What another scene or job has already: the trial of the walls at a start, and the folder of another plain job.
fn is_elsewhere(scene: Scene, boundary: &Boundary) -> bool {
    let holds = |part: &str| boundary.name.contains(part);
    let trial = holds(if scene == Scene::Jobs { ".new-trial-1" } else { ".new-trial-" });
    boundary.kind() == Kind::Write && (trial || FOLLOWERS.into_iter().any(holds))
}

/// The points that stand in both of two recordings, sorted, and how many stand in one only.
pub(super) fn met_twice(mut recordings: Vec<Point>) -> (Vec<Point>, usize) {
    recordings.sort();
    let all = recordings.len();
    let twice: Vec<Point> =
        recordings.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone()).collect();
    let once = all - 2 * twice.len();
    (twice, once)
}

/// What is missing.
pub(super) fn below_the_floor(points: &[Point], sides: Sides) -> Vec<String> {
    let count = |scene| points.iter().filter(|point| point.scene == scene).count();
    let floor = match (sides.backend, sides.queue) {
        (BackendKind::Local, QueueKind::Embedded) => EMBEDDED,
        (BackendKind::Local, QueueKind::Jetstream) => JETSTREAM,
        (BackendKind::Pod, QueueKind::Embedded) => PODS,
        (BackendKind::Pod, QueueKind::Jetstream) => PODS_JETSTREAM,
    };
    let missing = floor.iter().filter(|(scene, floor)| count(*scene) < *floor);
    missing
        .map(|(scene, floor)| format!("scene {} has {} points; there were {floor}", scene.word(), count(*scene)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_recording_has_alone_is_no_point() {
        let met = |name: &str| Boundary { name: name.to_owned(), nth: 1 };
        let one = points(Scene::Stop, vec![met("Declare"), met("rename a"), met("write .new-trial-0")]);
        let other = points(Scene::Stop, vec![met("Declare")]);
        let sides = Sides { queue: QueueKind::Embedded, backend: BackendKind::Local };
        let (twice, once) = met_twice(one.into_iter().chain(other).collect());
        assert_eq!((twice.len(), once), (3, 1));
        assert_eq!(below_the_floor(&twice, sides).len(), Scene::ALL.len());
    }
}
