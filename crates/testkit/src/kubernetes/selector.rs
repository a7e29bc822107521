//! Label and field selectors of lists and watches.

use serde_json::Value;

use super::meta::text;
use super::refusal::Refusal;

/// Which objects a list or watch shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, String, bool)>,
}

/// One condition on one label.
#[derive(Debug, Clone)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels = terms(labels).into_iter().map(requirement).collect::<Result<_, _>>()?;
        let fields = terms(fields).into_iter().map(field).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    pub(crate) fn fits(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        let holds = |requirement: &Requirement| match requirement {
            Requirement::In(key, values) => label(key).is_some_and(|value| values.iter().any(|each| each == value)),
            Requirement::NotIn(key, values) => !label(key).is_some_and(|value| values.iter().any(|each| each == value)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
        };
        let field = |(path, value, equal): &(String, String, bool)| {
            let pointer = format!("/{}", path.replace('.', "/"));
            (text(object, &pointer) == value) == *equal
        };
        self.labels.iter().all(holds) && self.fields.iter().all(field)
    }
}

/// Splits at commas outside of parentheses.
fn terms(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut terms) = (0, 0, Vec::new());
    for (at, each) in text.char_indices() {
        match each {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms.into_iter().map(str::trim).filter(|term| !term.is_empty()).collect()
}

fn requirement(term: &str) -> Result<Requirement, Refusal> {
    let bad = || Refusal::bad_request(format!("unable to parse requirement: {term}"));
    let set = |list: &str| -> Result<Vec<String>, Refusal> {
        let list = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')')).ok_or_else(bad)?;
        Ok(list.split(',').map(|value| value.trim().to_owned()).collect())
    };
    if let Some((key, list)) = term.split_once(" notin ") {
        return Ok(Requirement::NotIn(key.trim().to_owned(), set(list)?));
    }
    if let Some((key, list)) = term.split_once(" in ") {
        return Ok(Requirement::In(key.trim().to_owned(), set(list)?));
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Ok(Requirement::NotIn(key.trim().to_owned(), vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement::In(key.trim().to_owned(), vec![value.trim().to_owned()]));
    }
    let (key, absent) = term.strip_prefix('!').map_or((term, false), |key| (key.trim(), true));
    if key.contains(|each: char| each.is_whitespace() || "()".contains(each)) {
        return Err(bad());
    }
    Ok(if absent { Requirement::Absent(key.to_owned()) } else { Requirement::Exists(key.to_owned()) })
}

fn field(term: &str) -> Result<(String, String, bool), Refusal> {
    let unequal = term.split_once("!=").map(|pair| (pair, false));
    let equal = || term.split_once("==").or_else(|| term.split_once('=')).map(|pair| (pair, true));
    let ((path, value), equal) = unequal
        .or_else(equal)
        .ok_or_else(|| Refusal::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'")))?;
    Ok((path.trim().to_owned(), value.trim().to_owned(), equal))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_of_a_label_selector_is_understood() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "x"}}});
        let fits = |labels: &str| Selector::parse(labels, "").unwrap().fits(&object);
        for yes in ["", "a", "a=1", "a==1,b=x", "a in (1, 2)", "!c", "a!=2", "c!=1", "a notin (2,3),b", "c notin (1)"] {
            assert!(fits(yes), "{yes}");
        }
        for no in ["c", "a=2", "a=1,b=y", "a in (2,3)", "!a", "a!=1", "a notin (1,2)"] {
            assert!(!fits(no), "{no}");
        }
        assert_eq!(Selector::parse("a in 1", "").unwrap_err().code, 400);
    }

    #[test]
    fn fields_are_found_by_their_path() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        let fits = |fields: &str| Selector::parse("", fields).unwrap().fits(&pod);
        assert!(fits("metadata.name=p,spec.nodeName=n1") && fits("status.phase!=Failed"));
        assert!(!fits("metadata.name=q") && !fits("status.phase!=Running"));
    }
}
