//! Finds the tests in the sources: where each is, what cargo calls it, and what its comment names.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Item, Lit, Meta};

use crate::sources::tracked;

/// One test function, as cargo finds it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) package: String,
    /// `lib` (programs of a package included) or the name of a target in `tests/`.
    pub(crate) target: String,
    /// Modules and function, as `cargo test` prints them.
    pub(crate) name: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.package, self.target, self.name)
    }
}

impl Address {
    /// Whether both tests are in the same test program.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        (&self.package, &self.target) == (&other.package, &other.target)
    }

    /// Reads `PACKAGE TARGET NAME`.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let (package, target, name) = (words.next(), words.next(), words.next());
        match (package, target, name, words.next()) {
            (Some(package), Some(target), Some(name), None) => Ok(Self { package, target, name }),
            _ => anyhow::bail!("{text:?} is not `PACKAGE TARGET NAME`"),
        }
    }
}

/// A test and the text above it.
pub(crate) struct Test {
    pub(crate) address: Address,
    pub(crate) comment: String,
}

/// Every test of the workspace.
pub(crate) fn tests(root: &Path) -> anyhow::Result<Vec<Test>> {
    let mut found = Vec::new();
    for file in tracked(root, "crates/*.rs")? {
        let text = std::fs::read_to_string(root.join(&file)).with_context(|| format!("read {}", file.display()))?;
        if !text.contains("test]") && !text.contains("test(") {
            continue;
        }
        let parsed = syn::parse_file(&text).with_context(|| format!("{} is not Rust", file.display()))?;
        if let Some(place) = Place::of(&file) {
            place.collect(&parsed.items, &mut found);
        }
    }
    found.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(found)
}

/// The module that is looked at.
struct Place {
    package: String,
    target: String,
    modules: Vec<String>,
}

impl Place {
    /// By the folders that cargo gives a meaning. None: no target of cargo.
    fn of(file: &Path) -> Option<Self> {
        let parts: Vec<&str> = file.components().filter_map(|part| part.as_os_str().to_str()).collect();
        let ["crates", package, kind, inner @ ..] = parts.as_slice() else { return None };
        let mut modules: Vec<String> = inner.iter().map(|part| part.trim_end_matches(".rs").to_owned()).collect();
        let target = match *kind {
            "src" => "lib".to_owned(),
            "tests" if !modules.is_empty() => modules.remove(0),
            _ => return None,
        };
        modules.retain(|module| !["mod", "lib", "main"].contains(&module.as_str()));
        Some(Self { package: (*package).to_owned(), target, modules })
    }

    fn collect(&self, items: &[Item], found: &mut Vec<Test>) {
        for item in items {
            match item {
                Item::Fn(function) => found.extend(self.test(&function.attrs, &function.sig.ident)),
                Item::Macro(block) if block.mac.path.is_ident("proptest") => {
                    let properties = block.mac.parse_body::<Properties>().map_or_else(|_| Vec::new(), |block| block.0);
                    found.extend(properties.iter().filter_map(|(attributes, name)| self.test(attributes, name)));
                }
                Item::Mod(module) => {
                    let modules = self.modules.iter().cloned().chain([module.ident.to_string()]).collect();
                    let inner = Self { package: self.package.clone(), target: self.target.clone(), modules };
                    inner.collect(module.content.as_ref().map_or(&[], |(_, items)| items), found);
                }
                _ => {}
            }
        }
    }

    /// None: it is no test.
    fn test(&self, attributes: &[Attribute], function: &syn::Ident) -> Option<Test> {
        if !attributes.iter().any(is_test) {
            return None;
        }
        let name = self.modules.iter().cloned().chain([function.to_string()]).collect::<Vec<_>>().join("::");
        let lines = attributes.iter().filter_map(documentation).collect::<Vec<_>>();
        let address = Address { package: self.package.clone(), target: self.target.clone(), name };
        Some(Test { address, comment: lines.join("\n") })
    }
}

/// The functions of a `proptest!` block: attributes and names. Their arguments (`x in strategy`) are no Rust.
struct Properties(Vec<(Vec<Attribute>, syn::Ident)>);

impl Parse for Properties {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.call(Attribute::parse_inner)?;
        let mut functions = Vec::new();
        while !input.is_empty() {
            let attributes = input.call(Attribute::parse_outer)?;
            input.parse::<syn::Token![fn]>()?;
            functions.push((attributes, input.parse()?));
            // Arguments and body.
            for _ in 0..2 {
                input.step(|cursor| {
                    let after = cursor.token_tree().map(|(_group, after)| ((), after));
                    after.ok_or_else(|| cursor.error("a function without an end"))
                })?;
            }
        }
        Ok(Self(functions))
    }
}

/// `#[test]`, `#[tokio::test]`.
fn is_test(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "test")
}

fn documentation(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn addresses(file: &str, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        Place::of(Path::new(file)).unwrap().collect(&syn::parse_file(text).unwrap().items, &mut found);
        found.iter().map(|test| format!("{}:{}", test.address, test.comment)).collect()
    }

    #[test]
    fn a_test_is_found_where_cargo_finds_it() {
        let text = "mod tests { /// NEW-1: it\n #[tokio::test(flavor = \"x\")] async fn holds() {} fn not_me() {} }";
        assert_eq!(addresses("crates/a/src/b/mod.rs", text), ["a lib b::tests::holds: NEW-1: it"]);
        let plain = "#[test] fn holds() {}";
        assert_eq!(addresses("crates/a/tests/world/restart.rs", plain), ["a world restart::holds:"]);
        assert_eq!(addresses("crates/a/tests/world/main.rs", plain), ["a world holds:"]);
        assert_eq!(addresses("crates/a/tests/one.rs", plain), ["a one holds:"]);
        let property =
            "proptest! { #![x] /// NEW-1: it\n #[test] fn holds(a in 1..2, b in any()) { c } fn not_me() {} }";
        assert_eq!(addresses("crates/a/src/b.rs", property), ["a lib b::holds: NEW-1: it"]);
        assert!(Place::of(Path::new("crates/a/build.rs")).is_none());
    }

    #[test]
    fn an_address_is_three_words() {
        let text = "domain lib lifecycle::tests::x";
        assert_eq!(Address::parse(text).unwrap().to_string(), text);
        assert!(Address::parse("domain lib").is_err() && Address::parse("a b c d").is_err());
    }
}
