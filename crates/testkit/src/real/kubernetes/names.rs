//! Names for Pods: plays cluster DNS and kube-proxy in one, so that names of Services and of servers outside lead
//! somewhere. A Service's name is answered with the addresses of its ready Pods, as a headless one's is.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde_json::Value;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::Cluster;
use crate::kubernetes::Client;
use crate::real::Error;

/// What stands behind the name of every Service.
const SERVICES: &str = ".svc.cluster.local";
const HEAD: usize = 12;
const ADDRESS: u16 = 1;

/// A name server at this machine's address, which Pods ask; it ends when this is dropped.
pub struct NameServer(JoinHandle<()>);

impl NameServer {
    /// Answers for the cluster's Services, and with this machine's address for the names in `here`.
    ///
    /// # Errors
    /// The port is taken.
    pub async fn start(cluster: &Cluster, here: &[&str]) -> Result<Self, Error> {
        let address = cluster.host_address();
        let socket = UdpSocket::bind((address, 53)).await.map_err(Error::system("listen for look-ups of names"))?;
        let known = Known {
            client: cluster.admin().clone(),
            here: here.iter().map(|name| (*name).to_owned()).collect(),
            address,
        };
        Ok(Self(tokio::spawn(serve(Arc::new(socket), Arc::new(known)))))
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn serve(socket: Arc<UdpSocket>, known: Arc<Known>) {
    let mut buffer = [0; 512];
    loop {
        // An error is about somebody who did not wait for an earlier answer.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let question = buffer[..length].to_vec();
        tokio::spawn(answered(socket.clone(), known.clone(), question, from));
    }
}

async fn answered(socket: Arc<UdpSocket>, known: Arc<Known>, question: Vec<u8>, from: SocketAddr) {
    let Some(asked) = Asked::read(&question) else { return };
    let found = known.look_up(&asked.name).await;
    // Who gets no answer asks again.
    let _ = socket.send_to(&asked.answer(&question, &found), from).await;
}

struct Known {
    client: Client,
    here: BTreeSet<String>,
    address: Ipv4Addr,
}

impl Known {
    async fn look_up(&self, name: &str) -> Found {
        if self.here.contains(name) {
            return Found::At(vec![self.address]);
        }
        let service = name.strip_suffix(SERVICES).and_then(|name| name.split_once('.'));
        let Some((service, namespace)) = service.filter(|(_, namespace)| !namespace.contains('.')) else {
            return Found::Nothing;
        };
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io/service-name%3D{service}"
        );
        match self.client.get(&path).await.and_then(|reply| reply.object(&path)) {
            Ok(slices) if slices["items"].as_array().is_none_or(Vec::is_empty) => Found::Nothing,
            Ok(slices) => Found::At(ready(&slices)),
            Err(_) => Found::Unknown,
        }
    }
}

/// The addresses of the Pods that are ready.
fn ready(slices: &Value) -> Vec<Ipv4Addr> {
    let slices = slices["items"].as_array().into_iter().flatten();
    let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
    let addresses = ready.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    addresses.filter_map(|address| address.as_str()?.parse().ok()).collect()
}

/// What is known of a name.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// There is no such name.
    Nothing,
    /// The name is there, perhaps without an address.
    At(Vec<Ipv4Addr>),
    /// Somebody who knows did not answer.
    Unknown,
}

/// One question of a message (RFC 1035).
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    /// In small letters, without a dot at its end.
    name: String,
    kind: u16,
    /// Where the question ends in the message.
    end: usize,
}

impl Asked {
    /// None for what is no question that anybody here asks.
    fn read(message: &[u8]) -> Option<Self> {
        let (mut labels, mut at) = (Vec::new(), HEAD);
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            let label = message.get(at..at + length)?;
            labels.push(std::str::from_utf8(label).ok()?.to_ascii_lowercase());
            at += length;
        }
        let kind = message.get(at..at + 2)?;
        message.get(at + 2..at + 4)?;
        Some(Self { name: labels.join("."), kind: u16::from_be_bytes([kind[0], kind[1]]), end: at + 4 })
    }

    fn answer(&self, question: &[u8], found: &Found) -> Vec<u8> {
        let (code, addresses) = match found {
            Found::At(addresses) if self.kind == ADDRESS => (0, addresses.as_slice()),
            Found::At(_) => (0, &[][..]),
            Found::Unknown => (2, &[][..]),
            Found::Nothing => (3, &[][..]),
        };
        let mut message = question[..2].to_vec();
        // An answer with authority to who wished for recursion, which is available.
        message.extend([0x85, 0x80 | code, 0, 1]);
        message.extend(u16::try_from(addresses.len()).unwrap_or_default().to_be_bytes());
        message.extend([0; 4]);
        message.extend(&question[HEAD..self.end]);
        for address in addresses {
            // The name of the question, class IN, kept by nobody.
            message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
            message.extend(address.octets());
        }
        message
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn question(kind: u8) -> Vec<u8> {
        let head = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        [&head[..], b"\x03Git\x07example\x00", &[0, kind, 0, 1]].concat()
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let question = question(1);
        let asked = Asked::read(&question).unwrap();
        assert_eq!((asked.name.as_str(), asked.kind, asked.end), ("git.example", 1, question.len()));
        let answer = asked.answer(&question, &Found::At(vec![Ipv4Addr::new(10, 1, 2, 3)]));
        assert_eq!(answer[..12], [7, 9, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..question.len()], question[12..]);
        assert_eq!(answer[answer.len() - 6..], [0, 4, 10, 1, 2, 3]);
        let code = |found: &Found| asked.answer(&question, found)[3] & 15;
        assert_eq!([&Found::At(vec![]), &Found::Unknown, &Found::Nothing].map(code), [0, 2, 3]);
    }

    #[test]
    fn other_kinds_of_addresses_are_none() {
        let question = question(28);
        let asked = Asked::read(&question).unwrap();
        let answer = asked.answer(&question, &Found::At(vec![Ipv4Addr::LOCALHOST]));
        assert_eq!((answer.len(), answer[3], answer[7]), (question.len(), 0x80, 0));
        assert_eq!(Asked::read(&question[..20]), None);
    }

    #[test]
    fn only_ready_pods_are_behind_a_service() {
        let endpoint = |address: &str, ready: bool| json!({"addresses": [address], "conditions": {"ready": ready}});
        let slice = json!({"endpoints": [endpoint("10.1.0.1", true), endpoint("10.1.0.2", false)]});
        assert_eq!(ready(&json!({"items": [slice, {"endpoints": null}]})), [Ipv4Addr::new(10, 1, 0, 1)]);
    }
}
