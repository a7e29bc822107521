//! A client for the double of the Kubernetes API.

#![expect(clippy::unwrap_used, reason = "tests")]

use testkit::kubernetes::Kubernetes;

use super::Cluster;

/// A connection to the double, for objects in this namespace.
pub(crate) fn connect(double: &Kubernetes, namespace: &str) -> Cluster {
    let mut config = kube::Config::new(double.url().parse().unwrap());
    namespace.clone_into(&mut config.default_namespace);
    config.auth_info = serde_json::from_value(serde_json::json!({"token": double.token()})).unwrap();
    config.default_retry = false;
    Cluster::of(config.try_into().unwrap(), namespace)
}
