//! From a launch to a Pod with its Secret: found or made, and ready once its executor runs and has its identity entry.
//!
//! Every call may be answered, refused, cut off, or carried out without an answer; the next call finds what is there.
//! The Secret is never read: it is made once, and one that is there already is looked at for its owner alone.

use std::sync::Arc;

use domain::id::Backend as Kind;
use domain::identity::TrustClass;
use domain::metadata::ExecutorRecord;
use domain::reason::{Reason, Refusal};
use jiff::Timestamp;
use kube::api::PostParams;
use zeroize::Zeroize as _;

use super::care::{Identity, Secret};
use super::object::{self, name_of};
use super::seen::Seen;
use super::upkeep::delete_secret;
use super::{Shared, events, transient};
use crate::backend::{BackendError, Ensured, Launch};
use crate::kubernetes::{self, QUOTA, RefusalKind};

pub(super) async fn ensure(shared: &Arc<Shared>, launch: &Launch) -> Result<Ensured, BackendError> {
    let record = &launch.record;
    let name = name_of(record);
    let class = class_of(shared, record, &name)?;
    // One that is there and not known yet is found by the create itself: a look before it would cost every executor a call.
    let known = shared.observatory.store().get(&name);
    let pod = match known {
        Some(pod) => pod,
        None => create(shared, launch, class).await?,
    };
    require_same_life(&pod, record)?;
    if pod.is_over() {
        return Ok(Ensured::Ready);
    }
    // NEW-73: what is going is not adopted; it is judged as it is, and another gets another name.
    if pod.deleting.is_some() {
        return Err(BackendError::Transient { cause: format!("Pod {name} is being deleted"), retry_after: None });
    }
    let claimed = shared.record(&pod).is_ok_and(|record| record.claim.is_some());
    // Whether a container can start without its Secret is the kubelet's affair.
    if !claimed {
        provide_secret(shared, launch, &pod).await?;
    }
    let (ready, rejected) = shared.with_care(&pod.uid, |care| {
        let rejected = if let Identity::Rejected(cause) = &care.identity { Some(cause.clone()) } else { None };
        (care.is_ready(&pod), rejected)
    });
    match rejected {
        Some(cause) if !claimed => Err(BackendError::Permanent {
            reason: Reason::IdentityRejected,
            cause,
            remedy: "Ask the operator of this runner.".to_owned(),
        }),
        _ if ready => Ok(Ensured::Ready),
        _ => Ok(Ensured::NotYet),
    }
}

/// POD-3, POD-5: nothing is made of what another backend or instance is to make, and no identity but those of our rules
/// is ever bound.
fn class_of(shared: &Shared, record: &ExecutorRecord, name: &str) -> Result<TrustClass, BackendError> {
    if record.backend != Kind::Pod || record.instance != shared.instance {
        return Err(BackendError::Permanent {
            reason: Reason::Internal,
            cause: format!("executor {name} is not one of the Pods of this instance"),
            remedy: "report this as a fault of the controller".to_owned(),
        });
    }
    let gives = |class: &TrustClass| {
        shared.rules.identity(*class, &record.repository, &record.job_key).as_ref() == Ok(&record.spiffe_id)
    };
    if let Some(class) = [TrustClass::Trusted, TrustClass::Untrusted].into_iter().find(gives) {
        return Ok(class);
    }
    Err(BackendError::Permanent {
        reason: Reason::IdentityRejected,
        cause: format!("the identity of executor {name} is none that the rules of this instance give"),
        remedy: "Run the job again: TRUST_DOMAIN, IDENTITY_PREFIX or IDENTITY_CASE were changed meanwhile.".to_owned(),
    })
}

/// What is written at the making never changes (NEW-3): another life of this number is not adopted.
fn require_same_life(pod: &Seen, record: &ExecutorRecord) -> Result<(), BackendError> {
    let same = match &pod.record {
        Ok(found) => is_same_life(found, record),
        Err(_) => record.labels().iter().all(|(key, value)| pod.labels.get(key) == Some(value)),
    };
    if same {
        return Ok(());
    }
    let found = pod.record.as_ref().map(|found| found.digest.to_string());
    Err(BackendError::Conflict {
        name: pod.name.clone(),
        found: found.unwrap_or_else(|_| "unreadable".to_owned()),
        wanted: record.digest.to_string(),
    })
}

/// What stands in the labels that are written at the making.
fn is_same_life(found: &ExecutorRecord, wanted: &ExecutorRecord) -> bool {
    let of = |record: &ExecutorRecord| (record.id, record.epoch, record.backend);
    of(found) == of(wanted) && found.instance == wanted.instance && found.digest == wanted.digest
}

async fn create(shared: &Arc<Shared>, launch: &Launch, class: TrustClass) -> Result<Arc<Seen>, BackendError> {
    let (record, recipe) = (&launch.record, &shared.recipe);
    let name = &name_of(record);
    let grant = recipe.privileged.decide(&record.repository, class, &launch.labels);
    let grant = grant.map_err(|Refusal { reason, cause, remedy }| BackendError::Permanent { reason, cause, remedy })?;
    let pod =
        object::pod(launch, recipe, grant.as_ref(), Timestamp::now()).map_err(|error| BackendError::Permanent {
            reason: Reason::ConfigError,
            cause: format!("POD_TEMPLATE_FILE: it makes no Pod: {error}"),
            remedy: "correct the template".to_owned(),
        })?;
    match shared.pods.create(&pod).await {
        Ok(pod) => {
            let pod = shared.observatory.put(pod).ok_or_else(|| nameless(name))?;
            events::created(shared, &pod);
            Ok(pod)
        }
        // It was made by a call whose answer was lost, or is somebody else's: the caller looks at it.
        Err(refusal) if refusal.kind == RefusalKind::Exists => {
            let pod = shared.pods.get(name).await;
            let pod = pod.map_err(|refusal| transient(&format!("read Pod {name}"), refusal))?;
            shared.seen(pod).ok_or_else(|| nameless(name))
        }
        Err(refusal) => Err(not_created(&format!("Pod {name}"), refusal)),
    }
}

fn nameless(name: &str) -> BackendError {
    BackendError::Transient {
        cause: format!("the Kubernetes API answered without a UID of Pod {name}"),
        retry_after: None,
    }
}

/// NEW-66: what repeating cannot mend ends the task; what others may mend is waited for. The same of a Pod and of its Secret:
/// the Pod that is there already is removed before another is made.
fn not_created(what: &str, refusal: kubernetes::Refusal) -> BackendError {
    let kubernetes::Refusal { kind, message, retry_after } = refusal;
    match kind {
        RefusalKind::Invalid => BackendError::Permanent {
            reason: Reason::ConfigError,
            cause: format!("{what} is refused: {message}"),
            remedy: "The operator of this runner finds the rule that it breaks in the words of the API server."
                .to_owned(),
        },
        RefusalKind::Quota => BackendError::QuotaUsedUp { cause: numbers_of(&message).to_owned(), retry_after },
        _ => BackendError::Transient { cause: format!("create {what}: {message}"), retry_after },
    }
}

/// The quota and its numbers, without the name of the object: the next attempt has another one, and waits for the same.
fn numbers_of(message: &str) -> &str {
    QUOTA.iter().find_map(|words| message.find(words)).map_or(message, |at| &message[at..])
}

/// Makes the Secret unless it is known to be there, or to have been (NEW-72).
async fn provide_secret(shared: &Shared, launch: &Launch, pod: &Seen) -> Result<(), BackendError> {
    if shared.with_care(&pod.uid, |care| matches!(care.secret, Secret::Written(_) | Secret::Gone)) {
        return Ok(());
    }
    let mut secret = object::secret(launch, &pod.uid);
    let created = shared.cluster.within(shared.secrets.create(&PostParams::default(), &secret)).await;
    wipe(&mut secret);
    let uid = match created {
        Ok(mut secret) => {
            wipe(&mut secret);
            secret.metadata.uid
        }
        Err(refusal) if refusal.kind == RefusalKind::Exists => found_secret(shared, pod).await?,
        Err(refusal) => return Err(not_created(&format!("Secret {}", pod.name), refusal)),
    };
    shared.with_care(&pod.uid, |care| care.secret = Secret::Written(uid));
    Ok(())
}

/// A Secret of that name is there: this Pod's, when an answer was lost; an earlier Pod's, which the cluster is about to
/// remove and we remove now; or somebody else's, which is not touched (NEW-2).
async fn found_secret(shared: &Shared, pod: &Seen) -> Result<Option<String>, BackendError> {
    let doing = |what: &str| format!("{what} Secret {}", pod.name);
    let found = shared.cluster.within(shared.secrets.get_metadata(&pod.name)).await;
    let found = found.map_err(|refusal| transient(&doing("look at"), refusal))?.metadata;
    let owners = found.owner_references.unwrap_or_default();
    if owners.iter().any(|owner| owner.uid == pod.uid) {
        return Ok(found.uid);
    }
    if !shared.selects(&found.labels.unwrap_or_default()) {
        return Err(BackendError::Permanent {
            reason: Reason::ConfigError,
            cause: format!("a Secret {} exists that is not of this controller's making", pod.name),
            remedy: "Remove it, or let the controller have a namespace of its own.".to_owned(),
        });
    }
    let removed = delete_secret(shared, pod, found.uid).await;
    removed.map_err(|refusal| transient(&doing("remove the old"), refusal))?;
    Err(BackendError::Transient { cause: doing("an earlier Pod left a"), retry_after: None })
}

fn wipe(secret: &mut k8s_openapi::api::core::v1::Secret) {
    for value in secret.data.iter_mut().flat_map(|data| data.values_mut()) {
        value.0.zeroize();
    }
}
