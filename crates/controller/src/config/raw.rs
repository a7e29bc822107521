//! The first stage: texts and where each comes from (defaults < file < environment < flags).
//!
//! Nothing is validated here but the shape of the file. Only this module reads the environment (invariant 7).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use domain::launch_env::is_inherited;

use super::effective::condition;
use super::secret::plain;
use super::setting::{Need, Setting, SettingError, Shown, When};
use super::{Components, spelling, table};
use crate::args::SettingsArgs;

/// Far more than every setting at its longest.
const LARGEST_FILE: u64 = 1 << 20;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The table.
    Default,
    /// What one-host mode decides where nobody else does.
    Standalone,
    /// The settings file.
    File(PathBuf),
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Standalone => f.write_str("standalone"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment => f.write_str("environment"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// Every setting that somebody gave, as trimmed text. A blank value counts as not given.
#[derive(Default, Clone)]
pub struct Raw {
    values: BTreeMap<&'static str, (String, Source)>,
    /// What jobs see of our own environment.
    pub inherited: BTreeMap<String, String>,
    /// The home of whoever runs us, which jobs do not see.
    pub home: Option<PathBuf>,
    /// What is wrong with the file or with a flag's name.
    pub errors: Vec<SettingError>,
    /// What is strange but harmless: unknown variables with our prefixes, plain variables that would be secrets, settings that
    /// nothing looks at.
    pub warnings: Vec<String>,
}

impl Raw {
    /// Collects file, environment and flags, in that order.
    #[must_use]
    pub fn collect(args: &SettingsArgs, environment: impl Iterator<Item = (String, String)>) -> Self {
        let mut raw = Self::default();
        if let Some(path) = &args.config {
            raw.file(path);
        }
        raw.environment(environment);
        let components = args.components.iter().map(|text| ("COMPONENTS".to_owned(), text.clone()));
        for (name, value) in components.chain(args.set.iter().cloned()) {
            match table::row(&name) {
                Some(row) => raw.set(row.name, &value, Source::Flag),
                None => raw.errors.push(unknown(&name, "--set")),
            }
        }
        raw
    }

    /// Whether somebody configures a controller here: COMPONENTS or a setting that has no default was given. Names like
    /// LOG_LEVEL may be other programs'.
    #[must_use]
    pub fn is_meant(&self) -> bool {
        let required = |name: &str| table::row(name).is_some_and(|row| row.need == Need::Required);
        self.values.keys().any(|name| *name == table::COMPONENTS.name || required(name))
    }

    /// The environment of this process; values that are not text are left out with a warning.
    #[must_use]
    pub fn process_environment() -> Vec<(String, String)> {
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect()
    }

    /// The text of a setting and its source; the default when nobody gave it.
    #[must_use]
    pub fn get(&self, row_name: &str) -> Option<(&str, &Source)> {
        self.values
            .get(row_name)
            .map(|(text, source)| (text.as_str(), source))
            .or_else(|| table::row(row_name).and_then(|row| row.default).map(|text| (text, &Source::Default)))
    }

    /// The value of a setting, or its default; none where nobody gave it or it is wrong, which [`super::check_given`] tells.
    #[must_use]
    pub fn value<T>(&self, setting: &Setting<T>) -> Option<T> {
        self.get(setting.name).and_then(|(text, _)| (setting.parse)(text).ok())
    }

    /// Whether something looks at settings of this condition.
    #[must_use]
    pub fn looks_at(&self, when: When) -> bool {
        let text = |name| self.get(name).map_or("", |(text, _)| text);
        match when {
            When::Always => true,
            When::With(component) => Components::parse(text("COMPONENTS")).is_ok_and(|c| c.has(component)),
            When::JetStream => text("QUEUE") == "jetstream",
            When::WorkloadApi => text("IDENTITY_ISSUER") == "workload-api",
        }
    }

    /// Warns of what was given and is looked at under another condition only: somebody who sets NATS_URL and no QUEUE believes
    /// that tasks wait in NATS. Variables that other programs read as well are nobody's mistake.
    pub fn warn_of_no_effect(&mut self) {
        let selected = self.get(table::COMPONENTS.name).is_some_and(|(text, _)| Components::parse(text).is_ok());
        let ours = |name: &str, source: &Source| *source != Source::Environment || spelling::ours(name);
        let given =
            self.values.iter().filter(|(name, (_, source))| *source != Source::Standalone && ours(name, source));
        let rows = given.filter_map(|(name, (_, source))| Some((table::row(name)?, source)));
        let idle = rows.filter(|(row, _)| selected && !self.looks_at(row.when));
        let warnings: Vec<_> = idle
            .map(|(row, source)| {
                format!("{} ({source}) has no effect: it counts {} only", row.name, condition(row.when))
            })
            .collect();
        self.warnings.extend(warnings);
    }

    /// A value that wins over everything collected before.
    pub fn set(&mut self, name: &'static str, value: &str, source: Source) {
        let value = value.trim();
        if !value.is_empty() {
            self.values.insert(name, (value.to_owned(), source));
        }
    }

    /// A value of a flag that has a name of its own; another one by `--set` is told about and dropped.
    pub fn overrule(&mut self, name: &'static str, value: &str) {
        if let Some((other, Source::Flag)) = self.values.get(name).filter(|(other, _)| other != value.trim()) {
            let other = super::address::without_password(other);
            self.warnings.push(format!("--set {name}={other:?} is ignored: its own flag says {value:?}"));
        }
        self.set(name, value, Source::Flag);
    }

    /// A value for where nobody gave one.
    pub fn preset(&mut self, name: &'static str, value: &str) {
        if !self.values.contains_key(name) {
            self.set(name, value, Source::Standalone);
        }
    }

    /// A value that one-host mode needs; somebody else's other wish is told about and dropped.
    pub fn force(&mut self, name: &'static str, value: &str) {
        if let Some((other, source)) = self.values.get(name).filter(|(other, _)| other != value) {
            let other = super::address::without_password(other);
            self.warnings.push(format!("{name}={other:?} ({source}) is ignored: standalone sets it to {value:?}"));
        }
        self.set(name, value, Source::Standalone);
    }

    fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, value) in variables {
            if name == "HOME" {
                self.home = Some(value.into());
            } else if is_inherited(&name) {
                self.inherited.insert(name, value);
            } else if let Some(row) = table::row(&name) {
                self.set(row.name, &value, Source::Environment);
            } else if table::row(&format!("{name}_FILE")).is_some_and(|row| row.shown == Shown::SecretFile) {
                self.warnings.push(format!("{name} is ignored: secrets come from files only, set {name}_FILE"));
            } else if spelling::ours(&name) {
                self.warnings.push(format!("{name} is not a setting of this program and is ignored"));
            }
        }
    }

    fn file(&mut self, path: &Path) {
        let text = match read(path) {
            Ok(text) => text,
            Err(error) => {
                let problem = format!("read --config: {}: {}", path.display(), plain(&error));
                self.errors.push(SettingError::new("--config", problem, "name a readable TOML file"));
                return;
            }
        };
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => {
                let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
                let problem = format!("{}, line {line}: {}", path.display(), error.message().trim());
                self.errors.push(SettingError::new("--config", problem, "write name = \"value\", one per line"));
                return;
            }
        };
        for (key, value) in table {
            match (table::row(&key.to_ascii_uppercase()).filter(|_| key == key.to_ascii_lowercase()), flat(&value)) {
                (None, _) => self.errors.push(unknown(&key, &path.display().to_string())),
                (Some(row), Some(text)) => self.set(row.name, &text, Source::File(path.to_owned())),
                (Some(row), None) => self.errors.push(SettingError::new(
                    row.name,
                    format!("{}: {key} is not a text, number, truth value or list of texts", path.display()),
                    format!("it must be {}", row.rule),
                )),
            }
        }
    }
}

/// The whole file, which may be a pipe, but not one without an end.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        let problem = format!("it has more than {LARGEST_FILE} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(text)
}

fn flat(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(n) => Some(n.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Array(items) => {
            items.iter().map(toml::Value::as_str).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        _ => None,
    }
}

fn unknown(name: &str, place: &str) -> SettingError {
    let near = match spelling::nearest(name) {
        // Found by its name, so the case is wrong.
        Some(row) if row.eq_ignore_ascii_case(name) => format!("write {} in lower case", row.to_ascii_lowercase()),
        Some(row) => format!("did you mean {row}?"),
        None => "`config reference` lists all of them".to_owned(),
    };
    SettingError::new(name, format!("{place}: {name:?} is not a setting"), near)
}
