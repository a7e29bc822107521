//! Keys, certificates and tokens of one cluster. Everything dies with its folder, so nothing here is careful with time.

use std::net::IpAddr;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use uuid::Uuid;

use crate::real::Error;

/// What those who start programs and clients need to know.
pub(super) struct Keys {
    pub(super) ca: String,
    /// Of a user that may do anything.
    pub(super) admin: String,
    pub(super) controller_manager: String,
    pub(super) scheduler: String,
    pub(super) kubelet: String,
    /// Of the SPIRE server, and of what plays spire-controller-manager.
    pub(super) spire_server: String,
}

fn failed(what: &str) -> impl FnOnce(rcgen::Error) -> Error {
    Error::system(what.to_owned())
}

/// Makes everything in `folder`: `ca.crt`, `apiserver.{crt,key}`, `kubelet-client.{crt,key}`, `sa.{key,pub}`, `tokens.csv`.
pub(super) fn make(folder: &Path, node: &str, addresses: &[IpAddr]) -> Result<Keys, Error> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(Error::system(format!("write {}", path.display())))
    };
    let mut authority = CertificateParams::new(Vec::new()).map_err(failed("make a CA"))?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "testkit cluster");
    let key = KeyPair::generate().map_err(failed("make a key"))?;
    let issuer = CertifiedIssuer::self_signed(authority, key).map_err(failed("sign the CA"))?;
    let ca = issuer.pem();
    write("ca.crt", &ca)?;
    let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned);
    let certificate = |name: &str, common: &str, group: Option<&str>, alternative: bool| {
        let names = if alternative { names.to_vec() } else { Vec::new() };
        let mut parameters = CertificateParams::new(names).map_err(failed("describe a certificate"))?;
        parameters.distinguished_name.push(DnType::CommonName, common);
        if let Some(group) = group {
            parameters.distinguished_name.push(DnType::OrganizationName, group);
        }
        if alternative {
            parameters.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        }
        let key = KeyPair::generate().map_err(failed("make a key"))?;
        let signed = parameters.signed_by(&key, &issuer).map_err(failed("sign a certificate"))?;
        write(&format!("{name}.crt"), &signed.pem())?;
        write(&format!("{name}.key"), &key.serialize_pem())
    };
    certificate("apiserver", "kube-apiserver", None, true)?;
    certificate("kubelet-client", "kubelet-client", Some("system:masters"), false)?;
    let accounts = KeyPair::generate().map_err(failed("make a key"))?;
    write("sa.key", &accounts.serialize_pem())?;
    write("sa.pub", &accounts.public_key_pem())?;
    let token = || Uuid::new_v4().simple().to_string();
    let [admin, controller_manager, scheduler, kubelet, spire_server] = std::array::from_fn(|_| token());
    let lines = [
        format!("{admin},admin,1,system:masters"),
        format!("{controller_manager},system:kube-controller-manager,2"),
        format!("{scheduler},system:kube-scheduler,3"),
        format!("{kubelet},system:node:{node},4,system:nodes"),
        format!("{spire_server},spire-server,5"),
    ];
    write("tokens.csv", &format!("{}\n", lines.join("\n")))?;
    Ok(Keys { ca, admin, controller_manager, scheduler, kubelet, spire_server })
}
