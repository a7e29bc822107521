//! A YAML document as data: what [`super`] reads a job from, and what proves that an edit changed nothing else.
//!
//! The text comes from anybody who may push, so it is read under a budget. Keys are unique whatever their type: where
//! `1` and `"1"` stand side by side, two parsers could see two different jobs.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

/// Larger payloads are refused, in bytes.
const LARGEST: usize = 1 << 20;
const MOST_NODES: usize = 50_000;
const DEEPEST: usize = 64;

/// One node. Mappings keep their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    /// A number; only ever compared, so its canonical text is enough.
    Number(String),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
}

impl Tree {
    /// Reads one document.
    ///
    /// # Errors
    ///
    /// One line that says what is wrong, without a quotation of the document.
    pub(super) fn read(payload: &[u8]) -> Result<Self, String> {
        if payload.len() > LARGEST {
            return Err(format!("{} bytes; at most {LARGEST} are read", payload.len()));
        }
        let text = std::str::from_utf8(payload).map_err(|_| "it is not UTF-8".to_owned())?;
        serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
            // Further lines of the library's text quote the workflow.
            error.to_string().lines().next().unwrap_or_default().chars().take(160).collect()
        })
    }

    /// The value of a text key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entries()?.iter().find(|(name, _)| name.as_text() == Some(key)).map(|(_, value)| value)
    }

    pub(super) fn entries(&self) -> Option<&[(Self, Self)]> {
        if let Self::Map(entries) = self { Some(entries) } else { None }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// What two keys must not have in common: `1` and `"1"` are one key to some readers.
    fn key_text(&self) -> Option<String> {
        match self {
            Self::Null => Some("null".to_owned()),
            Self::Bool(value) => Some(value.to_string()),
            Self::Number(text) | Self::Text(text) => Some(text.clone()),
            Self::List(_) | Self::Map(_) => None,
        }
    }
}

fn options() -> serde_saphyr::Options {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_nodes = MOST_NODES;
    budget.max_depth = DEEPEST;
    let mut options = serde_saphyr::Options::default();
    options.strict_booleans = true;
    options.leading_zero_numbers_as_strings = true;
    options.underscored_numbers_as_strings = true;
    // `version: .nan` is a legal value of somebody's step; it is none of our business.
    options.non_finite_float_policy = serde_saphyr::options::NonFiniteFloatPolicy::AsString;
    options.with_snippet = false;
    options.budget = Some(budget);
    options
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Nodes)
    }
}

struct Nodes;

impl<'de> Visitor<'de> for Nodes {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML node")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Tree, E> {
        Ok(Tree::Number(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Tree, E> {
        Ok(Tree::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Number(format!("{value:?}")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Tree, E> {
        Ok(Tree::List(value.iter().map(|byte| Tree::Number(byte.to_string())).collect()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut map = Vec::new();
        let mut known = BTreeSet::new();
        while let Some((key, value)) = entries.next_entry::<Tree, Tree>()? {
            let text = key.key_text().ok_or_else(|| de::Error::custom("a key is not a scalar"))?;
            if !known.insert(text) {
                return Err(de::Error::custom("a key stands twice in one mapping"));
            }
            map.push((key, value));
        }
        Ok(Tree::Map(map))
    }
}
