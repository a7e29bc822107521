//! What a URL of the API names.

use http::Method;

use super::calls::Verb;
use super::refusal::Refusal;
use super::resource::Resource;
use super::wire;

/// What a call is about.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    pub(crate) resource: Resource,
    /// `events.k8s.io` and not the core: the same events in other words.
    pub(crate) newer_events: bool,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    pub(crate) query: Vec<(String, String)>,
}

impl Route {
    /// The value of a part of the query.
    pub(crate) fn asked(&self, key: &str) -> &str {
        self.query.iter().find(|(each, _)| each == key).map_or("", |(_, value)| value.as_str())
    }

    pub(crate) fn wants(&self, key: &str) -> bool {
        ["true", "1"].contains(&self.asked(key))
    }
}

/// Reads method, path and query.
pub(crate) fn route(method: &Method, path: &str, query: &str) -> Result<Route, Refusal> {
    let words: Vec<_> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Err(Refusal::no_such_path()),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() && *rest != ["status"] => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Err(Refusal::no_such_path()),
    };
    let resource = Resource::find(group, version, plural).ok_or_else(Refusal::no_such_path)?;
    if !resource.namespaced() && !namespace.is_empty() {
        return Err(Refusal::no_such_path());
    }
    if !(subresource.is_empty() || subresource == "status" && resource.has_status_path()) {
        return Err(Refusal::no_such_path());
    }
    let query: Vec<_> = pairs(query).collect();
    let watches = query.iter().any(|(key, value)| key == "watch" && ["true", "1"].contains(&value.as_str()));
    let verb = wire::verb(method, !name.is_empty(), watches).ok_or_else(Refusal::bad_verb)?;
    let needs_namespace = resource.namespaced() && namespace.is_empty();
    if needs_namespace && !matches!(verb, Verb::List | Verb::Watch) {
        return Err(Refusal::bad_verb());
    }
    let [namespace, name, subresource] = [namespace, name, subresource].map(decode);
    Ok(Route { verb, resource, newer_events: group == "events.k8s.io", namespace, name, subresource, query })
}

/// What a request does to which kind of object, and the name of one; none of what is no path of a resource.
pub(crate) fn named(method: &Method, path: &str, query: &str) -> Option<(Verb, Resource, String)> {
    route(method, path, query).ok().map(|route| (route.verb, route.resource, route.name))
}

fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, ""))).map(|(key, value)| (decode(key), decode(value)))
}

/// Percent signs and plus signs; what cannot be decoded stays as it is.
fn decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match (first, tail.get(..2).and_then(hex)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (byte, _) => {
                bytes.push(if *byte == b'+' { b' ' } else { *byte });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_path_names_verb_resource_namespace_and_object() {
        let one =
            route(&Method::GET, "/api/v1/namespaces/n/pods", "watch=1&labelSelector=a%3Db%2Cc+in+%28d%29").unwrap();
        assert_eq!((one.verb, one.resource, one.namespace.as_str()), (Verb::Watch, Resource::Pods, "n"));
        assert_eq!(one.asked("labelSelector"), "a=b,c in (d)");
        let entry = "/apis/spire.spiffe.io/v1alpha1/clusterstaticentries/e/status";
        let two = route(&Method::PATCH, entry, "").unwrap();
        assert_eq!((two.verb, two.name.as_str(), two.subresource.as_str()), (Verb::Patch, "e", "status"));
        let three = route(&Method::GET, "/api/v1/namespaces/n", "").unwrap();
        assert_eq!((three.verb, three.resource, three.name.as_str()), (Verb::Get, Resource::Namespaces, "n"));
        assert_eq!(route(&Method::GET, "/api/v1/pots", "").unwrap_err().code, 404);
        assert_eq!(route(&Method::POST, "/api/v1/pods", "").unwrap_err().code, 405);
    }
}
