//! What a setting is: one row of the table in [`super::table`], with its name, type, rule, default and meaning.
//!
//! A value is read through its row only ([`Setting::parse`]), so that no rule is written twice.

use std::fmt;

use super::components::Component;

/// One setting with the type its value has after validation.
pub struct Setting<T: 'static> {
    /// The name: of the environment variable, in lower case of the key in the file.
    pub name: &'static str,
    /// What is used when nobody sets it.
    pub default: Option<&'static str>,
    /// The rule a value obeys, as one phrase; part of every error text.
    pub rule: &'static str,
    /// Text to value.
    pub parse: fn(&str) -> Result<T, Problem>,
}

/// One row without its type: what the printed views and the general checks need.
pub struct Row {
    /// See [`Setting::name`].
    pub name: &'static str,
    /// See [`Setting::default`].
    pub default: Option<&'static str>,
    /// See [`Setting::rule`].
    pub rule: &'static str,
    /// What it is for, one sentence.
    pub doc: &'static str,
    /// The type of its value; see [`Row::kind`].
    pub(super) type_name: &'static str,
    /// When it is looked at.
    pub when: When,
    /// Whether it must be set when it is looked at.
    pub need: Need,
    /// Whether the text may stand in a log or listing.
    pub shown: Shown,
    /// Validation alone.
    pub check: fn(&str) -> Result<(), Problem>,
}

impl Row {
    /// What its text is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::of(self.type_name)
    }
}

/// What the text of a value is; the rule says which texts of that kind are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Flag,
    /// A number with a unit.
    Duration,
    /// Words between commas; in the file also a list of texts.
    List,
    /// The path of a file or folder.
    Path,
    /// The path of a file with a secret.
    SecretFile,
    /// An address and port.
    Address,
    /// Any other text.
    Text,
}

impl Kind {
    /// The kind of the texts from which values of this type are read.
    fn of(type_name: &str) -> Self {
        match type_name {
            "NonZeroU32" | "u32" => Self::Integer,
            "bool" => Self::Flag,
            "Duration" => Self::Duration,
            "PathBuf" | "PodTemplate" | "PrivilegedPolicy" => Self::Path,
            "SecretFile" => Self::SecretFile,
            "SocketAddr" => Self::Address,
            "Components" => Self::List,
            list if list.starts_with("Vec<") => Self::List,
            _ => Self::Text,
        }
    }

    /// The word in the reference.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Flag => "true or false",
            Self::Duration => "duration",
            Self::List => "list",
            Self::Path => "path",
            Self::SecretFile => "secret file",
            Self::Address => "address",
            Self::Text => "text",
        }
    }
}

/// Under which selection a setting is looked at (CFG-5, CFG-6, CFG-7): otherwise it is neither required nor checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Whatever runs.
    Always,
    /// When this component is selected.
    With(Component),
    /// With `QUEUE=jetstream`.
    JetStream,
    /// With `IDENTITY_ISSUER=workload-api`.
    WorkloadApi,
}

/// Whether a setting must be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Missing is `<NAME> is required`.
    Required,
    /// It has a default, or its absence means something.
    Optional,
}

/// How a value may be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// As it is (a password inside a URL is cut out all the same).
    Plain,
    /// A comma list of addresses: whatever stands before the last `@` is cut out, however it is written.
    Servers,
    /// It names a file with a secret: the path is shown, the content never.
    SecretFile,
}

/// What is wrong with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It breaks the rule of its row.
    Breaks,
    /// It breaks the rule of its row, in this way.
    Invalid(String),
    /// The file it names cannot be read.
    Unreadable(String),
}

/// One error of the configuration: the thing, what is wrong, the rule and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// The setting.
    pub name: String,
    /// One sentence that names the thing and what is wrong with it.
    pub problem: String,
    /// The rule, or what to do.
    pub remedy: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

impl SettingError {
    /// Any error about a setting.
    pub fn new(name: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.to_owned(), problem: problem.into(), remedy: remedy.into() }
    }

    /// CFG-2: `<NAME> is required`.
    pub(super) fn missing(name: &str, rule: &str) -> Self {
        Self::new(
            name,
            format!("{name} is required"),
            format!("set it to {rule} in the environment, in the file or with --set"),
        )
    }

    /// An error about a secret file that is already in use.
    pub(crate) fn of_secret(name: &str, path: &std::path::Path, problem: Problem) -> Self {
        let rule = super::table::row(name).map_or("a readable file", |row| row.rule);
        Self::of(name, rule, Shown::SecretFile, &path.display().to_string(), problem)
    }

    /// CFG-2, CFG-9: names the setting, the value as far as it may be shown, and the accepted range.
    pub(crate) fn of(name: &str, rule: &str, shown: Shown, value: &str, problem: Problem) -> Self {
        let value = match shown {
            Shown::Plain => super::address::without_password(value),
            Shown::Servers => super::address::without_users(value),
            Shown::SecretFile => value.to_owned(),
        };
        match problem {
            Problem::Breaks => {
                Self::new(name, format!("{name}: {value:?} is not accepted"), format!("it must be {rule}"))
            }
            Problem::Invalid(why) => Self::new(name, format!("{name}: {value:?}: {why}"), format!("it must be {rule}")),
            Problem::Unreadable(why) => {
                Self::new(name, format!("read {name}: {value}: {why}"), format!("it must be {rule}"))
            }
        }
    }
}

/// Every error of one configuration, together (CFG-2). Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<SettingError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.len();
        write!(f, "{n} wrong setting{}", if n == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for ConfigErrors {}
