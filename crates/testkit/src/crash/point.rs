//! Where a controller is killed: a boundary of a scene, and the moment.

use std::fmt;
use std::str::FromStr;

use super::Scene;

/// What a boundary is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A call on the wire; its name begins with its method, `UpdateTask` or `GET`.
    Call,
    /// A change of the state folder; its name begins with the system call, `rename` or `write`.
    Write,
}

impl Kind {
    /// The moments at which a boundary of this kind is struck. What a write leaves behind when it was done is what the
    /// next boundary finds before it begins.
    #[must_use]
    pub fn moments(self) -> &'static [Moment] {
        match self {
            Self::Call => &[Moment::Before, Moment::Between, Moment::After],
            Self::Write => &[Moment::Before],
        }
    }
}

/// When a controller is killed, seen from a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// The far side has not heard of the call; the change was not made.
    Before,
    /// The far side has carried the call out; its answer is lost.
    Between,
    /// The answer has just reached the controller.
    After,
}

impl Moment {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Before, Self::Between, Self::After];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Between => "between",
            Self::After => "after",
        }
    }
}

/// The n-th time that something is done in a scene, counted from 1. The name tells what, and about which job, so that
/// what other jobs do meanwhile does not move it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boundary {
    /// What is done.
    pub name: String,
    /// How often it was done by then.
    pub nth: u32,
}

impl Boundary {
    /// What it is made of.
    #[must_use]
    pub fn kind(&self) -> Kind {
        if self.name.starts_with(|first: char| first.is_ascii_lowercase()) { Kind::Write } else { Kind::Call }
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.name, self.nth)
    }
}

/// Where a controller is killed. Its text is also its name on the command line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// In which scene.
    pub scene: Scene,
    /// At what.
    pub boundary: Boundary,
    /// When.
    pub moment: Moment,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.scene.word(), self.boundary, self.moment.word())
    }
}

/// A text that names no point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a point is written `scene: what #number, before|between|after`")]
pub struct NoPoint;

impl FromStr for Point {
    type Err = NoPoint;

    fn from_str(text: &str) -> Result<Self, NoPoint> {
        let (scene, rest) = text.split_once(": ").ok_or(NoPoint)?;
        let (boundary, moment) = rest.rsplit_once(", ").ok_or(NoPoint)?;
        let (name, nth) = boundary.rsplit_once(" #").ok_or(NoPoint)?;
        let scene = Scene::ALL.into_iter().find(|each| each.word() == scene).ok_or(NoPoint)?;
        let moment = Moment::ALL.into_iter().find(|each| each.word() == moment).ok_or(NoPoint)?;
        let boundary = Boundary { name: name.to_owned(), nth: nth.parse().map_err(|_| NoPoint)? };
        Ok(Self { scene, boundary, moment })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_point_is_its_text() {
        let boundary = Boundary { name: "UpdateTask of a, SUCCESS".to_owned(), nth: 2 };
        let point = Point { scene: Scene::Jobs, boundary, moment: Moment::Between };
        assert_eq!(point.to_string(), "jobs: UpdateTask of a, SUCCESS #2, between");
        assert_eq!(point.to_string().parse::<Point>().unwrap(), point);
        assert_eq!(point.boundary.kind(), Kind::Call);
        let write: Point = "stop: rename keys/a: b #1, before".parse().unwrap();
        assert_eq!((write.boundary.kind(), write.boundary.name.as_str()), (Kind::Write, "rename keys/a: b"));
        assert_eq!("jobs: UpdateTask".parse::<Point>(), Err(NoPoint));
    }
}
